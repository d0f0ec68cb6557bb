// Mastra, unmodified: an agent with a tool, whole and streamed. Needs BASE_URL (ending in /v1) and
// API_KEY.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';

const provider = createOpenAICompatible({
  name: 'pelton',
  baseURL: process.env.BASE_URL,
  apiKey: process.env.API_KEY,
});
const calls = [];
const weather = createTool({
  id: 'get_weather',
  description: 'The weather of a city',
  inputSchema: z.object({ city: z.string() }),
  execute: async (input) => {
    calls.push(input);
    return 'sunny, 21';
  },
});
const guide = new Agent({
  id: 'guide',
  name: 'guide',
  instructions: 'Tell of the weather.',
  model: provider(process.env.MODEL ?? 'tiny'),
  tools: { get_weather: weather },
});

test('Mastra: an agent with a tool', async () => {
  const answer = await guide.generate('weather in Bern?', { maxSteps: 3 });
  assert.equal(answer.text, 'It is sunny in Bern, 21 degrees.');
  assert.equal(calls.length, 1);
});

test('Mastra: streamed', async () => {
  const stream = await guide.stream('weather in Bern?', { maxSteps: 3 });
  let text = '';
  for await (const piece of stream.textStream) text += piece;
  assert.match(text, /It is sunny in Bern, 21 degrees\.$/);
});
