// Of the page Configuration: what the file has said, who changed it and in what, and a way back: the text of then into the editor, where it is tried
// and asked about as any other.
import { ApiError, get, get_text } from "./api";
import { changes, draw_changes } from "./changes";
import { button, h } from "./dom";
import { Row } from "./feed";
import { plain } from "./markdown";
import { Operator } from "./operator";
import { say, words } from "./words";

const w = words.configuration.history;
const kPath = "v1/config/history";
const kShown = 20;

export class ConfigurationHistory {
  private readonly rows = new Map<number, HTMLElement>();
  private readonly backs: HTMLButtonElement[] = [];
  private readonly list = h("div", {});
  private readonly note = h("p", { class: "quiet" });
  private readonly more = button(w.more, () => this.show_all(), {});
  private entries: Row[] = [];
  private all = false;
  readonly element = h("div", { class: "panel history" }, h("h2", {}, w.title), this.note, this.list, this.more);

  // `edit`: has the text of a number brought into the editor.
  constructor(private readonly operator: Operator, private readonly edit: (text: string) => void) {
    operator.on_change(() => this.draw_backs());
    this.more.hidden = true;
  }

  async load(): Promise<void> {
    const { entries, on_disk, error } = await get(kPath);
    this.entries = entries.slice().reverse();
    this.note.textContent = entries.length === 0 ? w.none : on_disk ? w.note : error ? say(w.in_memory, { why: plain(error) }) : w.note;
    this.draw();
  }

  private show_all(): void {
    this.all = true;
    this.draw();
  }

  // The latest first. What is there already stays as it is, opened or not.
  private draw(): void {
    const kept = new Set(this.entries.map(({ n }) => n as number));
    for (const [n, row] of this.rows) {
      if (kept.has(n)) continue;
      row.remove();
      this.rows.delete(n);
    }
    const shown = this.all ? this.entries : this.entries.slice(0, kShown);
    let before: Element | null = null;
    for (const entry of shown) {
      const there = this.rows.get(entry.n);
      const row: HTMLElement = there ?? this.row(entry);
      if (there === undefined) {
        this.rows.set(entry.n, row);
        if (before === null) this.list.prepend(row);
        else before.after(row);
      }
      before = row;
    }
    this.more.hidden = shown.length === this.entries.length;
  }

  private row(entry: Row): HTMLElement {
    const difference = h("pre", { tabindex: 0, "aria-label": say(w.difference, { n: entry.n }) });
    const state = h("p", { class: "state wrong", role: "alert" });
    const back = button(say(w.back, { n: entry.n }), () => void this.bring_back(entry.n, state));
    this.backs.push(back);
    back.hidden = !this.operator.is_signed_in;
    const who = [plain(entry.who), plain(entry.from)].filter((word) => word !== "").join(", ");
    const row = h("details", { ontoggle: () => void this.compare(row.open, entry.n, difference, state) },
      h("summary", {}, say(entry.reverts_to > 0 ? w.row_reverts : w.row, { n: entry.n, at: new Date(entry.at).toLocaleString(), who, to: entry.reverts_to })),
      difference, state, h("div", { class: "tools" }, back));
    return row;
  }

  private draw_backs(): void {
    for (const back of this.backs) back.hidden = !this.operator.is_signed_in;
  }

  private async text(n: number): Promise<string> {
    return await get_text(`${kPath}/${n}`);
  }

  // Against the number before it; what is kept no more counts as empty.
  private async compare(open: boolean, n: number, into: HTMLElement, state: HTMLElement): Promise<void> {
    if (!open) return;
    state.textContent = "";
    try {
      const before = this.entries.filter((entry) => entry.n < n).map((entry) => entry.n as number);
      const [old, now] = await Promise.all([before.length > 0 ? this.text(Math.max(...before)) : "", this.text(n)]);
      draw_changes(into, changes(old === "" ? [] : old.split("\n"), now.split("\n")));
    } catch (error) {
      state.textContent = error instanceof ApiError && error.status > 0 ? plain(error.message) : words.offline;
    }
  }

  private async bring_back(n: number, state: HTMLElement): Promise<void> {
    try {
      this.edit(await this.text(n));
    } catch (error) {
      state.textContent = error instanceof ApiError && error.status > 0 ? plain(error.message) : words.offline;
    }
  }
}
