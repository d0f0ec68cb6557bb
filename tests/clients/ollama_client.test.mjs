// The official ollama client, unmodified, against a server that answers by script.json.
// Needs BASE_URL (ending in /v1) and API_KEY.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Ollama } from 'ollama';

const client = new Ollama({
  host: process.env.BASE_URL.replace(/\/v1$/, ''),
  headers: { Authorization: `Bearer ${process.env.API_KEY}` },
});
const model = process.env.MODEL ?? 'tiny';
const HELLO = 'Hello, wörld 💖! STOP here.';
const hi = [{ role: 'user', content: 'Hi' }];

test('chat, whole', async () => {
  const answer = await client.chat({ model, messages: hi });
  assert.equal(answer.model, model);
  assert.equal(answer.message.role, 'assistant');
  assert.equal(answer.message.content, HELLO);
  assert.equal(answer.message.thinking, 'A greeting.');
  assert.equal(answer.done, true);
  assert.equal(answer.done_reason, 'stop');
  assert.ok(answer.eval_count > 0 && answer.prompt_eval_count > 0 && answer.total_duration > 0);
});

test('chat, streamed, equals the whole', async () => {
  const whole = { content: '', thinking: '' };
  let last;
  for await (const part of await client.chat({ model: `${model}:latest`, messages: hi, stream: true })) {
    assert.equal(last, undefined, 'something follows the end');
    whole.content += part.message.content;
    whole.thinking += part.message.thinking ?? '';
    if (part.done) last = part;
  }
  assert.deepEqual(whole, { content: HELLO, thinking: 'A greeting.' });
  assert.equal(last.done_reason, 'stop');
  assert.ok(last.eval_count > 0);
});

test('log-probabilities, whole and streamed; defaults said aloud', async () => {
  const asked = { model, messages: hi, logprobs: true, top_logprobs: 2, truncate: true, shift: true };
  const whole = await client.chat(asked);
  const bytes = whole.logprobs.flatMap((one) => one.bytes);
  assert.equal(new TextDecoder().decode(Uint8Array.from(bytes)).trim(), HELLO);
  for (const one of whole.logprobs) {
    assert.ok(one.logprob <= 0 && one.top_logprobs.length === 2);
  }
  const streamed = [];
  for await (const part of await client.chat({ ...asked, stream: true })) streamed.push(...(part.logprobs ?? []));
  assert.deepEqual(streamed, whole.logprobs);
  assert.equal((await client.chat({ model, messages: hi })).logprobs, undefined);
});

test('options, stop strings, lengths, without thinking', async () => {
  const answer = await client.chat({
    model,
    messages: hi,
    think: false,
    keep_alive: '5m',
    options: { temperature: 0, seed: 7, stop: ['STOP'], num_ctx: 2048, top_k: 5, repeat_penalty: 1 },
  });
  assert.equal(answer.message.content, 'Hello, wörld 💖! ');
  assert.equal(answer.message.thinking, undefined);
  const short = await client.chat({ model, messages: hi, options: { num_predict: 3 } });
  assert.equal(short.done_reason, 'length');
  assert.equal(short.eval_count, 3);
});

test('tools: a call, its result, the answer', async () => {
  const tools = [
    {
      type: 'function',
      function: {
        name: 'get_weather',
        description: 'The weather of a city',
        parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
      },
    },
  ];
  const messages = [{ role: 'user', content: 'What is the weather in Bern?' }];
  const asked = await client.chat({ model, messages, tools });
  assert.deepEqual(
    asked.message.tool_calls.map((call) => call.function),
    [{ name: 'get_weather', arguments: { city: 'Bern' } }],
  );
  messages.push(asked.message, { role: 'tool', tool_name: 'get_weather', content: 'sunny, 21' });
  const answer = await client.chat({ model, messages, tools });
  assert.equal(answer.message.content, 'It is sunny in Bern, 21 degrees.');
});

test('a JSON schema', async () => {
  const answer = await client.chat({
    model,
    messages: [{ role: 'user', content: 'Bern as JSON' }],
    format: {
      type: 'object',
      properties: { city: { type: 'string' }, hills: { type: 'integer' } },
      required: ['city', 'hills'],
    },
  });
  assert.deepEqual(JSON.parse(answer.message.content), { city: 'Bern', hills: 7 });
});

test('generate: through the template, and raw', async () => {
  const answer = await client.generate({ model, prompt: 'Hi', system: 'Be brief.' });
  assert.equal(answer.response, HELLO);
  assert.equal(answer.thinking, 'A greeting.');
  const raw = await client.generate({ model, prompt: 'Once upon', raw: true });
  assert.equal(raw.response, ' a time. THE END');
  let text = '';
  for await (const part of await client.generate({ model, prompt: 'Once upon', raw: true, stream: true })) {
    text += part.response;
  }
  assert.equal(text, raw.response);
  const loaded = await client.generate({ model, prompt: '' });
  assert.equal(loaded.done_reason, 'load');
});

test('embed, list, show, ps, version', async () => {
  const made = await client.embed({ model, input: ['Hi', 'there'] });
  assert.equal(made.embeddings.length, 2);
  assert.ok(made.embeddings[0].length > 0);
  const { models } = await client.list();
  assert.ok(models.some((one) => one.name === model));
  const shown = await client.show({ model });
  assert.ok(shown.capabilities.includes('tools'));
  const running = await client.ps();
  assert.equal(running.models[0].name, model);
  assert.match((await client.version()).version, /^\d+\.\d+/);
});

test('what is unknown is refused by its name, in words that the client reads', async () => {
  const refused = (request, pattern) => assert.rejects(client.chat({ model, messages: hi, ...request }), pattern);
  await refused({ options: { temprature: 1 } }, /options\.temprature/);
  await refused({ options: { temperature: 9 } }, /options\.temperature/);
  await refused({ colour: 'red' }, /colour/);
  await refused({ messages: [{ role: 'user', content: 'Hi', images: ['AAAA'] }] }, /images/);
  await assert.rejects(client.chat({ model: 'nobody', messages: hi }), /nobody/);
  await assert.rejects(client.generate({ model, prompt: 'Hi', template: '{{ .Prompt }}' }), /template/);
});
