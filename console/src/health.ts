// The page Health: which alerts would fire, the error budget, what the gateway holds (its ledger), workers that take no requests or fail, and what was
// done about failures.
import { get } from "./api";
import { fact, grouped, h, milliseconds } from "./dom";
import { Row } from "./feed";
import { ledger_facts } from "./ledger";
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

// Windows of days are no number of seconds for a person, nor are minutes.
const seconds = (value: number) => (value < 60 ? milliseconds(value * 1000) : value < 3600 ? `${+(value / 60).toFixed(1)} min`
  : value < 172800 ? `${+(value / 3600).toFixed(1)} h` : `${+(value / 86400).toFixed(1)} d`);
const share = (value: number) => (value * 100).toFixed(2) + " %";
const value_of = (row: Row, value: number) => (row.name.startsWith("PeltonErrorBudget") ? share(value) : grouped(value));

// Coarser samples begin a little after the window does.
const looked_at = (row: Row) => (row.kept_s < row.window_s * 0.95 ? say(w.shorter, { kept: seconds(row.kept_s), window: seconds(row.window_s) }) : seconds(row.window_s));

// Those that had begun, and those that had not.
const lost_with_workers = (metrics: Metrics) => ["lost", "down"].reduce((sum, reason) => sum + metrics.value(kGateway + "retries_total", { reason }), 0)
  + metrics.value(kGateway + "migrations_total", { kind: "cold" });

export class Health {
  private readonly figures = h("dl", { class: "facts live-now" });
  private readonly budget = h("dl", { class: "facts" });
  private readonly budgets = new Table<Row>(w.budget_title, [
    { name: w.columns.window, text: (row) => looked_at(row), short: true },
    { name: w.columns.requests, text: (row) => grouped(row.requests), right: true },
    { name: w.columns.bad, text: (row) => grouped(row.bad), right: true },
    { name: w.columns.share, text: (row) => share(row.bad_share), right: true },
    { name: w.columns.burn, text: (row) => "× " + row.burn.toFixed(1), right: true },
  ]);
  private readonly budget_note = h("p", { class: "quiet" });
  private readonly ledger = h("dl", { class: "facts" });
  private readonly quiet = h("p", { class: "quiet", role: "status" });
  private readonly well = h("p", { class: "quiet", role: "status" });
  private readonly nothing_done = h("p", { class: "quiet" }, w.nothing_done);
  private readonly alerts = this.alert_table(w.alerts);
  private readonly all_alerts = this.alert_table(w.all_alerts);
  private readonly workers = new Table<Row>(w.workers, [
    { name: w.columns.worker, text: (row) => plain(row.name), short: true },
    { name: w.columns.pool, text: (row) => plain(row.pool), short: true },
    { name: w.columns.state, text: (row) => row.state, mark: (row) => row.state },
    { name: w.columns.why, text: (row) => plain(row.reason) },
    { name: w.columns.failures, text: (row) => say(w.of, { some: grouped(row.failures), all: grouped(row.requests) }), right: true },
    { name: w.columns.bias, text: (row) => "× " + Number(row.bias).toFixed(2), right: true },
    { name: w.columns.report, text: (row) => (row.slots > 0 ? milliseconds(row.report_age_ms) : words.live.nothing), right: true },
  ]);
  private readonly held = new Table<Row>(w.held_by, [
    { name: w.columns.worker, text: (row) => plain(row.name), short: true },
    { name: w.columns.running, text: (row) => (row.reports ? grouped(row.running) : words.fleet.unknown), right: true },
    { name: w.columns.waiting, text: (row) => (row.reports ? grouped(row.waiting) : words.fleet.unknown), right: true },
    { name: w.columns.uncounted, text: (row) => grouped(row.uncounted), right: true },
    { name: w.columns.kv, text: (row) => (row.reports ? share(row.kv_used) : words.fleet.unknown), right: true },
    { name: w.columns.report, text: (row) => (row.slots > 0 ? milliseconds(row.report_age_ms) : words.live.nothing), right: true },
  ]);
  private readonly counters = new Table<Row>(w.counters, [
    { name: w.columns.count, text: (row) => grouped(row.count), right: true },
    { name: w.columns.what, text: (row) => w.names[row.name as keyof typeof w.names] },
    { name: w.columns.why, text: (row) => plain(row.why) },
  ]);
  readonly poller: Poller = new Poller(() => this.element, () => this.load(), 2000);
  readonly element: HTMLElement = h("section", { class: "page live" }, h("h1", {}, w.title), this.poller.state, this.figures,
    h("div", { class: "panel" }, h("h2", {}, w.alerts), this.quiet, this.alerts.element,
      h("details", {}, h("summary", {}, w.all_alerts), this.all_alerts.element)),
    h("div", { class: "panel" }, h("h2", {}, w.budget_title), this.budget_note, this.budget, this.budgets.element),
    h("div", { class: "panel" }, h("h2", {}, w.workers), this.well, this.workers.element),
    h("div", { class: "panel" }, h("h2", {}, w.counters), this.nothing_done, this.counters.element),
    h("div", { class: "panel" }, h("h2", {}, w.ledger), h("p", { class: "quiet" }, w.ledger_note), this.ledger, this.held.element));

