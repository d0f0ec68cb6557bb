// The official openai client, unmodified, against a server that answers by script.json.
// Needs BASE_URL (ending in /v1) and API_KEY.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: process.env.BASE_URL,
  apiKey: process.env.API_KEY,
  maxRetries: 0,
  timeout: 60_000,
});
const MODEL = process.env.MODEL ?? 'tiny';
const HELLO = 'Hello, wörld 💖! STOP here.';

const ask = (content, extra = {}) => ({
  model: MODEL,
  messages: [{ role: 'user', content }],
  ...extra,
});

const weatherTool = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather of a city',
    parameters: {
      $schema: 'http://json-schema.org/draft-07/schema#',
      type: 'object',
      properties: { city: { type: 'string' } },
      required: ['city'],
      additionalProperties: false,
    },
    strict: true,
  },
};

test('chat, whole', async () => {
  const answer = await client.chat.completions.create(ask('Hi'));
  assert.equal(answer.object, 'chat.completion');
  assert.match(answer.id, /^chatcmpl-/);
  const [choice] = answer.choices;
  assert.equal(choice.message.role, 'assistant');
  assert.equal(choice.message.content, HELLO);
  assert.equal(choice.message.reasoning_content, 'A greeting.');
  assert.equal(choice.finish_reason, 'stop');
  const { usage } = answer;
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens);
  assert.ok(usage.completion_tokens_details.reasoning_tokens > 0);
  assert.ok(usage.prompt_tokens_details.cached_tokens >= 0);
});

test('chat, streamed, equals the whole', async () => {
  const stream = await client.chat.completions.create(
    ask('Hi', { stream: true, stream_options: { include_usage: true } }),
  );
  let content = '';
  let reasoning = '';
  let usage = null;
  const finishes = [];
  for await (const chunk of stream) {
    assert.equal(chunk.object, 'chat.completion.chunk');
    if (chunk.usage) usage = chunk.usage;
    const [choice] = chunk.choices;
    if (!choice) continue;
    content += choice.delta.content ?? '';
    reasoning += choice.delta.reasoning_content ?? '';
    if (choice.finish_reason) finishes.push(choice.finish_reason);
  }
  assert.equal(content, HELLO);
  assert.equal(reasoning, 'A greeting.');
  assert.deepEqual(finishes, ['stop']);
  assert.ok(usage.completion_tokens > 0);
});

test('the stream helper puts the answer together', async () => {
  const final = await client.chat.completions.stream(ask('Hi')).finalChatCompletion();
  assert.equal(final.choices[0].message.content, HELLO);
});

test('stop strings', async () => {
  for (const stream of [false, true]) {
    const options = ask('Hi', { stop: ['STOP'], stream });
    let content = '';
    if (stream) {
      for await (const chunk of await client.chat.completions.create(options)) {
        content += chunk.choices[0]?.delta.content ?? '';
      }
    } else {
      content = (await client.chat.completions.create(options)).choices[0].message.content;
    }
    assert.equal(content, 'Hello, wörld 💖! ');
  }
});

test('logprobs have the bytes of the content', async () => {
  const answer = await client.chat.completions.create(
    ask('Hi', { logprobs: true, top_logprobs: 3 }),
  );
  const bytes = answer.choices[0].logprobs.content.flatMap((token) => token.bytes);
  assert.equal(Buffer.from(bytes).toString('utf8'), HELLO);
});

test('a tool round trip, by hand', async () => {
  const messages = [{ role: 'user', content: 'What is the weather in Bern' }];
  const first = await client.chat.completions.create({
    model: MODEL,
    messages,
    tools: [weatherTool, { type: 'web_search' }],
    tool_choice: 'auto',
    parallel_tool_calls: true,
  });
  const [choice] = first.choices;
  assert.equal(choice.finish_reason, 'tool_calls');
  assert.equal(choice.message.content, null);
  const [call] = choice.message.tool_calls;
  assert.equal(call.type, 'function');
  assert.match(call.id, /^call_/);
  assert.equal(call.function.name, 'get_weather');
  assert.deepEqual(JSON.parse(call.function.arguments), { city: 'Bern' });

  messages.push(choice.message);
  messages.push({ role: 'tool', tool_call_id: call.id, content: 'sunny, 21' });
  const second = await client.chat.completions.create({
    model: MODEL,
    messages,
    tools: [weatherTool],
  });
  assert.equal(second.choices[0].message.content, 'It is sunny in Bern, 21 degrees.');
  assert.equal(second.choices[0].finish_reason, 'stop');
});

