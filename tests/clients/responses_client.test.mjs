// /v1/responses by real clients, unmodified: openai's, its ResponsesWS, ws, and @openai/agents.
// Needs BASE_URL (ending in /v1) and API_KEY.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Agent, OpenAIResponsesModel, run, setTracingDisabled, tool } from '@openai/agents';
import OpenAI from 'openai';
import { ResponsesWS } from 'openai/resources/responses/ws';
import WebSocket from 'ws';
import { z } from 'zod';

setTracingDisabled(true);
const client = new OpenAI({
  baseURL: process.env.BASE_URL,
  apiKey: process.env.API_KEY,
  maxRetries: 0,
  timeout: 60_000,
});
const MODEL = process.env.MODEL ?? 'tiny';
const HELLO = 'Hello, wörld 💖! STOP here.';
const SUNNY = 'It is sunny in Bern, 21 degrees.';
const weatherTool = {
  type: 'function',
  name: 'get_weather',
  description: 'The weather of a city',
  strict: true,
  parameters: {
    type: 'object',
    properties: { city: { type: 'string' } },
    required: ['city'],
    additionalProperties: false,
  },
};
const SOCKET_URL = `${process.env.BASE_URL.replace(/^http/, 'ws')}/responses`;
const socketOptions = { headers: { Authorization: `Bearer ${process.env.API_KEY}` } };

test('responses, whole', async () => {
  const response = await client.responses.create({ model: MODEL, input: 'Hi', reasoning: { effort: 'low' } });
  assert.equal(response.output_text, HELLO);
  assert.equal(response.status, 'completed');
  const [reasoning, message] = response.output;
  assert.equal(reasoning.type, 'reasoning');
  assert.equal(reasoning.content[0].text, 'A greeting.');
  assert.equal(message.role, 'assistant');
  const { usage } = response;
  assert.equal(usage.total_tokens, usage.input_tokens + usage.output_tokens);
});

test('responses, streamed, equal the whole', async () => {
  const whole = await client.responses.create({ model: MODEL, input: 'Hi' });
  const stream = await client.responses.create({ model: MODEL, input: 'Hi', stream: true });
  const types = [];
  let text = '';
  let number = 0;
  let last = null;
  for await (const event of stream) {
    assert.equal(event.sequence_number, number++);
    if (types.at(-1) !== event.type) types.push(event.type);
    if (event.type === 'response.output_text.delta') text += event.delta;
    last = event;
  }
  assert.equal(text, HELLO);
  assert.deepEqual(types, [
    'response.created', 'response.in_progress',
    'response.output_item.added', 'response.content_part.added', 'response.reasoning_text.delta',
    'response.reasoning_text.done', 'response.content_part.done', 'response.output_item.done',
    'response.output_item.added', 'response.content_part.added', 'response.output_text.delta',
    'response.output_text.done', 'response.content_part.done', 'response.output_item.done',
    'response.completed',
  ]);
  const words = (response) => response.output.map(({ id, ...rest }) => rest);
  assert.deepEqual(words(last.response), words(whole));
});

test("the SDK's own accumulator agrees with the stream", async () => {
  const final = await client.responses
    .stream({ model: MODEL, input: 'the weather in Bern?', tools: [weatherTool] })
    .finalResponse();
  assert.equal(final.output.at(-1).type, 'function_call');
  assert.equal(final.output.at(-1).arguments, '{"city":"Bern"}');
});

test('a tool loop goes on from the previous response, all of it cached', async () => {
  const first = await client.responses.create({
    model: MODEL, input: 'the weather in Bern?', tools: [weatherTool],
  });
  const call = first.output.at(-1);
  assert.equal(call.name, 'get_weather');
  const second = await client.responses.create({
    model: MODEL, tools: [weatherTool], previous_response_id: first.id,
    input: [{ type: 'function_call_output', call_id: call.call_id, output: 'sunny, 21' }],
  });
  assert.equal(second.output_text, SUNNY);
  assert.ok(second.usage.input_tokens_details.cached_tokens >= first.usage.total_tokens - 16);
});

test('retrieve, input items, delete', async () => {
  const made = await client.responses.create({ model: MODEL, input: 'Hi' });
  const found = await client.responses.retrieve(made.id);
  assert.deepEqual(found, made);
  const items = [];
  for await (const item of client.responses.inputItems.list(made.id)) items.push(item);
  assert.equal(items.length, 1);
  assert.equal(items[0].content[0].text, 'Hi');
  await client.responses.delete(made.id);
  await assert.rejects(client.responses.retrieve(made.id), OpenAI.NotFoundError);
  const count = await client.responses.inputTokens.count({ model: MODEL, input: 'Hi' });
  assert.equal(count.input_tokens, made.usage.input_tokens);
});