  private alert_table(label: string): Table<Row> {
    return new Table<Row>(label, [
      { name: w.columns.state, text: (row) => w.states[row.state as keyof typeof w.states], mark: (row) => ({ firing: "down", pending: "suspect", quiet: "ready" }[row.state as string] ?? "") },
      { name: w.columns.alert, text: (row) => row.name, short: true },
      { name: w.columns.pool, text: (row) => plain(row.pool), short: true },
      { name: w.columns.value, text: (row) => row.state === "elsewhere" ? "" : say(w.value, { value: value_of(row, row.value), limit: value_of(row, row.limit) }), right: true },
      { name: w.columns.since, text: (row) => (row.state === "quiet" || row.state === "elsewhere" ? "" : say(w.since, { since: seconds(row.since_s), wanted: seconds(row.for_s) })), right: true },
      { name: w.columns.window, text: (row) => row.state === "elsewhere" ? w.elsewhere[row.where as keyof typeof w.elsewhere] : row.window_s === 0 ? w.now : looked_at(row) },
      { name: w.columns.severity, text: (row) => row.severity },
    ]);
  }

  private async load(): Promise<void> {
    const [{ workers }, metrics, conditions, ledger] = await Promise.all([get("v1/workers"), get_metrics(), get("v1/conditions"), get("debug/ledger")]);
    const value = (name: string) => grouped(metrics.value(kGateway + name));
    const lost = lost_with_workers(metrics);
    const replicas_lost = metrics.value("pelton_autoscaler_lost_replicas_total");
    this.figures.replaceChildren(
      fact(w.ready, say(w.of, { some: grouped(metrics.value(kGateway + "workers", { state: "ready" })), all: value("workers") })),
      fact(w.lost_requests, grouped(lost)), fact(w.lost_replicas, grouped(replicas_lost)), fact(w.interrupted, value("streams_interrupted_total")),
      fact(w.unserved, value("unserved_total")), fact(w.budget, value("retry_budget")), fact(w.suspects, value("suspects")), fact(w.quarantined, value("quarantined_total")));
    this.draw_alerts(conditions);
    this.draw_workers(workers, lost + replicas_lost > 0);
    this.draw_counters(metrics);
    this.draw_ledger(ledger);
  }

  private draw_alerts({ conditions, budget, budgets, elsewhere, history_s }: Row): void {
    const rows = conditions as Row[];
    const others = (elsewhere as Row[]).map((one): Row => ({ ...one, state: "elsewhere", pool: "" }));
    const order = ["firing", "pending", "quiet"];
    const sorted = [...rows].sort((a, b) => order.indexOf(a.state) - order.indexOf(b.state));
    const key = (row: Row): [string, Row] => [`${row.name} ${row.pool}`, row];
    const loud = sorted.filter((one) => one.state !== "quiet");
    const said = say(loud.length > 0 ? w.alerts_note : w.no_alerts, { minutes: (history_s / 60).toFixed(1) });
    if (this.quiet.textContent !== said) this.quiet.textContent = said;
    this.alerts.element.hidden = loud.length === 0;
    this.alerts.draw(loud.map(key));
    this.all_alerts.draw([...sorted, ...others].map(key));
    this.budget_note.textContent = say(w.budget_note, { minutes: (budget.kept_s / 60).toFixed(1), kept: seconds(history_s), objective: share(1 - budget.objective) });
    this.budget.replaceChildren(fact(w.budget_requests, grouped(budget.requests)), fact(w.budget_bad, grouped(budget.bad)),
      fact(w.budget_share, share(budget.bad_share)), fact(w.burn, "× " + budget.burn.toFixed(1)));
    this.budgets.draw((budgets as Row[]).map((one) => [String(one.window_s), one]));
  }

  private draw_workers(workers: Row[], has_lost: boolean): void {
    const trouble = workers.filter((one) => one.state !== "ready" || one.failures > 0 || one.reason);
    trouble.sort((a, b) => Number(a.state === "ready") - Number(b.state === "ready") || (a.name < b.name ? -1 : 1));
    this.well.textContent = workers.length === 0 ? words.fleet.none : trouble.length > 0 ? "" : has_lost ? w.well_but_lost : w.all_well;
    this.workers.element.hidden = trouble.length === 0;
    this.workers.draw(trouble.map((one) => [`${one.name} ${one.address}`, one]));
  }

  private draw_counters(metrics: Metrics): void {
    const rows = kCounters.flatMap(({ name, why }) => metrics.of(kGateway + name).filter((one) => one.value > 0).map((one) => ({
      name, why: why.map((label) => one.labels[label] ?? "").join(", ").replace(/_/g, " "), count: one.value })));
    this.nothing_done.hidden = rows.length > 0;
    this.counters.element.hidden = rows.length === 0;
    this.counters.draw(rows.map((row) => [`${row.name} ${row.why}`, row]));
  }

  private draw_ledger(ledger: Row): void {
    this.ledger.replaceChildren(fact(w.clean, ledger.clean ? w.nothing_held : w.something_held), fact(w.open, grouped(ledger.requests.open)),
      fact(w.waiting, grouped(ledger.requests.waiting)), fact(w.held, grouped(ledger.requests.held)), ...ledger_facts(ledger.process));
    this.held.element.hidden = ledger.workers.length === 0;
    this.held.draw((ledger.workers as Row[]).map((one) => [`${one.pool} ${one.name}`, one]));
  }
}
