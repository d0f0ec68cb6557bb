// The page Health: workers that take no requests or fail, and what the gateway has done about failures.
import { get } from "./api";
import { fact, grouped, h, milliseconds } from "./dom";
import { Row } from "./feed";
import { plain } from "./markdown";
import { get_metrics, Metrics, Poller } from "./poller";
import { Table } from "./table";
import { say, words } from "./words";

const w = words.health;
const kGateway = "pelton_gateway_";
// Counters, the label that says why, and what is left out: continued answers are no trouble.
const kCounters = [
  { name: "retries_total", why: ["reason"] }, { name: "ejections_total", why: ["reason"] }, { name: "migrations_total", why: ["kind", "result"] },
  { name: "limited_total", why: ["limit"] }, { name: "kv_events_resets_total", why: ["reason"] },
] as const;

export class Health {
  private readonly figures = h("dl", { class: "facts live-now" });
  private readonly well = h("p", { class: "quiet", role: "status" });
  private readonly workers = new Table<Row>(w.workers, [
    { name: w.columns.worker, text: (row) => plain(row.name), short: true },
    { name: w.columns.pool, text: (row) => plain(row.pool), short: true },
    { name: w.columns.state, text: (row) => row.state, mark: (row) => row.state },
    { name: w.columns.why, text: (row) => plain(row.reason) },
    { name: w.columns.failures, text: (row) => say(w.of, { some: grouped(row.failures), all: grouped(row.requests) }), right: true },
    { name: w.columns.bias, text: (row) => "× " + Number(row.bias).toFixed(2), right: true },
    { name: w.columns.report, text: (row) => (row.slots > 0 ? milliseconds(row.report_age_ms) : words.live.nothing), right: true },
  ]);
  private readonly counters = new Table<Row>(w.counters, [
    { name: w.columns.what, text: (row) => w.names[row.name as keyof typeof w.names] },
    { name: w.columns.why, text: (row) => row.why },
    { name: w.columns.count, text: (row) => grouped(row.count), right: true },
  ]);
  readonly poller: Poller = new Poller(() => this.element, () => this.load(), 2000);
  readonly element: HTMLElement = h("section", { class: "page live" }, h("h1", {}, w.title), this.poller.state, this.figures,
    h("div", { class: "panel" }, h("h2", {}, w.workers), this.well, this.workers.element),
    h("div", { class: "panel" }, h("h2", {}, w.counters), this.counters.element));

  private async load(): Promise<void> {
    const [{ workers }, metrics] = await Promise.all([get("v1/workers"), get_metrics()]);
    const value = (name: string) => grouped(metrics.value(kGateway + name));
    this.figures.replaceChildren(
      fact(w.ready, say(w.of, { some: grouped(metrics.value(kGateway + "workers", { state: "ready" })), all: value("workers") })),
      fact(w.budget, value("retry_budget")), fact(w.suspects, value("suspects")), fact(w.quarantined, value("quarantined_total")),
      fact(w.interrupted, value("streams_interrupted_total")), fact(w.unserved, value("unserved_total")));
    const trouble = (workers as Row[]).filter((one) => one.state !== "ready" || one.failures > 0 || one.reason);
    trouble.sort((a, b) => Number(a.state === "ready") - Number(b.state === "ready") || (a.name < b.name ? -1 : 1));
    this.well.textContent = workers.length === 0 ? words.fleet.none : trouble.length === 0 ? w.all_well : "";
    this.workers.element.hidden = trouble.length === 0;
    this.workers.draw(trouble.map((one) => [`${one.name} ${one.address}`, one]));
    this.draw_counters(metrics);
  }

  private draw_counters(metrics: Metrics): void {
    const rows = kCounters.flatMap(({ name, why }) => metrics.of(kGateway + name).map((one) => ({
      name, why: why.map((label) => one.labels[label] ?? "").join(", ").replace(/_/g, " "), count: one.value })));
    this.counters.draw(rows.map((row) => [`${row.name} ${row.why}`, row]));
  }
}
