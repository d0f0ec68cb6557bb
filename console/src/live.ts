// What the server does: the last fifteen minutes and on, by one stream, while somebody looks.
import { Chart, Line } from "./chart";
import { fact, grouped, h, milliseconds, rate } from "./dom";
import { Follower } from "./follower";
import { plain } from "./markdown";
import { words } from "./words";

const w = words.live;
const kMinutes = 15;

// A sample of the server's (src/server/live_history.h).
type Sample = { n: number; at: number; output: number; prompt: number; steps: number; running: number; waiting: number;
  first: [number, number] | null; between: [number, number] | null; hits: number | null; kv: Record<string, number> };

const percent = (value: number) => (value * 100).toFixed(value < 0.1 ? 1 : 0) + " %";
const seconds = (value: number) => milliseconds(value * 1000);

export class Live {
  private samples: Sample[] = [];
  private readonly follower: Follower;
  private readonly figures = h("dl", { class: "facts live-now" });
  private readonly charts: Chart<Sample>[];
  private readonly kv: Chart<Sample>;
  private frame = 0;
  readonly element: HTMLElement;

  constructor(ask_key: (wrong: boolean) => Promise<void>) {
    this.follower = new Follower("console/live", () => this.samples[this.samples.length - 1]?.n ?? 0,
      (data) => this.take(data as Sample[]), () => this.element.isConnected, ask_key);
    const pair = (title: string, of: (sample: Sample) => [number, number] | null) => new Chart<Sample>(title, seconds, [
      { name: w.p50, value: (sample) => of(sample)?.[0] ?? null },
      { name: w.p95, value: (sample) => of(sample)?.[1] ?? null }]);
    this.kv = new Chart<Sample>(w.kv, percent, [], 1);
    this.charts = [
      new Chart<Sample>(w.tokens, rate, [{ name: w.output, value: (one) => one.output }, { name: w.prompt, value: (one) => one.prompt }]),
      pair(w.first, (one) => one.first), pair(w.between, (one) => one.between),
      new Chart<Sample>(w.requests, rate, [{ name: w.running, value: (one) => one.running },
        { name: w.waiting_requests, value: (one) => one.waiting }]),
      this.kv,
      new Chart<Sample>(w.hits, percent, [{ name: w.share, value: (one) => one.hits }], 1),
      new Chart<Sample>(w.step, rate, [{ name: w.steps, value: (one) => one.steps }]),
    ];
    this.element = h("section", { class: "page live" }, h("h1", {}, w.title), this.follower.state,
      h("h2", { class: "sr" }, w.table), this.figures, h("div", { class: "charts" }, ...this.charts.map((chart) => chart.element)));
  }

  start(): void {
    this.follower.start();
  }

  stop(): void {
    this.follower.stop();
  }

  private take(news: Sample[]): void {
    // Numbers that begin anew are another start of the server.
    const last = this.samples[this.samples.length - 1];
    if (last !== undefined && news.length > 0 && news[0].n <= last.n) this.samples = [];
    this.samples.push(...news);
    this.samples.splice(0, this.samples.length - kMinutes * 60);
    if (this.frame === 0) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.draw();
      });
    }
  }

  private draw(): void {
    const now = this.samples[this.samples.length - 1];
    if (now === undefined) return;
    this.kv.set_lines(Object.keys(now.kv).map((name): Line<Sample> => ({ name: plain(name), value: (one) => one.kv[name] ?? null })));
    for (const chart of this.charts) chart.draw(this.samples, (one) => one.at, kMinutes * 60_000);
    const both = (pair: [number, number] | null) => (pair === null ? w.nothing : `${seconds(pair[0])} / ${seconds(pair[1])}`);
    this.figures.replaceChildren(
      fact(`${w.tokens}, ${w.output}`, rate(now.output)), fact(`${w.tokens}, ${w.prompt}`, rate(now.prompt)),
      fact(`${w.first}, ${w.p50} / ${w.p95}`, both(now.first)), fact(`${w.between}, ${w.p50} / ${w.p95}`, both(now.between)),
      fact(w.running_now, grouped(now.running)), fact(w.waiting_now, grouped(now.waiting)),
      ...Object.entries(now.kv).map(([name, value]) => fact(`${w.kv}, ${plain(name)}`, percent(value))));
  }
}
