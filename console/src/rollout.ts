// A roll-out of the page Splits: its steps, what its tests know with intervals, its verdict; and an operator's commands to it.
import { button, fact, grouped, h } from "./dom";
import { Row } from "./feed";
import { plain } from "./markdown";
import { Operator } from "./operator";
import { Table } from "./table";
import { say, words } from "./words";

const w = words.splits.rollout;
type Command = keyof typeof w.commands;
// By phase, what may be done.
const kCommands: Record<string, Command[]> = { running: ["pause", "promote", "rollback"], paused: ["resume", "promote", "rollback"], promoted: ["rollback"], taken_back: [] };

const percent = (share: number) => `${Number((share * 100).toPrecision(3))} %`;
const range = (of: Row, text: (value: number) => string) => say(w.interval, { low: text(of.low), high: text(of.high) });
const rate = (of: Row) => (of.requests === 0 ? words.live.nothing : say(w.rate, { failed: grouped(of.failed), requests: grouped(of.requests), share: percent(of.failed / of.requests), interval: range(of, percent) }));
const times = (value: number) => `${value.toFixed(2)} ×`;
const ratio = (of: Row) => (of.candidate === 0 ? words.live.nothing : say(w.ratio, { ratio: times(of.ratio), interval: range(of, times), count: grouped(of.candidate) }));

// What of a step is there to be waited for, and how much of it has come.
function gate(of: Row, step: Row, i: number): string {
  if (step.min_requests === undefined) return "";
  const is_now = i === of.step && (of.phase === "running" || of.phase === "paused");
  return say(is_now ? w.gates_now : w.gates, { requests: grouped(step.min_requests), seconds: grouped(step.min_seconds), has_requests: grouped(of.step_requests), has_seconds: grouped(of.step_seconds) });
}

export class Rollout {
  private readonly heading = h("h3");
  private readonly verdict = h("p", { role: "status" });
  private readonly tools = h("div", { class: "tools" });
  private readonly facts = h("dl", { class: "facts" });
  private readonly steps = new Table<Row>(w.steps, [
    { name: w.columns.share, text: (row) => percent(row.share), right: true },
    { name: w.columns.state, text: (row) => w.states[row.state as keyof typeof w.states], mark: (row) => row.state, short: true },
    { name: w.columns.gates, text: (row) => row.gates },
  ]);
  readonly element = h("section", {}, this.heading, this.verdict, this.tools, this.steps.element, this.facts);
  private drawn = "";

  constructor(private readonly operator: Operator) {}

  draw(of: Row): void {
    this.heading.textContent = say(w.title, { name: plain(of.name), arm: plain(of.arm) });
    const why = of.reason === "" ? "" : say(w.why, { reason: w.reasons[of.reason as keyof typeof w.reasons] ?? plain(of.reason), why: plain(of.why) });
    const phase = of.phase === "running" && !of.has_workers ? "waiting" : of.phase;
    this.verdict.textContent = `${say(w.phases[phase as keyof typeof w.phases] ?? "", { share: percent(of.share) })} ${why}`.trim();
    this.verdict.dataset.mark = of.phase;
    this.steps.draw(of.steps.map((step: Row, i: number) => [String(i), { ...step, gates: gate(of, step, i), state: of.phase === "taken_back" ? "off" : i < of.step || of.phase === "promoted" ? "done" : i === of.step ? "now" : "ahead" }]));
    this.facts.replaceChildren(fact(w.facts.candidate, rate(of.errors.candidate)), fact(w.facts.others, rate(of.errors.others)), fact(w.facts.ttft, ratio(of.ttft)), fact(w.facts.length, ratio(of.length)),
      ...of.tests.map((test: Row) => fact(say(w.facts.test, { test: w.reasons[test.name as keyof typeof w.reasons] }), percent(Math.max(test.log_evidence, 0) / test.log_needed))));
    this.draw_tools(of);
  }

  // Made anew only where they are other ones: the focus stays.
  private draw_tools(of: Row): void {
    const may = this.operator.is_signed_in ? kCommands[of.phase] ?? [] : [];
    const now = `${of.name}\n${may.join()}`;
    if (this.drawn === now) return;
    this.drawn = now;
    this.tools.replaceChildren(...may.map((word) => button(w.commands[word].label, () =>
      void this.operator.ask(w.commands[word], of.name, `console/rollouts/${encodeURIComponent(of.name)}/${word}`))));
  }
}
