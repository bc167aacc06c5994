/** Rows of equal height: lines of a stage, or rows of a table. Only the visible rows are drawn. */

import type { Folds } from "../code/folds";
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

/** What the rows are, and what their marks and keys do. */
interface RowSource {
  /** The folded lines; each folded part is one row. */
  folds: () => Folds;
  /** Returns a key of a row; a row with another key is drawn again. */
  keyOf?: (line: number) => string;
  /** Creates a row. */
  row: (line: number) => HTMLElement;
  /** Leaves room for the rows above the first and below the last drawn row. */
  leaveRoom: (above: number, below: number) => void;
  /** Returns the rows that are highlighted. */
  linked: (look: Look) => readonly number[];
  isLinked: (look: Look, line: number) => boolean;
  hover: (line: number) => void;
  pin: (line: number) => void;
  release: () => void;
  /** Called when the rows have scrolled. */
  moved?: () => void;
  drawn?: (lines: readonly number[]) => void;
}

/**
 * Draw rows. `frame` scrolls, and `list` holds the rows; `head` is the height above the rows that stays when they
 * scroll.
 */
export function createRows(
  frame: HTMLElement,
  list: HTMLElement,
  lineCount: number,
  height: number,
  source: RowSource,
  head = 0,
) {
  const { folds, keyOf = String, row, leaveRoom, linked, isLinked, hover, moved } = source;
  let here = 0;
  /** Marks of the pinned rows, beside the scrollbar. */
  const ticks = h("div", { class: "ticks" });
  const drawn = new Map<number, HTMLElement>();
  /**
   * The first visible row. It is read before rows change, because reading it later makes the browser lay out the rows.
   */
  let top = 1;
  let [first, last] = [1, 0];
  let over = 0;
  let waiting: ReturnType<typeof setTimeout> | undefined;
  frame.addEventListener("scroll", scrolled);
  new ResizeObserver(draw).observe(frame);
  frame.addEventListener("mouseover", (event) => hoverSoon(lineAt(event)));
  frame.addEventListener("mouseleave", () => hoverSoon(0));

  /** Return whether a row is highlighted: a folded one if any of its lines is. Other folded lines are in no row. */
  function isRowLinked(look: Look, line: number) {
    const hidden = folds().hiddenAt(line);
    if (!hidden) return isLinked(look, line);
    if (hidden.from !== line) return false;
    for (let at = hidden.from; at <= hidden.to; at++) if (isLinked(look, at)) return true;
    return false;
  }

  function go(goal: number) {
    const hidden = folds().hiddenAt(goal);
    // Down from a folded row is the line after it.
    const line = !hidden ? goal : goal > here && here === hidden.from ? hidden.to + 1 : hidden.from;
    if (line > lineCount) return;
    here = line;
    const top = (folds().rowOf(line) - 1) * height;
    const seen = frame.clientHeight - head;
    if (top < frame.scrollTop) frame.scrollTop = top;
    else if (top > frame.scrollTop + seen - 2 * height) frame.scrollTop = top - seen + 2 * height;
    draw();
    hover(line);
  }

  /** Draw other rows if some visible ones are missing. */
  function scrolled() {
    const end = readTop();
    if (top < first || Math.min(end, rowCount()) > last) draw();
    moved?.();
  }

  /** Read the first visible row, and return the last one. */
  function readTop() {
    top = Math.floor(frame.scrollTop / height) + 1;
    return top + Math.ceil(frame.clientHeight / height);
  }

  function rowCount() {
    return folds().rowCount(lineCount);
  }

  /** Draw the visible rows; rows that stay visible are kept. */
  function draw() {
    const count = rowCount();
    const end = readTop();
    first = Math.min(Math.max(1, top - AHEAD), Math.max(1, count));
    last = Math.min(count, end + AHEAD);
    const lines = Array.from({ length: last - first + 1 }, (_, at) => folds().lineOf(first + at));
    const create = (line: number) => {
      const element = row(line);
      element.dataset["line"] = String(line);
      drawn.set(line, element);
      paintRow(line, element);
      return element;
    };
    keyed(list, lines, keyOf, create, () => {});
    const kept = new Set(lines);
    for (const line of drawn.keys()) if (!kept.has(line)) drawn.delete(line);
    leaveRoom((first - 1) * height, (count - last) * height);
    source.drawn?.(lines);
  }

  function paint() {
    for (const [line, element] of drawn) paintRow(line, element);
  }

  /** Mark the pinned rows beside the scrollbar; if none is visible, scroll to the nearest one. */
  function follow(mayScroll: boolean) {
    const found = linked("pin");
    const rowOf = (line: number) => folds().rowOf(line);
    const places = new Set(found.map((line) => Math.round(((rowOf(line) - 1) / rowCount()) * 200)));
    ticks.replaceChildren(...[...places].map((place) => h("i", { style: `top:${place / 2}%` })));
    const top = frame.scrollTop / height + 1;
    const end = top + (frame.clientHeight - head) / height - 1;
    if (!mayScroll || !found.length || found.some((line) => rowOf(line) >= top && rowOf(line) < end)) return;
    // A folded signature is rarely of interest.
    const open = found.filter((line) => !folds().hiddenAt(line));
    const near = (open.length ? open : found)
      .map(rowOf)
      .reduce((best, row) => (Math.abs(row - top) < Math.abs(best - top) ? row : best));
    frame.scrollTop = (near - 1) * height - frame.clientHeight / 4;
  }

  function lineAt(event: Event) {
    return Number((event.target as Element).closest<HTMLElement>("[data-line]")?.dataset["line"] ?? 0);
  }

  function paintRow(line: number, element: HTMLElement) {
    for (const look of ["on", "pin", "found"] as const) element.classList.toggle(look, isRowLinked(look, line));
    element.classList.toggle("here", line === here);
  }

  /** Hover over a row; if it came below the pointer by scrolling, once the scrolling ends. */
  function hoverSoon(line: number) {
    clearTimeout(waiting);
    if (performance.now() - scrolledAt <= SCROLLS_MS) waiting = setTimeout(() => hoverSoon(line), SCROLLS_MS);
    else if (line !== over) hover((over = line));
  }

  const rows = {
    ticks,
    drawn,
    lineCount,
    /** The row that the keys have reached; rows count from 1, and 0 is none. */
    get here() {
      return here;
    },
    set here(line) {
      here = line;
    },
    get top() {
      return top;
    },
    go,
    draw,
    paint,
    follow,
    lineAt,
    pinHere: () => source.pin(here),
    release: source.release,
    isPinned: (line: number) => isRowLinked("pin", line),
  };
  return Object.assign(rows, { walk: walkByKeys(frame, rows) });
}
