/** The table of costs of a program of many blocks: one row for each block; only the visible rows are drawn. */

import { Folds } from "../code/folds";
import { h } from "../dom/dom";
import type { Selection } from "./selection";
import { createRows } from "./scrolled";

const ROW = 26;
/** Rows whose widths set those of the columns: the longest ones as text. */
const MEASURED = 40;

/** `texts` are the rows as HTML, and `pathOf` returns the path of the block of a key. */
export function createCostRows(
  table: HTMLTableElement,
  texts: readonly string[],
  pathOf: (key: string) => string,
  selection: Selection,
) {
  const above = h("tbody", { "aria-hidden": "true" });
  const below = h("tbody", { "aria-hidden": "true" });
  const frame = table.parentElement!;
  const list = table.tBodies[0]!;
  const paths = texts.map((row) => pathOf(/data-block="([^"]*)"/.exec(row)?.[1] ?? ""));
  const anchorOf = (line: number) => ({ kind: "block" as const, path: paths[line - 1]! });
  const rows = createRows(
    frame,
    list,
    texts.length,
    ROW,
    {
      folds: () => Folds.NONE,
      pin: (line) => selection.pin(anchorOf(line)),
      release: () => selection.pin(null),
      hover: (line) => selection.hover(line ? anchorOf(line) : null),
      linked(look) {
        const { blocks } = selection.links[look];
        return blocks.size ? paths.flatMap((path, at) => (blocks.has(path) ? [at + 1] : [])) : [];
      },
      isLinked: (look, line) => selection.links[look].blocks.has(paths[line - 1]!),
      leaveRoom(...heights) {
        [above, below].forEach((part, at) =>
          part.replaceChildren(...(heights[at] ? [h("tr", { style: `height:${heights[at]}px` })] : [])),
        );
      },
      row(line) {
        const row = parseRow(texts[line - 1]!);
        row.setAttribute("aria-rowindex", String(line));
        row.removeAttribute("tabindex"); // the table itself moves through its rows by keys
        return row;
      },
    },
    (table.tHead?.offsetHeight ?? 0) + (table.tFoot?.offsetHeight ?? 0),
  );
  for (const [name, value] of Object.entries({ tabindex: "0", role: "region", "aria-label": "cost by block, table" }))
    frame.setAttribute(name, value);
  frame.classList.add("long");
  table.setAttribute("aria-rowcount", String(texts.length));
  const longest = [...texts].sort((a, b) => b.length - a.length).slice(0, MEASURED);
  list.replaceChildren(...longest.map(parseRow));
  const widths = [...(list.rows[0]?.cells ?? [])].map((cell) => Math.ceil(cell.getBoundingClientRect().width));
  if (widths.some((width) => width > 0)) {
    table.prepend(h("colgroup", {}, ...widths.map((width) => h("col", { style: `width:${width}px` }))));
    table.style.tableLayout = "fixed";
    table.style.width = `${widths.reduce((sum, width) => sum + width, 0)}px`;
  }
  list.replaceChildren();
  list.before(above);
  list.after(below);
  const beside = h("div", { class: "beside" });
  frame.replaceWith(beside);
  beside.append(frame, rows.ticks);
  rows.draw();
  return rows;
}

function parseRow(row: string) {
  const table = new DOMParser().parseFromString(`<table><tbody>${row}</tbody></table>`, "text/html");
  return document.importNode(table.querySelector("tr")!, true);
}