test('a running response is cancelled', async () => {
  const stream = await client.responses.create({ model: MODEL, input: 'never ends', stream: true });
  let last = null;
  let cancelled = null;
  for await (const event of stream) {
    if (event.type === 'response.created') cancelled = client.responses.cancel(event.response.id);
    last = event;
  }
  assert.equal((await cancelled).status, 'cancelled');
  assert.equal(last.response.status, 'cancelled');
  assert.equal((await client.responses.retrieve(last.response.id)).status, 'cancelled');
});

test('in the background: found later, followed from any event, cancelled', async () => {
  const begun = await client.responses.create({ model: MODEL, input: 'Hi', background: true });
  assert.equal(begun.background, true);
  assert.ok(['queued', 'in_progress'].includes(begun.status), begun.status);
  let found = begun;
  for (let i = 0; i < 400 && found.status === 'in_progress'; ++i) {
    await new Promise((resolve) => setTimeout(resolve, 10));
    found = await client.responses.retrieve(begun.id);
  }
  assert.equal(found.output_text, HELLO);

  const stream = await client.responses.create({ model: MODEL, input: 'Hi', background: true, stream: true });
  let id = null;
  let seen = -1;
  for await (const event of stream) {
    id ??= event.response.id;
    seen = event.sequence_number;
    if (seen === 1) break; // and leaves
  }
  const types = [];
  for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: seen })) {
    assert.equal(event.sequence_number, ++seen);
    types.push(event.type);
  }
  assert.equal(types.at(-1), 'response.completed');
  assert.equal((await client.responses.retrieve(id)).output_text, HELLO);

  const endless = await client.responses.create({ model: MODEL, input: 'never ends', background: true });
  assert.equal((await client.responses.cancel(endless.id)).status, 'cancelled');
  assert.equal((await client.responses.cancel(endless.id)).status, 'cancelled');
  await client.responses.delete(endless.id);
});

test('an item is named by its id alone', async () => {
  const made = await client.responses.create({ model: MODEL, input: 'Hi' });
  const input = (item) => [{ role: 'user', content: 'Hi' }, item, { role: 'user', content: 'Hi' }];
  const count = async (item) => (await client.responses.inputTokens.count({ model: MODEL, input: input(item) })).input_tokens;
  const item = made.output.at(-1);
  assert.equal(await count({ type: 'item_reference', id: item.id }), await count(item));
  await client.responses.delete(made.id);
  await assert.rejects(count({ type: 'item_reference', id: item.id }), OpenAI.BadRequestError);
});

test('errors are the SDK\'s own', async () => {
  const image = { role: 'user', content: [{ type: 'input_image', image_url: 'http://127.0.0.1/x.png' }] };
  await assert.rejects(
    client.responses.create({ model: MODEL, input: [image] }),
    (error) => error instanceof OpenAI.BadRequestError && error.param === 'input[0].content[0].type',
  );
  await assert.rejects(
    client.responses.create({ model: MODEL, input: 'x', previous_response_id: 'resp_none' }),
    (error) => error.code === 'previous_response_not_found',
  );
});

const within = (promise, what) =>
  Promise.race([promise, new Promise((_, reject) => setTimeout(() => reject(new Error(`no ${what}`)), 20_000).unref())]);

// One response over the SDK's socket: the event that ends it.
const ended = (socket) =>
  within(
    new Promise((resolve, reject) => {
      const over = (event) => resolve(event.response);
      socket.once('response.completed', over);
      socket.once('response.incomplete', over);
      socket.once('error', reject);
    }),
    'end of the response',
  );