test('a tool round trip, streamed', async () => {
  const stream = client.chat.completions.stream({
    ...ask('What is the weather in Bern'),
    tools: [weatherTool],
  });
  const final = await stream.finalChatCompletion();
  assert.equal(final.choices[0].finish_reason, 'tool_calls');
  const [call] = final.choices[0].message.tool_calls;
  assert.equal(call.function.name, 'get_weather');
  assert.deepEqual(JSON.parse(call.function.arguments), { city: 'Bern' });
});

test('the tool runner calls the function and gets the answer', async () => {
  const asked = [];
  const runner = client.chat.completions.runTools({
    ...ask('What is the weather in Bern'),
    tools: [
      {
        type: 'function',
        function: {
          ...weatherTool.function,
          parse: JSON.parse,
          function: async ({ city }) => {
            asked.push(city);
            return 'sunny, 21';
          },
        },
      },
    ],
  });
  assert.equal(await runner.finalContent(), 'It is sunny in Bern, 21 degrees.');
  assert.deepEqual(asked, ['Bern']);
});

test('malformed model output is an answer, not an error', async () => {
  const answer = await client.chat.completions.create(ask('bad header'));
  assert.ok(answer.usage.completion_tokens > 0);
  assert.ok(!JSON.stringify(answer).includes('<|'));
});

test('leaving amid a stream frees the place at once', async () => {
  const started = Date.now();
  // More than there are places, each of which would talk for some seconds.
  for (let i = 0; i < 20; ++i) {
    const controller = new AbortController();
    const stream = await client.chat.completions.create(ask('never ends', { stream: true }), {
      signal: controller.signal,
    });
    let chunks = 0;
    for await (const _ of stream) {
      if (++chunks === 3) controller.abort();
    }
    assert.ok(chunks < 1000);
  }
  const answer = await client.chat.completions.create(ask('Hi'));
  assert.equal(answer.choices[0].message.content, HELLO);
  assert.ok(Date.now() - started < 15_000, 'places were kept by those who had left');
});

test('completions, whole and streamed', async () => {
  const prompt = 'Once upon';
  const answer = await client.completions.create({ model: MODEL, prompt, max_tokens: 100 });
  assert.equal(answer.object, 'text_completion');
  assert.equal(answer.choices[0].text, ' a time. THE END');
  assert.equal(answer.choices[0].finish_reason, 'stop');
  let text = '';
  const stream = await client.completions.create({
    model: MODEL,
    prompt,
    max_tokens: 100,
    stop: ' THE END',
    stream: true,
  });
  for await (const chunk of stream) text += chunk.choices[0]?.text ?? '';
  assert.equal(text, ' a time.');
});

test('embeddings, as floats and in base64, which the client asks for by itself', async () => {
  const input = ['Hello', 'world', 'Hello'];
  const packed = await client.embeddings.create({ model: MODEL, input });
  const floats = await client.embeddings.create({ model: MODEL, input, encoding_format: 'float' });
  assert.equal(packed.data.length, 3);
  packed.data.forEach(({ embedding, index }) => {
    assert.equal(index, floats.data.findIndex((item) => item.index === index));
    assert.deepEqual(
      embedding.map((value) => Math.fround(value)),
      floats.data[index].embedding.map((value) => Math.fround(value)),
    );
    const length = Math.hypot(...embedding);
    assert.ok(Math.abs(length - 1) < 1e-5, `${length}`);
  });
  assert.deepEqual(packed.data[0].embedding, packed.data[2].embedding);
  assert.ok(packed.usage.prompt_tokens > 0);
  const few = await client.embeddings.create({ model: MODEL, input: 'Hello', dimensions: 4 });
  assert.equal(few.data[0].embedding.length, 4);
  await assert.rejects(client.embeddings.create({ model: MODEL, input: '' }), OpenAI.BadRequestError);
});

test('the model list', async () => {
  const models = [];
  for await (const model of client.models.list()) models.push(model.id);
  assert.ok(models.includes(MODEL));
  const model = await client.models.retrieve(MODEL);
  assert.equal(model.object, 'model');
});

