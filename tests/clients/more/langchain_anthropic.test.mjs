// LangChain's Anthropic chat model, unmodified, against /v1/messages. Needs BASE_URL and API_KEY.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ChatAnthropic } from '@langchain/anthropic';
import { HumanMessage, SystemMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { z } from 'zod';

const chat = new ChatAnthropic({
  model: process.env.MODEL ?? 'tiny',
  apiKey: process.env.API_KEY,
  anthropicApiUrl: process.env.BASE_URL.replace(/\/v1$/, ''),
  maxRetries: 0,
  maxTokens: 1000,
});

test('LangChain: a message, whole and streamed', async () => {
  const whole = await chat.invoke([new SystemMessage('Be brief.'), new HumanMessage('Hi')]);
  assert.equal(whole.text, 'Hello, wörld 💖! STOP here.');
  let streamed = '';
  for await (const chunk of await chat.stream('Hi')) streamed += chunk.text;
  assert.equal(streamed, whole.text);
});

test('LangChain: a tool loop over messages', async () => {
  const weather = tool(async ({ city }) => `sunny, 21 (${city})`, {
    name: 'get_weather',
    description: 'The weather of a city',
    schema: z.object({ city: z.string() }),
  });
  const model = chat.bindTools([weather]);
  const messages = [new HumanMessage('weather in Bern?')];
  const asked = await model.invoke(messages);
  messages.push(asked, await weather.invoke(asked.tool_calls[0]));
  assert.equal((await model.invoke(messages)).text, 'It is sunny in Bern, 21 degrees.');
});