test('ResponsesWS: several turns over one connection', async () => {
  const socket = new ResponsesWS(client);
  await within(new Promise((resolve) => socket.socket.on('open', resolve)), 'connection');
  let text = '';
  socket.on('response.output_text.delta', (event) => { text += event.delta; });
  socket.send({ type: 'response.create', model: MODEL, input: 'Hi', store: false });
  const hello = await ended(socket);
  assert.equal(text, HELLO);

  socket.send({ type: 'response.create', model: MODEL, input: 'the weather in Bern?', tools: [weatherTool],
    previous_response_id: hello.id, store: false });
  const asked = await ended(socket);
  const call = asked.output.at(-1);
  assert.equal(call.type, 'function_call');
  text = '';
  socket.send({ type: 'response.create', model: MODEL, tools: [weatherTool], previous_response_id: asked.id,
    store: false, input: [{ type: 'function_call_output', call_id: call.call_id, output: 'sunny, 21' }] });
  await ended(socket);
  assert.equal(text, SUNNY);

  socket.send({ type: 'response.create', model: MODEL, input: 'x', temperature: 9 });
  await assert.rejects(ended(socket), /temperature/);

  socket.send({ type: 'response.create', model: MODEL, input: 'never ends' });
  await within(new Promise((resolve) => socket.once('response.output_text.delta', resolve)), 'text');
  const end = ended(socket);
  socket.send({ type: 'response.cancel' });
  assert.equal((await end).status, 'cancelled');
  const closed = new Promise((resolve) => socket.on('close', resolve));
  socket.close();
  await within(closed, 'close');
});

test('ws: pings, limits, goodbyes', async () => {
  const socket = new WebSocket(SOCKET_URL, socketOptions);
  await within(new Promise((resolve) => socket.on('open', resolve)), 'connection');
  const pong = new Promise((resolve) => socket.on('pong', (data) => resolve(String(data))));
  socket.ping('still there?');
  assert.equal(await within(pong, 'pong'), 'still there?');
  const closed = new Promise((resolve) => socket.on('close', (code) => resolve(code)));
  socket.send(Buffer.from([1, 2, 3]));
  assert.equal(await within(closed, 'close'), 1003);

  const denied = new WebSocket(SOCKET_URL);
  // Whoever takes the refusal must read it to its end: the connection stays open otherwise, and with
  // it this process, until the server's patience ends.
  const refusal = new Promise((resolve) =>
    denied.on('unexpected-response', (request, response) => {
      resolve(response.statusCode);
      request.destroy();
    }),
  );
  denied.on('error', () => {});
  assert.equal(await within(refusal, 'refusal'), 401);
});

for (const stateful of [true, false]) {
  test(`@openai/agents: a tool loop, ${stateful ? 'by previous response' : 'by whole histories'}`, async () => {
    const asked = [];
    const agent = new Agent({
      name: 'weather',
      instructions: 'Answer by the tool.',
      model: new OpenAIResponsesModel(client, MODEL),
      tools: [
        tool({
          name: 'get_weather',
          description: 'The weather of a city',
          parameters: z.object({ city: z.string() }),
          execute: async ({ city }) => {
            asked.push(city);
            return 'sunny, 21';
          },
        }),
      ],
    });
    const first = await run(agent, 'the weather in Bern?');
    assert.equal(first.finalOutput, SUNNY);
    assert.deepEqual(asked, ['Bern']);
    const more = stateful
      ? await run(agent, 'thanks', { previousResponseId: first.lastResponseId })
      : await run(agent, [...first.history, { role: 'user', content: 'thanks' }], { stream: true });
    if (!stateful) for await (const event of more) assert.ok(event.type);
    assert.equal(more.finalOutput, SUNNY);
  });
}

test('B6: reasoning comes as a summary and encrypted, and is sent back', async () => {
  const common = {
    model: MODEL,
    tools: [weatherTool],
    store: false,
    include: ['reasoning.encrypted_content'],
    reasoning: { effort: 'low', summary: 'auto' },
    text: { verbosity: 'medium' },
  };
  const question = { role: 'user', content: 'weather in Bern?' };
  const first = await client.responses.create({ ...common, input: [question] });
  const [reasoning, call] = first.output;
  assert.equal(reasoning.summary[0].text, 'I need the tool.');
  assert.match(reasoning.encrypted_content, /^pelton1\./);
  assert.equal(first.text.format.type, 'text');
  const { content, ...kept } = reasoning; // what OpenAI's own reasoning items have
  assert.ok(content);
  const second = await client.responses.create({
    ...common,
    input: [
      question,
      kept,
      call,
      { type: 'function_call_output', call_id: call.call_id, output: 'sunny, 21' },
    ],
  });
  assert.equal(second.output_text, SUNNY);
  let summary = '';
  const stream = await client.responses.create({ ...common, input: [question], stream: true });
  for await (const event of stream) {
    if (event.type === 'response.reasoning_summary_text.delta') summary += event.delta;
  }
  assert.equal(summary, 'I need the tool.');
  await assert.rejects(
    client.responses.create({
      ...common,
      input: [question, { ...kept, encrypted_content: `${kept.encrypted_content.slice(0, -8)}AAAAAAA=` }],
    }),
    (error) => error.status === 400 && error.code === 'invalid_encrypted_content',
  );
});
