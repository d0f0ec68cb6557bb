// The console: its frame, which page is shown, colours, keys.
import { api_key, ApiError, set_api_key } from "./api";
import { Capacity } from "./capacity";
import { ChainFigures } from "./chain_figures";
import { Chains } from "./chains";
import { Chat } from "./chat";
import { button, h } from "./dom";
import { FleetFeed } from "./feed";
import { Configuration } from "./configuration";
import { Fleet } from "./fleet";
import { Health } from "./health";
import { Live } from "./live";
import { models_page } from "./models";
import { Operator } from "./operator";
import { Requests } from "./requests";
import { Routing } from "./routing";
import { Scaling } from "./scaling";
import { ServerHealth } from "./server_health";
import { Splits } from "./splits";
import { say, words } from "./words";

type Config = { version: string; pages: string[]; chat_port: number; chat_tls: boolean; what_if?: boolean; sign_in?: boolean; asks_key?: boolean };
type Page = keyof typeof words.pages;

const kThemes = ["auto", "light", "dark"] as const;
const kThemeName = "pelton-theme";

const main = h("main", { id: "page", tabindex: 0 });  // it scrolls: by the keyboard, too
const nav = h("nav", { "aria-label": words.product });
let chat: Chat | null = null;
let chains: Chains | null = null;
let live: Live | null = null;
let feed: FleetFeed | null = null;  // of the next pages
const fed = new Map<Page, HTMLElement>();
let routing: Routing | null = null;
type Polled = Splits | Health | ServerHealth | Configuration | ChainFigures;
const polled = new Map<Page, Polled>();
let capacity: Capacity | null = null;
let shown: Page | "" = "";
let asked = 0;  // how often a page was asked for
let operator = new Operator(false);
let signs_in_first = false;  // nothing is shown to whoever has not

const kAgain_ms = 2000;

// As it stands, if it is no encoding of anything.
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function theme_button(): HTMLElement {
  let mode = localStorage.getItem(kThemeName) ?? "auto";
  const show = () => {
    document.documentElement.dataset.theme = mode;
    const label = say(words.theme.label, { mode: words.theme[mode as "auto"] ?? "" });
    control.title = label;
    control.setAttribute("aria-label", label);
    control.textContent = mode === "dark" ? "☾" : mode === "light" ? "☀" : "◐";
  };
  const control = button("", () => {
    mode = kThemes[(kThemes.indexOf(mode as "auto") + 1) % kThemes.length];
    localStorage.setItem(kThemeName, mode);
    show();
  }, { class: "quiet theme" });
  show();
  return control;
}

// A form in the page's place, until the key is given.
function ask_key(wrong: boolean): Promise<void> {
  return new Promise((resolve) => {
    const field = h("input", { type: "password", autocomplete: "off", required: true, "aria-label": words.key.label });
    const before = [...main.childNodes];
    main.replaceChildren(h("form", { class: "panel key", onsubmit: (event: Event) => {
      event.preventDefault();
      set_api_key(field.value.trim());
      main.replaceChildren(...before);
      resolve();
    } }, h("h1", {}, words.key.title), h("label", { class: "field" }, h("span", {}, words.key.label), field),
      h("p", { class: "quiet" }, words.key.note),
      wrong && sessionStorage.length > 0 && h("p", { class: "state wrong", role: "alert" }, words.key.wrong),
      h("button", { type: "submit", class: "main" }, words.key.send)));
    field.focus();
  });
}

// What is asked of a stream that was refused: a session that is over takes the pages away, which ends the stream too.
async function ask_anew(wrong: boolean): Promise<void> {
  if (!signs_in_first) return ask_key(wrong);
  await operator.load();
  if (operator.is_signed_in) await new Promise((resolve) => setTimeout(resolve, kAgain_ms));
}

function sign_in_panel(): HTMLElement {
  return h("div", { class: "panel key" }, h("h1", {}, words.operator.first), h("p", { class: "quiet" }, words.operator.first_note),
    button(words.operator.sign_in, () => void operator.sign_in(), { class: "main" }));
}

// Until it works: asks for the key where one is wanted.
async function with_key<T>(work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 401) throw error;
      await ask_key(true);
    }
  }
}

async function show_chat(model: string): Promise<HTMLElement> {
  chat ??= new Chat(ask_key);
  await with_key(() => chat!.load(model));
  return chat.element;
}

function show_fed(page: "fleet" | "scaling" | "requests", has_what_if = false): HTMLElement {
  feed ??= new FleetFeed(ask_anew);
  const view = fed.get(page) ?? { fleet: () => new Fleet(feed!, operator), scaling: () => new Scaling(feed!, has_what_if), requests: () => new Requests(feed!) }[page]().element;
  fed.set(page, view);
  view.querySelector("h1")!.after(feed.state);
  return view;
}

