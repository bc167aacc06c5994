/**
 * The table of costs: sortable, with bars by role, rows that expand to their equations, unattributed costs and totals.
 */

import { together } from "../dom/calls";
import { attr, h, icon, ICONS, keyed, text } from "../dom/dom";
import { percent } from "../dom/format";
import type { CostDetails, CostRowsHead, CostTable, Figure } from "../kernel/contract";
import { UNATTRIBUTED, lineage } from "../store/links";
import type { Store } from "../store/store";
import {
  costColumns,
  type Column,
  FIGURE_TITLES,
  type Line,
  linesOf,
  zeroRow,
  sortLines,
  formatFigure,
  totalLine,
} from "./figures";

const NAME = "block";

/** With the error, if the rows could not be decoded. */
type Details = CostDetails & { problem?: string };

/** Most rows that are built while the table is hidden. */
const MOST_HIDDEN = 200;

export class TableView {
  readonly root: HTMLElement;
  private readonly head = h("tr");
  private readonly body = h("tbody");
  private readonly foot = h("tfoot");
  private readonly headers = new Map<string, HTMLElement>();
  private readonly opened = new Set<string>();
  private readonly details = new Map<string, Details>();
  /** Blocks whose details were requested. */
  private readonly fetched = new Set<string>();
  /** Version, source and figure of the details. */
  private detailsOf = "";
  private sortKey: string | null = null;
  private direction: 1 | -1 = -1;
  private costs: CostTable[] = [];
  private figure: Figure = "flops";
  private columns: Column[] = [];
  private known = new Set<string>();
  private current: string | null = null;
  readonly destroy: () => void;

  constructor(private readonly store: Store) {
    const table = h(
      "table",
      { class: "mnb-table", role: "treegrid", "aria-label": "Costs by block" },
      h("thead", {}, this.head),
      this.body,
      this.foot,
    );
    this.root = h("div", { class: "mnb-cost-table" }, table);
    this.destroy = together(
      store.on("links", () => this.paintLinks()),
      store.kernel.receive(
        "cost_rows",
        (head, details) => this.take(head, details),
        (problem, head) => this.take(head, { rows: [], left: 0, problem }),
      ),
    );
  }

  /**
   * Show the costs of the sources; `figure` is compared side by side and used for shares. While the table is hidden, it
   * is built only if it is small: a thousand rows have 25 elements each.
   */
  show(costs: CostTable[], figure: Figure, isVisible: boolean): void {
    if (!isVisible && costs.some(({ rows }) => rows.length > MOST_HIDDEN)) return;
    const of = JSON.stringify([this.store.snapshot.version, costs[0]?.source, costs[0]?.stale, figure]);
    if (of !== this.detailsOf) this.discardDetails();
    this.detailsOf = of;
    this.costs = costs;
    this.figure = figure;
    this.columns = costColumns(costs, figure);
    if (this.sortKey !== NAME && !this.columns.some(({ key }) => key === this.sortKey)) this.sortKey = null;
    this.paint();
  }

  private sort(key: string): void {
    const first: 1 | -1 = key === NAME ? 1 : -1;
    // Third click: restore the order of the model.
    if (this.sortKey !== key) [this.sortKey, this.direction] = [key, first];
    else if (this.direction === first) this.direction = first === 1 ? -1 : 1;
    else this.sortKey = null;
    this.paint();
  }