test('errors have their classes, codes and params', async () => {
  const refused = async (promise, kind, expected) => {
    const error = await promise.then(
      () => assert.fail('was not refused'),
      (reason) => reason,
    );
    assert.ok(error instanceof kind, `${error}`);
    for (const [key, value] of Object.entries(expected)) assert.equal(error[key], value);
    assert.ok(error.message.length > 10);
    assert.ok(error.requestID);
  };
  const { chat } = client;
  await refused(chat.completions.create(ask('Hi', { temperature: 3 })), OpenAI.BadRequestError, {
    status: 400,
    param: 'temperature',
    type: 'invalid_request_error',
  });
  await refused(
    chat.completions.create({ model: MODEL, messages: [] }),
    OpenAI.BadRequestError,
    { param: 'messages' },
  );
  await refused(
    chat.completions.create(ask('x '.repeat(70_000))),
    OpenAI.BadRequestError,
    { code: 'context_length_exceeded' },
  );
  await refused(
    chat.completions.create(ask('Hi', { response_format: { type: 'yaml' } })),
    OpenAI.BadRequestError,
    { param: 'response_format.type' },
  );
  await refused(chat.completions.create({ ...ask('Hi'), model: 'other' }), OpenAI.NotFoundError, {
    status: 404,
    code: 'model_not_found',
  });
  await refused(client.models.retrieve('other'), OpenAI.NotFoundError, { status: 404 });
  await refused(client.images.generate({ model: MODEL, prompt: 'x' }), OpenAI.InternalServerError, {
    status: 501,
    code: 'modality_not_supported',
  });
  const stranger = new OpenAI({ baseURL: process.env.BASE_URL, apiKey: 'wrong', maxRetries: 0 });
  await refused(stranger.chat.completions.create(ask('Hi')), OpenAI.AuthenticationError, {
    status: 401,
    code: 'invalid_api_key',
  });
});

test('output that follows a schema, whole and parsed', async () => {
  const schema = {
    type: 'object',
    properties: { city: { type: 'string' }, hills: { type: 'integer' } },
    required: ['city', 'hills'],
    additionalProperties: false,
  };
  const format = { type: 'json_schema', json_schema: { name: 'place', strict: true, schema } };
  const completion = await client.chat.completions.parse(
    ask('Bern as JSON', { response_format: format }),
  );
  assert.deepEqual(JSON.parse(completion.choices[0].message.content), { city: 'Bern', hills: 7 });
  const response = await client.responses.create({
    model: MODEL,
    input: 'Bern as JSON',
    text: { format: { type: 'json_schema', name: 'place', strict: true, schema } },
  });
  assert.deepEqual(JSON.parse(response.output_text), { city: 'Bern', hills: 7 });
  const wrong = { ...schema, properties: { city: { type: 'town' } } };
  await assert.rejects(
    client.chat.completions.create(
      ask('Bern as JSON', {
        response_format: { type: 'json_schema', json_schema: { name: 'place', schema: wrong } },
      }),
    ),
    (error) =>
      error instanceof OpenAI.BadRequestError &&
      error.param === 'response_format.json_schema.schema' &&
      error.message.includes('/properties/city/type'),
  );
});

test('B7: functions of before there were tools, whole and streamed', async () => {
  const { function: offered } = weatherTool;
  const extra = { functions: [{ name: offered.name, parameters: offered.parameters }] };
  const expected = { name: 'get_weather', arguments: '{"city":"Bern"}' };
  const whole = await client.chat.completions.create(ask('weather in Bern?', extra));
  const [choice] = whole.choices;
  assert.deepEqual(choice.message.function_call, expected);
  assert.equal(choice.finish_reason, 'function_call');
  const stream = await client.chat.completions
    .stream(ask('weather in Bern?', extra))
    .finalChatCompletion();
  assert.deepEqual({ ...stream.choices[0].message.function_call }, expected);
  const answer = await client.chat.completions.create({
    model: MODEL,
    messages: [
      { role: 'user', content: 'weather in Bern?' },
      choice.message,
      { role: 'function', name: 'get_weather', content: 'sunny, 21' },
    ],
    ...extra,
  });
  assert.equal(answer.choices[0].message.content, 'It is sunny in Bern, 21 degrees.');
});

test('B8: the model may be called by its server\'s URL', async () => {
  const answer = await client.chat.completions.create(
    ask('Hi', { model: process.env.BASE_URL }),
  );
  assert.equal(answer.choices[0].message.content, HELLO);
  assert.equal(answer.model, MODEL);
});

test('D6: a field that would change the answer is refused by its name', async () => {
  for (const field of ['text', 'output_config', 'guided_whitespace_pattern', 'mirostat']) {
    await assert.rejects(
      client.chat.completions.create(ask('Hi', { [field]: { x: 1 } })),
      (error) => error.status === 400 && error.param === field,
    );
  }
});
