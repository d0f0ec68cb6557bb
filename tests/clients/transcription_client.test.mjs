// The official openai client's audio.transcriptions and audio.translations, unmodified, against a model that hears
// (tests/whisper_model.py). Needs BASE_URL (ending in /v1), API_KEY and AUDIO, a WAV file.
import assert from 'node:assert/strict';
import { createReadStream } from 'node:fs';
import { test } from 'node:test';
import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: process.env.BASE_URL,
  apiKey: process.env.API_KEY,
  maxRetries: 0,
  timeout: 60_000,
});
const ask = (extra = {}) => ({
  file: createReadStream(process.env.AUDIO),
  model: process.env.MODEL ?? 'whisper',
  ...extra,
});

test('transcription, in each format', async () => {
  const plain = await client.audio.transcriptions.create(ask());
  assert.ok(plain.text.length > 10);
  assert.equal(plain.usage.type, 'duration');
  assert.equal(plain.usage.seconds, 8);
  const text = await client.audio.transcriptions.create(ask({ response_format: 'text' }));
  assert.equal(text.trimEnd(), plain.text.trimEnd());
  const verbose = await client.audio.transcriptions.create(
    ask({ response_format: 'verbose_json', timestamp_granularities: ['segment'], temperature: 0 }),
  );
  assert.equal(verbose.text, plain.text);
  assert.equal(verbose.segments.map((one) => one.text).join('').trimStart(), plain.text);
  assert.ok(Math.abs(verbose.duration - 7.3) < 1);
  const srt = await client.audio.transcriptions.create(ask({ response_format: 'srt' }));
  assert.match(srt, /^1\n00:00:\d\d,\d{3} --> 00:00:\d\d,\d{3}\n/);
  const vtt = await client.audio.transcriptions.create(ask({ response_format: 'vtt' }));
  assert.ok(vtt.startsWith('WEBVTT\n\n00:00:'));
});

test('transcription, streamed, equals the whole', async () => {
  const whole = await client.audio.transcriptions.create(ask({ prompt: 'Pelton' }));
  const stream = await client.audio.transcriptions.create(ask({ prompt: 'Pelton', stream: true }));
  let said = '';
  let done = null;
  for await (const event of stream) {
    if (event.type === 'transcript.text.delta') said += event.delta;
    if (event.type === 'transcript.text.done') done = event;
  }
  assert.equal(said, whole.text);
  assert.equal(done.text, whole.text);
});

test('translation', async () => {
  const verbose = await client.audio.translations.create(ask({ response_format: 'verbose_json' }));
  assert.equal(verbose.task, 'translate');
  assert.ok(verbose.text.length > 0);
});

test('what is wrong is named', async () => {
  const refused = (extra, param) =>
    assert.rejects(client.audio.transcriptions.create(ask(extra)), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError, String(error));
      assert.equal(error.param, param);
      return true;
    });
  await refused({ language: 'xx' }, 'language');
  await refused({ response_format: 'verbose_json', timestamp_granularities: ['word'] }, 'timestamp_granularities');
  await assert.rejects(
    client.chat.completions.create({ model: 'whisper', messages: [{ role: 'user', content: 'Hi' }] }),
    (error) => error instanceof OpenAI.BadRequestError && /audio\/transcriptions/.test(error.message),
  );
});
