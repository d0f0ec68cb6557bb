// What two texts differ in, line by line.
import { h } from "./dom";
import { plain } from "./markdown";

const kCellsMax = 4_000_000;

export type Change = { sign: " " | "-" | "+"; line: string };

// The lines that one text has and the other has not, by a longest common subsequence; of texts that differ in too much, all of what is between their
// common beginning and end.
export function changes(before: string[], after: string[]): Change[] {
  let from = 0;
  while (from < before.length && from < after.length && before[from] === after[from]) ++from;
  let end = 0;
  while (end < before.length - from && end < after.length - from && before[before.length - 1 - end] === after[after.length - 1 - end]) ++end;
  const a = before.slice(from, before.length - end);
  const b = after.slice(from, after.length - end);
  if (a.length * b.length > kCellsMax) return [...a.map((line) => ({ sign: "-", line }) as Change), ...b.map((line) => ({ sign: "+", line }) as Change)];
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; --i) {
    for (let j = b.length - 1; j >= 0; --j) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const found: Change[] = [];
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      ++i;
      ++j;
    } else if (j === b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      found.push({ sign: "-", line: a[i++] });
    } else {
      found.push({ sign: "+", line: b[j++] });
    }
  }
  return found;
}

export function draw_changes(into: HTMLElement, found: Change[]): void {
  into.replaceChildren(...found.map(({ sign, line }) => h("span", { class: sign === "-" ? "gone" : "new" }, `${sign} ${plain(line)}\n`)));
}
