// The official openai client's audio.speech, unmodified, against a model that speaks (tests/speech_model.py).
// Needs BASE_URL (ending in /v1) and API_KEY.
import assert from 'node:assert/strict';
import { createWriteStream } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { test } from 'node:test';
import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: process.env.BASE_URL,
  apiKey: process.env.API_KEY,
  maxRetries: 0,
  timeout: 60_000,
});
const FRAME_BYTES = 2 * 2048;
// Ten frames, of which seven are heard.
const ask = (extra = {}) => ({
  model: process.env.MODEL ?? 'orpheus',
  voice: 'tara',
  input: 'Hello there.',
  response_format: 'pcm',
  seed: 7,
  max_tokens: 70,
  ...extra,
});

test('speech, as the bytes of a body', async () => {
  const answer = await client.audio.speech.create(ask());
  assert.equal(answer.headers.get('content-type'), 'audio/pcm');
  const sound = Buffer.from(await answer.arrayBuffer());
  assert.equal(sound.length, 7 * FRAME_BYTES);
  const again = Buffer.from(await (await client.audio.speech.create(ask())).arrayBuffer());
  assert.ok(sound.equals(again));
});

test('speech, streamed to a file', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'pelton-speech-'));
  try {
    const answer = await client.audio.speech.create(ask({ response_format: 'wav' }));
    assert.equal(answer.headers.get('content-type'), 'audio/wav');
    const file = join(folder, 'speech.wav');
    await pipeline(Readable.fromWeb(answer.body), createWriteStream(file));
    const bytes = await readFile(file);
    assert.equal(bytes.subarray(0, 4).toString(), 'RIFF');
    assert.equal(bytes.readUInt32LE(24), 24_000);
    assert.equal(bytes.length, 44 + 7 * FRAME_BYTES);
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('speech, as events', async () => {
  const whole = Buffer.from(await (await client.audio.speech.create(ask())).arrayBuffer());
  const answer = await client.audio.speech.create(ask({ stream_format: 'sse' }));
  const events = (await answer.text())
    .split('\n\n')
    .filter((event) => event.startsWith('data: '))
    .map((event) => JSON.parse(event.slice(6)));
  const last = events.pop();
  assert.equal(last.type, 'speech.audio.done');
  assert.equal(last.usage.output_tokens, 70);
  assert.ok(events.every((event) => event.type === 'speech.audio.delta'));
  const sound = Buffer.concat(events.map((event) => Buffer.from(event.audio, 'base64')));
  assert.ok(sound.equals(whole));
});

test('speech that cannot be made is refused by its field', async () => {
  for (const [param, extra] of [
    ['response_format', { response_format: 'wma' }],
    ['voice', { voice: 'alloy' }],
    ['speed', { speed: 2 }],
    ['instructions', { instructions: 'Whisper.' }],
  ]) {
    await assert.rejects(
      client.audio.speech.create(ask(extra)),
      (error) => error.status === 400 && error.param === param,
    );
  }
});