function show_polled(page: Page, make: () => Polled): HTMLElement {
  const view = polled.get(page) ?? make();
  polled.set(page, view);
  return view.element;
}

async function show_routing(): Promise<HTMLElement> {
  routing ??= new Routing();
  await routing.load();
  return routing.element;
}

async function show(config: Config): Promise<void> {
  const [name, model] = location.hash.slice(1).split("/", 2);
  const page = (config.pages.includes(name) ? name : config.pages[0]) as Page;
  for (const link of nav.querySelectorAll("a")) {
    if (link.hash === "#" + page) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${words.pages[page]} – ${words.product}`;
  document.body.dataset.page = page;
  if (page !== "live") live?.stop();
  if (signs_in_first && !operator.is_signed_in) {
    ++asked;
    feed?.stop();
    main.replaceChildren(sign_in_panel());
    shown = "";
    return;
  }
  if (!["fleet", "scaling", "requests"].includes(page)) feed?.stop();
  const pages: Record<Page, () => Promise<HTMLElement>> = {
    chat: () => show_chat(decoded(model ?? "")),
    chains: async () => {
      chains ??= new Chains(ask_key);
      await with_key(() => chains!.load());
      return chains.element;
    },
    models: () => with_key(() => models_page(config.pages.includes("chat"))),
    live: async () => (live ??= new Live(ask_key)).element,
    fleet: async () => show_fed("fleet"),
    scaling: async () => show_fed("scaling", config.what_if),
    requests: async () => show_fed("requests"),
    routing: show_routing,
    splits: async () => show_polled(page, () => new Splits(operator)),
    health: async () => show_polled(page, () => new Health()),
    server_health: async () => show_polled(page, () => new ServerHealth()),
    chain_figures: async () => show_polled(page, () => new ChainFigures()),
    capacity: async () => (capacity ??= new Capacity()).element,
    configuration: async () => show_polled(page, () => new Configuration(operator)),
  };
  if (page !== "chat" || chat === null) main.replaceChildren(h("p", { class: "empty" }, words.loading));
  const mine = ++asked;
  try {
    if (config.asks_key && !signs_in_first && !api_key()) await ask_key(false);
    const view = await pages[page]();
    if (mine !== asked) return; // another page was chosen meanwhile
    main.replaceChildren(view);
    if (page !== shown) main.scrollTop = 0;
    shown = page;
    if (page === "chat") chat!.focus();
    if (page === "live") live!.start();
    if (fed.has(page)) feed!.show();
    polled.get(page)?.poller.start();
    if (page === "capacity") void capacity!.plan();
  } catch (error) {
    if (mine !== asked) return;
    const why = error instanceof ApiError ? error.message : words.offline;
    main.replaceChildren(h("div", { class: "panel" }, h("p", { role: "alert" }, say(words.failed, { why })),
      button(words.retry, () => void show(config))));
  }
}

async function begin(): Promise<void> {
  document.body.append(h("a", { class: "skip", href: "#page", onclick: (event: Event) => {
    event.preventDefault();
    main.focus();
  } }, words.skip), h("header", {}, h("span", { class: "name" }, words.product), nav, theme_button()), main);
  const config: Config = await (await fetch("console/config.json", { cache: "no-store" })).json();
  nav.replaceChildren(...config.pages.map((page) => h("a", { href: "#" + page }, words.pages[page as Page])));
  // The chat is at the listener of the API, if this is another one.
  if (config.chat_port > 0 && !config.pages.includes("chat")) {
    const host = `${config.chat_tls ? "https" : "http"}://${location.hostname}:${config.chat_port}`;
    nav.append(h("a", { href: host + "/console" }, words.pages.chat));
  }
  operator = new Operator(config.sign_in === true);
  nav.after(operator.element);
  await operator.load();
  signs_in_first = config.sign_in === true && config.asks_key === true;
  let was_signed_in = operator.is_signed_in;
  operator.on_change(() => {
    if (signs_in_first && operator.is_signed_in !== was_signed_in) void show(config);
    was_signed_in = operator.is_signed_in;
  });
  document.querySelector(".name")!.setAttribute("title", config.version);
  addEventListener("hashchange", () => void show(config));
  await show(config);
}

begin().catch(() => main.replaceChildren(h("div", { class: "panel" }, h("p", { role: "alert" }, words.offline),
  button(words.retry, () => location.reload()))));
