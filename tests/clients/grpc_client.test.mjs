// @grpc/grpc-js, unmodified, against a server that answers by script.json: the service as its proto
// says, the standard health service, and reflection. Needs GRPC_ADDRESS, API_KEY and PROTO.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import grpc from '@grpc/grpc-js';
import protoLoader from '@grpc/proto-loader';

const options = { keepCase: true, longs: Number, defaults: true, oneofs: true };
const address = process.env.GRPC_ADDRESS;
const insecure = grpc.credentials.createInsecure();
const loaded = grpc.loadPackageDefinition(
  protoLoader.loadSync('pelton/v1/inference.proto', { ...options, includeDirs: [process.env.PROTO] }),
);
const client = new loaded.pelton.v1.Inference(address, insecure);
const HELLO = 'Hello, wörld 💖! STOP here.';

const key = () => {
  const metadata = new grpc.Metadata();
  metadata.set('authorization', `Bearer ${process.env.API_KEY}`);
  return metadata;
};
const chat = (content, more = {}) => ({ chat: { messages: [{ role: 'user', content }], ...more } });
const unary = (stub, method, request, metadata = key()) =>
  new Promise((resolve, reject) => {
    stub[method](request, metadata, (error, reply) => (error ? reject(error) : resolve(reply)));
  });

async function gather(stream) {
  const said = { text: '', reasoning: '', tokens: 0, calls: [], finish: '', usage: null, chunks: 0 };
  for await (const chunk of stream) {
    said.chunks += 1;
    said.text += chunk.text;
    said.reasoning += chunk.reasoning;
    said.tokens += chunk.tokens.length;
    for (const call of chunk.tool_calls) {
      said.calls[call.index] ??= { name: call.name, arguments: '' };
      said.calls[call.index].arguments += call.arguments;
    }
    said.finish ||= chunk.finish_reason;
    said.usage = chunk.usage ?? said.usage;
  }
  return said;
}

test('a chat, streamed', async () => {
  const said = await gather(client.Generate(chat('Hi'), key()));
  assert.equal(said.text, HELLO);
  assert.equal(said.reasoning, 'A greeting.');
  assert.equal(said.finish, 'stop');
  assert.equal(said.usage.completion_tokens, said.tokens);
  assert.ok(said.usage.reasoning_tokens > 0);
  assert.ok(said.chunks > 1);
});

test('a tool call', async () => {
  const tools = [{ name: 'get_weather', parameters: '{"type":"object"}' }];
  const said = await gather(client.Generate(chat('What is the weather in Bern', { tools }), key()));
  assert.equal(said.finish, 'tool_calls');
  assert.deepEqual(said.calls, [{ name: 'get_weather', arguments: '{"city":"Bern"}' }]);
});

// One turn of a session, to its end.
async function turn(chunks, number) {
  const said = { text: '', calls: [], finish: '', error: null };
  for (;;) {
    const { value: chunk, done } = await chunks.next();
    assert.ok(!done, 'the session ended');
    assert.equal(chunk.turn, number);
    if (chunk.error) return { ...said, error: chunk.error };
    said.text += chunk.chunk.text;
    for (const call of chunk.chunk.tool_calls) if (call.id) said.calls.push(call.id);
    said.finish = chunk.chunk.finish_reason;
    if (said.finish) return said;
  }
}

test('a session: a tool loop, a turn that is cancelled, one that is wrong', async () => {
  const session = client.Session(key());
  const chunks = session[Symbol.asyncIterator]();
  const tools = [{ name: 'get_weather', parameters: '{"type":"object"}' }];
  session.write({ generate: chat('What is the weather in Bern', { tools }) });
  const call = await turn(chunks, 1);
  assert.equal(call.finish, 'tool_calls');
  const result = { role: 'tool', tool_call_id: call.calls[0], content: 'sunny, 21' };
  session.write({ generate: { chat: { messages: [result] } }, continues: true });
  assert.equal((await turn(chunks, 2)).text, 'It is sunny in Bern, 21 degrees.');
  session.write({ generate: chat('never ends') });
  session.write({ cancel: {} });
  assert.equal((await turn(chunks, 3)).finish, 'cancelled');
  session.write({ generate: { ...chat('Hi'), model: 'other' } });
  assert.equal((await turn(chunks, 4)).error.code, grpc.status.NOT_FOUND);
  session.write({ generate: chat('Hi') });
  assert.equal((await turn(chunks, 5)).text, HELLO);
  session.end();
  assert.ok((await chunks.next()).done);
});

