// The page Chains: each chain's graph, a run of it, and what its steps took, drawn as they come.
import { ApiError, get, stream } from "./api";
import { svg } from "./chart";
import { button, fact, grouped, h, milliseconds } from "./dom";
import { code_block, plain, PlainView } from "./markdown";
import { Row } from "./feed";
import { say, words } from "./words";

const w = words.chains;
type Step = { name: string; use: string; needs: string[]; for_each: boolean; when: boolean };
type Chain = { id: string; about: string; input: Record<string, string>; output: Record<string, string>; steps: Step[] };

const kWidth = 168;
const kHeight = 50;
const kAcross = 44;
const kDown = 16;
const kLetters = 22; // of a line in a box

const short = (text: string) => (text.length > kLetters ? text.slice(0, kLetters - 1) + "…" : text);

// Steps from left to right, each behind all that it needs.
function graph(chain: Chain): HTMLElement {
  const level = new Map<string, number>([["input", 0]]);
  for (const step of chain.steps) level.set(step.name, 1 + Math.max(0, ...step.needs.map((need) => level.get(need) ?? 0)));
  const taken: number[] = [];
  const place = new Map<string, { x: number; y: number }>();
  for (const [name, column] of level) {
    const row = taken[column] ?? 0;
    taken[column] = row + 1;
    place.set(name, { x: 1 + column * (kWidth + kAcross), y: 1 + row * (kHeight + kDown) });
  }
  const width = taken.length * (kWidth + kAcross) - kAcross + 2;
  const height = Math.max(...taken) * (kHeight + kDown) - kDown + 2;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": say(w.graph, { name: plain(chain.id) }) });
  for (const step of chain.steps) {
    const to = place.get(step.name)!;
    for (const need of step.needs) {
      const from = place.get(need);
      if (from === undefined) continue;
      const [x1, y1, x2, y2] = [from.x + kWidth, from.y + kHeight / 2, to.x, to.y + kHeight / 2];
      const bend = Math.max((x2 - x1) / 2, kAcross / 2);
      drawing.append(svg("path", { class: "edge", d: `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` }));
    }
  }
  const box = (name: string, second: string, dashed: boolean) => {
    const { x, y } = place.get(name)!;
    const of = svg("g", {});
    of.append(svg("title", {}, `${name}: ${second}`), svg("rect", { x, y, width: kWidth, height: kHeight, rx: 6, class: dashed ? "box perhaps" : "box" }),
      svg("text", { x: x + 9, y: y + 21, class: "step" }, short(plain(name))), svg("text", { x: x + 9, y: y + 38, class: "tick" }, short(plain(second))));
    drawing.append(of);
  };
  box("input", Object.keys(chain.input).join(", "), false);
  for (const step of chain.steps) box(step.name, step.use + (step.for_each ? w.for_each : ""), step.when);
  return h("div", { class: "table graph", tabindex: 0, role: "region", "aria-label": w.steps }, drawing as unknown as HTMLElement);
}

// What one step has done in a run.
class Bar {
  private readonly bar = h("span", { class: "run-bar" });
  private readonly text = h("span", { class: "run-text" });
  private begun = NaN;
  private ended = NaN;
  private note = "";
  readonly element: HTMLElement;

  constructor(name: string) {
    this.element = h("li", {}, h("span", { class: "run-name" }, plain(name)), h("span", { class: "run-track" }, this.bar), this.text);
  }
  begin(now: number): void {
    if (Number.isNaN(this.begun)) this.begun = now;
  }
  piece(event: Row): void {
    if (event.pieces > 0) this.note = say(w.pieces, { done: grouped(event.piece + 1), all: grouped(event.pieces) });
  }
  retry(event: Row): void {
    this.note = say(w.retry, { why: plain(event.message) });
  }
  end(now: number, event: Row | null): void {
    this.begin(now);
    this.ended = now;
    const tokens = event?.usage?.total_tokens ?? 0;
    this.note = event === null ? w.skipped : tokens > 0 ? say(w.tokens, { tokens: grouped(tokens) }) : "";
  }
  // Of a run that has come so far; whether the step is at work.
  draw(now: number, stopped: boolean): void {
    if (Number.isNaN(this.begun)) {
      this.text.textContent = stopped ? w.not_begun : w.waits;
      return;
    }
    const end = Number.isNaN(this.ended) ? now : this.ended;
    this.bar.style.marginInlineStart = (this.begun / now) * 100 + "%";
    this.bar.style.width = Math.max(((end - this.begun) / now) * 100, 0.5) + "%";
    this.bar.classList.toggle("at-work", Number.isNaN(this.ended) && !stopped);
    this.text.textContent = [say(w.took, { from: milliseconds(this.begun), time: milliseconds(end - this.begun) }), this.note].filter(Boolean).join(" · ");
  }
}

