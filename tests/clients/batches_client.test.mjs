// The official openai client's files and batches, unmodified, against a server with --batches.
// Needs BASE_URL (ending in /v1) and API_KEY.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI, { toFile } from 'openai';

const client = new OpenAI({
  baseURL: process.env.BASE_URL,
  apiKey: process.env.API_KEY,
  maxRetries: 0,
  timeout: 60_000,
});
const MODEL = process.env.MODEL ?? 'tiny';
const HELLO = 'Hello, wörld 💖! STOP here.';

const line = (id, extra = {}) =>
  JSON.stringify({
    custom_id: id,
    method: 'POST',
    url: '/v1/chat/completions',
    body: { model: MODEL, messages: [{ role: 'user', content: 'Hi' }], ...extra },
  });
const upload = async (text) =>
  client.files.create({ file: await toFile(Buffer.from(text), 'größe.jsonl'), purpose: 'batch' });
const ended = async (id) => {
  for (;;) {
    const batch = await client.batches.retrieve(id);
    if (!['validating', 'in_progress', 'finalizing', 'cancelling'].includes(batch.status)) return batch;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};
const lines = async (id) =>
  (await (await client.files.content(id)).text())
    .trimEnd()
    .split('\n')
    .map((text) => JSON.parse(text));

test('a file: created, listed, read, deleted', async () => {
  const file = await upload('{}\n');
  assert.equal(file.object, 'file');
  assert.equal(file.filename, 'größe.jsonl');
  assert.equal(file.bytes, 3);
  assert.equal((await client.files.retrieve(file.id)).purpose, 'batch');
  const all = [];
  for await (const one of client.files.list({ limit: 1 })) all.push(one.id);
  assert.ok(all.includes(file.id));
  assert.equal(await (await client.files.content(file.id)).text(), '{}\n');
  assert.equal((await client.files.delete(file.id)).deleted, true);
  await assert.rejects(client.files.retrieve(file.id), (error) => error.status === 404);
});

test('a batch: every line once, what is refused in the error file', async () => {
  const ids = Array.from({ length: 25 }, (_, i) => `line-${i}`);
  const file = await upload([...ids.map((id) => line(id)), line('hot', { temperature: 9 })].join('\n'));
  const batch = await client.batches.create({
    input_file_id: file.id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
    metadata: { for: 'a test' },
  });
  assert.equal(batch.object, 'batch');
  const done = await ended(batch.id);
  assert.equal(done.status, 'completed');
  assert.deepEqual(done.request_counts, { total: 26, completed: 25, failed: 1 });
  assert.deepEqual(done.metadata, { for: 'a test' });
  const answers = await lines(done.output_file_id);
  assert.deepEqual(answers.map((one) => one.custom_id), ids);
  for (const one of answers) {
    assert.equal(one.response.status_code, 200);
    assert.equal(one.response.body.choices[0].message.content, HELLO);
  }
  const [refused] = await lines(done.error_file_id);
  assert.equal(refused.custom_id, 'hot');
  assert.equal(refused.response.body.error.param, 'temperature');
  const listed = [];
  for await (const one of client.batches.list({ limit: 5 })) listed.push(one.id);
  assert.ok(listed.includes(batch.id));
});

test('a batch of embeddings, and one that is cancelled', async () => {
  const texts = await upload(
    JSON.stringify({ custom_id: 'e', method: 'POST', url: '/v1/embeddings', body: { model: MODEL, input: 'Hi' } }),
  );
  const vectors = await client.batches.create({
    input_file_id: texts.id,
    endpoint: '/v1/embeddings',
    completion_window: '24h',
  });
  assert.equal((await ended(vectors.id)).request_counts.total, 1);

  const long = Array.from({ length: 200 }, (_, i) =>
    JSON.stringify({
      custom_id: `${i}`,
      method: 'POST',
      url: '/v1/chat/completions',
      body: { model: MODEL, messages: [{ role: 'user', content: 'never ends' }] },
    }),
  );
  const batch = await client.batches.create({
    input_file_id: (await upload(long.join('\n'))).id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
  });
  const cancelled = await client.batches.cancel(batch.id);
  assert.ok(['cancelling', 'cancelled'].includes(cancelled.status));
  assert.equal((await ended(batch.id)).status, 'cancelled');
});

test('an input that is none fails as a whole, by line', async () => {
  const file = await upload(`${line('a')}\nnonsense\n`);
  const batch = await client.batches.create({
    input_file_id: file.id,
    endpoint: '/v1/chat/completions',
    completion_window: '24h',
  });
  const failed = await ended(batch.id);
  assert.equal(failed.status, 'failed');
  assert.equal(failed.errors.data[0].code, 'invalid_json_line');
  assert.equal(failed.errors.data[0].line, 2);
});