  private paint(): void {
    this.paintHead();
    const all = linesOf(this.costs);
    const inner = all.filter(({ block }) => block !== "");
    const sorted =
      this.sortKey === null
        ? inner
        : sortLines(inner, this.columns.find(({ key }) => key === this.sortKey) ?? null, this.direction);
    this.known = new Set(inner.map(({ block }) => block));
    const most = this.mostOf(inner);
    // An open row is followed by its details.
    const items = sorted.flatMap((line) =>
      this.opened.has(line.block)
        ? [
            { line, isDetail: false },
            { line, isDetail: true },
          ]
        : [{ line, isDetail: false }],
    );
    keyed(
      this.body,
      items,
      ({ line, isDetail }) => `${isDetail ? "in" : "of"} ${this.signature()} ${line.block}`,
      ({ line, isDetail }) => (isDetail ? this.detailRow() : this.row(line.block)),
      (element: HTMLElement, { line, isDetail }) =>
        isDetail ? this.paintDetails(element, line) : this.paintRow(element, line, most),
    );
    const outside = all.find(({ block }) => block === "");
    const unattributed: Line = {
      block: "",
      label: "Unattributed",
      hue: -1,
      by: Object.fromEntries(
        this.costs.map(({ source, total }) => [
          source,
          outside?.by[source] ?? zeroRow({ block: "", label: "", hue: -1 }, total),
        ]),
      ),
    };
    const feet = this.costs.length
      ? [
          { line: unattributed, isTotal: false },
          { line: totalLine(this.costs), isTotal: true },
        ]
      : [];
    keyed(
      this.foot,
      feet,
      ({ isTotal }) => `${isTotal} ${this.costs.map(({ source }) => source).join()} ${this.signature()}`,
      ({ isTotal }) => this.footRow(isTotal),
      (element: HTMLElement, { line }) =>
        this.columns.forEach((column, i) => this.paintCell(element.children[i + 1]!, column, line, 0)),
    );
    this.roving(sorted.map(({ block }) => block));
    this.paintLinks();
  }

  /** Move the focus to the row of a block, or of the nearest block around it; return whether there is one. */
  focusRow(block: string): boolean {
    const path = lineage(block).find((one) => this.known.has(one));
    const row = [...this.root.querySelectorAll<HTMLElement>("tr[data-mnb-cost]")].find(
      (one) => one.dataset["mnbCost"] === path,
    );
    row?.focus();
    row?.scrollIntoView?.({ block: "nearest" });
    return row !== undefined;
  }

  private signature(): string {
    return this.columns.map(({ key }) => key).join();
  }

  private mostOf(lines: readonly Line[]): Map<string, number> {
    // Bars of several sources share one scale.
    const scale = (column: Column): string => (this.costs.length > 1 ? "all" : column.key);
    const scales = new Map<string, number>();
    for (const column of this.columns)
      if (column.bar)
        scales.set(
          scale(column),
          Math.max(Number.MIN_VALUE, scales.get(scale(column)) ?? 0, ...lines.map((line) => column.value(line) ?? 0)),
        );
    return new Map(this.columns.map((column) => [column.key, scales.get(scale(column)) ?? 1]));
  }

  private paintHead(): void {
    const heads = [{ key: NAME, title: "Block", hint: "Block of the model" }, ...this.columns];
    keyed(
      this.head,
      heads,
      ({ key, title }) => `${key} ${title}`,
      ({ key }) => {
        const button = h("button", {
          type: "button",
          class: "mnb-sort",
          "data-mnb-action": `cost.sort.${key}`,
          onclick: () => this.sort(key),
        });
        const header = h("th", { scope: "col", class: key === NAME ? "" : "mnb-num" }, button);
        this.headers.set(key, header);
        return header;
      },
      (element: HTMLElement, { key, title, hint }) => {
        const button = element.firstElementChild!;
        text(button, title);
        attr(button, "title", `${hint}. Click to sort.`);
        attr(element, "aria-sort", key === this.sortKey ? (this.direction === 1 ? "ascending" : "descending") : null);
      },
    );
  }

  private cells(element: HTMLElement): HTMLElement {
    for (const { bar } of this.columns)
      element.append(
        h(
          "td",
          { class: bar ? "mnb-num mnb-barred" : "mnb-num" },
          bar ? h("i", { "aria-hidden": "true" }) : null,
          h("span"),
        ),
      );
    return element;
  }

