// instructor, unmodified: structured answers in each of its modes, the older functions among them.
// Needs BASE_URL (ending in /v1) and API_KEY.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import InstructorModule from '@instructor-ai/instructor';
import OpenAI from 'openai';
import { z } from 'zod';

const Instructor = InstructorModule.default ?? InstructorModule;
const openai = new OpenAI({
  baseURL: process.env.BASE_URL,
  apiKey: process.env.API_KEY,
  maxRetries: 0,
  timeout: 60_000,
});

for (const [mode, question, expected] of [
  ['TOOLS', 'only the city', { city: 'Bern' }],
  ['FUNCTIONS', 'only the city', { city: 'Bern' }],
  ['JSON', 'Bern as JSON', { city: 'Bern', hills: 7 }],
]) {
  test(`instructor: ${mode}${mode === 'FUNCTIONS' ? ' (B7)' : ''}`, async () => {
    const schema = expected.hills
      ? z.object({ city: z.string(), hills: z.number() })
      : z.object({ city: z.string() });
    const client = Instructor({ client: openai, mode });
    const answer = await client.chat.completions.create({
      model: process.env.MODEL ?? 'tiny',
      messages: [{ role: 'user', content: question }],
      response_model: { schema, name: 'City' },
    });
    assert.deepEqual({ ...answer, _meta: undefined }, { ...expected, _meta: undefined });
  });
}
