// The page Scaling: how many replicas each pool has and should have, and why.
import { Chart } from "./chart";
import { fact, grouped, h, milliseconds } from "./dom";
import { FleetFeed, kMinutes, Row, Sample } from "./feed";
import { plain } from "./markdown";
import { Table } from "./table";
import { WhatIf } from "./what_if";
import { say, words } from "./words";

const w = words.scaling;
const kLines = ["desired", "ready", "starting", "leaving"] as const;

const count = (value: number) => (Number.isInteger(value) ? grouped(value) : "");

// A value of a term; what is within one stands behind its name.
function terms(of: Row, before = ""): HTMLElement[] {
  return Object.entries(of).flatMap(([name, value]) => (value !== null && typeof value === "object"
    ? terms(value as Row, `${before}${name}.`)
    : [fact(plain(before + name), typeof value === "number" ? String(Math.round(value * 1000) / 1000) : plain(String(value)))]));
}

// One pool's.
class Pool {
  private readonly facts = h("dl", { class: "facts" });
  private readonly why = h("p", { class: "why" });
  private readonly outdated = h("p", { class: "why", hidden: true });
  private readonly trouble = h("p", { class: "state wrong", role: "alert" });
  private readonly terms = h("dl", { class: "facts" });
  private readonly fold: HTMLDetailsElement;
  private readonly chart: Chart<Sample>;
  private readonly name: HTMLElement;
  private last: Row = {};
  readonly element: HTMLElement;

  constructor(name: string) {
    this.chart = new Chart<Sample>(w.replicas, count, kLines.map((line) => ({
      name: w[line], value: (one) => one.replicas?.[name]?.[line] ?? null })), null, true);
    this.name = h("h2", {}, plain(name));
    this.fold = h("details", { ontoggle: () => this.draw_terms() }, h("summary", {}, w.terms), this.terms);
    this.element = h("article", { class: "panel pool" }, this.name, this.facts, this.why, this.outdated, this.trouble, this.chart.element, this.fold);
  }

  draw(state: Row, samples: Sample[]): void {
    this.last = state;
    // Of a pool whose requests are split each role has a panel.
    const name = state.role ? say(w.role, { pool: plain(state.served), role: w.roles[state.role as keyof typeof w.roles] ?? plain(state.role) }) : plain(state.pool);
    if (this.name.textContent !== name) this.name.textContent = name;
    const eta = state.state !== "ready" && state.eta_s > 0 ? say(w.eta, { state: state.state, eta: milliseconds(state.eta_s * 1000) }) : state.state;
    this.facts.replaceChildren(fact(w.state, eta), fact(w.desired, grouped(state.desired)), fact(w.ready, grouped(state.ready)),
      fact(w.starting, grouped(state.starting)), fact(w.leaving, grouped(state.draining + state.stopping)),
      fact(w.starts, `${grouped(state.starts)} (${grouped(state.failed_starts)})`), fact(w.lost, grouped(state.lost)));
    this.why.textContent = plain(state.decision);
    // Of those that run with other arguments than one that is started now: which, and how.
    const old = Object.entries((state.outdated ?? {}) as Row).map(([replica, how]) => `${plain(replica)} (${plain(String(how))})`);
    const outdated = old.length === 0 ? "" : say(state.rolls ? w.rolling : w.outdated, { count: grouped(old.length), which: old.join(", ") });
    if (this.outdated.textContent !== outdated) this.outdated.textContent = outdated;
    this.outdated.hidden = old.length === 0;
    const trouble = [state.alarm && w.alarm, state.failure && say(w.failure, { why: plain(state.failure) })].filter(Boolean).join(" ");
    if (this.trouble.textContent !== trouble) this.trouble.textContent = trouble;
    this.chart.draw(samples, (one) => one.at, kMinutes * 60_000);
    this.draw_terms();
  }

  private draw_terms(): void {
    if (this.fold.open) this.terms.replaceChildren(...terms(this.last.terms ?? {}));
  }
}

export class Scaling {
  private readonly pools = new Map<string, Pool>();
  private readonly list = h("div", { class: "pools" });
  private readonly none = h("p", { class: "empty" }, w.none);
  private readonly decisions = new Table<Row>(w.decisions, [
    { name: w.columns.at, text: (row) => new Date(row.at).toLocaleTimeString(), short: true },
    { name: w.columns.pool, text: (row) => plain(row.pool), short: true },
    { name: w.columns.change, text: (row) => (row.before === null || row.before === row.desired ? grouped(row.desired) : `${grouped(row.before)} → ${grouped(row.desired)}`), right: true },
    { name: w.columns.reason, text: (row) => plain(row.reason) },
    { name: w.columns.text, text: (row) => plain(row.text), long: true },
  ]);
  private readonly nothing = h("p", { class: "quiet" }, w.no_decisions);
  readonly element: HTMLElement;

  private readonly what_if: WhatIf | null;

  // `has_what_if`: whether there is a record to play.
  constructor(private readonly feed: FleetFeed, has_what_if: boolean) {
    this.what_if = has_what_if ? new WhatIf() : null;
    feed.add(this);
    this.element = h("section", { class: "page live" }, h("h1", {}, w.title), this.none, this.list,
      h("div", { class: "panel" }, h("h2", {}, w.decisions), this.nothing, this.decisions.element),
      this.what_if?.element ?? h("p", { class: "quiet" }, words.what_if.none));
  }

  draw(): void {
    const states = this.feed.table("scaling");
    for (const [name, pool] of this.pools) {
      if (states.has(name)) continue;
      pool.element.remove();
      this.pools.delete(name);
    }
    for (const [name, state] of states) {
      const pool = this.pools.get(name) ?? new Pool(name);
      if (!this.pools.has(name)) {
        this.pools.set(name, pool);
        this.list.append(pool.element);
      }
      pool.draw(state, this.feed.samples);
    }
    this.none.hidden = states.size > 0;
    // Two roles are not played from what was recorded.
    this.what_if?.draw_pools([...states].filter(([, state]) => !state.role).map(([name]) => name));
    const lines = [...this.feed.table("decisions")].sort((a, b) => b[1].n - a[1].n);
    this.nothing.hidden = lines.length > 0;
    this.decisions.draw(lines);
  }
}
