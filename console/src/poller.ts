// What a page asks of the operator's listener again and again while somebody looks; and Prometheus' text as numbers.
import { ApiError, get_text } from "./api";
import { h } from "./dom";
import { plain } from "./markdown";
import { say, words } from "./words";

// `load` draws what it has asked for; `element` is the page, while it is shown.
export class Poller {
  readonly state = h("p", { class: "state", role: "status" });
  private timer = 0;
  private busy = false;

  constructor(private readonly element: () => HTMLElement, private readonly load: () => Promise<void>, private readonly each_ms: number) {
    document.addEventListener("visibilitychange", () => this.start());
  }

  start(): void {
    clearTimeout(this.timer);
    void this.turn();
  }

  private async turn(): Promise<void> {
    if (this.busy || document.hidden || !this.element().isConnected) return;
    this.busy = true;
    let why = "";
    try {
      await this.load();
    } catch (error) {
      why = error instanceof ApiError && error.status > 0 ? say(words.failed, { why: plain(error.message) }) : words.live.cut;
    }
    this.busy = false;
    if (this.state.textContent !== why) this.state.textContent = why;
    this.timer = window.setTimeout(() => void this.turn(), this.each_ms);
  }
}

export type Labels = Record<string, string>;
export type Metric = { labels: Labels; value: number };

// By name; "NaN" and "+Inf" are numbers, too.
export class Metrics {
  private readonly all = new Map<string, Metric[]>();

  constructor(text: string) {
    for (const line of text.split("\n")) {
      const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
      if (match === null) continue;
      const labels: Labels = {};
      for (const [, name, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
        labels[name] = value.replace(/\\(.)/g, (_, letter) => (letter === "n" ? "\n" : letter));
      }
      const value = match[3] === "+Inf" ? Infinity : Number(match[3]);
      const of = this.all.get(match[1]);
      if (of === undefined) this.all.set(match[1], [{ labels, value }]);
      else of.push({ labels, value });
    }
  }

  // Those that have these labels.
  of(name: string, labels: Labels = {}): Metric[] {
    return (this.all.get(name) ?? []).filter((one) => Object.entries(labels).every(([label, value]) => one.labels[label] === value));
  }
  value(name: string, labels: Labels = {}): number {
    return this.of(name, labels).reduce((sum, one) => sum + one.value, 0);
  }
  // Of a histogram: within the bucket as if all were as likely there; null: nothing was observed.
  quantile(name: string, share: number, labels: Labels): number | null {
    const buckets = this.of(name + "_bucket", labels).map((one) => ({ to: one.labels.le === "+Inf" ? Infinity : Number(one.labels.le), count: one.value }))
      .sort((a, b) => a.to - b.to);
    const all = buckets.length > 0 ? buckets[buckets.length - 1].count : 0;
    if (!(all > 0)) return null;
    let from = 0;
    let before = 0;
    for (const { to, count } of buckets) {
      if (count >= share * all) return to === Infinity ? from : from + (to - from) * ((share * all - before) / Math.max(count - before, 1e-9));
      from = to;
      before = count;
    }
    return null;
  }
  mean(name: string, labels: Labels): number | null {
    const count = this.value(name + "_count", labels);
    return count > 0 ? this.value(name + "_sum", labels) / count : null;
  }
}

export async function get_metrics(): Promise<Metrics> {
  return new Metrics(await get_text("metrics"));
}
