// Hugging Face's client, unmodified, by the endpoint's URL. Needs BASE_URL (ending in /v1), API_KEY.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { InferenceClient } from '@huggingface/inference';

const url = process.env.BASE_URL.replace(/\/v1$/, '');
const client = new InferenceClient(process.env.API_KEY, { endpointUrl: url });
const HELLO = 'Hello, wörld 💖! STOP here.';
const hi = [{ role: 'user', content: 'Hi' }];

test('chat, whole and streamed', async () => {
  const answer = await client.chatCompletion({ messages: hi });
  assert.equal(answer.choices[0].message.content, HELLO);
  let text = '';
  for await (const part of client.chatCompletionStream({ messages: hi })) {
    text += part.choices[0]?.delta?.content ?? '';
  }
  assert.equal(text, HELLO);
});

test('text generation', async () => {
  const answer = await client.textGeneration({ inputs: 'Once upon', parameters: { max_new_tokens: 50 } });
  assert.equal(answer.generated_text, ' a time. THE END');
});

test('vectors', async () => {
  const vectors = await new InferenceClient(process.env.API_KEY, { endpointUrl: `${url}/embed` }).featureExtraction({
    inputs: ['Hi', 'there'],
  });
  assert.equal(vectors.length, 2);
});
