/** The Cost tab: one sortable table with bars, totals and what is unattributed; sources side by side; XLA's memory. */

import { copyFrom } from "./clipboard";
import { attr, h, iconButton, keyed, text } from "./dom";
import { exact, percent, si } from "./format";
import { UNATTRIBUTED, lineage } from "./links";
import type { Store } from "./store";
import type { Cost, CostRow } from "./types";

type Column = "label" | "flops" | "share" | "forward" | "backward" | "update" | "transcendentals" | "bytes" | "params";

const COLUMNS: { key: Column; title: string; unit: string; hint: string; bar?: boolean }[] = [
  { key: "label", title: "Block", unit: "", hint: "Block of the model" },
  { key: "flops", title: "FLOPs", unit: "FLOP", hint: "Floating-point operations of one run of the program", bar: true },
  { key: "share", title: "Share", unit: "", hint: "Share of the program's FLOPs" },
  { key: "forward", title: "Forward", unit: "FLOP", hint: "FLOPs in the forward pass" },
  { key: "backward", title: "Backward", unit: "FLOP", hint: "FLOPs in the backward pass" },
  { key: "update", title: "Update", unit: "FLOP", hint: "FLOPs of the optimizer's update" },
  { key: "transcendentals", title: "Transc.", unit: "", hint: "Transcendental functions: exp, log, tanh, ..." },
  { key: "bytes", title: "Bytes", unit: "B", hint: "Bytes read and written if nothing is fused", bar: true },
  { key: "params", title: "Params", unit: "", hint: "Numbers that are trained" },
];

const NO_COST: Cost = { rows: [], total: { flops: null, transcendentals: null, bytes: null, params: null }, unattributed_share: 0, unknown: [], sources: [], memory: null, stale: false };

const MEMORY_WORDS: Record<string, string> = { argument: "arguments", output: "results", temp: "temporary", alias: "aliased", code: "code" };

/** Rows in the order that a column asks for; text sorts upwards, numbers downwards at first. */
export function sortRows(rows: readonly CostRow[], key: Column, direction: 1 | -1): CostRow[] {
  return rows
    .map((row, i) => ({ row, i }))
    .sort((a, b) => {
      const [x, y] = [a.row[key], b.row[key]];
      const order = typeof x === "string" ? x.localeCompare(String(y), "en", { numeric: true }) : Number(x ?? -1) - Number(y ?? -1);
      return order * direction || a.i - b.i;
    })
    .map(({ row }) => row);
}

/** What all rows do in a pass: the row of a group has only what its inner blocks do not do. */
export function sumOf(rows: readonly CostRow[], key: "forward" | "backward" | "update"): number {
  return rows.reduce((total, row) => total + (row[key] ?? 0), 0);
}

/** "≥ " before a sum that some of the costs are missing from; 0 is exact: a sum of nothing known is null. */
export function atLeast(row: Pick<CostRow, "unknown" | "unknown_bytes">, key: Column, value: unknown): string {
  return value && key !== "params" && (key === "bytes" ? row.unknown_bytes : row.unknown) ? "≥ " : "";
}

function shareText(share: number | null, bound = ""): string {
  return (bound && `${bound} `) + percent(share);
}

/** What is not counted, and why. */
export function unknownOf({ unknown }: Cost): string {
  const reasons = new Map<string, string[]>();
  for (const { primitive, count, reason } of unknown) {
    const why = reason === "no rule" ? "No FLOP rule" : `${reason[0]!.toUpperCase()}${reason.slice(1)}`;
    reasons.set(why, [...(reasons.get(why) ?? []), `${primitive}${count > 1 ? ` ×${count}` : ""}`]);
  }
  return [...reasons].map(([why, of]) => `${why} for ${of.join(", ")}: not counted.`).join(" ");
}

