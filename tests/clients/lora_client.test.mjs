// The official openai client names a LoRA adapter as its model: the box model's own, beside its base.
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
const ask = (model, extra = {}) => ({
  model,
  messages: [{ role: 'user', content: 'I need to know the city of the people named Clara.' }],
  temperature: 0,
  ...extra,
});
const QUERY = { table: 'person', get: 'city', test: 'name = Clara' };

test('an adapter is a model with a parent', async () => {
  const cards = Object.fromEntries((await client.models.list()).data.map((card) => [card.id, card]));
  assert.equal(cards.query.parent, 'box');
  assert.equal(cards.box.parent, null);
  assert.equal((await client.models.retrieve('query')).id, 'query');
});

test('it answers its own task, whole and streamed, and the base another', async () => {
  const answer = await client.chat.completions.create(ask('query'));
  assert.equal(answer.model, 'query');
  assert.deepEqual(JSON.parse(answer.choices[0].message.content), QUERY);
  let text = '';
  for await (const chunk of await client.chat.completions.create(ask('query', { stream: true }))) {
    assert.equal(chunk.model, 'query');
    text += chunk.choices[0]?.delta?.content ?? '';
  }
  assert.deepEqual(JSON.parse(text), QUERY);
  const base = await client.chat.completions.create(ask('box'));
  assert.notEqual(base.choices[0].message.content, text);
});

test('responses, completions and embeddings name it, too', async () => {
  const response = await client.responses.create({ model: 'query', input: ask('').messages[0].content, temperature: 0 });
  assert.deepEqual(JSON.parse(response.output_text), QUERY);
  const completion = await client.completions.create({ model: 'query', prompt: 'Hello', max_tokens: 2 });
  assert.equal(completion.model, 'query');
  const vectors = await Promise.all(
    ['query', 'box'].map((model) => client.embeddings.create({ model, input: 'Hello' })),
  );
  assert.notDeepEqual(vectors[0].data[0].embedding, vectors[1].data[0].embedding);
  await assert.rejects(client.completions.create({ model: 'nobody', prompt: 'Hello' }), { status: 404 });
});
