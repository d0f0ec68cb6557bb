// A chart of lines over time, drawn as SVG elements. Colours are the style sheet's.
import { h } from "./dom";
import { say, words } from "./words";

const kSvg = "http://www.w3.org/2000/svg";
const kHeight = 170;
const kLeft = 62;
const kBottom = 20;
const kTop = 8;
const kDot = 3.5;

const kSpans_ms = [1, 2, 5].map((minutes) => minutes * 60_000);

export type Line<T> = { name: string; value: (sample: T) => number | null };

export function svg(tag: string, attributes: Record<string, string | number>, text = ""): SVGElement {
  const element = document.createElementNS(kSvg, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text) element.textContent = text;
  return element;
}

// A line's colour, and behind the last colour its dashes.
const kColours = 4;
const kDashes = 3;
function look(line: number): string {
  return `line-${line % kColours} dash-${Math.floor(line / kColours) % kDashes}`;
}

// The least of 1, 2, 5 x 10^n that is not below.
export function round_up(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= value * (1 - 1e-9)) ?? 10 * power;
}

export class Chart<T> {
  private readonly plot = svg("svg", { role: "img", class: "plot" });
  private readonly legend = h("div", { class: "legend" });
  readonly element: HTMLElement;

  // `most`: the top of its scale; otherwise the greatest value that is shown.
  // `level`: the number stays until the next sample, as of things that are counted.
  constructor(private readonly title: string, private readonly text: (value: number) => string, private lines: Line<T>[],
              private readonly most: number | null = null, private readonly level = false) {
    this.element = h("figure", { class: "panel chart" }, h("figcaption", {}, h("span", {}, title), this.legend));
    this.element.append(this.plot);
    this.set_lines(lines);
  }

  set_lines(lines: Line<T>[]): void {
    if (this.legend.childElementCount > 0 && lines.map((one) => one.name).join("\n") === this.lines.map((one) => one.name).join("\n")) return;
    this.lines = lines;
    this.legend.replaceChildren(...lines.map((line, i) => h("span", { class: `mark ${look(i)}` }, line.name)));
  }

  // `span_ms`: at most so far back.
  draw(samples: T[], at: (sample: T) => number, span_ms: number): void {
    // As wide as it is shown, so that its text keeps its size.
    const width = Math.max(this.plot.clientWidth, 240);
    this.plot.setAttribute("viewBox", `0 0 ${width} ${kHeight}`);
    const end = at(samples[samples.length - 1]);
    // A young history fills the plot, too.
    span_ms = kSpans_ms.find((one) => one >= end - at(samples[0])) ?? span_ms;
    const shown = samples.filter((one) => at(one) > end - span_ms);
    const values = shown.map((one) => this.lines.map((line) => line.value(one)));
    const greatest = Math.max(0, ...values.flat().map((value) => value ?? 0));
    const most = this.most ?? round_up(greatest);
    const x = (time: number) => kLeft + (1 - (end - time) / span_ms) * (width - kLeft - 4);
    const y = (value: number) => kTop + (1 - Math.min(value / most, 1)) * (kHeight - kTop - kBottom);
    const parts: SVGElement[] = [];
    for (const share of [0, 0.5, 1]) {
      const height = y(share * most);
      parts.push(svg("line", { x1: kLeft, x2: width, y1: height, y2: height, class: "grid" }),
        svg("text", { x: kLeft - 6, y: height + 4, class: "tick", "text-anchor": "end" }, this.text(share * most)));
    }
    const minutes = Math.round(span_ms / 60_000);
    parts.push(svg("text", { x: kLeft, y: kHeight - 4, class: "tick" }, say(words.live.ago, { minutes })),
      svg("text", { x: width - 4, y: kHeight - 4, class: "tick", "text-anchor": "end" }, words.live.now));
    this.lines.forEach((_, i) => {
      let path = "";
      let pen = false;
      shown.forEach((one, k) => {
        const value = values[k][i];
        if (value === null) {
          pen = false;
          return;
        }
        if (pen && this.level) path += `H${x(at(one)).toFixed(1)}`;
        path += `${pen ? "L" : "M"}${x(at(one)).toFixed(1)} ${y(value).toFixed(1)}`;
        if (!pen && (values[k + 1]?.[i] ?? null) === null) {  // a point alone
          parts.push(svg("circle", { cx: x(at(one)).toFixed(1), cy: y(value).toFixed(1), r: kDot, class: `dot ${look(i)}` }));
        }
        pen = true;
      });
      if (path) parts.push(svg("path", { d: path, class: `curve ${look(i)}` }));
    });
    const last = values[values.length - 1];
    const said = this.lines.map((line, i) => `${line.name} ${last[i] === null ? words.live.nothing : this.text(last[i]!)}`);
    this.plot.setAttribute("aria-label", `${this.title}: ${said.join(", ")}`);
    this.plot.replaceChildren(...parts);
  }
}
