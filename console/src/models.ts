// What /v1/models and the model cards say.
import { ApiError, get } from "./api";
import { fact, grouped, h } from "./dom";
import { MarkdownView, plain, safe_address } from "./markdown";
import { say, words } from "./words";

const w = words.models;
type Model = { id: string; root: string; parent: string | null; created: number; max_model_len: number; state?: string; cold_start_s?: number };

// Chains are listed among the models, and are nobody's weights.
const kChain = "chain:";

function licence(said: any): Node | string {
  const name = plain(said?.name ?? said?.id ?? "");
  const href = said?.link ? safe_address(said.link) : null;
  if (href === null) return name;
  return h("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }, name || href);
}

// Why it is not known: no replica runs that could say so, or a worker of another kind has none.
function no_card(error: unknown): string {
  if (!(error instanceof ApiError) || ![404, 501, 503].includes(error.status)) throw error;
  return error.code === "no_replica" ? w.card_when_it_runs : w.card_unknown;
}

async function fill_card(id: string, facts: HTMLElement, below: HTMLElement): Promise<void> {
  let why = w.no_card;
  const card = await get("v1/model_cards/" + id.split("/").map(encodeURIComponent).join("/")).catch((error) => {
    why = no_card(error);
    return {};
  });
  const said = licence(card.license);
  if (said) facts.append(fact(w.licence, said));
  if (card.license?.text) below.append(h("details", {}, h("summary", {}, w.licence_text), h("pre", { tabindex: 0 }, plain(card.license.text))));
  if (!card.card) return below.append(h("p", { class: "quiet" }, why));
  const fold = h("details", { ontoggle: () => {
    if (fold.open && fold.childElementCount === 1) fold.append(new MarkdownView(card.card).element);
  } }, h("summary", {}, w.card));
  below.append(fold);
}

function fill(id: string, facts: HTMLElement, below: HTMLElement): void {
  fill_card(id, facts, below).catch((error) => below.append(h("p", { class: "state wrong" }, say(words.failed, { why: plain(error.message) }))));
}

function adapter(model: Model, has_chat: boolean): HTMLElement {
  const facts = h("dl", { class: "facts" });
  const below = h("div", { class: "cards" });
  fill(model.id, facts, below);
  return h("section", { class: "adapter" }, h("h3", {}, say(w.adapter, { name: plain(model.id) })), facts, below,
    has_chat && h("p", {}, h("a", { href: "#chat/" + encodeURIComponent(model.id) }, w.open_chat)));
}

export async function models_page(has_chat: boolean): Promise<HTMLElement> {
  const all = (await get("v1/models")).data as Model[];
  const page = h("section", { class: "page" }, h("h1", {}, w.title));
  const roots = all.filter((model) => model.id === model.root && !model.parent && !model.id.startsWith(kChain));
  if (roots.length === 0) page.append(h("p", { class: "empty" }, w.none));
  const shown: Model[] = [];
  for (const model of roots) {
    const aliases = all.filter((other) => other.root === model.root && other.id !== model.id && !other.parent).map((other) => other.id);
    // A gateway knows of neither before a replica has run.
    const facts = h("dl", { class: "facts" },
      fact(w.context, model.max_model_len > 0 ? say(w.tokens, { count: grouped(model.max_model_len) }) : w.not_known),
      fact(w.state, model.state ? plain(model.state) : w.awake));
    if (model.created > 0) facts.append(fact(w.since, new Date(model.created * 1000).toLocaleString()));
    if (aliases.length > 0) facts.prepend(fact(w.aliases, plain(aliases.join(", "))));
    if (model.cold_start_s) facts.append(fact(w.cold_start, model.cold_start_s.toFixed(1) + " s"));
    const below = h("div", { class: "cards" });
    page.append(h("article", { class: "panel" }, h("h2", {}, plain(model.id)), facts, below,
      has_chat && h("p", {}, h("a", { href: "#chat/" + encodeURIComponent(model.id) }, w.open_chat))));
    fill(model.id, facts, below);
    const names = [model.id, ...aliases];
    const adapters = all.filter((one) => one.parent && names.includes(one.parent));
    below.after(...adapters.map((one) => adapter(one, has_chat)));
    shown.push(...adapters);
  }
  // Of a pool of several models it is not known whose they are.
  const rest = all.filter((one) => one.parent !== null && one.parent !== undefined && !roots.includes(one) && !shown.includes(one));
  if (rest.length > 0) page.append(h("article", { class: "panel" }, h("h2", {}, w.adapters), ...rest.map((one) => adapter(one, has_chat))));
  return page;
}
