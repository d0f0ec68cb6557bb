// The page Fleet: the workers of a gateway, by region, pool and name.
import { Chart } from "./chart";
import { button, fact, grouped, h } from "./dom";
import { FleetFeed, kMinutes, Row, Sample } from "./feed";
import { plain } from "./markdown";
import { Operator } from "./operator";
import { Action, Table } from "./table";
import { say, words } from "./words";

const w = words.fleet;
const kRowsAtFirst = 200;
const kPoolsShown = 16;

const count = (value: number) => (Number.isInteger(value) ? grouped(value) : "");
const known = (value: unknown) => (typeof value === "number" ? grouped(value) : words.live.nothing);
// What a worker said before it fell silent is not what it does now.
const says = (row: Row, value: number) => (row.reports === false ? w.unknown : known(value));
// Of more pools a sample has the first ones only.
const is_whole = (sample: Sample) => Object.keys(sample.pools ?? {}).length < kPoolsShown;
const where = (row: Row) => [row.region, row.zone].filter(Boolean).join(", ");

// Of a pool whose requests are split a worker may have one role only.
const pool_of = (row: Row) => plain(row.pool) + (row.role && row.role !== "both" ? `, ${plain(row.role)}` : "");

export class Fleet {
  private readonly figures = h("dl", { class: "facts live-now" });
  private readonly ready = new Chart<Sample>(w.ready_by_pool, count, [], null, true);
  private readonly running = new Chart<Sample>(w.running_by_pool, count, [], null, true);
  private readonly workers = new Table<Row>(w.title, [
    { name: w.columns.name, text: (row) => plain(row.name), short: true },
    { name: w.columns.pool, text: pool_of, short: true },
    { name: w.columns.state, text: (row) => row.state + (row.reason ? ": " + plain(row.reason) : ""), mark: (row) => row.state },
    { name: w.columns.load, text: (row) => `${says(row, row.running)} / ${known(row.slots)}`, right: true },
    { name: w.columns.waiting, text: (row) => says(row, row.waiting), right: true },
    { name: w.columns.kv, text: (row) => (row.reports === false ? w.unknown : typeof row.kv_used === "number" ? (row.kv_used * 100).toFixed(0) + " %" : words.live.nothing), right: true },
    { name: w.columns.requests, text: (row) => known(row.requests), right: true },
    { name: w.columns.failures, text: (row) => known(row.failures), right: true },
    { name: w.columns.where, text: (row) => plain(where(row)), wide: true },
    { name: w.columns.version, text: (row) => plain(row.version), wide: true },
    { name: w.columns.address, text: (row) => plain(row.address), wide: true },
    { name: w.columns.commands, text: () => "", actions: (row) => this.actions(row) },
  ]);
  private readonly commands = new Table<Row>(w.commands, [
    { name: w.command_columns.at, text: (row) => new Date(row.at).toLocaleTimeString(), short: true },
    { name: w.command_columns.who, text: (row) => plain(row.who), short: true },
    { name: w.command_columns.from, text: (row) => plain(row.from), wide: true },
    { name: w.command_columns.what, text: (row) => [row.what, row.target].filter(Boolean).map(plain).join(" ") },
    { name: w.command_columns.result, text: (row) => plain(row.result) },
  ]);
  private readonly audit = h("div", { class: "panel" }, h("h2", {}, w.commands), this.commands.element);
  private readonly how = h("p", { class: "quiet" });
  private readonly filter = h("input", { type: "search", size: 40, placeholder: w.filter_hint, oninput: () => this.draw_table() });
  private readonly shown = h("span", { class: "quiet", role: "status" });
  private readonly more = button("", () => {
    this.all = true;
    this.draw_table();
  }, { class: "quiet" });
  private all = false;
  readonly element: HTMLElement;

  constructor(private readonly feed: FleetFeed, private readonly operator: Operator) {
    feed.add(this);
    operator.on_change(() => this.draw_table());
    this.element = h("section", { class: "page live" }, h("h1", {}, w.title), this.figures,
      h("div", { class: "charts few" }, this.ready.element, this.running.element),
      h("div", { class: "panel" }, h("div", { class: "tools" },
        h("label", { class: "field inline" }, h("span", {}, w.filter), this.filter), this.shown, this.more),
      this.workers.element, this.how), this.audit);
    this.audit.hidden = true;
  }

  private actions(row: Row): Action[] {
    if (!this.operator.is_signed_in) return [];
    const all: (keyof typeof words.operator.commands)[] = [row.state === "draining" ? "undrain" : "drain", row.state === "ejected" ? "restore" : "eject"];
    return all.map((word) => ({ label: words.operator.commands[word].label, run: () => void this.operator.command(row.name, word) }));
  }

  draw(): void {
    const samples = this.feed.samples;
    // Also those that have no worker now: of a pool that nobody was in there were none.
    const names = [...new Set(samples.flatMap((one) => [...Object.keys(one.pools ?? {}), ...Object.keys(one.replicas ?? {})]))].sort();
    const of = (one: Sample, name: string, what: "ready" | "running") => (one.pools === undefined ? null : one.pools[name]?.[what] ?? (is_whole(one) ? 0 : null));
    this.ready.set_lines(names.map((name) => ({ name: plain(name), value: (one) => of(one, name, "ready") })));
    this.running.set_lines(names.map((name) => ({ name: plain(name), value: (one) => of(one, name, "running") })));
    for (const chart of [this.ready, this.running]) chart.draw(samples, (one) => one.at, kMinutes * 60_000);
    const workers = [...this.feed.table("workers").values()];
    const sum = (count_of: (row: Row) => number) => grouped(workers.reduce((all, row) => all + (row.reports === false ? 0 : count_of(row)), 0));
    this.figures.replaceChildren(
      fact(w.ready, say(w.of, { some: sum((row) => Number(row.state === "ready")), all: grouped(workers.length) })),
      fact(w.running, sum((row) => row.running)), fact(w.waiting, sum((row) => row.waiting)));
    const lines = [...this.feed.table("commands")].sort((a, b) => b[1].n - a[1].n);
    this.audit.hidden = lines.length === 0;
    this.commands.draw(lines);
    this.draw_table();
  }

  private draw_table(): void {
    const wanted = this.filter.value.trim().toLowerCase();
    const every = [...this.feed.table("workers")];
    const fit = every.filter(([, row]) => !wanted || [row.name, row.pool, row.role, row.state, row.zone, row.region].join(" ").toLowerCase().includes(wanted));
    const place = (row: Row) => [row.region, row.pool, row.name].join("\n");
    const sorted = fit.map((one) => [place(one[1]), one] as const).sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0)).map(([, one]) => one);
    const shown = this.all ? sorted : sorted.slice(0, kRowsAtFirst);
    this.workers.element.classList.toggle("operated", this.operator.is_signed_in);
    const how = this.operator.is_signed_in ? "" : this.operator.may ? w.how_sign_in : w.how_terminal;
    if (this.how.textContent !== how) this.how.textContent = how;
    this.workers.draw(shown);
    const text = every.length === 0 ? w.none : fit.length === 0 ? w.no_match : say(w.shown, { some: grouped(shown.length), all: grouped(every.length) });
    if (this.shown.textContent !== text) this.shown.textContent = text;
    this.more.hidden = shown.length === sorted.length;
    this.more.textContent = say(w.all, { count: grouped(sorted.length) });
  }
}
