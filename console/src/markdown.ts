// Markdown of models, as elements. What a model writes is an attacker's: HTML stays text, links lead
// to http, https and mailto only, images are never loaded. Every construct is looked for within a
// bounded window and depth, so the time is linear in the text, whatever the text is.
import { h } from "./dom";
import { words } from "./words";

const kDepthMax = 12;
const kSpanMax = 2000; // characters of an emphasis, a link's label or its address
const kWindow = 1 << 14; // characters that are parsed at once
const kFrameMs = 8; // of parsing
const kClosersTried = 16;
const kColumnsMax = 64;

// Characters that turn the direction of what stands around them, and those that nobody sees, are shown by number. The joiners U+200C and U+200D are
// letters' and emoji's own; a variation selector is where it follows an emoji or a Han character.
const kUnseen = /(?<!\p{Emoji})[\ufe0e\ufe0f]|(?<!\p{Script=Han})[\ufe00-\ufe0d\u{e0100}-\u{e01ef}]|[\u0080-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{1d173}-\u{1d17a}\u{e0000}-\u{e007f}]/gu;
export function plain(text: string): string {
  return text.replace(kUnseen, (c) => `⟨U+${c.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`)
    .replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, "\ufffd");
}

// Null: this is no address that a link may have.
export function safe_address(address: string): string | null {
  if (!/^(https?:\/\/|mailto:)/i.test(address)) return null;
  try {
    const url = new URL(address);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function link(address: string, children: Node[]): Node {
  const href = safe_address(address);
  if (href === null) return h("span", {}, ...children, plain(` (${address})`));
  const element = h("a", { href, title: href, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
  for (const inner of element.querySelectorAll("a")) inner.replaceWith(...inner.childNodes);  // one link, not one in another
  return element;
}

const kEntities: Record<string, string> = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&#39;": "'", "&nbsp;": "\u00a0" };
const kSpecial = /[\\`*_~\[!\n&h]/g;

// [label](address "title"), from the bracket on; null if it is none.
function read_link(text: string, at: number): { label: string; address: string; end: number } | null {
  const window = text.slice(at, at + kSpanMax);
  let depth = 0;
  let i = 0;
  for (; i < window.length; ++i) {
    if (window[i] === "\\") ++i;
    else if (window[i] === "[") ++depth;
    else if (window[i] === "]" && --depth === 0) break;
  }
  if (window[i] !== "]" || window[i + 1] !== "(") return null;
  const close = window.indexOf(")", i + 2);
  if (close < 0) return null;
  const inside = window.slice(i + 2, close).trim();
  const address = inside.split(/\s/, 1)[0].replace(/^<|>$/g, "");
  return { label: window.slice(1, i), address, end: at + close + 1 };
}

// From an opening run of `mark` to the run that closes it.
function read_emphasis(text: string, at: number, mark: string): number {
  const after = text[at + mark.length];
  if (after === undefined || /\s/.test(after)) return -1;
  if (mark[0] === "_" && at > 0 && /\w/.test(text[at - 1])) return -1;
  const window = text.slice(at, at + kSpanMax);
  let tried = 0;
  for (let i = window.indexOf(mark, mark.length + 1); i >= 0 && tried < kClosersTried; i = window.indexOf(mark, i + 1), ++tried) {
    if (/\s/.test(window[i - 1])) continue;
    const next = window[i + mark.length];
    if (mark.length === 1 && (next === mark || window[i - 1] === mark)) continue;
    if (mark[0] === "_" && next !== undefined && /\w/.test(next)) continue;
    return at + i;
  }
  return -1;
}

function read_address(text: string, at: number): string | null {
  const found = /^https?:\/\/[^\s<>"'`|\\^{}]{1,1000}/.exec(text.slice(at, at + 1010));
  if (found === null) return null;
  let address = found[0].replace(/[.,;:!?*_~]+$/, "");
  if (address.endsWith(")") && !address.includes("(")) address = address.slice(0, -1);
  return address.length > 8 ? address : null;
}

type Span = { node: Node; end: number } | null;

function read_code(text: string, at: number): Span {
  let count = 1;
  while (text[at + count] === "`" && count < 64) ++count;
  const mark = "`".repeat(count);
  const close = text.slice(at + count, at + count + 2 * kSpanMax).indexOf(mark);
  if (close < 0) return { node: document.createTextNode(mark), end: at + count };
  const body = text.slice(at + count, at + count + close);
  const shown = /^ .*\S.* $/.test(body) ? body.slice(1, -1) : body;
  return { node: h("code", {}, plain(shown)), end: at + 2 * count + close };
}

// What begins at a special character; null: only that character.
function read_span(text: string, at: number, depth: number): Span {
  const c = text[at];
  if (c === "\n") return { node: h("br"), end: at + 1 };
  if (c === "\\") {
    if (!/[!-/:-@[-`{-~]/.test(text[at + 1] ?? "")) return null;
    return { node: document.createTextNode(text[at + 1]), end: at + 2 };
  }
  if (c === "&") {
    const entity = /^&(?:amp|lt|gt|quot|#39|nbsp);/.exec(text.slice(at, at + 8));
    return entity && { node: document.createTextNode(kEntities[entity[0]]), end: at + entity[0].length };
  }
  if (c === "`") return read_code(text, at);
  if (c === "h") {
    const address = at > 0 && /\w/.test(text[at - 1]) ? null : read_address(text, at);
    return address === null ? null : { node: link(address, [document.createTextNode(plain(address))]), end: at + address.length };
  }
  if (c === "!" || c === "[") {
    const found = c === "!" && text[at + 1] !== "[" ? null : read_link(text, c === "!" ? at + 1 : at);
    if (found === null) return null;
    // An image would tell its server that somebody looks: only its address is shown.
    const label = c === "!" ? [document.createTextNode(`[${words.chat.image}: ${plain(found.label)}]`)]
                            : inline(found.label, depth + 1);
    return { node: link(found.address, label), end: found.end };
  }
  const doubled = text[at + 1] === c;
  if (c === "~" && !doubled) return null;
  const mark = doubled ? c + c : c;
  const close = read_emphasis(text, at, mark);
  if (close < 0) return doubled ? { node: document.createTextNode(mark), end: at + 2 } : null;
  const tag = c === "~" ? "del" : doubled ? "strong" : "em";
  return { node: h(tag, {}, ...inline(text.slice(at + mark.length, close), depth + 1)), end: close + mark.length };
}

export function inline(text: string, depth = 0): Node[] {
  if (depth > kDepthMax) return [document.createTextNode(plain(text))];
  const nodes: Node[] = [];
  let from = 0;
  const special = new RegExp(kSpecial);
  for (let found = special.exec(text); found !== null; found = special.exec(text)) {
    const at = found.index;
    const span = read_span(text, at, depth);
    if (span === null) continue;
    if (at > from) nodes.push(document.createTextNode(plain(text.slice(from, at))));
    nodes.push(span.node);
    from = special.lastIndex = span.end;
  }
  if (from < text.length) nodes.push(document.createTextNode(plain(text.slice(from))));
  return nodes;
}

// Blocks. A block is made of lines [from, to).
type Block = { node: Node; to: number };

const kFence = /^ {0,3}(`{3,}|~{3,})\s*([^`]{0,100})$/;
const kHeading = /^ {0,3}(#{1,6})\s+(.*)$/;
const kRule = /^ {0,3}([-*_])[ \t]*(?:\1[ \t]*){2,}$/;
const kItem = /^( {0,3})([-*+]|\d{1,9}[.)])( {1,4}|\t|$)/;
const kQuote = /^ {0,3}> ?/;

function short(line: string): string {
  return line.length <= kSpanMax ? line : "";
}

function begins_block(line: string): boolean {
  const start = short(line);
  return kFence.test(start) || kHeading.test(start) || kRule.test(start) || kItem.test(line) || kQuote.test(line);
}

export function code_block(text: string, language: string): { node: HTMLElement; text: Text } {
  const body = document.createTextNode(plain(text));
  const label = language.trim().split(/\s/, 1)[0];
  const copy = h("button", { type: "button", class: "quiet copy", onclick: () => {
    navigator.clipboard?.writeText(body.data);
    copy.textContent = words.chat.copied;
  } }, words.chat.copy);
  const node = h("div", { class: "code" },
    h("div", { class: "code-head" }, h("span", {}, plain(label)), copy),
    h("pre", { tabindex: 0 }, h("code", { dir: "ltr" }, body)));
  return { node, text: body };
}

function read_fence(lines: string[], from: number): Block | null {
  const open = kFence.exec(short(lines[from]));
  if (open === null) return null;
  let to = from + 1;
  const closes = (line: string) => line.trim().startsWith(open[1]) && /^[`~]+$/.test(line.trim());
  while (to < lines.length && !closes(lines[to])) ++to;
  return { node: code_block(lines.slice(from + 1, to).join("\n"), open[2]).node, to: Math.min(to + 1, lines.length) };
}

function read_quote(lines: string[], from: number, depth: number): Block | null {
  if (!kQuote.test(lines[from])) return null;
  let to = from;
  while (to < lines.length && kQuote.test(lines[to])) ++to;
  const inner = lines.slice(from, to).map((line) => line.replace(kQuote, ""));
  return { node: h("blockquote", {}, ...blocks(inner, depth + 1).map((block) => block.node)), to };
}

function indent_of(line: string): number {
  return line.length - line.trimStart().length;
}

// One item's lines, without the mark; `to` is behind it.
function read_item(lines: string[], from: number): { inner: string[]; to: number; loose: boolean } {
  const mark = kItem.exec(lines[from])!;
  const width = mark[0].length;
  const inner = [lines[from].slice(width)];
  let to = from + 1;
  let loose = false;
  for (; to < lines.length; ++to) {
    const line = lines[to];
    if (line.trim() === "") {
      const next = lines[to + 1];
      if (next === undefined || next.trim() === "" || indent_of(next) < Math.min(width, 2)) break;
      loose = true;
      inner.push("");
    } else if (indent_of(line) >= Math.min(width, 2)) {
      inner.push(line.slice(Math.min(width, indent_of(line))));
    } else if (begins_block(line) || loose) {
      break;
    } else {
      inner.push(line);
    }
  }
  return { inner, to, loose };
}

function read_list(lines: string[], from: number, depth: number): Block | null {
  const first = kItem.exec(lines[from]);
  if (first === null) return null;
  const ordered = /\d/.test(first[2]);
  const kind = first[2].slice(-1);
  const list = h(ordered ? "ol" : "ul", ordered ? { start: parseInt(first[2], 10) } : {});
  let to = from;
  while (to < lines.length) {
    const mark = kItem.exec(lines[to]);
    if (mark === null || mark[2].slice(-1) !== kind || kRule.test(short(lines[to]))) break;
    const item = read_item(lines, to);
    const task = /^\[([ xX])\] /.exec(item.inner[0]);
    if (task !== null) item.inner[0] = (task[1] === " " ? "☐ " : "☑ ") + item.inner[0].slice(4);
    const inside = blocks(item.inner, depth + 1).map((block) => block.node);
    // A tight item's words stand in it without a paragraph.
    const lead = inside[0];
    if (!item.loose && lead instanceof HTMLParagraphElement) inside.splice(0, 1, ...lead.childNodes);
    list.append(h("li", { dir: "auto" }, ...inside));
    to = item.to;
    const next = to < lines.length && lines[to].trim() === "" ? kItem.exec(lines[to + 1] ?? "") : null;
    if (next !== null && next[2].slice(-1) === kind) ++to;
  }
  return { node: list, to };
}

function cells(line: string): string[] {
  const row = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1");
  return row.split(/(?<!\\)\|/).slice(0, kColumnsMax).map((cell) => cell.trim().replace(/\\\|/g, "|"));
}

function is_delimiter(line: string): boolean {
  const row = short(line);
  return row.includes("-") && /^[\s|:-]+$/.test(row) && cells(row).every((cell) => /^:?-+:?$/.test(cell));
}

function read_table(lines: string[], from: number): Block | null {
  if (!lines[from].includes("|") || lines[from + 1] === undefined || !is_delimiter(lines[from + 1])) return null;
  const head = cells(lines[from]);
  const sides = cells(lines[from + 1]).map((cell) => cell.endsWith(":") ? (cell.startsWith(":") ? "middle" : "right") : null);
  if (sides.length !== head.length) return null;
  const row = (tag: "th" | "td", line: string[]) =>
    h("tr", {}, ...head.map((_, i) => h(tag, { dir: "auto", class: sides[i] }, ...inline(line[i] ?? ""))));
  const body = h("tbody");
  let to = from + 2;
  for (; to < lines.length && lines[to].includes("|"); ++to) body.append(row("td", cells(lines[to])));
  return { node: h("div", { class: "table", tabindex: 0 }, h("table", {}, h("thead", {}, row("th", head)), body)), to };
}

function read_paragraph(lines: string[], from: number): Block {
  let to = from + 1;
  while (to < lines.length && lines[to].trim() !== "" && !begins_block(lines[to])) {
    if (to + 1 < lines.length && lines[to].includes("|") && is_delimiter(lines[to + 1])) break;
    ++to;
  }
  const text = lines.slice(from, to).map((line) => line.trim()).join("\n");
  return { node: h("p", { dir: "auto" }, ...inline(text)), to };
}

function read_block(lines: string[], from: number, depth: number): Block {
  const line = short(lines[from]);
  const heading = kHeading.exec(line);
  if (heading !== null) {
    // Below the page's own headings.
    const tag = ("h" + Math.min(6, heading[1].length + 2)) as "h3";
    return { node: h(tag, { dir: "auto" }, ...inline(heading[2].replace(/\s#+\s*$/, ""))), to: from + 1 };
  }
  if (kRule.test(line)) return { node: h("hr"), to: from + 1 };
  return read_fence(lines, from) ?? read_quote(lines, from, depth) ?? read_list(lines, from, depth) ??
    read_table(lines, from) ?? read_paragraph(lines, from);
}

function blocks(lines: string[], depth = 0): Block[] {
  if (depth > kDepthMax) return [{ node: h("p", {}, plain(lines.join("\n"))), to: lines.length }];
  const found: Block[] = [];
  for (let from = 0; from < lines.length;) {
    if (lines[from].trim() === "") {
      ++from;
      continue;
    }
    const block = read_block(lines, from, depth);
    found.push(block);
    from = block.to;
  }
  return found;
}

// A text that grows. What is behind the last block's beginning cannot change any more; only that
// block is made anew as text comes.
export class MarkdownView {
  readonly element = h("div", { class: "markdown" });
  private readonly tail = h("div", { class: "tail" });
  private pending = "";
  private ends_with_cr = false;
  private fence: { opener: string; text: Text; shown: number } | null = null;
  private frame = 0;

  constructor(text = "") {
    this.element.append(this.tail);
    if (text) this.push(text);
  }

  push(text: string): void {
    // A line's end may come in two pieces.
    if (this.ends_with_cr && text.startsWith("\n")) text = text.slice(1);
    if (text !== "") this.ends_with_cr = text.endsWith("\r");
    this.pending += text.replace(/\r\n?/g, "\n");
    if (this.frame === 0) this.frame = requestAnimationFrame(() => this.draw());
  }

  private commit(nodes: Node[], length: number): void {
    for (const node of nodes) this.element.insertBefore(node, this.tail);
    this.pending = this.pending.slice(length);
    this.fence = null;
  }

  // Shows what is there; a large text takes several frames.
  private draw(): void {
    this.frame = 0;
    const end_ms = performance.now() + kFrameMs;
    while (this.pending.length > kWindow && performance.now() < end_ms) this.draw_window();
    if (this.pending.length > kWindow) {
      this.frame = requestAnimationFrame(() => this.draw());
      return;
    }
    if (this.grow_fence()) return;
    const lines = this.pending.split("\n");
    const found = blocks(lines);
    const done = found.slice(0, -1);
    if (done.length > 0) {
      const to = done[done.length - 1].to;
      this.commit(done.map((block) => block.node), lines.slice(0, to).join("\n").length + 1);
    }
    const last = found[found.length - 1];
    this.tail.replaceChildren(...(last ? [last.node] : []));
    this.fence = this.open_fence();
  }

  // The first part of a long text, cut at a line's end if there is one.
  private draw_window(): void {
    const opener = /^\s*((?:`{3,}|~{3,})[^\n`]{0,100})\n/.exec(this.pending)?.[1];
    let end = this.pending.lastIndexOf("\n", kWindow) + 1;
    if (end < kWindow / 2) end = kWindow;
    const text = this.pending.slice(0, end);
    const lines = text.split("\n");
    const found = blocks(lines);
    const last = found[found.length - 1];
    const from = found.length > 1 ? found[found.length - 2].to : 0;
    if (found.length > 1) {
      return this.commit(found.slice(0, -1).map((block) => block.node), lines.slice(0, from).join("\n").length + 1);
    }
    this.commit(last ? [last.node] : [], end);
    if (opener && last && last.to === lines.length) this.pending = opener + "\n" + this.pending;
  }

  // While code comes, its text only grows.
  private open_fence(): { opener: string; text: Text; shown: number } | null {
    const opener = /^\s*((?:`{3,}|~{3,})[^\n`]{0,100})\n/.exec(this.pending);
    const code = this.tail.querySelector("pre code");
    if (opener === null || code === null || !(code.firstChild instanceof Text)) return null;
    return { opener: opener[0], text: code.firstChild, shown: this.pending.length };
  }

  private grow_fence(): boolean {
    const fence = this.fence;
    if (fence === null || !this.pending.startsWith(fence.opener)) return false;
    const fresh = this.pending.slice(Math.max(fence.opener.length, fence.shown - 80));
    if (/[`~]{3}/.test(fresh)) return false; // it may close: made anew
    fence.text.appendData(plain(this.pending.slice(fence.shown)));
    fence.shown = this.pending.length;
    return true;
  }
}

// Plain text that grows, in pieces, so that a long one is not laid out anew each time.
export class PlainView {
  readonly element = h("div", { class: "plain", dir: "auto" });
  private text: Text | null = null;

  push(text: string): void {
    if (this.text === null || this.text.length > 1 << 14) {
      this.text = document.createTextNode("");
      this.element.append(h("span", {}, this.text));
    }
    this.text.appendData(plain(text));
  }
}
