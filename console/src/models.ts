// What /v1/models and the model cards say.
import { ApiError, get } from "./api";
import { fact, grouped, h } from "./dom";
import { MarkdownView, plain, safe_address } from "./markdown";
import { say, words } from "./words";

const w = words.models;
type Model = { id: string; root: string; created: number; max_model_len: number; state?: string; cold_start_s?: number };

function licence(said: any): Node | string {
  const name = plain(said?.name ?? said?.id ?? "");
  const href = said?.link ? safe_address(said.link) : null;
  if (href === null) return name;
  return h("a", { href, target: "_blank", rel: "noopener noreferrer nofollow" }, name || href);
}

async function fill_card(model: Model, facts: HTMLElement, below: HTMLElement): Promise<void> {
  const card = await get("v1/model_cards/" + model.id.split("/").map(encodeURIComponent).join("/")).catch((error) => {
    if (error instanceof ApiError && error.status === 404) return {};  // a gateway has none
    throw error;
  });
  const said = licence(card.license);
  if (said) facts.append(fact(w.licence, said));
  if (card.license?.text) below.append(h("details", {}, h("summary", {}, w.licence_text), h("pre", { tabindex: 0 }, plain(card.license.text))));
  if (!card.card) return below.append(h("p", { class: "quiet" }, w.no_card));
  const fold = h("details", { ontoggle: () => {
    if (fold.open && fold.childElementCount === 1) fold.append(new MarkdownView(card.card).element);
  } }, h("summary", {}, w.card));
  below.append(fold);
}

export async function models_page(has_chat: boolean): Promise<HTMLElement> {
  const all = (await get("v1/models")).data as Model[];
  const page = h("section", { class: "page" }, h("h1", {}, w.title));
  const roots = all.filter((model) => model.id === model.root);
  if (roots.length === 0) page.append(h("p", { class: "empty" }, w.none));
  for (const model of roots) {
    const aliases = all.filter((other) => other.root === model.root && other.id !== model.id).map((other) => other.id);
    const facts = h("dl", { class: "facts" },
      fact(w.context, say(w.tokens, { count: grouped(model.max_model_len) })),
      fact(w.since, new Date(model.created * 1000).toLocaleString()),
      fact(w.state, model.state ? plain(model.state) : w.awake));
    if (aliases.length > 0) facts.prepend(fact(w.aliases, plain(aliases.join(", "))));
    if (model.cold_start_s) facts.append(fact(w.cold_start, model.cold_start_s.toFixed(1) + " s"));
    const below = h("div", { class: "cards" });
    page.append(h("article", { class: "panel" }, h("h2", {}, plain(model.id)), facts, below,
      has_chat && h("p", {}, h("a", { href: "#chat/" + encodeURIComponent(model.id) }, w.open_chat))));
    fill_card(model, facts, below).catch((error) => below.append(h("p", { class: "state wrong" }, say(words.failed, { why: error.message }))));
  }
  return page;
}
