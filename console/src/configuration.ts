// The page Configuration: what is in force, what the file says, where the two differ, and what became of the file's last reading.
import { ApiError, get } from "./api";
import { fact, h } from "./dom";
import { plain } from "./markdown";
import { get_metrics, get_text, Poller } from "./poller";
import { words } from "./words";

const w = words.configuration;
const kCellsMax = 4_000_000;

export type Change = { sign: " " | "-" | "+"; line: string };

// The lines that one text has and the other has not, by a longest common subsequence; of texts that differ in too much, all of what is between their
// common beginning and end.
export function changes(before: string[], after: string[]): Change[] {
  let from = 0;
  while (from < before.length && from < after.length && before[from] === after[from]) ++from;
  let end = 0;
  while (end < before.length - from && end < after.length - from && before[before.length - 1 - end] === after[after.length - 1 - end]) ++end;
  const a = before.slice(from, before.length - end);
  const b = after.slice(from, after.length - end);
  if (a.length * b.length > kCellsMax) return [...a.map((line) => ({ sign: "-", line }) as Change), ...b.map((line) => ({ sign: "+", line }) as Change)];
  const width = b.length + 1;
  const longest = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; --i) {
    for (let j = b.length - 1; j >= 0; --j) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const found: Change[] = [];
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      ++i;
      ++j;
    } else if (j === b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) {
      found.push({ sign: "-", line: a[i++] });
    } else {
      found.push({ sign: "+", line: b[j++] });
    }
  }
  return found;
}

export class Configuration {
  private readonly facts = h("dl", { class: "facts" });
  private readonly wrong = h("p", { class: "state wrong", role: "alert" });
  private readonly kept = h("p", { class: "state" });
  private readonly same = h("p", { class: "quiet" }, w.same);
  private readonly difference = h("pre", { tabindex: 0, "aria-label": w.difference });
  private readonly effective = h("pre", { tabindex: 0, "aria-label": w.effective });
  private readonly file = h("pre", { tabindex: 0, "aria-label": w.file });
  private shown = "";
  readonly poller: Poller = new Poller(() => this.element, () => this.load(), 3000);
  readonly element: HTMLElement = h("section", { class: "page live" }, h("h1", {}, w.title), this.poller.state,
    h("div", { class: "panel" }, this.facts, this.wrong, this.kept),
    h("div", { class: "panel" }, h("h2", {}, w.difference), h("p", { class: "quiet" }, w.difference_note), this.same, this.difference),
    h("div", { class: "panel" }, h("details", { open: true }, h("summary", {}, w.effective), this.effective)),
    h("div", { class: "panel" }, h("details", {}, h("summary", {}, w.file), this.file)));

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
    const all = JSON.stringify([effective, file, whole]);
    if (all === this.shown) return; // what is selected stays so
    this.shown = all;
    this.effective.textContent = effective;
    this.file.textContent = file;
    const found = whole === null ? [] : changes(effective.split("\n"), whole.split("\n"));
    this.same.hidden = found.length > 0 || whole === null;
    this.difference.hidden = found.length === 0;
    this.difference.replaceChildren(...found.map(({ sign, line }) => h("span", { class: sign === "-" ? "gone" : "new" }, `${sign} ${plain(line)}\n`)));
  }
}