  private row(block: string): HTMLElement {
    const open = h(
      "button",
      {
        type: "button",
        class: "mnb-open",
        tabindex: -1,
        "aria-label": "Show equations",
        "data-mnb-action": "cost.open",
        onclick: (event: MouseEvent) => (event.stopPropagation(), this.toggle(block)),
      },
      icon(ICONS.chevron),
    );
    const element = h(
      "tr",
      { "data-mnb-cost": block, tabindex: -1 },
      h("th", { scope: "row" }, open, h("i", { class: "mnb-swatch" }), h("span")),
    );
    element.addEventListener("pointerenter", () => this.store.setHover([{ kind: "block", path: block }]));
    element.addEventListener("pointerleave", () => this.store.setHover([]));
    element.addEventListener("focus", () => this.roving(null, block));
    element.addEventListener("click", (event) => {
      this.roving(null, block);
      this.store.pinBlocks([block], event.shiftKey);
    });
    element.addEventListener("keydown", (event) => this.key(event, element, block));
    return this.cells(element);
  }

  private key(event: KeyboardEvent, element: HTMLElement, block: string): void {
    if (event.target !== element || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = [...this.root.querySelectorAll<HTMLElement>("tr[data-mnb-cost]")];
    const to = {
      ArrowDown: rows.indexOf(element) + 1,
      ArrowUp: rows.indexOf(element) - 1,
      Home: 0,
      End: rows.length - 1,
    }[event.key];
    if (to !== undefined) rows[to]?.focus();
    else if (event.key === "Enter" || event.key === " ") this.store.pinBlocks([block], event.shiftKey);
    else if ((event.key === "ArrowRight" || event.key === "ArrowLeft") && block !== UNATTRIBUTED)
      this.toggle(block, event.key === "ArrowRight");
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  /** Keep one row in the tab order; arrow keys move from there. */
  private roving(blocks: string[] | null, block = this.current): void {
    this.current =
      blocks && (block === null || (!blocks.includes(block) && block !== UNATTRIBUTED)) ? (blocks[0] ?? null) : block;
    for (const element of this.root.querySelectorAll<HTMLElement>("tr[data-mnb-cost]"))
      attr(element, "tabindex", element.dataset["mnbCost"] === this.current ? 0 : -1);
  }

  private toggle(block: string, open = !this.opened.has(block)): void {
    if (open) this.opened.add(block);
    else {
      this.opened.delete(block);
      this.fetched.delete(block);
    }
    this.paint();
  }

  private paintRow(element: HTMLElement, line: Line, most: Map<string, number>): void {
    const { block, label, hue } = line;
    element.className = hue < 0 || block.startsWith("(") ? "mnb-pseudo" : `mnb-hue-${((hue % 8) + 8) % 8}`;
    const name = element.firstElementChild as HTMLElement;
    text(name.lastElementChild!, label);
    attr(name, "title", block);
    const inside = lineage(block)
      .slice(1)
      .filter((group) => this.known.has(group)).length;
    name.style.paddingLeft = `${4 + 12 * inside}px`;
    attr(element, "aria-level", inside + 1);
    attr(element, "aria-expanded", String(this.opened.has(block)));
    this.columns.forEach((column, i) =>
      this.paintCell(element.children[i + 1]!, column, line, most.get(column.key) ?? 1),
    );
  }

  private paintCell(target: Element, column: Column, line: Line, most: number): void {
    const value = target.querySelector("span")!;
    text(value, column.text(line));
    attr(target, "title", column.title_of(line));
    // Screen readers get the full formula instead of the shortened one.
    attr(target, "aria-label", column.text(line).endsWith("…") ? column.title_of(line) : null);
    value.classList.toggle("mnb-zero", column.value(line) === 0);
    const bar = target.querySelector<HTMLElement>("i");
    if (!bar || !column.bar) return;
    const parts = most > 0 ? column.bar(line) : [];
    keyed(
      bar,
      parts,
      ([role]) => role,
      ([role]) => h("b", { class: role ? `mnb-role-${role}` : "" }),
      (part: HTMLElement, [, size]) => (part.style.width = `${((100 * size) / most).toFixed(2)}%`),
    );
  }

  private footRow(isTotal: boolean): HTMLElement {
    const isMeasured = this.costs.length === 1 && this.costs[0]!.source === "measured";
    const title = isTotal ? "Total" : isMeasured ? "Unattributed and overhead" : "Unattributed";
    const hint = isMeasured
      ? "Time of instructions without a known block, and time between and around instructions."
      : "Cost of instructions without a known block.";
    const element = h("tr", { class: isTotal ? "mnb-total" : "mnb-unattributed" }, h("th", { scope: "row" }, title));
    if (!isTotal) {
      for (const [name, value] of Object.entries({
        "data-mnb-cost": UNATTRIBUTED,
        tabindex: -1,
        title: `${hint} Click to see its lines.`,
      }))
        attr(element, name, value);
      element.addEventListener("click", () => this.store.pinBlocks([UNATTRIBUTED]));
      element.addEventListener("keydown", (event) => this.key(event, element, UNATTRIBUTED));
    }
    return this.cells(element);
  }

  // Details of a row

  private detailRow(): HTMLElement {
    return h("tr", { class: "mnb-cost-detail" }, h("td", { colspan: this.columns.length + 1 }));
  }

  private paintDetails(element: HTMLElement, { block }: Line): void {
    const target = element.firstElementChild!;
    const [first] = this.costs;
    const found = this.details.get(block);
    if (!first) return;
    if (!found) {
      text(target, "Loading…");
      if (this.fetched.has(block)) return;
      this.fetched.add(block);
      void this.store.kernel.send("request_cost_rows", { source: first.source, block, figure: this.figure });
      return;
    }
    const shown: Figure[] =
      first.source === "measured"
        ? ["time_s", "flops", "bytes_accessed"]
        : ["flops", "bytes_accessed", "transcendentals"];
    const rows = found.rows.map((row) =>
      h(
        "tr",
        {},
        h("td", { class: "mnb-code" }, row.id),
        h("td", { class: "mnb-code" }, row.opcode, row.share < 1 ? ` (${percent(row.share, 0)})` : ""),
        h("td", {}, row.role ?? ""),
        h(
          "td",
          { class: "mnb-num" },
          row.repeats === null ? "?" : row.repeats === 1 ? "" : `×${row.repeats.toLocaleString("en-US")}`,
        ),
        ...shown.map((figure) => h("td", { class: "mnb-num" }, formatFigure(figure, row.figures[figure]))),
        h("td", { class: "mnb-cost-formula", title: row.formula }, row.formula),
      ),
    );
    const heads = [
      "Id",
      first.source === "analytic" ? "Primitive" : "Opcode",
      "Role",
      "Runs",
      ...shown.map((figure) => FIGURE_TITLES[figure][0]),
      "FLOPs of one run",
    ];
    const table = h(
      "table",
      { class: "mnb-table mnb-table-small" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          ...heads.map((title) =>
            h("th", { scope: "col", class: /Runs|FLOPs$|Bytes|Transc|Time/.test(title) ? "mnb-num" : "" }, title),
          ),
        ),
      ),
      h("tbody", {}, ...rows),
    );
    const left =
      found.left > 0
        ? h(
            "p",
            { class: "mnb-hint" },
            `and ${found.left.toLocaleString("en-US")} more with fewer ${FIGURE_TITLES[this.figure][0]}`,
          )
        : null;
    target.replaceChildren(
      rows.length
        ? table
        : h(
            "p",
            { class: "mnb-hint" },
            found.problem ?? "Own cost 0: the block has only parameters, or its inner blocks do all the work.",
          ),
      ...(left ? [left] : []),
    );
  }

  private take({ source, block, figure }: CostRowsHead, details: Details): void {
    if (source !== this.costs[0]?.source || figure !== this.figure) return;
    this.details.set(block, details);
    this.paint();
  }

  /** Discard the details, which may be out of date. */
  discardDetails(): void {
    this.details.clear();
    this.fetched.clear();
  }

  private paintLinks(): void {
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
