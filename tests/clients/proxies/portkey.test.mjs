// Portkey's gateway, as LiteLLM's proxy one that speaks OpenAI's protocol on both sides, between OpenAI's client and this server. Its own
// range of @hono/node-server leads to one with which no stream of any provider passes it; package.json names the last that does.
// Needs BASE_URL (ending in /v1), MODEL and API_KEY.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import OpenAI from 'openai';

const model = process.env.MODEL;
const config = JSON.stringify({ provider: 'openai', custom_host: process.env.BASE_URL, api_key: process.env.API_KEY });
const said = [{ role: 'user', content: 'Hi' }];
let proxy;
let client;

const freePort = () => new Promise((resolve) => {
  const server = createServer().listen(0, '127.0.0.1', () => {
    const { port } = server.address();
    server.close(() => resolve(port));
  });
});

before(async () => {
  const port = await freePort();
  const program = fileURLToPath(import.meta.resolve('@portkey-ai/gateway/build/start-server.js'));
  proxy = spawn(process.execPath, [program, `--port=${port}`, '--headless'], { stdio: 'ignore' });
  client = new OpenAI({
    baseURL: `http://127.0.0.1:${port}/v1`, apiKey: 'none', maxRetries: 0, timeout: 60_000, defaultHeaders: { 'x-portkey-config': config },
  });
  for (let i = 0; i < 600; ++i) {
    const answers = await fetch(`http://127.0.0.1:${port}/`).then(() => true, () => false);
    if (answers) return;
    await new Promise((done) => setTimeout(done, 100));
  }
  assert.fail('the proxy does not listen');
});
after(() => proxy.kill());

test('a chat, whole and streamed', async () => {
  const whole = await client.chat.completions.create({ model, messages: said });
  assert.equal(whole.choices[0].message.content, 'Hello, wörld 💖! STOP here.');
  assert.equal(whole.choices[0].message.reasoning_content, 'A greeting.');
  assert.ok(whole.usage.completion_tokens > 0);
  let text = '';
  const stream = await client.chat.completions.create({ model, messages: said, stream: true, stream_options: { include_usage: true } });
  let usage;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? '';
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
});

test('a tool call', async () => {
  const tools = [{ type: 'function', function: { name: 'get_weather', parameters: { type: 'object' } } }];
  const answer = await client.chat.completions.create({ model, tools, messages: [{ role: 'user', content: 'the weather in Bern?' }] });
  const [call] = answer.choices[0].message.tool_calls;
  assert.deepEqual([call.function.name, JSON.parse(call.function.arguments)], ['get_weather', { city: 'Bern' }]);
});

test('responses, vectors and errors', async () => {
  const response = await client.responses.create({ model, input: 'Hi' });
  assert.equal(response.output_text, 'Hello, wörld 💖! STOP here.');
  const vectors = await client.embeddings.create({ model, input: ['a', 'b'] });
  assert.equal(vectors.data.length, 2);
  await assert.rejects(client.chat.completions.create({ model: 'none', messages: said }), { status: 404 });
});
