// The page Requests: what becomes of them, in numbers only.
import { Chart } from "./chart";
import { fact, grouped, h, rate } from "./dom";
import { FleetFeed, kMinutes, Row, Sample } from "./feed";
import { plain } from "./markdown";
import { Table } from "./table";
import { words } from "./words";

const w = words.requests;
const kOutcomes = ["ok", "client_error", "error", "left"] as const;

const count = (value: number) => (Number.isInteger(value) ? grouped(value) : "");

export class Requests {
  private readonly figures = h("dl", { class: "facts live-now" });
  private readonly charts = [
    new Chart<Sample>(w.ended, rate, kOutcomes.map((one) => ({ name: w.outcomes[one], value: (sample) => sample.ended?.[one] ?? null }))),
    new Chart<Sample>(w.open_chart, count, [{ name: w.open, value: (sample) => sample.open ?? null },
      { name: w.waiting, value: (sample) => sample.waiting ?? null }], null, true),
  ];
  private readonly pools = new Table<Row>(w.table, [
    { name: w.pool, text: (row) => plain(row.pool), short: true },
    ...kOutcomes.map((one) => ({ name: w.outcomes[one], text: (row: Row) => grouped(row[one]), right: true })),
    { name: w.held, text: (row) => grouped(row.held), right: true },
  ]);
  private readonly none = h("p", { class: "quiet" }, w.none);
  readonly element: HTMLElement;

  constructor(private readonly feed: FleetFeed) {
    feed.add(this);
    this.element = h("section", { class: "page live" }, h("h1", {}, w.title), h("p", { class: "quiet" }, w.note), this.figures,
      h("div", { class: "charts few" }, ...this.charts.map((chart) => chart.element)),
      h("div", { class: "panel" }, h("h2", {}, w.table), this.none, this.pools.element));
  }

  draw(): void {
    const samples = this.feed.samples;
    const now = samples[samples.length - 1];
    for (const chart of this.charts) chart.draw(samples, (one) => one.at, kMinutes * 60_000);
    const names = ["open", "waiting", "retries", "moves", "interrupted", "unserved"] as const;
    this.figures.replaceChildren(...names.map((name) => fact(w[name], grouped(now[name] ?? 0))));
    const rows = [...this.feed.table("requests")];
    this.none.hidden = rows.length > 0;
    this.pools.draw(rows);
  }
}
