// The chat: one model, or two side by side. Nothing of it is kept beyond the tab.
import { Answer } from "./answer";
import { ApiError, get } from "./api";
import { button, h } from "./dom";
import { plain } from "./markdown";
import { say, words } from "./words";

const w = words.chat;

// What a turn begins with: words, or the results of the last answers' tool calls, by column.
type Turn = { text: string; results: (string[] | null)[]; answers: (Answer | null)[]; element: HTMLElement };

export class Chat {
  private turns: Turn[] = [];
  private models: string[] = [];
  private beside = false;
  private scroll_frame = 0;
  private scroll_always = false;
  private log_bottom = 0;  // when it was last scrolled
  private readonly log = h("div", { class: "log", role: "log", "aria-live": "off", tabindex: 0, "aria-label": words.pages.chat });
  private readonly status = h("div", { class: "sr", role: "status" });
  private readonly input = h("textarea", { rows: 1, placeholder: matchMedia("(max-width: 40rem)").matches ? w.placeholder_short : w.placeholder, "aria-label": w.message, dir: "auto" });
  private readonly send_button = h("button", { type: "submit", class: "main" }, w.send);
  private readonly selects = [0, 1].map((i) => h("select", { "aria-label": i === 0 ? w.model : w.model_beside }));
  private readonly beside_button = button(w.beside, () => this.set_beside(!this.beside), { "aria-pressed": "false" });
  private readonly system = h("textarea", { rows: 2, dir: "auto" });
  private readonly temperature = h("input", { type: "number", min: 0, max: 2, step: 0.1, placeholder: w.by_default });
  private readonly max_tokens = h("input", { type: "number", min: 1, step: 1, placeholder: w.by_default });
  private readonly effort = h("select", {}, ...["", "low", "medium", "high"].map((value) => h("option", { value }, value || w.effort_default)));
  private readonly tools = h("textarea", { rows: 3, spellcheck: "false", class: "mono" });
  private readonly tools_error = h("div", { class: "state wrong" });
  readonly element: HTMLElement;

  constructor(private readonly ask_key: (wrong: boolean) => Promise<void>) {
    const composer = h("form", { class: "composer", onsubmit: (event: Event) => {
      event.preventDefault();
      if (this.running()) this.stop();
      else this.send();
    } }, this.input, this.send_button);
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("input", () => this.fit());
    this.element = h("section", { class: "chat", onkeydown: (event: KeyboardEvent) => {
      if (event.key === "Escape" && this.running()) this.stop();
    } }, this.bar(), this.log, composer, this.status);
    this.show_empty();
  }

  private bar(): HTMLElement {
    const field = (label: string, input: HTMLElement, kind = "") => h("label", { class: "field " + kind }, h("span", {}, label), input);
    return h("div", { class: "bar" },
      h("div", { class: "tools" }, ...this.selects, this.beside_button,
        button(w.clear, () => this.clear()), button(w.save_markdown, () => this.save("md")),
        button(w.save_json, () => this.save("json"))),
      h("details", { class: "settings" }, h("summary", {}, w.settings),
        h("div", { class: "fields" }, field(w.system, this.system, "wide"), field(w.temperature, this.temperature),
          field(w.max_tokens, this.max_tokens), field(w.effort, this.effort), field(w.tools, this.tools, "wide"), this.tools_error)));
  }

  // Which models there are; again after a key has been given.
  async load(choose = ""): Promise<void> {
    const list = (await get("v1/models")).data as { id: string; root: string; parent: string | null }[];
    // An adapter's root is its folder; any other name that is not its own root is an alias.
    this.models = list.filter((model) => model.id === model.root || !!model.parent).map((model) => model.id);
    if (this.models.length === 0) this.models = list.map((model) => model.id);
    this.selects.forEach((select, i) => {
      const before = (i === 0 && choose) || select.value;
      select.replaceChildren(...this.models.map((id) => h("option", { value: id }, plain(id))));
      select.value = this.models.includes(before) ? before : this.models[Math.min(i, this.models.length - 1)] ?? "";
    });
    this.beside_button.hidden = this.models.length < 2;
    this.set_beside(this.beside && this.models.length > 1);
    if (this.models.length === 0) this.status.textContent = w.no_models;
  }

  focus(): void {
    if (matchMedia("(hover: hover)").matches) this.input.focus();
  }

  private set_beside(on: boolean): void {
    this.beside = on;
    this.selects[1].hidden = !on;
    this.beside_button.setAttribute("aria-pressed", String(on));
    this.beside_button.textContent = on ? w.alone : w.beside;
    this.element.classList.toggle("beside", on);
  }

