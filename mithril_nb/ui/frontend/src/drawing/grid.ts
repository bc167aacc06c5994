/** A grid over rectangles: finds those that overlap an area without visiting all of them. */

import type { Rect } from "./lines";

/** Rectangles over more cells than this are kept in a list, and looked at in every search. */
const MANY = 48;
const MOST_CELLS = 1 << 18;

export class Grid {
  private readonly cell: number;
  private readonly columns: number;
  private readonly rows: number;
  private readonly left: number;
  private readonly top: number;
  /** The items of cell `i` are `items[starts[i]]` to `items[starts[i + 1] - 1]`. */
  private readonly starts: Int32Array;
  private readonly items: Int32Array;
  private readonly large: number[] = [];
  private readonly seen: Uint32Array;
  private round = 0;

  constructor(private readonly rects: readonly Rect[]) {
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    let used = 0;
    for (const { x, y, w, h } of rects) {
      if (!(w >= 0)) continue;
      used += 1;
      left = Math.min(left, x);
      top = Math.min(top, y);
      right = Math.max(right, x + w);
      bottom = Math.max(bottom, y + h);
    }
    const [width, height] = used ? [right - left, bottom - top] : [0, 0];
    // About two items in each cell.
    this.cell = Math.max(
      48,
      Math.sqrt((2 * width * height) / Math.max(1, used)),
      Math.sqrt((width * height) / MOST_CELLS),
      Math.max(width, height) / MOST_CELLS,
    );
    this.columns = Math.floor(width / this.cell) + 1;
    this.rows = Math.floor(height / this.cell) + 1;
    [this.left, this.top] = used ? [left, top] : [0, 0];
    const counts = new Int32Array(this.columns * this.rows + 1);
    const small: number[] = [];
    rects.forEach((rect, i) => {
      if (!(rect.w >= 0)) return;
      const [x0, y0, x1, y1] = this.cells(rect);
      if ((x1 - x0 + 1) * (y1 - y0 + 1) > MANY) this.large.push(i);
      else {
        small.push(i);
        for (let y = y0; y <= y1; y++) for (let x = x0; x <= x1; x++) counts[y * this.columns + x + 1]! += 1;
      }
    });
    for (let i = 1; i < counts.length; i++) counts[i]! += counts[i - 1]!;
    this.starts = counts;
    this.items = new Int32Array(counts.at(-1) ?? 0);
    const next = counts.slice();
    for (const i of small) {
      const [x0, y0, x1, y1] = this.cells(rects[i]!);
      for (let y = y0; y <= y1; y++) for (let x = x0; x <= x1; x++) this.items[next[y * this.columns + x]!++] = i;
    }
    this.seen = new Uint32Array(rects.length);
  }

  /** Return the indices of the rectangles that meet `part`, in ascending order. */
  find(part: Rect): number[] {
    const found: number[] = [];
    const round = ++this.round;
    const right = part.x + part.w;
    const bottom = part.y + part.h;
    const take = (i: number) => {
      if (this.seen[i] === round) return;
      this.seen[i] = round;
      const { x, y, w, h } = this.rects[i]!;
      if (x <= right && x + w >= part.x && y <= bottom && y + h >= part.y) found.push(i);
    };
    for (const i of this.large) take(i);
    const [x0, y0, x1, y1] = this.cells(part);
    for (let y = y0; y <= y1; y++) {
      for (let at = this.starts[y * this.columns + x0]!, end = this.starts[y * this.columns + x1 + 1]!; at < end; at++)
        take(this.items[at]!);
    }
    return found.sort((a, b) => a - b);
  }

  private cells({ x, y, w, h }: Rect): [number, number, number, number] {
    const clip = (value: number, most: number) => Math.min(most, Math.max(0, Math.floor(value / this.cell)));
    return [
      clip(x - this.left, this.columns - 1),
      clip(y - this.top, this.rows - 1),
      clip(x + w - this.left, this.columns - 1),
      clip(y + h - this.top, this.rows - 1),
    ];
  }
}
