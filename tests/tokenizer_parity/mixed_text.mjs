// Deterministic mixed text: the same seed gives the same bytes on every machine. Every fragment is
// bytes (possibly broken UTF-8) of which only code points assigned in Unicode 14 come out.
import { readFileSync } from "node:fs";

const here = new URL(".", import.meta.url);
const ranges = JSON.parse(readFileSync(new URL("assigned_code_points.json", here)));
const codePoints = ranges.flatMap(([first, last]) =>
  Array.from({ length: last - first + 1 }, (_, i) => first + i),
);
const assigned = new Set(codePoints);
const blocks = new Map(); // of 128 code points, so that a word stays in one script
for (const c of codePoints) {
  if (!blocks.has(c >> 7)) blocks.set(c >> 7, []);
  blocks.get(c >> 7).push(c);
}
const blockList = [...blocks.values()];

// The tokens themselves: words, word parts, code and half characters as they occur.
const tokenBytes = readFileSync(new URL("../../testdata/tokenizer/o200k_base.tiktoken", here), "latin1")
  .trimEnd()
  .split("\n")
  .map((line) => Buffer.from(line.split(" ")[0], "base64"));

export const decodeUtf8 = (bytes) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);

// splitmix32.
function randomStream(seed) {
  let state = seed >>> 0;
  return (below) => {
    state = (state + 0x9e3779b9) >>> 0;
    let x = state;
    x = Math.imul(x ^ (x >>> 16), 0x21f0aaad);
    x = Math.imul(x ^ (x >>> 15), 0x735a2d97);
    return ((x ^ (x >>> 15)) >>> 0) % below;
  };
}

const code = [
  "int", "main", "(", ")", "{", "}", "return", "HTTPServer", "fooBar", "snake_case", "SCREAMING_CASE",
  "0x1F", "12345678", "3.14", "//", "/*", "*/", "\n", "\n\n", "    ", "\t", "\r\n", ";", "=>", "==",
  "\"it's\"", "'x'", "I'LL", "we've", "they'd", "I'm", "can't", "'S", "<|start|>", "<|endoftext|>",
  "<html>", "</div>", "https://a.b/c?d=e&f", "#include <x>", "::", "->", "...", "!!", " ", "  ",
];
const emoji = [
  "\u{1F496}", "\u{1F468}\u200D\u{1F469}\u200D\u{1F467}", "\u{1F44D}\u{1F3FD}", "\u{1F1EB}\u{1F1F7}",
  "\u2764\uFE0F", "1\uFE0F\u20E3", "\u{1F9D1}\u200D\u{1F4BB}", "\u{1F600}", "\u200D", "\uFE0F",
];
const spaces = [" ", "  ", "\n", "\r", "\r\n", "\t", "\u00A0", "\u3000", "\u2028", "\u200B", "\v", "\u180E"];

function makeFragments(random) {
  const pick = (list) => list[random(list.length)];
  const times = (most, make) => Array.from({ length: 1 + random(most) }, make);
  const wordOf = (block) => String.fromCodePoint(...times(10, () => pick(block)));
  return [
    () => times(12, () => wordOf(pick(blockList))).join(pick([" ", "", "'", "\n"])),
    () => { const block = pick(blockList); return times(12, () => wordOf(block)).join(" "); },
    () => times(30, () => pick(code)).join(pick(["", " "])),
    () => times(8, () => pick(emoji)).join(""),
    () => times(20, () => pick(spaces)).join(""),
    () => times(3, () => String.fromCodePoint(pick(codePoints)).repeat(1 + random(60))).join(" "),
    () => String(random(4294967296)) + String(random(1000000)),
    () => Buffer.concat(times(60, () => pick(tokenBytes))),
    () => Buffer.concat(times(60, () => pick(tokenBytes))),
    () => Buffer.concat(times(60, () => pick(tokenBytes))),
    () => Buffer.from(times(30, () => random(256))),
    () => Buffer.from(times(30, () => pick([0x61, 0x20, 0xc3, 0xa9, 0xe2, 0x82, 0xac, 0xf0, 0x9f, 0x92, 0x96, 0xed, 0xa0, 0xff]))),
  ];
}

// At least `size` bytes; `refuse` (a regular expression) keeps fragments out by their decoded text.
export function mixedText(seed, size, refuse) {
  const random = randomStream(seed);
  const fragments = makeFragments(random);
  const parts = [];
  for (let total = 0; total < size; ) {
    const bytes = Buffer.from(fragments[random(fragments.length)]());
    const text = decodeUtf8(bytes);
    if ([...text].some((c) => !assigned.has(c.codePointAt(0)))) continue;
    if (refuse.test(text)) continue;
    parts.push(bytes, Buffer.from(" ,.;\nxY7"[random(8)])); // ends what a broken fragment began
    total += bytes.length + 1;
  }
  return Buffer.concat(parts);
}
