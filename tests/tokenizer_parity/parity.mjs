// Compares `pelton tokenize` on mixed text with npm gpt-tokenizer (10 MB) and with tiktoken, the
// original in WebAssembly (2 MB).
//
//   node parity.mjs [PELTON] [SEED]       PELTON is build/release/pelton if not given
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

import * as gptTokenizer from "gpt-tokenizer/encoding/o200k_base";
import { get_encoding } from "tiktoken";

import { decodeUtf8, mixedText } from "./mixed_text.mjs";

const root = fileURLToPath(new URL("../../", import.meta.url));
const pelton = process.argv[2] ?? join(root, "build/release/pelton");
const seed = Number(process.argv[3] ?? 20260101);
const ranks = join(root, "testdata/tokenizer/o200k_base.tiktoken");
const folder = mkdtempSync(join(tmpdir(), "pelton_parity_"));

// JavaScript's \s has U+FEFF and lacks U+0085, and gpt-tokenizer's contractions lack U+017F: there it
// differs from the original pattern, so these stay out of its text and are left to tiktoken.
const notInJavaScript = /[\u0085\uFEFF\u017F]/u;
// Long runs of one piece are quadratic there: they are unit tests here.
const nothing = /$^/u;

const tiktoken = get_encoding("o200k_base");
const comparisons = [
  {
    name: "gpt-tokenizer 4.0.0",
    bytes: mixedText(seed, 10_000_000, notInJavaScript),
    encode: (text) => gptTokenizer.encode(text, { disallowedSpecial: new Set() }),
  },
  {
    name: "tiktoken 1.0.22",
    bytes: mixedText(seed + 1, 2_000_000, nothing),
    encode: (text) => tiktoken.encode_ordinary(text),
  },
];

function ours(bytes) {
  const file = join(folder, "text");
  writeFileSync(file, bytes);
  const start = performance.now();
  const output = execFileSync(pelton, ["tokenize", ranks, "--file", file, "--ids"], {
    maxBuffer: 1 << 30,
    encoding: "latin1",
  });
  return { ids: JSON.parse(output), ms: performance.now() - start };
}

let failed = false;
for (const { name, bytes, encode } of comparisons) {
  const text = decodeUtf8(bytes);
  const { ids, ms } = ours(bytes);
  const start = performance.now();
  const expected = encode(text);
  const theirMs = performance.now() - start;
  let at = 0;
  while (at < ids.length && at < expected.length && ids[at] === expected[at]) ++at;
  if (at === ids.length && at === expected.length) {
    console.log(
      `${name}: ${bytes.length} bytes, ${ids.length} tokens, equal ` +
        `(pelton with start and load ${ms.toFixed(0)} ms, ${name} ${theirMs.toFixed(0)} ms)`,
    );
    continue;
  }
  failed = true;
  const context = gptTokenizer.decode(Array.from(expected.slice(Math.max(0, at - 5), at + 10)));
  console.log(`${name}: differ at token ${at} of ${expected.length}, seed ${seed}`);
  console.log(`  pelton   ${ids.slice(at, at + 10).join(" ")}`);
  console.log(`  expected ${Array.from(expected.slice(at, at + 10)).join(" ")}`);
  console.log(`  around   ${JSON.stringify(context)}`);
}
rmSync(folder, { recursive: true });
process.exit(failed ? 1 : 0);
