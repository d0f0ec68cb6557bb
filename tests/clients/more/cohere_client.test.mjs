// cohere-ai, unmodified: /v2/embed and /v2/rerank. Needs BASE_URL and API_KEY.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CohereClientV2 } from 'cohere-ai';

const client = new CohereClientV2({
  token: process.env.API_KEY,
  environment: process.env.BASE_URL.replace(/\/v1$/, ''),
});
const model = process.env.MODEL ?? 'tiny';

test('cohere: embed', async () => {
  const answer = await client.embed({
    model,
    texts: ['one', 'two'],
    inputType: 'search_document',
    embeddingTypes: ['float'],
  });
  assert.equal(answer.embeddings.float.length, 2);
  assert.ok(answer.meta.billedUnits.inputTokens > 0);
});

test('cohere, B5: rerank truncates what is too long and tells what it cost', async () => {
  const ask = (extra) =>
    client.rerank({
      model,
      query: 'what is the capital?',
      documents: ['Bern', `${'a very long document '.repeat(40_000)}`, 'Paris'],
      topN: 2,
      ...extra,
    });
  const answer = await ask({});
  assert.equal(answer.results.length, 2);
  assert.ok(answer.results[0].relevanceScore >= answer.results[1].relevanceScore);
  assert.equal(answer.meta.apiVersion.version, '2');
  assert.equal(answer.meta.billedUnits.searchUnits, 1);
  const short = await ask({ maxTokensPerDoc: 16 });
  assert.ok(short.meta.tokens.inputTokens < answer.meta.tokens.inputTokens);
});
