/** The table of costs of a program of many blocks: one row for each block; only the visible rows are drawn. */

import { h } from "../dom/dom";
import type { Look, Selection } from "./selection";
import { ScrolledRows } from "./scrolled";

const ROW = 26;
/** Rows whose widths set those of the columns: the longest ones as text. */
const MEASURED = 40;

export class CostRows extends ScrolledRows {
  private readonly paths: string[];
  private readonly above = h("tbody", { "aria-hidden": "true" });
  private readonly below = h("tbody", { "aria-hidden": "true" });

  /** `rows` are the rows as HTML, and `pathOf` returns the path of the block of a key. */
  constructor(
    table: HTMLTableElement,
    private readonly rows: readonly string[],
    pathOf: (key: string) => string,
    private readonly selection: Selection,
  ) {
    const frame = table.parentElement!;
    const list = table.tBodies[0]!;
    super(frame, list, rows.length, ROW, (table.tHead?.offsetHeight ?? 0) + (table.tFoot?.offsetHeight ?? 0));
    this.paths = rows.map((row) => pathOf(/data-block="([^"]*)"/.exec(row)?.[1] ?? ""));
    for (const [name, value] of Object.entries({ tabindex: "0", role: "region", "aria-label": "cost by block, table" }))
      frame.setAttribute(name, value);
    frame.classList.add("long");
    table.setAttribute("aria-rowcount", String(rows.length));
    const longest = [...rows].sort((a, b) => b.length - a.length).slice(0, MEASURED);
    list.replaceChildren(...longest.map(parseRow));
    const widths = [...(list.rows[0]?.cells ?? [])].map((cell) => Math.ceil(cell.getBoundingClientRect().width));
    if (widths.some((width) => width > 0)) {
      table.prepend(h("colgroup", {}, ...widths.map((width) => h("col", { style: `width:${width}px` }))));
      table.style.tableLayout = "fixed";
      table.style.width = `${widths.reduce((sum, width) => sum + width, 0)}px`;
    }
    list.replaceChildren();
    list.before(this.above);
    list.after(this.below);
    const beside = h("div", { class: "beside" });
    frame.replaceWith(beside);
    beside.append(frame, this.ticks);
    this.draw();
  }

  pinHere(): void {
    this.selection.pin({ kind: "block", path: this.paths[this.here - 1]! });
  }

  release(): void {
    this.selection.pin(null);
  }

  protected hover(line: number): void {
    this.selection.hover(line ? { kind: "block", path: this.paths[line - 1]! } : null);
  }

  protected linked(look: Look): readonly number[] {
    const { blocks } = this.selection.links[look];
    return blocks.size ? this.paths.flatMap((path, at) => (blocks.has(path) ? [at + 1] : [])) : [];
  }

  protected isLinked(look: Look, line: number): boolean {
    return this.selection.links[look].blocks.has(this.paths[line - 1]!);
  }

  protected leaveRoom(above: number, below: number): void {
    for (const [part, height] of [
      [this.above, above],
      [this.below, below],
    ] as const)
      part.replaceChildren(...(height ? [h("tr", { style: `height:${height}px` })] : []));
  }

  protected row(line: number): HTMLElement {
    const row = parseRow(this.rows[line - 1]!);
    row.setAttribute("aria-rowindex", String(line));
    row.removeAttribute("tabindex"); // the table itself moves through its rows by keys
    return row;
  }
}

function parseRow(row: string) {
  const table = new DOMParser().parseFromString(`<table><tbody>${row}</tbody></table>`, "text/html");
  return document.importNode(table.querySelector("tr")!, true);
}
