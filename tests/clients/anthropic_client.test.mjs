// The official @anthropic-ai/sdk, unmodified, against a server that answers by script.json.
// Needs BASE_URL (ending in /v1) and API_KEY.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import Anthropic from '@anthropic-ai/sdk';

const client = new Anthropic({
  baseURL: process.env.BASE_URL.replace(/\/v1$/, ''),
  apiKey: process.env.API_KEY,
  maxRetries: 0,
  timeout: 60_000,
});
const MODEL = process.env.MODEL ?? 'tiny';
const HELLO = 'Hello, wörld 💖! STOP here.';

const ask = (content, extra = {}) => ({
  model: MODEL,
  max_tokens: 2048,
  messages: [{ role: 'user', content }],
  ...extra,
});

const weatherTool = {
  name: 'get_weather',
  description: 'The weather of a city',
  input_schema: {
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
  },
};

test('a message, whole', async () => {
  const message = await client.messages.create(ask('Hi', { system: 'Be brief.' }));
  assert.match(message.id, /^msg_/);
  assert.equal(message.type, 'message');
  assert.equal(message.role, 'assistant');
  assert.deepEqual(message.content, [{ type: 'text', text: HELLO }]);
  assert.equal(message.stop_reason, 'end_turn');
  assert.ok(message.usage.output_tokens > 0);
  assert.match(message._request_id, /^req_/);
});

test('a message, streamed, equals the whole', async () => {
  const thinking = { type: 'enabled', budget_tokens: 1024 };
  const whole = await client.messages.create(ask('Hi', { thinking }));
  const stream = client.messages.stream(ask('Hi', { thinking }));
  const names = [];
  stream.on('streamEvent', (event) => names.push(event.type));
  let text = '';
  stream.on('text', (delta) => (text += delta));
  const streamed = await stream.finalMessage();
  // Signatures hold the thinking, sealed anew each time.
  const unsealed = (content) => content.map(({ signature, ...block }) => block);
  assert.deepEqual(unsealed(streamed.content), unsealed(whole.content));
  for (const { content } of [streamed, whole]) assert.match(content[0].signature, /^pelton1\./);
  assert.deepEqual(whole.content.map((block) => block.type), ['thinking', 'text']);
  assert.equal(whole.content[0].thinking, 'A greeting.');
  assert.equal(text, HELLO);
  assert.equal(streamed.stop_reason, 'end_turn');
  assert.equal(names[0], 'message_start');
  assert.equal(names.at(-1), 'message_stop');
  assert.equal(streamed.usage.output_tokens, whole.usage.output_tokens);
});

test('stop sequences', async () => {
  const message = await client.messages.create(ask('Hi', { stop_sequences: ['STOP'] }));
  assert.equal(message.content[0].text, 'Hello, wörld 💖! ');
  assert.equal(message.stop_reason, 'stop_sequence');
  assert.equal(message.stop_sequence, 'STOP');
});

test('a tool round trip', async () => {
  for (const streamed of [false, true]) {
    const messages = [{ role: 'user', content: 'What is the weather in Bern' }];
    const request = { model: MODEL, max_tokens: 500, messages, tools: [weatherTool] };
    const first = streamed
      ? await client.messages.stream(request).finalMessage()
      : await client.messages.create(request);
    assert.equal(first.stop_reason, 'tool_use');
    const call = first.content.find((block) => block.type === 'tool_use');
    assert.equal(call.name, 'get_weather');
    assert.deepEqual(call.input, { city: 'Bern' });
    messages.push({ role: 'assistant', content: first.content });
    messages.push({
      role: 'user',
      content: [{ type: 'tool_result', tool_use_id: call.id, content: 'sunny, 21' }],
    });
    const second = await client.messages.create(request);
    assert.equal(second.content[0].text, 'It is sunny in Bern, 21 degrees.');
  }
});

test('the tool runner runs the loop', { skip: !client.beta?.messages?.toolRunner }, async () => {
  const final = await client.beta.messages.toolRunner({
    model: MODEL,
    max_tokens: 500,
    messages: [{ role: 'user', content: 'What is the weather in Bern' }],
    tools: [{ ...weatherTool, run: async () => 'sunny, 21', parse: (input) => input }],
  });
  assert.equal(final.content[0].text, 'It is sunny in Bern, 21 degrees.');
});

test('tokens are counted as the message counts them', async () => {
  const { max_tokens, ...request } = ask('Hi', { system: 'Be brief.', tools: [weatherTool] });
  const counted = await client.messages.countTokens(request);
  const { usage } = await client.messages.create({ ...request, max_tokens });
  assert.equal(
    counted.input_tokens,
    usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens,
  );
});

test('errors are the ones the client knows', async () => {
  await assert.rejects(client.messages.create(ask('Hi', { model: 'other' })), Anthropic.NotFoundError);
  await assert.rejects(client.messages.create(ask('Hi', { max_tokens: 0 })), (error) => {
    assert.ok(error instanceof Anthropic.BadRequestError);
    assert.equal(error.error.error.type, 'invalid_request_error');
    assert.match(error.message, /max_tokens/);
    return true;
  });
  const stranger = client.withOptions({ apiKey: 'wrong' });
  await assert.rejects(stranger.messages.create(ask('Hi')), Anthropic.AuthenticationError);
});

test('a client that leaves ends its stream', async () => {
  const stream = client.messages.stream(ask('never ends', { max_tokens: 8000 }));
  let deltas = 0;
  await assert.rejects(async () => {
    for await (const event of stream) {
      if (event.type === 'content_block_delta' && ++deltas === 5) stream.abort();
    }
    await stream.done();
  });
  assert.ok(deltas >= 5);
});