test('text, tokens, embeddings', async () => {
  const { tokens, context_max } = await unary(client, 'Tokenize', { text: 'Once upon' });
  assert.ok(tokens.length > 0 && context_max > 0);
  const sampling = { max_tokens: 8 };
  const by_text = await gather(client.Generate({ text: 'Once upon', sampling }, key()));
  const by_tokens = await gather(client.Generate({ tokens: { ids: tokens }, sampling }, key()));
  assert.equal(by_text.tokens, by_tokens.tokens);
  assert.ok(' a time. THE END'.startsWith(by_text.text) && by_text.text.length > 0);
  const reply = await unary(client, 'Embed', { inputs: [{ text: 'a' }, { text: 'b' }] });
  assert.equal(reply.embeddings.length, 2);
  assert.ok(Math.abs(Math.hypot(...reply.embeddings[0].values) - 1) < 1e-5);
});

test('what is refused has its code, and the error object', async () => {
  const refused = (promise, code) =>
    assert.rejects(promise, (error) => {
      assert.equal(error.code, code, error.message);
      const [object] = error.metadata.get('pelton-error-bin');
      assert.ok(JSON.parse(object.toString('utf8')).error.message);
      return true;
    });
  const { status } = grpc;
  await refused(gather(client.Generate(chat('Hi'), new grpc.Metadata())), status.UNAUTHENTICATED);
  await refused(gather(client.Generate({ ...chat('Hi'), model: 'other' }, key())), status.NOT_FOUND);
  const hot = { ...chat('Hi'), sampling: { temperature: 3 } };
  await refused(gather(client.Generate(hot, key())), status.INVALID_ARGUMENT);
  await refused(unary(client, 'Embed', { inputs: [] }), status.INVALID_ARGUMENT);
});

test('cancelling and deadlines', async () => {
  const call = client.Generate(chat('never ends'), key());
  await assert.rejects(
    (async () => {
      for await (const chunk of call) if (chunk.tokens.length > 0) call.cancel();
    })(),
    { code: grpc.status.CANCELLED },
  );
  const late = client.Generate(chat('never ends'), key(), { deadline: Date.now() + 150 });
  await assert.rejects(gather(late), { code: grpc.status.DEADLINE_EXCEEDED });
});

// What the standard services' protos say, as far as it is needed here.
const service = (path, name, request, response, responseStream) => ({
  path,
  requestStream: responseStream,
  responseStream,
  requestSerialize: request,
  responseDeserialize: response,
  requestDeserialize: response,
  responseSerialize: request,
  originalName: name,
});
const field = (number, text) => {
  const bytes = Buffer.from(text);
  return Buffer.concat([Buffer.from([(number << 3) | 2, bytes.length]), bytes]);
};

test('the standard health service says that it serves', async () => {
  const Health = grpc.makeGenericClientConstructor(
    {
      Check: service('/grpc.health.v1.Health/Check', 'check', (name) => (name ? field(1, name) : Buffer.alloc(0)), (bytes) => bytes[1]),
    },
    'Health',
  );
  const health = new Health(address, insecure);
  assert.equal(await unary(health, 'Check', ''), 1);
  assert.equal(await unary(health, 'Check', 'pelton.v1.Inference'), 1);
  await assert.rejects(unary(health, 'Check', 'nobody'), { code: grpc.status.NOT_FOUND });
  health.close();
});

test('reflection names the service', async () => {
  const path = '/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo';
  const Reflection = grpc.makeGenericClientConstructor(
    { Info: service(path, 'info', () => field(7, '*'), (bytes) => bytes.toString('latin1'), true) },
    'Reflection',
  );
  const reflection = new Reflection(address, insecure);
  const call = reflection.Info();
  call.write({});
  call.end();
  let names = '';
  for await (const reply of call) names += reply;
  assert.match(names, /pelton\.v1\.Inference/);
  assert.match(names, /grpc\.health\.v1\.Health/);
  reflection.close();
});

test.after(() => client.close());
