// The page Configuration: what is in force, what the file says, where the two differ, and what became of the file's last reading.
import { ApiError, get, get_text } from "./api";
import { changes, draw_changes } from "./changes";
import { ConfigurationEdit } from "./configuration_edit";
import { ConfigurationHistory } from "./configuration_history";
import { fact, h } from "./dom";
import { plain } from "./markdown";
import { Operator } from "./operator";
import { get_metrics, Poller } from "./poller";
import { words } from "./words";

const w = words.configuration;

export class Configuration {
  private readonly facts = h("dl", { class: "facts" });
  private readonly wrong = h("p", { class: "state wrong", role: "alert" });
  private readonly kept = h("p", { class: "state" });
  private readonly same = h("p", { class: "quiet" }, w.same);
  private readonly difference = h("pre", { tabindex: 0, "aria-label": w.difference });
  private readonly effective = h("pre", { tabindex: 0, "aria-label": w.effective });
  private readonly file = h("pre", { tabindex: 0, "aria-label": w.file });
  private shown = "";
  private read_at = 0;  // when the file had been read, as the history is shown
  private readonly edit: ConfigurationEdit;
  private readonly history: ConfigurationHistory;
  readonly poller: Poller = new Poller(() => this.element, () => this.load(), 3000);
  readonly element: HTMLElement = h("section", { class: "page live" }, h("h1", {}, w.title), this.poller.state,
    h("div", { class: "panel" }, this.facts, this.wrong, this.kept),
    h("div", { class: "panel" }, h("h2", {}, w.difference), h("p", { class: "quiet" }, w.difference_note), this.same, this.difference),
    h("div", { class: "panel" }, h("details", { open: true }, h("summary", {}, w.effective), this.effective)),
    h("div", { class: "panel" }, h("details", {}, h("summary", {}, w.file), this.file)));

  constructor(operator: Operator) {
    this.edit = new ConfigurationEdit(operator, () => this.poller.start());
    this.element.children[2].after(this.edit.element);
    this.history = new ConfigurationHistory(operator, (text) => void this.edit.open_with(text));
    this.element.append(this.history.element);
  }

  private async load(): Promise<void> {
    const [state, metrics, effective, file] = await Promise.all([get("v1/config/state"), get_metrics(), get_text("v1/config?form=effective"), get_text("v1/config")]);
    const whole = state.error ? null : await get_text("v1/config?form=file").catch((error) => {
      if (error instanceof ApiError && error.status === 400) return null;
      throw error;
    });
    this.facts.replaceChildren(fact(w.name, plain(state.file)), fact(w.read_at, new Date(state.at).toLocaleString()), fact(w.why, plain(state.why)),
      fact(w.reloads, String(metrics.value("pelton_gateway_config_reloads_total"))), fact(w.refused, String(metrics.value("pelton_gateway_config_reloads_refused_total"))));
    const wrong = state.error ? `${w.wrong} ${plain(state.error)}` : whole === null ? w.being_written : "";
    if (this.wrong.textContent !== wrong) this.wrong.textContent = wrong;
    this.kept.textContent = state.takes_new_start.length > 0 ? `${w.takes_new_start} ${state.takes_new_start.map(plain).join(", ")}` : "";
    if (state.at !== this.read_at) {
      await this.history.load();
      this.read_at = state.at;
    }
    const all = JSON.stringify([effective, file, whole]);
    if (all === this.shown) return; // what is selected stays so
    this.shown = all;
    this.effective.textContent = effective;
    this.file.textContent = file;
    const found = whole === null ? [] : changes(effective.split("\n"), whole.split("\n"));
    this.same.hidden = found.length > 0 || whole === null;
    this.difference.hidden = found.length === 0;
    draw_changes(this.difference, found);
  }
}