export class Chains {
  private readonly names = h("select", { "aria-label": w.chain, onchange: () => this.choose() });
  private readonly about = h("p", { class: "quiet" });
  private readonly drawing = h("div");
  private readonly fields = h("div", { class: "ask" });
  private readonly state = h("p", { class: "state wrong", role: "alert" });
  private readonly go = button(w.run, () => void this.run(), { class: "main" });
  private readonly stop = button(w.stop, () => this.stopper.abort(), { hidden: true });
  private readonly facts = h("dl", { class: "facts" });
  private readonly bars = h("ol", { class: "runs" });
  private readonly output = h("div");
  private readonly result = h("div", { class: "panel", hidden: true }, h("h2", {}, w.result), this.facts, this.bars, this.output);
  private readonly none = h("p", { class: "empty" }, w.none);
  private readonly form = h("div", { class: "panel ask" }, h("label", { class: "field" }, h("span", {}, w.chain), this.names), this.about, this.drawing, this.fields,
    h("div", { class: "tools" }, this.go, this.stop), this.state);
  private chains: Chain[] = [];
  private inputs = new Map<string, HTMLTextAreaElement>();
  private stopper = new AbortController();
  readonly element = h("section", { class: "page live" }, h("h1", {}, w.title), this.none, this.form, this.result);

  // `ask_key`: a form in the page's place, where a run is refused for want of a key.
  constructor(private readonly ask_key: (wrong: boolean) => Promise<void>) {}

  async load(): Promise<void> {
    if (this.chains.length > 0) return;
    this.chains = (await get("v1/chains")).data;
    this.none.hidden = this.chains.length > 0;
    this.form.hidden = this.chains.length === 0;
    this.names.replaceChildren(...this.chains.map((one) => h("option", { value: one.id }, plain(one.id))));
    if (this.chains.length > 0) this.choose();
  }

  private get chosen(): Chain {
    return this.chains[Math.max(this.names.selectedIndex, 0)];
  }

  private choose(): void {
    const chain = this.chosen;
    this.about.textContent = plain(chain.about);
    this.drawing.replaceChildren(graph(chain));
    this.inputs = new Map(Object.entries(chain.input).map(([name]) => [name, h("textarea", { rows: 2 })]));
    this.fields.replaceChildren(...Object.entries(chain.input).map(([name, type]) =>
      h("label", { class: "field" }, h("span", {}, say(w.field, { name: plain(name), type: plain(type) })), this.inputs.get(name)!)));
    this.state.textContent = "";
    this.stopper.abort();
    this.result.hidden = true;
  }

  // A string as it is written, everything else as JSON. Throws with the field's name.
  private input(): Row {
    const input: Row = {};
    for (const [name, type] of Object.entries(this.chosen.input)) {
      const text = this.inputs.get(name)!.value;
      if (text === "" && type.endsWith("?")) continue;
      if (type.replace("?", "") === "string") {
        input[name] = text;
        continue;
      }
      try {
        input[name] = JSON.parse(text);
      } catch (error) {
        throw new Error(say(w.no_json, { name: plain(name), why: (error as Error).message }));
      }
    }
    return input;
  }

  private async run(): Promise<void> {
    this.state.textContent = "";
    let input: Row;
    try {
      input = this.input();
    } catch (error) {
      this.state.textContent = (error as Error).message;
      return;
    }
    const chain = this.chosen;
    const stopper = (this.stopper = new AbortController());
    const bars = new Map(chain.steps.map((step) => [step.name, new Bar(step.name)]));
    const text = new PlainView();
    this.bars.replaceChildren(...[...bars.values()].map((one) => one.element));
    this.output.replaceChildren(text.element);
    this.facts.replaceChildren(fact(w.state, w.at_work));
    this.result.hidden = false;
    this.go.hidden = true;
    this.stop.hidden = false;
    const begun = performance.now();
    let over = false;
    const now = () => Math.max(performance.now() - begun, 1);
    const draw = () => {
      if (over) return;
      for (const bar of bars.values()) bar.draw(now(), false);
      requestAnimationFrame(draw);
    };
    draw();
    let done: Row | null = null;
    let why = "";
    try {
      await stream(`v1/chains/${encodeURIComponent(chain.id)}`, { input, stream: true }, stopper.signal, (event: Row) => {
        if (event.error) throw new ApiError(500, event.error.message ?? "");
        if (event.object === "chain.run") done = event;
        else this.take(event, bars, text, now());
      });
    } catch (error) {
      why = stopper.signal.aborted ? w.stopped : error instanceof ApiError && error.message ? plain(error.message) : words.offline;
      if (error instanceof ApiError && error.status === 401) await this.ask_key(true);
    }
    over = true;
    if (stopper !== this.stopper) return; // another run has taken its place
    this.go.hidden = false;
    this.stop.hidden = true;
    for (const bar of bars.values()) bar.draw(now(), true);
    this.end(done, why, now());
  }

  private take(event: Row, bars: Map<string, Bar>, text: PlainView, now: number): void {
    const bar = bars.get(event.step);
    if (event.type === "step.started") bar?.begin(now);
    if (event.type === "step.piece") bar?.piece(event);
    if (event.type === "step.retry") bar?.retry(event);
    if (event.type === "step.skipped") bar?.end(now, null);
    if (event.type === "step.done") bar?.end(now, event);
    if (event.type === "output.delta") text.push(event.text);
  }

  private end(done: Row | null, why: string, took: number): void {
    this.facts.replaceChildren(fact(w.state, why ? say(w.failed, { why }) : w.done), fact(w.whole, milliseconds(took)));
    if (done === null) return;
    this.facts.append(fact(w.usage, say(w.tokens, { tokens: grouped(done.usage.total_tokens) })));
    this.output.replaceChildren(code_block(JSON.stringify(done.output, null, 2), "json").node);
  }
}
