// The page Health of one server: its ledger, which says what requests could leave behind, and what it has counted of trouble.
import { get } from "./api";
import { fact, grouped, h } from "./dom";
import { Row } from "./feed";
import { ledger_facts } from "./ledger";
import { plain } from "./markdown";
import { get_metrics, Poller } from "./poller";
import { Table } from "./table";
import { say, words } from "./words";

const w = words.server_health;

export class ServerHealth {
  private readonly figures = h("dl", { class: "facts live-now" });
  private readonly requests = h("dl", { class: "facts" });
  private readonly process = h("dl", { class: "facts" });
  private readonly engines = new Table<Row>(w.engines, [
    { name: w.columns.model, text: (row) => plain(row.model), short: true },
    { name: w.columns.running, text: (row) => grouped(row.sequences.running), right: true },
    { name: w.columns.waiting, text: (row) => grouped(row.sequences.waiting + row.queue.requests), right: true },
    { name: w.columns.draining, text: (row) => grouped(row.sequences.draining), right: true },
    { name: w.columns.slots, text: (row) => grouped(row.slots_free), right: true },
    { name: w.columns.streams, text: (row) => grouped(row.streams), right: true },
    { name: w.columns.steps, text: (row) => grouped(row.steps_in_flight), right: true },
  ]);
  private readonly blocks = new Table<Row>(w.blocks, [
    { name: w.columns.model, text: (row) => plain(row.model), short: true },
    { name: w.columns.group, text: (row) => plain(row.group), short: true },
    ...(["total", "free", "kept", "held", "pinned"] as const).map((one) => ({ name: w.columns[one], text: (row: Row) => grouped(row[one]), right: true })),
  ]);
  readonly poller: Poller = new Poller(() => this.element, () => this.load(), 2000);
  readonly element: HTMLElement = h("section", { class: "page live" }, h("h1", {}, w.title), this.poller.state, this.figures,
    h("div", { class: "panel" }, h("h2", {}, w.ledger), h("p", { class: "quiet" }, w.note), this.requests, this.engines.element, this.blocks.element),
    h("div", { class: "panel" }, h("h2", {}, w.process), this.process),
    h("p", { class: "quiet" }, w.alerts_elsewhere));

  private async load(): Promise<void> {
    const [ledger, metrics] = await Promise.all([get("debug/ledger"), get_metrics()]);
    this.figures.replaceChildren(fact(w.ready, metrics.value("pelton_ready") === 1 ? w.yes : w.no), fact(w.state, plain(ledger.state)),
      fact(w.clean, ledger.clean ? w.nothing_held : w.something_held), fact(w.steps_failed, grouped(metrics.value("pelton_engine_steps_failed_total"))),
      fact(w.numbers, grouped(metrics.value("pelton_numerical_errors_total"))), fact(w.refused, grouped(metrics.value("pelton_requests_refused_total"))));
    const { requests, generations, connections, turn_cache } = ledger.server;
    this.requests.replaceChildren(fact(w.open, grouped(requests.open)), fact(w.received, grouped(requests.received)), fact(w.ok, grouped(requests.ok)),
      fact(w.client_errors, grouped(requests.client_errors)), fact(w.server_errors, grouped(requests.server_errors)), fact(w.cancelled, grouped(requests.cancelled)),
      fact(w.generations, grouped(generations)), fact(w.connections, grouped(connections)), fact(w.turns, say(w.turns_of, { turns: grouped(turn_cache.turns), tokens: grouped(turn_cache.tokens) })));
    const engines: [string, Row][] = ledger.engines ? Object.entries(ledger.engines) : ledger.engine ? [["", ledger.engine]] : [];
    this.engines.element.hidden = this.blocks.element.hidden = engines.length === 0;
    this.engines.draw(engines.map(([model, one]) => [model, { ...one, model: model || w.the_model }]));
    this.blocks.draw(engines.flatMap(([model, one]) => Object.entries(one.blocks as Row).map(([group, of]): [string, Row] => [`${model} ${group}`, { ...of, group, model: model || w.the_model }])));
    this.process.replaceChildren(...ledger_facts(ledger.process));
  }
}
