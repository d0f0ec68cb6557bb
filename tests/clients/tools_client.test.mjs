// Tools that the server runs for the model (--tool-server), asked for by OpenAI's client, unmodified, and run by a server
// of the Model Context Protocol's own packages. Needs BASE_URL (ending in /v1), API_KEY
// and, where the tools are at an URL, TOOLS_URL.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: process.env.API_KEY, maxRetries: 0, timeout: 60_000 });
const model = process.env.MODEL ?? 'tiny';
const tools = [{ type: 'web_search' }, { type: 'code_interpreter', container: { type: 'auto' } }];
const types = (response) => response.output.map((item) => item.type);

test('code_interpreter runs on the tool server', async () => {
  const response = await client.responses.create({ model, input: 'compute it', tools, include: ['code_interpreter_call.outputs'] });
  assert.deepEqual(types(response), ['reasoning', 'code_interpreter_call', 'message']);
  assert.equal(response.output_text, 'It is 42.');
  assert.equal(response.output[1].code, 'print(6*7)');
  assert.deepEqual(response.output[1].outputs, [{ type: 'logs', logs: 'python printed 42, call 1 of this session' }]);
});

test('each response has a session of its own', async () => {
  for (let i = 0; i < 3; ++i) {
    const response = await client.responses.create({ model, input: 'compute it', tools, include: ['code_interpreter_call.outputs'] });
    assert.match(response.output[1].outputs[0].logs, /call 1 of this session/);
  }
  if (!process.env.TOOLS_URL) return;
  for (let i = 0; i < 100; ++i) {
    const open = await (await fetch(new URL('/open', process.env.TOOLS_URL))).text();
    if (open === '0') return;
    await new Promise((done) => setTimeout(done, 20));
  }
  assert.fail('sessions stay open');
});

test('web_search, streamed', async () => {
  const stream = client.responses.stream({ model, input: 'look up', tools });
  const seen = [];
  for await (const event of stream) seen.push(event.type);
  const response = await stream.finalResponse();
  assert.deepEqual(types(response), ['web_search_call', 'web_search_call', 'message']);
  assert.equal(response.output[0].action.query, 'pelton wheel');
  assert.equal(response.output_text, 'A turbine.');
  for (const type of ['in_progress', 'searching', 'completed']) assert.ok(seen.includes(`response.web_search_call.${type}`), type);
});

test('a tool that fails is the model\'s business', async () => {
  const response = await client.responses.create({ model, input: 'let it break', tools });
  assert.equal(response.output[0].status, 'failed');
  assert.equal(response.output_text, 'It raised an error.');
});

test('the next turn goes on from it', async () => {
  const first = await client.responses.create({ model, input: 'compute it', tools });
  const next = await client.responses.create({ model, input: 'Hi', previous_response_id: first.id, tools });
  assert.equal(next.status, 'completed');
  const listed = await client.responses.inputItems.list(next.id);
  assert.equal(listed.data.length, 1);
});
