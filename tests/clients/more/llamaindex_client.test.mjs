// LlamaIndex.TS, unmodified: its OpenAI model and embeddings, and an agent with a tool. Needs
// BASE_URL (ending in /v1) and API_KEY.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { tool } from '@llamaindex/core/tools';
import { OpenAI, OpenAIEmbedding } from '@llamaindex/openai';
import { agent } from '@llamaindex/workflow';
import { z } from 'zod';

const HELLO = 'Hello, wörld 💖! STOP here.';
const common = {
  model: process.env.MODEL ?? 'tiny',
  apiKey: process.env.API_KEY,
  baseURL: process.env.BASE_URL,
  maxRetries: 0,
  timeout: 60_000,
};
const messages = [{ role: 'user', content: 'Hi' }];

test('LlamaIndex: chat, whole and streamed', async () => {
  const llm = new OpenAI(common);
  assert.equal((await llm.chat({ messages })).message.content, HELLO);
  let streamed = '';
  for await (const chunk of await llm.chat({ messages, stream: true })) streamed += chunk.delta;
  assert.equal(streamed, HELLO);
});

test('LlamaIndex: an agent with a tool', async () => {
  const weather = tool({
    name: 'get_weather',
    description: 'The weather of a city',
    parameters: z.object({ city: z.string() }),
    execute: ({ city }) => `sunny, 21 (${city})`,
  });
  const llm = new OpenAI({ ...common, supportToolCall: true });
  Object.defineProperty(llm, 'supportToolCall', { value: true });
  const answer = await agent({ llm, tools: [weather] }).run('weather in Bern?');
  assert.match(String(answer.data.result), /sunny in Bern/);
});

test('LlamaIndex: embeddings', async () => {
  const embedding = await new OpenAIEmbedding(common).getTextEmbedding('one');
  assert.ok(embedding.length > 0 && embedding.every(Number.isFinite));
});
