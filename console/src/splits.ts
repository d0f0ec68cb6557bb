// The page Splits: of each route its arms, the shares that they are meant to have and have had, and what became of their requests.
import { get } from "./api";
import { grouped, h, milliseconds } from "./dom";
import { Row } from "./feed";
import { plain } from "./markdown";
import { Operator } from "./operator";
import { get_metrics, Metrics, Poller } from "./poller";
import { Rollout } from "./rollout";
import { Table } from "./table";
import { say, words } from "./words";

const w = words.splits;
const kName = "pelton_gateway_arm_";

const percent = (share: number) => (Number.isFinite(share) ? (share * 100).toFixed(1) + " %" : words.live.nothing);
const time = (seconds: number | null) => (seconds === null ? words.live.nothing : milliseconds(seconds * 1000));

class Route {
  private readonly heading = h("h2");
  private readonly about = h("p", { class: "quiet" });
  private readonly arms = new Table<Row>(w.table, [
    { name: w.columns.arm, text: (row) => plain(row.arm), short: true },
    { name: w.columns.pool, text: (row) => plain(row.pool), short: true },
    { name: w.columns.meant, text: (row) => percent(row.meant), right: true },
    { name: w.columns.had, text: (row) => (row.shadow ? "" : percent(row.had)), right: true },
    { name: w.columns.requests, text: (row) => grouped(row.requests), right: true },
    { name: w.columns.ok, text: (row) => grouped(row.ok), right: true },
    { name: w.columns.client_error, text: (row) => grouped(row.client_error), right: true, wide: true },
    { name: w.columns.error, text: (row) => grouped(row.error), right: true },
    { name: w.columns.left, text: (row) => grouped(row.left), right: true, wide: true },
    { name: w.columns.first, text: (row) => `${time(row.first_p50)}, ${time(row.first_p95)}`, right: true },
    { name: w.columns.token, text: (row) => `${time(row.token_p50)}, ${time(row.token_p95)}`, right: true },
    { name: w.columns.tokens, text: (row) => (row.tokens === null ? words.live.nothing : grouped(row.tokens)), right: true },
  ]);
  private readonly rollout: Rollout;
  readonly element: HTMLElement;

  constructor(operator: Operator) {
    this.rollout = new Rollout(operator);
    this.element = h("article", { class: "panel" }, this.heading, this.about, this.arms.element, this.rollout.element);
  }

  draw(route: Row, metrics: Metrics, rollout: Row | undefined): void {
    this.rollout.element.hidden = rollout === undefined;
    if (rollout !== undefined) this.rollout.draw(rollout);
    this.heading.textContent = route.tenant === "*" ? plain(route.model) : say(w.of_tenant, { model: plain(route.model), tenant: plain(route.tenant) });
    const fallback = route.fallback.length > 0 ? say(w.fallback, { pools: route.fallback.map(plain).join(", ") }) : "";
    this.about.textContent = `${w.sticky[route.sticky as keyof typeof w.sticky] ?? ""} ${fallback}`.trim();
    // An arm that is rolled out has no weight: the others share what it leaves.
    const weights = route.arms.reduce((sum: number, arm: Row) => sum + (arm.weight ?? 0), 0);
    const taken = rollout?.share ?? 0;
    const all = route.arms.reduce((sum: number, arm: Row) => sum + metrics.value(kName + "requests_total", { model: route.model, arm: arm.arm, traffic: "clients" }), 0);
    const rows: Row[] = route.arms.map((arm: Row) => ({ ...arm, shadow: false, meant: arm.weight === null ? taken : arm.weight / weights * (1 - taken) }));
    if (route.shadow !== null) rows.push({ arm: route.shadow.pool, pool: route.shadow.pool, shadow: true, meant: route.shadow.share });
    this.arms.draw(rows.map((row) => {
      const labels = { model: route.model, arm: row.arm, traffic: row.shadow ? "shadow" : "clients" };
      const answers = (outcome: string) => metrics.value(kName + "answers_total", { ...labels, outcome });
      const requests = metrics.value(kName + "requests_total", labels);
      return [`${labels.traffic} ${row.arm}`, { ...row, requests, had: requests / all, ok: answers("ok"), client_error: answers("client_error"), error: answers("error"), left: answers("left"),
        arm: row.shadow ? say(w.shadow, { arm: row.arm }) : row.arm,
        first_p50: metrics.quantile(kName + "first_token_seconds", 0.5, labels), first_p95: metrics.quantile(kName + "first_token_seconds", 0.95, labels),
        token_p50: metrics.quantile(kName + "token_seconds", 0.5, labels), token_p95: metrics.quantile(kName + "token_seconds", 0.95, labels),
        tokens: metrics.mean(kName + "output_tokens", labels) }];
    }));
  }
}

export class Splits {
  private readonly list = h("div");
  private readonly none = h("p", { class: "empty" }, w.none);
  private routes: Route[] = [];
  readonly poller: Poller = new Poller(() => this.element, () => this.load(), 2000);
  readonly element: HTMLElement = h("section", { class: "page live" }, h("h1", {}, w.title), this.poller.state, h("p", { class: "quiet" }, w.note), this.none, this.list);

  constructor(private readonly operator: Operator) {
    operator.on_change(() => this.poller.start());
  }

  private async load(): Promise<void> {
    const [{ routes }, { rollouts }, metrics] = await Promise.all([get("v1/routes"), get("v1/rollouts"), get_metrics()]);
    this.none.hidden = routes.length > 0;
    while (this.routes.length < routes.length) this.routes.push(new Route(this.operator));
    this.routes.length = routes.length;
    this.list.replaceChildren(...this.routes.map((one) => one.element));
    this.routes.forEach((one, i) => one.draw(routes[i], metrics, rollouts.find((rollout: Row) => rollout.name === routes[i].rollout)));
  }
}