function cell(value: string): string {
  return /[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
}

/** The table as CSV, exact numbers, totals last. */
export function toCsv(cost: Cost): string {
  const keys = COLUMNS.map((column) => column.key);
  const lines = [["block", ...keys.slice(1)].join(",")];
  for (const row of cost.rows) lines.push(keys.map((key) => cell(String((key === "label" ? row.block : row[key]) ?? ""))).join(","));
  const sum = (key: "forward" | "backward" | "update"): number => sumOf(cost.rows, key);
  const { flops, transcendentals, bytes, params } = cost.total;
  lines.push(["total", flops, 1, sum("forward"), sum("backward"), sum("update"), transcendentals, bytes, params].join(","));
  return `${lines.join("\n")}\n`;
}

export class CostTab {
  readonly root: HTMLElement;
  #sortKey: Column | null = null;
  #direction: 1 | -1 = -1;
  readonly #headers = new Map<Column, HTMLElement>();
  readonly #body = h("tbody");
  readonly #foot = h("tfoot");
  readonly #sources = h("tbody");
  readonly #memory = h("dl", { class: "mnb-facts" });
  readonly #memoryBox: HTMLElement;
  readonly #notes = h("p", { class: "mnb-note" });
  readonly #hint = h("p", { class: "mnb-hint" }, "Costs appear here as soon as the model can run.");
  #known = new Set<string>();
  readonly #stale = h("span", { class: "mnb-badge", hidden: true, role: "status" }, "from the previous model");
  readonly #leave: (() => void)[];

  constructor(private readonly store: Store) {
    const head = h("tr");
    for (const { key, title, hint } of COLUMNS) {
      const button = h("button", { type: "button", class: "mnb-sort", title: `${hint}. Click to sort.`, "data-mnb-action": `cost.sort.${key}`, onclick: () => this.#sort(key) }, title);
      const header = h("th", { scope: "col", class: key === "label" ? "" : "mnb-num" }, button);
      this.#headers.set(key, header);
      head.append(header);
    }
    const copy: HTMLButtonElement = iconButton("copy", "Copy the table as CSV", "cost.csv", () => void copyFrom(copy, toCsv(store.snapshot.cost ?? NO_COST)));
    this.#memoryBox = h("div", { class: "mnb-cost-memory" }, h("h4", {}, "Memory by XLA"), this.#memory);
    this.root = h(
      "div",
      { class: "mnb-cost", "data-mnb-part": "cost" },
      h("div", { class: "mnb-cost-main" }, h("table", { class: "mnb-table" }, h("thead", {}, head), this.#body, this.#foot), this.#hint, this.#notes),
      h(
        "aside",
        { class: "mnb-cost-side" },
        h("div", {}, h("div", { class: "mnb-row" }, h("h4", {}, "By source"), this.#stale, h("span", { class: "mnb-grow" }), copy),
        h("table", { class: "mnb-table mnb-table-small" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Source"), h("th", { scope: "col", class: "mnb-num" }, "FLOPs"), h("th", { scope: "col", class: "mnb-num" }, "Transc."), h("th", { scope: "col", class: "mnb-num" }, "Bytes"))), this.#sources)),
        this.#memoryBox,
      ),
    );
    this.#leave = [store.on("snapshot", () => this.#update()), store.on("links", () => this.#paintLinks())];
    this.#update();
  }

  destroy(): void {
    for (const leave of this.#leave) leave();
  }

  #sort(key: Column): void {
    const first: 1 | -1 = key === "label" ? 1 : -1;
    // Third click: back to the order of the model.
    if (this.#sortKey !== key) [this.#sortKey, this.#direction] = [key, first];
    else if (this.#direction === first) this.#direction = first === 1 ? -1 : 1;
    else this.#sortKey = null;
    this.#update();
  }

  #update(): void {
    const cost = this.store.snapshot.cost ?? NO_COST;
    const rows = this.#sortKey ? sortRows(cost.rows, this.#sortKey, this.#direction) : cost.rows;
    for (const [key, header] of this.#headers) attr(header, "aria-sort", key === this.#sortKey ? (this.#direction === 1 ? "ascending" : "descending") : null);
    const most = { flops: Math.max(1, ...cost.rows.map((row) => row.flops ?? 0)), bytes: Math.max(1, ...cost.rows.map((row) => row.bytes ?? 0)) };
    this.#known = new Set(cost.rows.map((row) => row.block));
    this.#hint.hidden = cost.rows.length > 0;
    // What no block caused has its own line below.
    keyed(this.#body, rows.filter((row) => row.block !== ""), (row) => row.block, (row) => this.#row(row.block), (element: HTMLElement, row) => this.#paintRow(element, row, most));
    this.#paintFoot(cost);
    keyed(this.#sources, cost.sources, (source) => source.name, () => h("tr", {}, h("td"), h("td", { class: "mnb-num" }), h("td", { class: "mnb-num" }), h("td", { class: "mnb-num" })), (element: HTMLElement, source) => {
      const cells = element.children;
      text(cells[0]!, source.name);
      for (const [i, value, unit] of [[1, source.flops, "FLOP"], [2, source.transcendentals, ""], [3, source.bytes, "B"]] as const) {
        text(cells[i]!, si(value, unit));
        attr(cells[i]!, "title", exact(value, unit));
      }
    });
    this.#memoryBox.hidden = cost.memory === null;
    keyed(this.#memory, Object.entries(cost.memory ?? {}), ([name]) => name, ([name]) => h("div", {}, h("dt", {}, MEMORY_WORDS[name] ?? name), h("dd")), (line: HTMLElement, [, value]) => {
      text(line.lastElementChild!, si(value, "B"));
      attr(line, "title", exact(value, "bytes"));
    });
    text(this.#notes, unknownOf(cost));
    this.#notes.hidden = !cost.unknown.length;
    this.#stale.hidden = !cost.stale;
    this.root.classList.toggle("mnb-stale", cost.stale);
    this.#paintLinks();
  }

  #row(block: string): HTMLElement {
    const element = h("tr", { tabindex: 0, "data-mnb-cost": block });
    for (const { key, bar } of COLUMNS) {
      element.append(key === "label" ? h("th", { scope: "row" }, h("i", { class: "mnb-swatch" }), h("span")) : h("td", { class: bar ? "mnb-num mnb-barred" : "mnb-num" }, bar ? h("i") : null, h("span")));
    }
    element.addEventListener("pointerenter", () => this.store.setHover([{ kind: "block", path: block }]));
    element.addEventListener("pointerleave", () => this.store.setHover([]));
    element.addEventListener("click", (event) => this.store.pinBlocks([block], event.shiftKey));
    element.addEventListener("keydown", (event) => {
      const to = event.key === "ArrowDown" ? element.nextElementSibling : event.key === "ArrowUp" ? element.previousElementSibling : null;
      if (to) (to as HTMLElement).focus();
      else if (event.key === "Enter" || event.key === " ") this.store.pinBlocks([block], event.shiftKey);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    return element;
  }

  #paintRow(element: HTMLElement, row: CostRow, most: { flops: number; bytes: number }): void {
    element.className = row.hue < 0 || row.block.startsWith("(") ? "mnb-pseudo" : `mnb-hue-${((row.hue % 8) + 8) % 8}`;
    COLUMNS.forEach(({ key, unit }, i) => {
      const target = element.children[i]!;
      const value = target.querySelector("span")!;
      if (key === "label") {
        text(value, row.label);
        attr(target, "title", row.block);
        const inside = lineage(row.block).slice(1).filter((group) => this.#known.has(group)).length;
        (target as HTMLElement).style.paddingLeft = `${8 + 12 * inside}px`;
        return;
      }
      const bound = atLeast(row, key, row[key]);
      text(value, key === "share" ? shareText(row.share, row.share_bound) : row[key] === 0 ? "0" : bound + si(row[key], unit));
      attr(target, "title", key === "share" ? String(row.share ?? "not known") : bound + exact(row[key], unit));
      value.classList.toggle("mnb-zero", row[key] === 0);
      const bar = target.querySelector<HTMLElement>("i");
      if (bar) bar.style.width = `${(100 * (row[key as "flops" | "bytes"] ?? 0)) / most[key as "flops" | "bytes"]}%`;
    });
  }

  #paintFoot(cost: Cost): void {
    const sum = (key: "forward" | "backward" | "update"): number => sumOf(cost.rows, key);
    const totals: Record<Column, number | string | null> = { label: "Total", share: 1, flops: cost.total.flops, transcendentals: cost.total.transcendentals, bytes: cost.total.bytes, params: cost.total.params, forward: sum("forward"), backward: sum("backward"), update: sum("update") };
    const total = h("tr", { class: "mnb-total" });
    for (const { key, unit } of COLUMNS) {
      const value = totals[key];
      if (key === "label") total.append(h("th", { scope: "row" }, "Total"));
      else total.append(h("td", { class: "mnb-num", title: key === "share" ? "all of it" : exact(value as number | null, unit) }, key === "share" ? "100 %" : atLeast(cost.total, key, value) + si(value as number | null, unit)));
    }
    const share = cost.unattributed_share;
    const own = cost.rows.find((row) => row.block === "");
    const unattributed = h(
      "tr",
      { class: "mnb-unattributed", "data-mnb-cost": UNATTRIBUTED, tabindex: 0, title: "What no block caused, or nobody knows. Click shows its lines.", onclick: () => this.store.pinBlocks([UNATTRIBUTED]) },
      h("th", { scope: "row" }, "Unattributed"),
      h("td", { class: "mnb-num" }, own ? atLeast(own, "flops", own.flops) + si(own.flops, "FLOP") : share ? si(Math.round(share * (cost.total.flops ?? 0)), "FLOP") : share === 0 ? "0" : "–"),
      h("td", { class: "mnb-num" }, shareText(share, cost.unattributed_bound)),
      h("td", { colspan: COLUMNS.length - 3 }),
    );
    unattributed.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      this.store.pinBlocks([UNATTRIBUTED]);
    });
    this.#foot.replaceChildren(...(cost.rows.length ? [unattributed, total] : []));
  }

  #paintLinks(): void {
    const { hoverLinks, pinLinks } = this.store;
    for (const element of this.root.querySelectorAll<HTMLElement>("tr[data-mnb-cost]")) {
      const block = element.dataset["mnbCost"]!;
      const pinned = pinLinks.blocks.has(block);
      element.classList.toggle("mnb-pinned", pinned);
      element.classList.toggle("mnb-hovered", hoverLinks.blocks.has(block));
      attr(element, "aria-selected", pinned ? "true" : null);
      attr(element, "data-mnb-linked", pinned ? "pinned" : hoverLinks.blocks.has(block) ? "hover" : null);
    }
  }
}
