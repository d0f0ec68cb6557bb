// One answer of a model: what has come of it, and its element.
import { ApiError, stream } from "./api";
import { button, grouped, h, milliseconds } from "./dom";
import { code_block, MarkdownView, plain, PlainView } from "./markdown";
import { say, words } from "./words";

export type ToolCall = { id: string; name: string; args: string };
export type Usage = { prompt_tokens: number; completion_tokens: number;
  prompt_tokens_details?: { cached_tokens?: number }; completion_tokens_details?: { reasoning_tokens?: number } };

const w = words.chat;
const kCallsMax = 256;

export class Answer {
  reasoning = "";
  content = "";
  calls: ToolCall[] = [];
  usage: Usage | null = null;
  finish = "";
  error = "";
  first_ms = NaN;
  whole_ms = NaN;
  running = false;

  private readonly body = new MarkdownView();
  private readonly thought = new PlainView();
  private readonly thought_title = h("summary", {}, w.reasoning_now);
  private readonly fold = h("details", { class: "reasoning", hidden: true }, this.thought_title, this.thought.element);
  private readonly call_list = h("div", { class: "calls" });
  private readonly state = h("div", { class: "state" }, w.waiting);
  private readonly foot = h("div", { class: "foot" });
  readonly actions = h("div", { class: "actions" });
  readonly element = h("article", { class: "answer" });
  private stopper = new AbortController();

  constructor(readonly model: string) {
    this.element.append(h("div", { class: "who", title: model }, plain(model)), this.fold, this.body.element,
      this.call_list, this.state, h("div", { class: "below" }, this.foot, this.actions));
  }

  stop(): void {
    this.stopper.abort();
  }

  // Until it is complete, stopped or broken; never throws, but what asks for a key.
  async run(request: object, on_change: () => void): Promise<void> {
    const begun = performance.now();
    this.running = true;
    try {
      await stream("v1/chat/completions", request, this.stopper.signal, (event) => {
        if (event.error) throw new ApiError(event.error.code ?? 500, event.error.message ?? "");
        this.take(event, performance.now() - begun);
        on_change();
      });
    } catch (error) {
      if (this.stopper.signal.aborted) this.finish = "stopped";
      else if (error instanceof ApiError) this.error = error.message || w.broken;
      else if (error instanceof SyntaxError) this.error = w.no_json;
      else this.error = Number.isNaN(this.first_ms) ? words.offline : w.broken;
      if (error instanceof ApiError && error.status === 401) throw error;
    } finally {
      this.whole_ms = performance.now() - begun;
      this.running = false;
      this.close();
      on_change();
    }
  }

  private take(event: any, now_ms: number): void {
    if (event.usage) this.usage = event.usage;
    const choice = event.choices?.[0];
    if (!choice) return this.show_foot(now_ms);
    const delta = choice.delta ?? {};
    const reasoning = delta.reasoning_content ?? delta.reasoning ?? "";
    if (Number.isNaN(this.first_ms) && (event.usage?.completion_tokens || reasoning || delta.content)) this.first_ms = now_ms;
    if (reasoning) {
      this.fold.hidden = false;
      this.reasoning += reasoning;
      this.thought.push(reasoning);
    }
    if (delta.content) {
      this.content += delta.content;
      this.body.push(delta.content);
      this.thought_title.textContent = w.reasoning;
    }
    for (const call of delta.tool_calls ?? []) this.take_call(call);
    if (choice.finish_reason) this.finish = choice.finish_reason;
    if (!Number.isNaN(this.first_ms)) this.state.textContent = "";
    this.show_foot(now_ms);
  }

  private take_call(part: any): void {
    const at = part.index ?? 0;
    if (!Number.isInteger(at) || at < 0 || at >= kCallsMax) return;
    this.calls[at] ??= { id: "", name: "", args: "" };
    const call = this.calls[at];
    call.id ||= part.id ?? "";
    call.name ||= part.function?.name ?? "";
    call.args += part.function?.arguments ?? "";
    this.show_calls();
  }

  private show_calls(): void {
    this.call_list.replaceChildren(...this.calls.map((call) => {
      let args = call.args;
      try {
        args = JSON.stringify(JSON.parse(call.args), null, 2);
      } catch {
        // not complete, or not JSON: as it is
      }
      return h("section", { class: "call" }, h("div", { class: "who" }, plain(say(w.call, { name: call.name }))),
        code_block(args, "json").node);
    }));
  }

  private show_foot(now_ms: number): void {
    const usage = this.usage;
    if (usage === null) return;
    const reasoning = usage.completion_tokens_details?.reasoning_tokens ?? 0;
    let text = say(w.counts, { prompt: grouped(usage.prompt_tokens), cached: grouped(usage.prompt_tokens_details?.cached_tokens ?? 0),
      output: grouped(usage.completion_tokens) });
    if (reasoning > 0) text += say(w.counts_reasoning, { reasoning: grouped(reasoning) });
    const seconds = (now_ms - this.first_ms) / 1000;
    if (seconds > 0 && usage.completion_tokens > 1) {
      text += say(w.times, { first: milliseconds(this.first_ms), rate: ((usage.completion_tokens - 1) / seconds).toFixed(1),
        whole: milliseconds(now_ms) });
    }
    this.foot.textContent = text;
  }

  private close(): void {
    this.thought_title.textContent = w.reasoning;
    this.show_foot(this.whole_ms);
    this.state.className = this.error ? "state wrong" : "state";
    this.state.textContent = this.error ? plain(this.error)
      : this.finish === "stopped" ? w.stopped
      : this.finish === "length" ? w.cut
      : ["", "stop", "tool_calls"].includes(this.finish) ? "" : say(w.finish, { reason: plain(this.finish) });
  }

  // Where the results of its calls are written; `send` gets them in the calls' order.
  ask_results(send: (results: string[]) => void): void {
    const fields = this.calls.map((call) =>
      h("textarea", { rows: 2, "aria-label": say(w.result, { name: plain(call.name) }), placeholder: say(w.result, { name: plain(call.name) }) }));
    const form = h("div", { class: "results" }, ...fields,
      button(w.send_results, () => {
        form.remove();
        send(fields.map((field) => field.value));
      }));
    this.call_list.append(form);
  }
}
