/** Rows of equal height: lines of a stage, or rows of a table. Only the visible rows are drawn. */

import { Folds } from "../code/folds";
import { h, keyed } from "../dom/dom";
import { type Look, walkByKeys } from "./selection";

/** Rows drawn above and below the visible ones: scrolling within them changes no element. */
const AHEAD = 12;
/**
 * Within this time after a scroll, in ms, a row is below the pointer because it scrolled, not because the pointer
 * moved.
 */
const SCROLLS_MS = 150;

let scrolledAt = -Infinity;
globalThis.addEventListener?.("scroll", () => (scrolledAt = performance.now()), { capture: true, passive: true });

export abstract class ScrolledRows {
  /** The row that the keys have reached; rows count from 1, and 0 is none. */
  here = 0;
  /** Marks of the pinned rows, beside the scrollbar. */
  readonly ticks = h("div", { class: "ticks" });
  /** The folded lines; each folded part is one row. */
  protected folds = Folds.NONE;
  protected readonly drawn = new Map<number, HTMLElement>();
  /**
   * The first visible row. It is read before rows change, because reading it later makes the browser lay out the rows.
   */
  protected top = 1;
  private first = 1;
  private last = 0;
  private over = 0;
  private waiting: ReturnType<typeof setTimeout> | undefined;

  /** `frame` scrolls, and `list` holds the rows; `head` is the height above the rows that stays when they scroll. */
  protected constructor(
    protected readonly frame: HTMLElement,
    private readonly list: HTMLElement,
    readonly lineCount: number,
    private readonly height: number,
    private readonly head = 0,
  ) {
    frame.addEventListener("scroll", () => this.scrolled());
    new ResizeObserver(() => this.draw()).observe(frame);
    frame.addEventListener("mouseover", (event) => this.hoverSoon(this.lineAt(event)));
    frame.addEventListener("mouseleave", () => this.hoverSoon(0));
    walkByKeys(frame, this);
  }

  /** Return a key of a row; a row with another key is drawn again. */
  protected keyOf(line: number): string {
    return String(line);
  }

  /** Create a row. */
  protected abstract row(line: number): HTMLElement;
  /** Leave room for the rows above the first and below the last drawn row. */
  protected abstract leaveRoom(above: number, below: number): void;
  /** Return the rows that are highlighted. */
  protected abstract linked(look: Look): readonly number[];
  protected abstract isLinked(look: Look, line: number): boolean;
  protected abstract hover(line: number): void;
  abstract pinHere(): void;
  abstract release(): void;

  isPinned(line: number): boolean {
    return this.isRowLinked("pin", line);
  }

  /** Return whether a row is highlighted: a folded one if any of its lines is. Other folded lines are in no row. */
  private isRowLinked(look: Look, line: number) {
    const hidden = this.folds.hiddenAt(line);
    if (!hidden) return this.isLinked(look, line);
    if (hidden.from !== line) return false;
    for (let at = hidden.from; at <= hidden.to; at++) if (this.isLinked(look, at)) return true;
    return false;
  }

  go(goal: number): void {
    const hidden = this.folds.hiddenAt(goal);
    // Down from a folded row is the line after it.
    const line = !hidden ? goal : goal > this.here && this.here === hidden.from ? hidden.to + 1 : hidden.from;
    if (line > this.lineCount) return;
    this.here = line;
    const top = (this.folds.rowOf(line) - 1) * this.height;
    const seen = this.frame.clientHeight - this.head;
    if (top < this.frame.scrollTop) this.frame.scrollTop = top;
    else if (top > this.frame.scrollTop + seen - 2 * this.height) this.frame.scrollTop = top - seen + 2 * this.height;
    this.draw();
    this.hover(line);
  }

  /** Draw other rows if some visible ones are missing. */
  private scrolled() {
    const end = this.readTop();
    if (this.top < this.first || Math.min(end, this.folds.rowCount(this.lineCount)) > this.last) this.draw();
    this.moved();
  }

  /** Read the first visible row, and return the last one. */
  private readTop() {
    this.top = Math.floor(this.frame.scrollTop / this.height) + 1;
    return this.top + Math.ceil(this.frame.clientHeight / this.height);
  }

  /** Called when the rows have scrolled. */
  protected moved(): void {}

  /** Draw the visible rows; rows that stay visible are kept. */
  draw(): void {
    const count = this.folds.rowCount(this.lineCount);
    const end = this.readTop();
    const first = Math.min(Math.max(1, this.top - AHEAD), Math.max(1, count));
    const last = Math.min(count, end + AHEAD);
    [this.first, this.last] = [first, last];
    const lines = Array.from({ length: last - first + 1 }, (_, at) => this.folds.lineOf(first + at));
    const create = (line: number) => {
      const row = this.row(line);
      row.dataset["line"] = String(line);
      this.drawn.set(line, row);
      this.paintRow(line, row);
      return row;
    };
    keyed(
      this.list,
      lines,
      (line) => this.keyOf(line),
      create,
      () => {},
    );
    const kept = new Set(lines);
    for (const line of this.drawn.keys()) if (!kept.has(line)) this.drawn.delete(line);
    this.leaveRoom((first - 1) * this.height, (count - last) * this.height);
  }

  paint(): void {
    for (const [line, row] of this.drawn) this.paintRow(line, row);
  }

  /** Mark the pinned rows beside the scrollbar; if none is visible, scroll to the nearest one. */
  follow(mayScroll: boolean): void {
    const found = this.linked("pin");
    const rowOf = (line: number) => this.folds.rowOf(line);
    const places = new Set(
      found.map((line) => Math.round(((rowOf(line) - 1) / this.folds.rowCount(this.lineCount)) * 200)),
    );
    this.ticks.replaceChildren(...[...places].map((place) => h("i", { style: `top:${place / 2}%` })));
    const top = this.frame.scrollTop / this.height + 1;
    const end = top + (this.frame.clientHeight - this.head) / this.height - 1;
    if (!mayScroll || !found.length || found.some((line) => rowOf(line) >= top && rowOf(line) < end)) return;
    // A folded signature is rarely of interest.
    const open = found.filter((line) => !this.folds.hiddenAt(line));
    const near = (open.length ? open : found)
      .map(rowOf)
      .reduce((best, row) => (Math.abs(row - top) < Math.abs(best - top) ? row : best));
    this.frame.scrollTop = (near - 1) * this.height - this.frame.clientHeight / 4;
  }

  protected lineAt(event: Event): number {
    return Number((event.target as Element).closest<HTMLElement>("[data-line]")?.dataset["line"] ?? 0);
  }

  private paintRow(line: number, row: HTMLElement) {
    row.classList.toggle("on", this.isRowLinked("on", line));
    row.classList.toggle("pin", this.isRowLinked("pin", line));
    row.classList.toggle("found", this.isRowLinked("found", line));
    row.classList.toggle("here", line === this.here);
  }

  /** Hover over a row; if it came below the pointer by scrolling, once the scrolling ends. */
  private hoverSoon(line: number) {
    clearTimeout(this.waiting);
    if (performance.now() - scrolledAt > SCROLLS_MS) this.hoverOver(line);
    else this.waiting = setTimeout(() => this.hoverSoon(line), SCROLLS_MS);
  }

  private hoverOver(line: number) {
    if (line === this.over) return;
    this.over = line;
    this.hover(line);
  }
}
