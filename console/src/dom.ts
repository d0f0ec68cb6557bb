// Elements made one by one: the page never turns text into HTML (Trusted Types forbid it too).

type Child = Node | string | null | undefined | false;
type Props = Record<string, string | number | boolean | ((event: any) => void) | null | undefined>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K, props: Props = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

export function button(label: string, onclick: (event: Event) => void, props: Props = {}): HTMLButtonElement {
  return h("button", { type: "button", onclick, ...props }, label);
}

// A name and its value, of a list of facts.
export function fact(name: string, value: Node | string): HTMLElement {
  return h("div", { class: "fact" }, h("dt", {}, name), h("dd", {}, value));
}

// "1 234 567", with narrow spaces.
export function grouped(value: number): string {
  if (!Number.isFinite(value)) return "–";
  return Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

export function rate(value: number): string {
  return value < 10 ? value.toFixed(1) : grouped(value);
}

export function milliseconds(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 10) return ms.toFixed(1) + " ms";
  return ms < 1000 ? ms.toFixed(0) + " ms" : (ms / 1000).toFixed(ms < 10000 ? 2 : 1) + " s";
}
