// Vercel's ai with its OpenAI-compatible provider, unmodified, against a server that answers by
// script.json. Needs BASE_URL (ending in /v1) and API_KEY.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { APICallError, generateText, jsonSchema, stepCountIs, streamText, tool } from 'ai';

const provider = (options = {}) =>
  createOpenAICompatible({
    name: 'pelton',
    baseURL: process.env.BASE_URL,
    apiKey: process.env.API_KEY,
    includeUsage: true,
    ...options,
  });
const MODEL = process.env.MODEL ?? 'tiny';
const HELLO = 'Hello, wörld 💖! STOP here.';
const model = provider()(MODEL);

const tools = {
  get_weather: tool({
    description: 'The weather of a city',
    inputSchema: jsonSchema({
      type: 'object',
      properties: { city: { type: 'string' } },
      required: ['city'],
      additionalProperties: false,
    }),
    execute: async ({ city }) => {
      assert.equal(city, 'Bern');
      return 'sunny, 21';
    },
  }),
};

test('ai: generateText, with reasoning and usage', async () => {
  const answer = await generateText({ model, prompt: 'Hi', maxRetries: 0 });
  assert.equal(answer.text, HELLO);
  assert.equal(answer.reasoningText, 'A greeting.');
  assert.equal(answer.finishReason, 'stop');
  assert.ok(answer.usage.inputTokens > 0);
  assert.ok(answer.usage.outputTokens > 0);
});

test('ai: streamText equals the whole', async () => {
  const stream = streamText({ model, prompt: 'Hi', maxRetries: 0 });
  let text = '';
  let reasoning = '';
  for await (const part of stream.fullStream) {
    if (part.type === 'text-delta') text += part.text;
    if (part.type === 'reasoning-delta') reasoning += part.text;
    assert.notEqual(part.type, 'error');
  }
  assert.equal(text, HELLO);
  assert.equal(reasoning, 'A greeting.');
  assert.equal(await stream.finishReason, 'stop');
  assert.ok((await stream.usage).outputTokens > 0);
});

test('ai: a tool loop, whole and streamed', async () => {
  const asked = {
    model,
    tools,
    prompt: 'What is the weather in Bern',
    stopWhen: stepCountIs(4),
    maxRetries: 0,
  };
  const whole = await generateText(asked);
  assert.equal(whole.text, 'It is sunny in Bern, 21 degrees.');
  assert.equal(whole.steps.length, 2);
  assert.equal(whole.steps[0].finishReason, 'tool-calls');
  const stream = streamText(asked);
  let text = '';
  for await (const delta of stream.textStream) text += delta;
  assert.equal(text, 'It is sunny in Bern, 21 degrees.');
  assert.equal((await stream.steps).length, 2);
});

test('ai: a named tool is called', async () => {
  const answer = await generateText({
    model,
    tools: { get_weather: { ...tools.get_weather, execute: undefined } },
    toolChoice: { type: 'tool', toolName: 'get_weather' },
    prompt: 'only the city',
    maxRetries: 0,
  });
  assert.equal(answer.toolCalls[0].toolName, 'get_weather');
  assert.deepEqual(answer.toolCalls[0].input, { city: 'Bern' });
});

test('ai: errors tell status and body', async () => {
  const failure = async (asked) => {
    try {
      await generateText({ prompt: 'Hi', maxRetries: 0, ...asked });
    } catch (error) {
      assert.ok(APICallError.isInstance(error), String(error));
      return error;
    }
    throw new Error('it should have failed');
  };
  const unknown = await failure({ model: provider()('no-such-model') });
  assert.equal(unknown.statusCode, 404);
  assert.equal(JSON.parse(unknown.responseBody).error.code, 'model_not_found');
  const keyless = await failure({ model: provider({ apiKey: 'wrong' })(MODEL) });
  assert.equal(keyless.statusCode, 401);
  const bad = await failure({ model, temperature: 7 });
  assert.equal(bad.statusCode, 400);
  assert.equal(JSON.parse(bad.responseBody).error.param, 'temperature');
  assert.equal(bad.isRetryable, false);
});

test('ai: leaving amid a stream ends it', async () => {
  const controller = new AbortController();
  const stream = streamText({
    model,
    prompt: 'never ends',
    abortSignal: controller.signal,
    maxRetries: 0,
    onError: () => {},
  });
  let deltas = 0;
  for await (const part of stream.fullStream) {
    if (part.type === 'text-delta' && ++deltas === 3) controller.abort();
  }
  assert.ok(deltas < 1000);
  const answer = await generateText({ model, prompt: 'Hi', maxRetries: 0 });
  assert.equal(answer.text, HELLO);
});
