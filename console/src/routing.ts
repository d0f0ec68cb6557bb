// The page Routing: where a request would go just now, and why: each worker's cost, term by term.
import { ApiError, get, get_text, send } from "./api";
import { fact, grouped, h, milliseconds } from "./dom";
import { Row } from "./feed";
import { plain } from "./markdown";
import { Table } from "./table";
import { say, words } from "./words";

const w = words.routing;

const time = (seconds: unknown) => (typeof seconds === "number" ? milliseconds(seconds * 1000) : words.live.nothing);

// Of the configuration in force; a list of TOML's strings is one of JSON's.
function pools_models(text: string): string[] {
  const lines = [...text.matchAll(/^\[\[pool\]\]\n(?:(?!\[).*\n)*?model = (.*)$/gm)];
  return lines.flatMap(([, value]) => {
    try {
      return [JSON.parse(value)].flat().filter((one) => typeof one === "string");
    } catch {
      return [];
    }
  });
}

export class Routing {
  private readonly model = h("input", { type: "text", required: true, list: "routing-models", autocomplete: "off", size: 32 });
  private readonly models = h("datalist", { id: "routing-models" });
  private readonly prompt = h("textarea", { rows: 4 });
  private readonly state = h("p", { class: "state wrong", role: "alert" });
  private readonly facts = h("dl", { class: "facts" });
  private readonly why = h("p", { class: "quiet" });
  private readonly workers = new Table<Row>(w.table, [
    { name: w.columns.worker, text: (row) => plain(row.name), short: true },
    { name: w.columns.state, text: (row) => (row.chosen ? w.chosen : row.usable ? row.state : say(w.not_usable, { state: row.state, why: plain(row.reason || w.no_reason) })),
      mark: (row) => (row.chosen ? "ready" : row.usable ? "" : "down") },
    { name: w.columns.cost, text: (row) => time(row.cost_s), right: true },
    { name: w.columns.wait, text: (row) => time(row.terms.wait_s), right: true },
    { name: w.columns.first, text: (row) => time(row.terms.first_s), right: true },
    { name: w.columns.rest, text: (row) => time(row.terms.rest_s), right: true },
    { name: w.columns.harm, text: (row) => time(row.terms.harm_s), right: true },
    { name: w.columns.room, text: (row) => time(row.terms.room_s), right: true },
    { name: w.columns.adapter, text: (row) => time(row.terms.adapter_s), right: true, wide: true },
    { name: w.columns.bias, text: (row) => "× " + Number(row.bias).toFixed(2), right: true },
    { name: w.columns.hits, text: (row) => grouped(row.hit_tokens), right: true },
    { name: w.columns.load, text: (row) => `${grouped(row.running)} + ${grouped(row.waiting)}`, right: true },
  ]);
  private readonly result = h("div", { class: "panel" }, h("h2", {}, w.result), this.facts, this.why, this.workers.element);
  readonly element: HTMLElement;

  constructor() {
    this.result.hidden = true;
    this.element = h("section", { class: "page live" }, h("h1", {}, w.title), h("form", { class: "panel ask", onsubmit: (event: Event) => {
      event.preventDefault();
      void this.explain();
    }, novalidate: true }, h("p", { class: "quiet" }, w.note), h("label", { class: "field" }, h("span", {}, w.model), this.model), this.models,
      h("label", { class: "field" }, h("span", {}, w.prompt), this.prompt), h("div", { class: "tools" }, h("button", { type: "submit", class: "main" }, w.explain)), this.state), this.result);
  }

  // The models that workers say they have, and those of pools that have no worker now.
  async load(): Promise<void> {
    const [{ workers }, text] = await Promise.all([get("v1/workers"), get_text("v1/config?form=effective")]);
    const names = [...new Set<string>([...workers.flatMap((one: Row) => one.models), ...pools_models(text)])].sort();
    this.models.replaceChildren(...names.map((name) => h("option", { value: name })));
    // A model's folder is one of its names, too: the shortest is the one that is asked for.
    if (!this.model.value && names.length > 0) this.model.value = names.reduce((best, one) => (one.length < best.length ? one : best));
  }

  private async explain(): Promise<void> {
    this.state.textContent = this.model.value ? "" : w.which_model;
    if (!this.model.value) {
      this.result.hidden = true;
      return this.model.focus();
    }
    try {
      this.draw(await send("POST", "v1/explain?path=/v1/chat/completions", { model: this.model.value, messages: [{ role: "user", content: this.prompt.value }] }) as Row);
    } catch (error) {
      this.result.hidden = true;
      this.state.textContent = error instanceof ApiError && error.status > 0 ? plain(error.message) : words.offline;
    }
  }

  private draw(of: Row): void {
    this.result.hidden = false;
    this.facts.replaceChildren(fact(w.pool, plain(of.pool)), fact(w.goes_to, of.chosen === null ? w.nobody : plain(of.chosen)),
      fact(w.prompt_tokens, grouped(of.prompt_tokens)), fact(w.blocks, of.blocks > 0 ? grouped(of.blocks) : w.no_names), fact(w.output_tokens, grouped(of.output_tokens)));
    const rows = (of.candidates as Row[]).map((one) => ({ ...one, chosen: one.name === of.chosen } as Row));
    rows.sort((a, b) => Number(b.chosen) - Number(a.chosen) || Number(b.usable) - Number(a.usable) || a.cost_s - b.cost_s);
    this.workers.draw(rows.map((row) => [row.name, row]));
    this.workers.element.hidden = rows.length === 0;
    this.why.textContent = rows.length === 0 ? w.no_workers : w.terms;
  }
}
