// The page Capacity: which machines there are, which of them the plan takes, why, and what it costs.
import { ApiError, get } from "./api";
import { fact, grouped, h, milliseconds } from "./dom";
import { Row } from "./feed";
import { plain } from "./markdown";
import { Table } from "./table";
import { say, words } from "./words";

const w = words.capacity;
const kTries = 30;

// As the verb prints it: four digits.
const digits = (value: number) => String(Number(value.toPrecision(4)));
const money = (value: number, currency: string) => `${value.toFixed(2)} ${plain(currency)}`;
const percent = (share: number) => (share * 100).toFixed(1) + " %";
const seconds = (value: number) => milliseconds(value * 1000);
const place = (row: Row) => [row.provider, row.region, row.zone === "-" ? "" : row.zone].filter(Boolean).map(plain).join("/");
const tags = (row: Row) => (row.residency.length > 0 ? row.residency.map(plain).join(", ") : w.anywhere);

// One answer at a time is computed: whoever comes second waits for the first.
export async function get_computed(path: string): Promise<Row> {
  for (let tries = 1; ; ++tries) {
    try {
      return await get(path) as Row;
    } catch (error) {
      if (!(error instanceof ApiError) || error.retry_after === 0 || tries === kTries) throw error;
      await new Promise((resolve) => setTimeout(resolve, error.retry_after * 1000));
    }
  }
}

function runner_up(row: Row): string {
  if (row.runner_up === null) return w.needed;
  const { replicas, instead, dearer_by, price_until } = row.runner_up;
  const others = instead.map((one: Row) => say(w.more_of, { count: one.replicas, variant: plain(one.variant), at: plain(one.capacity) })).join(", ");
  return say(w.runner_up, { replicas, instead: others || w.nothing_more, by: digits(Math.max(0, dearer_by)) }) + (price_until === undefined ? "" : say(w.wins_at, { price: digits(price_until) }));
}

export class Capacity {
  private currency = "";
  private readonly facts = h("dl", { class: "facts live-now" });
  private readonly state = h("p", { class: "state", role: "status" });
  private readonly wrong = h("p", { class: "state wrong", role: "alert" });
  private readonly without = h("select", { id: "without", onchange: () => void this.plan() }, h("option", { value: "" }, w.nothing_lost));
  private readonly shortfalls = h("ul", { class: "shortfalls" });
  private readonly placements = new Table<Row>(w.placements, [
    { name: w.columns.model, text: (row) => plain(row.model), short: true },
    { name: w.columns.variant, text: (row) => plain(row.variant), short: true },
    { name: w.columns.at, text: (row) => plain(row.capacity), short: true },
    { name: w.columns.replicas, text: (row) => grouped(row.replicas), right: true },
    { name: w.columns.running, text: (row) => grouped(row.running), right: true },
    { name: w.columns.why, text: runner_up, long: true },
  ]);
  private readonly entries = new Table<Row>(w.entries, [
    { name: w.columns.entry, text: (row) => plain(row.name), short: true },
    { name: w.columns.where, text: place, short: true },
    { name: w.columns.machine, text: (row) => plain(row.machine) + (row.gpus > 1 ? ` × ${row.gpus} GPU` : ""), short: true },
    { name: w.columns.kind, text: (row) => (row.away ? w.away : w.kinds[row.kind as keyof typeof w.kinds] ?? plain(row.kind)), short: true },
    { name: w.columns.price, text: (row) => digits(row.price_per_hour), right: true },
    { name: w.columns.machines, text: (row) => say(w.of, { some: grouped(row.machines), all: grouped(row.quota) }), right: true },
    { name: w.columns.per_hour, text: (row) => row.per_hour.toFixed(2), right: true },
    { name: w.columns.lead, text: (row) => `${seconds(row.lead_p50_s)}, ${seconds(row.lead_p90_s)}`, right: true, wide: true },
    { name: w.columns.stock, text: (row) => percent(row.stock), right: true, wide: true },
    { name: w.columns.reclaim, text: (row) => digits(row.reclaim_per_hour), right: true, wide: true },
    { name: w.columns.residency, text: tags, wide: true },
  ]);
  private readonly models = new Table<Row>(w.models, [
    { name: w.columns.model, text: (row) => plain(row.model), short: true },
    { name: w.columns.demand, text: (row) => digits(row.demand), right: true },
    { name: w.columns.served, text: (row) => digits(row.served), right: true },
    { name: w.columns.may_grow, text: (row) => percent(row.may_grow_by), right: true },
    { name: w.columns.tightest, text: (row) => plain(row.tightest) },
  ]);
  private readonly losses = new Table<Row>(w.losses, [
    { name: w.columns.without, text: (row) => plain(row.without), short: true },
    { name: w.columns.at_once, text: (row) => percent(row.share_at_once), right: true },
    { name: w.columns.model, text: (row) => plain(row.model) },
    { name: w.columns.restored, text: (row) => (row.restores && row.restored_in_s === 0 ? say(w.all_there, { cost: money(row.restored_per_hour, this.currency) }) : row.restores ? say(w.restored, { after: seconds(row.restored_in_s), cost: money(row.restored_per_hour, this.currency) }) : say(w.missing, { missing: digits(row.missing) })) },
  ]);
  private readonly variants = new Table<Row>(w.variants, [
    { name: w.columns.variant, text: (row) => plain(row.name), short: true },
    { name: w.columns.model, text: (row) => plain(row.model), short: true },
    { name: w.columns.machine, text: (row) => plain(row.machine) + (row.machines > 1 ? ` × ${row.machines}` : "") },
    { name: w.columns.rate, text: (row) => digits(row.rate), right: true },
  ]);
  private readonly demands = new Table<Row>(w.demands, [
    { name: w.columns.model, text: (row) => plain(row.model), short: true },
    { name: w.columns.residency, text: tags },
    { name: w.columns.demand, text: (row) => digits(row.rate), right: true },
    { name: w.columns.answer, text: (row) => digits(row.answer_kb), right: true },
  ]);
  private readonly given = [this.panel(w.entries, this.entries), this.panel(w.variants, this.variants), this.panel(w.demands, this.demands)];
  private readonly planned = [this.panel(w.placements, this.placements), this.panel(w.models, this.models), this.panel(w.losses, this.losses)];
  private asked = 0;
  readonly element: HTMLElement = h("section", { class: "page live" }, h("h1", {}, w.title), h("p", { class: "quiet" }, w.note),
    h("div", { class: "panel" }, h("div", { class: "tools" }, h("label", { class: "field inline" }, h("span", {}, w.without), this.without), this.state),
      this.wrong, this.shortfalls, this.facts),
    ...this.planned, ...this.given);

