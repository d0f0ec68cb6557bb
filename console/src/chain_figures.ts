// The page Chains of an operator: sums over all runs of each chain and of its steps, since the process began. No run is shown.
import { grouped, h, milliseconds } from "./dom";
import { Row } from "./feed";
import { plain } from "./markdown";
import { get_metrics, Metrics, Poller } from "./poller";
import { Table } from "./table";
import { say, words } from "./words";

const w = words.chain_figures;
const kRuns = "pelton_chain_run";
const kStep = "pelton_chain_step_";
const kOutcomes = ["ok", "step_failed", "deadline", "left", "refused"] as const;

const time = (seconds: number | null) => (seconds === null ? words.live.nothing : milliseconds(seconds * 1000));

export class ChainFigures {
  private readonly chains = new Table<Row>(w.table, [
    { name: w.columns.chain, text: (row) => plain(row.chain), short: true },
    { name: w.columns.open, text: (row) => grouped(row.open), right: true },
    ...kOutcomes.map((outcome) => ({ name: w.outcomes[outcome], text: (row: Row) => grouped(row[outcome]), right: true })),
    { name: w.columns.mean, text: (row) => time(row.mean), right: true },
  ]);
  private readonly steps = new Table<Row>(w.steps, [
    { name: w.columns.chain, text: (row) => plain(row.chain), short: true },
    { name: w.columns.step, text: (row) => plain(row.step), short: true },
    { name: w.columns.done, text: (row) => grouped(row.done), right: true },
    { name: w.columns.skipped, text: (row) => grouped(row.skipped), right: true },
    { name: w.columns.retries, text: (row) => grouped(row.retries), right: true },
    { name: w.columns.mean, text: (row) => time(row.mean), right: true },
    { name: w.columns.share, text: (row) => (row.share === null ? words.live.nothing : (row.share * 100).toFixed(0) + " %"), right: true },
    { name: w.columns.tokens, text: (row) => say(w.tokens, { prompt: grouped(row.prompt), output: grouped(row.output) }), right: true },
  ]);
  readonly poller: Poller = new Poller(() => this.element, () => this.load(), 2000);
  readonly element: HTMLElement = h("section", { class: "page live" }, h("h1", {}, w.title), this.poller.state, h("p", { class: "quiet" }, w.note),
    h("div", { class: "panel" }, h("h2", {}, w.table), this.chains.element), h("div", { class: "panel" }, h("h2", {}, w.steps), this.steps.element));

  private async load(): Promise<void> {
    const metrics = await get_metrics();
    this.chains.draw(metrics.of(kRuns + "s_open").map(({ labels, value }) => {
      const of: Row = { chain: labels.chain, open: value, mean: metrics.mean(kRuns + "_seconds", { chain: labels.chain }) };
      for (const outcome of kOutcomes) of[outcome] = metrics.value(kRuns + "s_total", { chain: labels.chain, outcome });
      return [labels.chain, of];
    }));
    this.steps.draw(metrics.of(kStep + "seconds_count").map(({ labels: { chain, step }, value }) => [JSON.stringify([chain, step]), this.step(metrics, chain, step, value)]));
  }

  // `share`: of the time of all steps of its chain.
  private step(metrics: Metrics, chain: string, step: string, done: number): Row {
    const of = (name: string) => metrics.value(kStep + name, { chain, step });
    const all = metrics.value(kStep + "seconds_sum", { chain });
    return { chain, step, done, skipped: of("skipped_total"), retries: of("retries_total"), mean: metrics.mean(kStep + "seconds", { chain, step }),
      share: all > 0 && Number.isFinite(all) ? of("seconds_sum") / all : null, prompt: of("prompt_tokens_total"), output: of("output_tokens_total") };
  }
}
