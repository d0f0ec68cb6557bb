// A table whose rows come, change and go: only cells that say something else are touched.
import { button, h } from "./dom";

// What may be done with a row: a word, and what it does.
export type Action = { label: string; run: () => void };
// `right`: of numbers; `short`: never broken into lines; `wide`: not shown on a phone; `long`: of sentences; `mark`: a word that is also a colour; `actions` in place of `text`.
export type Column<T> = { name: string; text: (row: T) => string; right?: boolean; short?: boolean; wide?: boolean; long?: boolean; mark?: (row: T) => string;
  actions?: (row: T) => Action[] };

export class Table<T> {
  private readonly body = h("tbody");
  private readonly rows = new Map<string, HTMLTableRowElement>();
  readonly element: HTMLElement;

  constructor(label: string, private readonly columns: Column<T>[]) {
    this.element = h("div", { class: "table", tabindex: 0, role: "region", "aria-label": label }, h("table", {},
      h("thead", {}, h("tr", {}, ...columns.map((column) => h("th", { scope: "col", class: this.classes(column) }, column.name)))), this.body));
  }

  private classes(column: Column<T>): string {
    return [column.actions && "does", column.right && "right", column.short && "name", column.wide && "wide", column.long && "long"].filter(Boolean).join(" ");
  }

  // In this order.
  draw(shown: [string, T][]): void {
    const keep = new Set(shown.map(([key]) => key));
    for (const [key, row] of this.rows) {
      if (keep.has(key)) continue;
      row.remove();
      this.rows.delete(key);
    }
    let next = this.body.firstChild;
    for (const [key, of] of shown) {
      let row = this.rows.get(key);
      if (row === undefined) {
        row = h("tr", {}, ...this.columns.map((column) => h("td", { class: this.classes(column) })));
        this.rows.set(key, row);
      }
      this.columns.forEach((column, i) => {
        const cell = row!.cells[i];
        if (column.actions) return this.draw_actions(cell, column.actions(of));
        const text = column.text(of);
        if (cell.textContent !== text) cell.textContent = text;
        if (!column.mark) return;
        const mark = column.mark(of);
        if (cell.dataset.mark !== mark) cell.dataset.mark = mark;
      });
      if (row === next) next = row.nextSibling;
      else this.body.insertBefore(row, next);
    }
  }

  // Made anew only where they are other ones: the focus stays.
  private draw_actions(cell: HTMLTableCellElement, actions: Action[]): void {
    const labels = actions.map((one) => one.label).join("\n");
    if ((cell.dataset.actions ?? "") === labels) return;
    cell.dataset.actions = labels;
    const focused = [...cell.children].indexOf(document.activeElement!);
    cell.replaceChildren(...actions.map((one) => button(one.label, one.run)));
    if (focused >= 0) (cell.children[focused] as HTMLElement | undefined)?.focus();
  }
}
