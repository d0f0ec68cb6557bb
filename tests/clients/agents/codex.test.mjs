// OpenAI's coding agent, unmodified and offline: it reads a file by a tool call and tells what is in it.
// Needs BASE_URL (ending in /v1) and API_KEY; its package lies in ./agents.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';

const codex = join(import.meta.dirname, 'node_modules', '.bin', 'codex');

test('codex completes a turn with a tool', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'pelton-codex-'));
  t.after(() => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));
  writeFileSync(join(folder, 'secret.txt'), 'Secret word: walrus\n');
  writeFileSync(
    join(folder, 'config.toml'),
    `model = "${process.env.MODEL ?? 'tiny'}"
model_provider = "pelton"
[model_providers.pelton]
name = "pelton"
base_url = "${process.env.BASE_URL}"
wire_api = "responses"
env_key = "API_KEY"
request_max_retries = 0
stream_max_retries = 0
`,
  );
  const { status, stdout, stderr } = await new Promise((resolve) => {
    const child = execFile(
      codex,
      ['exec', '--skip-git-repo-check', '--sandbox', 'danger-full-access', 'Please read the secret file.'],
      { cwd: folder, env: { ...process.env, CODEX_HOME: folder }, timeout: 100_000 },
      (error, stdout, stderr) => resolve({ status: error?.code ?? 0, stdout, stderr }),
    );
    child.stdin.end();
  });
  assert.equal(status, 0, stdout + stderr);
  assert.match(stdout, /The secret word is walrus\./, stderr);
});
