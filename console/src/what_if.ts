// Of the page Scaling: the hour that the autoscaler has recorded, played again with its knobs and with others.
import { ApiError } from "./api";
import { get_computed } from "./capacity";
import { grouped, h, milliseconds } from "./dom";
import { Row } from "./feed";
import { plain } from "./markdown";
import { Table } from "./table";
import { say, words } from "./words";

const w = words.what_if;
const kSpans = ["10m", "1h", "6h", ""] as const;

const time = (seconds: number | null) => (seconds === null ? w.unknown : milliseconds(seconds * 1000));
const known = (value: number | null) => (value === null ? w.unknown : grouped(value));

export class WhatIf {
  private readonly pool = h("select", {});
  private readonly last = h("select", {}, ...kSpans.map((span) => h("option", { value: span, selected: span === "1h" }, span ? say(w.last, { span }) : w.all)));
  private readonly knobs = h("input", { type: "text", size: 40, autocomplete: "off", spellcheck: "false", placeholder: "scale_down_delay=120 max=4" });
  private readonly go = h("button", { type: "submit", class: "main" }, w.play);
  private readonly state = h("p", { class: "state", role: "status" });
  private readonly wrong = h("p", { class: "state wrong", role: "alert" });
  private readonly about = h("p", { class: "quiet" });
  private readonly runs = new Table<Row>(w.runs, [
    { name: w.columns.run, text: (row) => w.names[row.name as keyof typeof w.names] ?? plain(row.name), short: true },
    { name: w.columns.replica_hours, text: (row) => row.figures.replica_hours.toFixed(3), right: true },
    { name: w.columns.most, text: (row) => grouped(row.figures.most), right: true },
    { name: w.columns.started, text: (row) => `${grouped(row.figures.started)} (${known(row.figures.failed_starts)})`, right: true },
    { name: w.columns.direction, text: (row) => grouped(row.figures.direction_changes), right: true, wide: true },
    { name: w.columns.requests, text: (row) => grouped(row.figures.requests), right: true },
    { name: w.columns.late, text: (row) => known(row.figures.late), right: true },
    { name: w.columns.held, text: (row) => time(row.figures.held_mean_s), right: true },
    { name: w.columns.first, text: (row) => `${time(row.figures.ttft_p50_s)}, ${time(row.figures.ttft_p99_s)}`, right: true },
    { name: w.columns.cost, text: (row) => (row.figures.cost === null ? w.unknown : row.figures.cost.toFixed(2)), right: true },
  ]);
  private readonly result = h("div", {}, this.about, this.runs.element);
  readonly element = h("div", { class: "panel" }, h("h2", {}, w.title), h("form", { class: "ask", onsubmit: (event: Event) => {
    event.preventDefault();
    void this.play();
  } }, h("p", { class: "quiet" }, w.note), h("div", { class: "tools" },
    h("label", { class: "field" }, h("span", {}, w.pool), this.pool), h("label", { class: "field" }, h("span", {}, w.span), this.last),
    h("label", { class: "field grows" }, h("span", {}, w.knobs), this.knobs), this.go)), this.state, this.wrong, this.result);

  constructor() {
    this.result.hidden = true;
  }

  draw_pools(names: string[]): void {
    const shown = [...this.pool.options].map((one) => one.value);
    if (JSON.stringify(shown) === JSON.stringify(names)) return;
    const chosen = this.pool.value;
    this.pool.replaceChildren(...names.map((name) => h("option", { value: name }, plain(name))));
    if (names.includes(chosen)) this.pool.value = chosen;
  }

  private async play(): Promise<void> {
    const asked = new URLSearchParams({ pool: this.pool.value, last: this.last.value });
    for (const one of this.knobs.value.split(/\s+/).filter(Boolean)) asked.append("set", one);
    this.state.textContent = w.playing;
    this.wrong.textContent = "";
    this.go.disabled = true;
    try {
      this.draw(await get_computed("v1/whatif?" + asked.toString()));
    } catch (error) {
      this.wrong.textContent = error instanceof ApiError && error.status > 0 ? plain(error.message) : words.offline;
      this.result.hidden = true;
    }
    this.state.textContent = "";
    this.go.disabled = false;
  }

  private draw(of: Row): void {
    this.result.hidden = false;
    this.about.textContent = say(w.about, { decisions: grouped(of.decisions), span: milliseconds(of.duration_s * 1000) });
    this.runs.draw((of.runs as Row[]).map((run) => [run.name, run]));
  }
}