  private panel(title: string, table: Table<Row>): HTMLElement {
    return h("div", { class: "panel" }, h("h2", {}, title), table.element);
  }

  async plan(): Promise<void> {
    const mine = ++this.asked;
    this.state.textContent = w.planning;
    this.wrong.textContent = "";
    try {
      const plan = await get_computed("v1/capacity" + (this.without.value ? "?without=" + encodeURIComponent(this.without.value) : ""));
      if (mine === this.asked) this.draw(plan);
    } catch (error) {
      if (mine === this.asked) this.fail(error instanceof ApiError && error.status > 0 ? plain(error.message) : words.offline);
    }
    if (mine === this.asked) this.state.textContent = "";
  }

  // What stands there is of another question.
  private fail(why: string): void {
    this.wrong.textContent = why;
    this.facts.replaceChildren();
    for (const one of [this.shortfalls, ...this.planned, ...this.given]) one.hidden = true;
  }

  private draw(plan: Row): void {
    this.currency = plan.currency;
    this.draw_places(plan.entries);
    const rows = (list: Row[], key: (row: Row) => string) => list.map((row) => [key(row), row] as [string, Row]);
    this.entries.draw(rows(plan.entries, (row) => row.name));
    this.variants.draw(rows(plan.variants, (row) => row.name));
    this.demands.draw(rows(plan.demands, (row) => JSON.stringify([row.model, row.residency, row.rate])));
    for (const panel of this.given) panel.hidden = false;
    for (const panel of this.planned) panel.hidden = !plan.possible;
    if (plan.possible && plan.losses.length === 0) this.planned[2].hidden = true;  // [plan] survive = []
    this.shortfalls.replaceChildren(...(plan.shortfalls ?? []).map((one: Row) => h("li", {}, say(w.shortfall, {
      model: plain(one.model), of: [one.residency && say(w.residency_of, { tags: plain(one.residency) }), one.without && say(w.without_of, { place: plain(one.without) })].filter(Boolean).join(" "),
      wanted: digits(one.wanted), given: digits(one.given), full: one.full.length > 0 ? say(w.full, { names: one.full.map(plain).join(", ") }) : w.none_permitted }))));
    this.shortfalls.hidden = plan.possible;
    this.facts.replaceChildren(fact(w.possible, plan.possible ? w.yes : w.no));
    if (!plan.possible) return;
    this.facts.append(fact(w.per_hour, money(plan.per_hour, plan.currency)), fact(w.cheaper, plan.exact ? w.exact : say(w.gap, { by: digits(plan.gap) })),
      fact(w.machines, grouped(plan.entries.reduce((sum: number, row: Row) => sum + row.machines, 0))));
    this.placements.draw(rows(plan.placements, (row) => JSON.stringify([row.capacity, row.variant])));
    this.models.draw(rows(plan.models, (row) => row.model));
    this.losses.draw(rows(plan.losses, (row) => row.without));
  }

  // What may be lost: an entry, or all of a zone, region or provider.
  private draw_places(entries: Row[]): void {
    const places = [...new Set(entries.flatMap((one) => [one.provider, `${one.provider}/${one.region}`, ...(one.zone === "-" ? [] : [`${one.provider}/${one.region}/${one.zone}`]), one.name]))].sort();
    const known = [...this.without.options].slice(1).map((one) => one.value);
    if (JSON.stringify(known) === JSON.stringify(places)) return;
    const chosen = this.without.value;
    this.without.replaceChildren(this.without.options[0], ...places.map((one) => h("option", { value: one }, plain(one))));
    this.without.value = places.includes(chosen) ? chosen : "";
  }
}
