// Who has signed in at a gateway's console, and what he may command: the server says so, and keeps the cookie that no page reads. What is kept here
// is the token that each change brings along, for as long as the page is open.
import { ApiError, send, send_text } from "./api";
import { button, h } from "./dom";
import { plain } from "./markdown";
import { say, words } from "./words";

const w = words.operator;
const kSession = "console/session";
const kLookMs = 30_000;  // a session that ended elsewhere is over here, too

type Session = { name: string; token: string; seconds: number };

// Asks in a window of its own, above the page; the focus comes back. `fill` gets what closes it.
function dialog(title: string, fill: (close: () => void) => HTMLElement[]): Promise<void> {
  return new Promise((resolve) => {
    // What was pressed may be another button afterwards, in the same place.
    const opener = document.activeElement;
    const place = opener?.closest("td, .tools, header");
    const heading = h("h2", { id: "dialog-title" }, title);
    const element: HTMLDialogElement = h("dialog", { class: "panel", "aria-labelledby": "dialog-title", onclose: () => {
      element.remove();
      if (opener?.isConnected === false) place?.querySelector<HTMLElement>("button:not([hidden])")?.focus();
      resolve();
    } }, heading, ...fill(() => element.close()));
    document.body.append(element);
    element.showModal();
  });
}

export class Operator {
  private session: Session | null = null;
  private readonly watchers: (() => void)[] = [];
  // In the page's head.
  readonly element = button("", () => void (this.session === null ? this.sign_in() : this.show()), { class: "quiet who-signed-in" });

  // `may`: whether there is a key to sign in with.
  constructor(readonly may: boolean) {
    this.element.hidden = !may;
    this.set(null);
    if (!may) return;
    setInterval(() => void this.look(), kLookMs);
    document.addEventListener("visibilitychange", () => void this.look());
  }

  get is_signed_in(): boolean {
    return this.session !== null;
  }
  on_change(watcher: () => void): void {
    this.watchers.push(watcher);
  }

  // Whether this browser has signed in before.
  async load(): Promise<void> {
    if (!this.may) return;
    try {
      this.set(await send("GET", kSession) as Session | null);
    } catch {
      this.set(null);
    }
  }

  // Whether there is a session still: it may have been ended in another tab or browser. A server that does not answer says nothing of it;
  // another one is learnt by the next change, which says whose it is.
  private async look(): Promise<void> {
    const before = this.session;
    if (before === null || document.hidden) return;
    const now = await send("GET", kSession).catch((error) => error instanceof ApiError && error.status === 401 ? null : before);
    if (now === null && this.session === before) this.set(null);
  }

  private set(session: Session | null): void {
    this.session = session;
    this.element.textContent = session === null ? w.sign_in : plain(session.name);
    this.element.title = session === null ? w.title : say(w.signed_in, { name: plain(session.name) });
    for (const watcher of this.watchers) watcher();
  }

  sign_in(): Promise<void> {
    const field = h("input", { type: "password", autocomplete: "off", required: true });
    const state = h("p", { class: "state wrong", role: "alert" });
    return dialog(w.title, (close) => [h("form", { class: "key", onsubmit: (event: Event) => {
      event.preventDefault();
      state.textContent = "";
      send("POST", kSession, { key: field.value.trim() }).then((session) => {
        this.set(session as Session);
        close();
      }, (error) => {
        field.value = "";
        state.textContent = error instanceof ApiError && error.status > 0 ? this.why(error) : words.offline;
        field.focus();
      });
    } }, h("label", { class: "field" }, h("span", {}, w.label), field), h("p", { class: "quiet" }, w.note), state,
      h("div", { class: "tools" }, h("button", { type: "submit", class: "main" }, w.sign_in), button(words.chat.cancel, close)))]);
  }

  private why(error: ApiError): string {
    return error.status === 401 ? w.wrong : error.status === 429 ? say(w.throttled, { seconds: error.retry_after }) : plain(error.message);
  }

  private show(): Promise<void> {
    const state = h("p", { class: "state wrong", role: "alert" });
    const out = (path: string, close: () => void) => this.change("DELETE", path).then(() => {
      this.set(null);
      close();
    }, (error) => {
      state.textContent = this.is_signed_in ? plain(error.message) : w.over;
    });
    return dialog(say(w.signed_in, { name: plain(this.session!.name) }), (close) => [h("p", { class: "quiet" }, w.lasts), state,
      h("div", { class: "tools" }, button(w.sign_out, () => void out(kSession, close), { class: "main" }),
        button(w.everywhere, () => void out(kSession + "?all=true", close)), button(w.close, close))]);
  }

  // A request that changes something; the session that it has shown to be over is forgotten.
  // One of another tab's sign-in since is learnt; where it is the same operator's it counts.
  async change(method: string, path: string, text?: string, more: Record<string, string> = {}): Promise<unknown> {
    const go = () => {
      const headers = { ...more, "X-Pelton-Token": this.session?.token ?? "" };
      return text === undefined ? send(method, path, undefined, headers) : send_text(method, path, text, headers);
    };
    const before = this.session;
    try {
      return await go();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 401) this.set(null);
      if (error.status !== 403) throw error;
      await this.load();
      if (this.session === null || this.session.token === before?.token) throw error;
      if (this.session.name === before?.name) return go();
      throw new ApiError(403, say(w.another, { name: this.session.name }));
    }
  }

  // Asks once more, and does it.
  confirm(title: string, means: string, label: string, work: () => Promise<void>): Promise<void> {
    return dialog(title, (close) => [h("p", {}, means), h("div", { class: "tools" }, button(label, () => {
      close();
      void work();
    }, { class: "main" }), button(words.chat.cancel, close, { autofocus: true }))]);
  }

  // Asks first. What became of it is said in the same window where it failed.
  command(worker: string, word: keyof typeof w.commands): Promise<void> {
    return this.ask(w.commands[word], worker, `console/workers/${encodeURIComponent(worker)}/${word}`);
  }

  // The same of anything that has a name: `path` is what is asked for then.
  ask(what: { label: string; ask: string; means: string }, name: string, path: string): Promise<void> {
    const state = h("p", { class: "state wrong", role: "alert" });
    const go = (close: () => void) => this.change("POST", path).then(close, (error) => {
      state.textContent = !this.is_signed_in ? w.over : error instanceof ApiError && error.status > 0 ? plain(error.message) : words.offline;
    });
    return dialog(say(what.ask, { name: plain(name) }), (close) => [h("p", {}, what.means), state,
      h("div", { class: "tools" }, button(what.label, () => void go(close), { class: "main" }), button(words.chat.cancel, close, { autofocus: true }))]);
  }
}
