// Of the page Configuration: another text for the file. First it is tried (a dry run), then asked once more, then applied; a file that has changed
// meanwhile stays as it is.
import { ApiError, get_tagged } from "./api";
import { Change, changes, draw_changes } from "./changes";
import { button, h } from "./dom";
import { Row } from "./feed";
import { plain } from "./markdown";
import { Operator } from "./operator";
import { say, words } from "./words";

const w = words.configuration.edit;
const kPath = "console/config";

export class ConfigurationEdit {
  private before = { text: "", etag: "" };
  private found: Change[] = [];
  private keys = "";  // that take a new start
  private readonly text = h("textarea", { class: "mono", rows: 18, spellcheck: "false", autocomplete: "off", oninput: () => this.forget() });
  private readonly how = h("p", { class: "quiet" });
  private readonly state = h("p", { class: "state", role: "status" });
  private readonly wrong = h("p", { class: "state wrong", role: "alert" });
  private readonly difference = h("pre", { tabindex: 0, "aria-label": w.changes });
  private readonly new_start = h("p", { class: "state" });
  private readonly begin = button(w.begin, () => void this.open());
  private readonly apply = button(w.apply, () => this.ask(), { class: "main" });
  private readonly editor = h("div", { class: "ask" }, h("label", { class: "field" }, h("span", {}, w.text), this.text),
    h("div", { class: "tools" }, button(w.try_out, () => void this.try_out()), this.apply, button(w.give_up, () => this.close())), this.new_start, this.difference);
  readonly element = h("div", { class: "panel" }, h("h2", {}, w.title), this.how, this.begin, this.editor, this.state, this.wrong);

  // `done`: the file is another one.
  constructor(private readonly operator: Operator, private readonly done: () => void) {
    operator.on_change(() => this.draw());
    this.close();
  }

  private draw(): void {
    const may = this.operator.is_signed_in;
    if (!may) this.editor.hidden = true;
    this.how.textContent = may ? "" : this.operator.may ? w.sign_in : w.terminal;
    this.how.hidden = may;
    this.begin.hidden = !may || !this.editor.hidden;
  }

  private close(): void {
    this.editor.hidden = true;
    this.say("", "");
    this.draw();
  }

  private say(state: string, wrong: string): void {
    this.state.textContent = state;
    this.wrong.textContent = wrong;
  }

  // What was tried is not what stands there.
  private forget(): void {
    this.apply.hidden = true;
    this.difference.hidden = true;
    this.new_start.textContent = "";
    this.say("", "");
  }

  // With another text than the file's: one that it had before.
  async open_with(text: string): Promise<void> {
    await this.open(text);
    if (!this.editor.hidden) await this.try_out();
  }

  private async open(text?: string): Promise<void> {
    try {
      this.before = await get_tagged("v1/config");
    } catch (error) {
      return this.say("", error instanceof ApiError && error.status > 0 ? plain(error.message) : words.offline);
    }
    this.text.value = text ?? this.before.text;
    this.editor.hidden = false;
    this.forget();
    this.draw();
    this.text.focus();
  }

  private async put(query: string): Promise<Row> {
    return await this.operator.change("PUT", kPath + query, this.text.value, { "If-Match": this.before.etag }) as Row;
  }

  private fail(error: unknown): void {
    const api = error instanceof ApiError && error.status > 0 ? error : null;
    const why = !this.operator.is_signed_in ? words.operator.over : api === null ? words.offline : api.status === 412 ? w.changed
      : api.status === 400 ? say(w.wrong, { why: plain(api.message) }) : plain(api.message);
    this.say("", why);
  }

  private async try_out(): Promise<void> {
    this.forget();
    this.found = changes(this.before.text.split("\n"), this.text.value.split("\n"));
    if (this.found.length === 0) return this.say(w.nothing, "");
    this.say(w.trying, "");
    try {
      const { takes_new_start, writable } = await this.put("?dry_run=true");
      this.keys = takes_new_start.map(plain).join(", ");
      this.new_start.textContent = this.keys ? say(w.new_start, { keys: this.keys }) : "";
      draw_changes(this.difference, this.found);
      this.difference.hidden = false;
      this.apply.hidden = !writable;
      this.say(writable ? w.right : w.right_elsewhere, "");
    } catch (error) {
      this.fail(error);
    }
  }

  private ask(): void {
    const count = (sign: string) => this.found.filter((one) => one.sign === sign).length;
    void this.operator.confirm(w.ask, say(this.keys ? w.means_new_start : w.means, { new: count("+"), gone: count("-"), keys: this.keys }), w.yes, async () => {
      try {
        await this.put("");
        this.close();
        this.say(w.done, "");
        this.begin.focus();
        this.done();
      } catch (error) {
        this.fail(error);
      }
    });
  }
}
