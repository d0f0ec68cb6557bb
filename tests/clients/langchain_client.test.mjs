// LangChain's OpenAI chat models, unmodified: /v1/chat/completions, /v1/responses and embeddings, with
// tools, structured answers and reasoning. Needs BASE_URL (ending in /v1) and API_KEY.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool } from '@langchain/core/tools';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { z } from 'zod';

const HELLO = 'Hello, wörld 💖! STOP here.';
const SUNNY = 'It is sunny in Bern, 21 degrees.';
const common = {
  model: process.env.MODEL ?? 'tiny',
  apiKey: process.env.API_KEY,
  maxRetries: 0,
  timeout: 60_000,
  configuration: { baseURL: process.env.BASE_URL },
};
const weather = tool(async ({ city }) => `sunny, 21 (${city})`, {
  name: 'get_weather',
  description: 'The weather of a city',
  schema: z.object({ city: z.string() }),
});
const City = z.object({ city: z.string(), hills: z.number() });

// As an agent does: the question, the model's call, its result, the answer.
async function toolLoop(chat) {
  const model = chat.bindTools([weather]);
  const messages = [new HumanMessage('weather in Bern?')];
  const asked = await model.invoke(messages);
  assert.equal(asked.tool_calls.length, 1);
  assert.deepEqual(asked.tool_calls[0].args, { city: 'Bern' });
  messages.push(asked, await weather.invoke(asked.tool_calls[0]));
  assert.ok(messages.at(-1) instanceof ToolMessage);
  return model.invoke(messages);
}

test('LangChain: chat, whole and streamed', async () => {
  const chat = new ChatOpenAI(common);
  const whole = await chat.invoke('Hi');
  assert.equal(whole.content, HELLO);
  assert.ok(whole.usage_metadata.output_tokens > 0);
  let streamed = '';
  for await (const chunk of await chat.stream('Hi')) streamed += chunk.content;
  assert.equal(streamed, HELLO);
});

test('LangChain: a tool loop over chat completions', async () => {
  assert.equal((await toolLoop(new ChatOpenAI(common))).content, SUNNY);
});

test('LangChain: a structured answer', async () => {
  for (const method of ['jsonSchema', 'jsonMode']) {
    const chat = new ChatOpenAI(common).withStructuredOutput(City, { method });
    assert.deepEqual(await chat.invoke('Bern as JSON'), { city: 'Bern', hills: 7 });
  }
  const called = new ChatOpenAI(common).withStructuredOutput(z.object({ city: z.string() }), {
    method: 'functionCalling',
    name: 'pick',
  });
  assert.deepEqual(await called.invoke('only the city'), { city: 'Bern' });
});

test('LangChain, B7: functions of before there were tools', async () => {
  const chat = new ChatOpenAI({
    ...common,
    modelKwargs: {
      functions: [{ name: 'get_weather', parameters: { type: 'object', properties: {} } }],
    },
  });
  const answer = await chat.invoke('weather in Bern?');
  assert.deepEqual(answer.additional_kwargs.function_call, {
    name: 'get_weather',
    arguments: '{"city":"Bern"}',
  });
  assert.equal(answer.response_metadata.finish_reason, 'function_call');
});

test('LangChain, B6: responses show their reasoning and send it back encrypted', async () => {
  const chat = new ChatOpenAI({
    ...common,
    useResponsesApi: true,
    zdrEnabled: true, // store: false
    // LangChain's own "reasoning" is sent to models of OpenAI's names only.
    modelKwargs: {
      reasoning: { effort: 'low', summary: 'auto' },
      include: ['reasoning.encrypted_content'],
    },
  });
  const asked = await chat.invoke('weather in Bern?');
  const { reasoning } = asked.additional_kwargs;
  assert.equal(reasoning.summary[0].text, 'I need the tool.');
  assert.match(reasoning.encrypted_content, /^pelton1\./);
  assert.equal((await toolLoop(chat)).text, SUNNY);
});

test('LangChain: embeddings', async () => {
  const embeddings = new OpenAIEmbeddings(common);
  const [one, two] = await embeddings.embedDocuments(['one', 'two']);
  assert.equal(one.length, two.length);
  assert.ok(one.every(Number.isFinite));
});