  private key(event: KeyboardEvent): void {
    if (event.isComposing) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      if (!this.running()) this.send();
    } else if (event.key === "ArrowUp" && this.input.value === "" && !this.running()) {
      const last = this.turns.filter((turn) => turn.text).pop();
      if (last) this.edit(last);
    }
  }

  private fit(): void {
    this.input.style.height = "auto";
    this.input.style.height = Math.min(this.input.scrollHeight + 2, 240) + "px";
  }

  private running(): boolean {
    return this.turns.some((turn) => turn.answers.some((answer) => answer?.running));
  }
  private stop(): void {
    for (const turn of this.turns) for (const answer of turn.answers) if (answer?.running) answer.stop();
  }

  private show_empty(): void {
    this.log.replaceChildren(h("p", { class: "empty" }, w.empty));
  }

  private clear(): void {
    this.stop();
    this.turns = [];
    this.show_empty();
    this.focus();
  }

  private send(): void {
    const text = this.input.value;
    if (text.trim() === "" || this.models.length === 0 || !this.tools_are_fine()) return;
    this.input.value = "";
    this.fit();
    this.begin({ text, results: [], answers: [], element: h("div", { class: "turn" }) });
  }

  private begin(turn: Turn): void {
    if (this.turns.length === 0) this.log.replaceChildren();
    this.turns.push(turn);
    this.log.append(turn.element);
    void this.answer(turn);
  }

  private drop_after(turn: Turn): void {
    this.stop();
    for (const later of this.turns.splice(this.turns.indexOf(turn) + 1)) later.element.remove();
  }

  // The conversation up to and with a turn's own words, as a column's model is to see it.
  private messages(until: Turn, column: number): object[] {
    const messages: object[] = [];
    if (this.system.value.trim()) messages.push({ role: "system", content: this.system.value });
    for (const [i, turn] of this.turns.entries()) {
      const results = turn.results[column];
      const calls = this.turns[i - 1]?.answers[column]?.calls ?? [];
      if (results) calls.forEach((call, k) => messages.push({ role: "tool", tool_call_id: call.id, content: results[k] }));
      if (turn.text) messages.push({ role: "user", content: turn.text });
      if (turn === until) break;
      const answer = turn.answers[column];
      if (!answer || (!answer.content && answer.calls.length === 0)) continue;
      const answered = this.turns[i + 1]?.results[column] && answer.calls.length > 0;
      messages.push({ role: "assistant", content: answer.content || (answered ? null : ""), ...(answered && { tool_calls:
        answer.calls.map((call) => ({ id: call.id, type: "function", function: { name: call.name, arguments: call.args } })) }) });
    }
    return messages;
  }

  private request(turn: Turn, column: number): object {
    const request: Record<string, unknown> = { model: this.selects[column].value, messages: this.messages(turn, column), stream: true,
      stream_options: { include_usage: true, continuous_usage_stats: true } };
    if (this.temperature.value) request.temperature = Number(this.temperature.value);
    if (this.max_tokens.value) request.max_completion_tokens = Number(this.max_tokens.value);
    if (this.effort.value) request.reasoning_effort = this.effort.value;
    if (this.tools.value.trim()) request.tools = JSON.parse(this.tools.value);
    return request;
  }

  private tools_are_fine(): boolean {
    this.tools_error.textContent = "";
    try {
      if (this.tools.value.trim() && !Array.isArray(JSON.parse(this.tools.value))) throw new Error("[ … ]");
      return true;
    } catch (error) {
      this.tools_error.textContent = say(w.tools_wrong, { why: (error as Error).message });
      this.tools_error.closest("details")!.open = true;
      return false;
    }
  }

  private async answer(turn: Turn): Promise<void> {
    if (!this.tools_are_fine()) return this.show_turn(turn);
    const columns = turn.results.length > 0 ? turn.results.map((r, i) => r ? i : -1).filter((i) => i >= 0)
                                            : this.beside ? [0, 1] : [0];
    const requests = columns.map((column) => this.request(turn, column));
    turn.answers = [];
    for (const column of columns) turn.answers[column] = new Answer(this.selects[column].value);
    this.show_turn(turn);
    this.scroll(true);
    this.show_running();
    const ends = await Promise.allSettled(columns.map((column, i) =>
      turn.answers[column]!.run(requests[i], () => this.scroll(false))));
    this.show_running();
    const refused = ends.some((end) => end.status === "rejected" && end.reason instanceof ApiError);
    if (refused) {
      await this.ask_key(true);
      return this.answer(turn);
    }
    for (const column of columns) this.add_actions(turn, column);
    this.status.textContent = turn.answers.some((answer) => answer?.finish === "stopped") ? w.stopped : w.done;
  }

  private show_running(): void {
    const on = this.running() || this.turns.some((turn) => turn.answers.some((answer) => answer?.running));
    this.send_button.textContent = on ? w.stop : w.send;
    this.send_button.classList.toggle("stop", on);
    if (on) this.status.textContent = "";
  }

  private show_turn(turn: Turn): void {
    const parts: Node[] = [];
    if (turn.text) {
      parts.push(h("article", { class: "question" }, h("div", { class: "who" }, w.you),
        h("div", { class: "plain", dir: "auto" }, turn.text),
        h("div", { class: "actions" }, button(w.edit, () => this.edit(turn), { class: "quiet" }))));
    }
    parts.push(h("div", { class: "answers" }, ...turn.answers.filter((a) => a).map((answer) => answer!.element)));
    turn.element.replaceChildren(...parts);
  }

  private add_actions(turn: Turn, column: number): void {
    const answer = turn.answers[column];
    if (!answer) return;
    answer.actions.replaceChildren(
      button(w.copy, () => void navigator.clipboard?.writeText(answer.content), { class: "quiet" }),
      button(w.again, () => {
        if (!this.tools_are_fine()) return;
        this.drop_after(turn);
        void this.answer(turn);
      }, { class: "quiet" }));
    if (answer.calls.length === 0 || answer.error) return;
    answer.ask_results((results) => {
      const all: (string[] | null)[] = [null, null];
      all[column] = results;
      this.begin({ text: "", results: all, answers: [], element: h("div", { class: "turn" }) });
    });
  }

  private edit(turn: Turn): void {
    const question = turn.element.querySelector(".question");
    if (question === null) return;
    const field = h("textarea", { rows: 3, dir: "auto", "aria-label": w.edit });
    field.value = turn.text;
    const done = () => this.show_turn(turn);
    const resend = () => {
      if (field.value.trim() === "" || !this.tools_are_fine()) return;
      turn.text = field.value;
      this.drop_after(turn);
      void this.answer(turn);
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        resend();
      } else if (event.key === "Escape") {
        event.stopPropagation();
        done();
        this.input.focus();
      }
    });
    question.replaceChildren(field, h("div", { class: "actions" }, button(w.resend, resend), button(w.cancel, done)));
    field.focus();
  }

  // Follows the answer, unless the reader has scrolled away.
  private scroll(always: boolean): void {
    this.scroll_always ||= always;
    if (this.scroll_frame !== 0) return;
    // Heights are asked for once a frame: each question lays the page out.
    this.scroll_frame = requestAnimationFrame(() => {
      const log = this.log;
      const follows = this.scroll_always || this.log_bottom - log.scrollTop - log.clientHeight < 120;
      this.scroll_frame = 0;
      this.scroll_always = false;
      this.log_bottom = log.scrollHeight;
      if (follows) log.scrollTo({ top: this.log_bottom });
    });
  }

  private save(kind: "md" | "json"): void {
    const turns = this.turns.map((turn) => ({ user: turn.text || undefined, tool_results: turn.results.length ? turn.results : undefined,
      answers: turn.answers.filter((a) => a).map((a) => ({ model: a!.model, reasoning: a!.reasoning, content: a!.content,
        tool_calls: a!.calls, finish_reason: a!.finish, usage: a!.usage, first_token_ms: a!.first_ms, whole_ms: a!.whole_ms })) }));
    const text = kind === "json" ? JSON.stringify({ system: this.system.value || undefined, turns }, null, 2)
      : turns.map((turn) => [turn.user ? `## ${w.you}\n\n${turn.user}\n` : "",
          ...(turn.tool_results ?? []).map((all) => all ? all.map((one) => "```\n" + one + "\n```\n").join("\n") : ""),
          ...turn.answers.map((a) => `## ${a.model}\n\n${a.content}\n` + a.tool_calls.map((call) =>
            `\n${say(w.call, { name: call.name })}\n\n\`\`\`json\n${call.args}\n\`\`\`\n`).join(""))].filter((part) => part).join("\n")).join("\n");
    const url = URL.createObjectURL(new Blob([text], { type: kind === "json" ? "application/json" : "text/markdown" }));
    h("a", { href: url, download: "chat." + kind }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }
}
