/** A grid over rectangles: finds those that overlap an area without visiting all of them. */

import { type Rect, boxOf, cornersOf } from "./lines";

/** Rectangles over more cells than this are kept in a list, and looked at in every search. */
const MANY = 48;
const MOST_CELLS = 1 << 18;

export function createGrid(rects: readonly Rect[]) {
  const used = rects.filter(({ w }) => w >= 0);
  const { x: left, y: top, w, h } = boxOf({ points: used.flatMap(cornersOf) });
  const [width, height] = [Math.max(0, w), Math.max(0, h)];
  // About two items in each cell.
  const cell = Math.max(
    48,
    Math.sqrt((2 * width * height) / Math.max(1, used.length)),
    Math.sqrt((width * height) / MOST_CELLS),
    Math.max(width, height) / MOST_CELLS,
  );
  const columns = Math.floor(width / cell) + 1;
  const rows = Math.floor(height / cell) + 1;
  /** The items of cell `i` are `items[starts[i]]` to `items[starts[i + 1] - 1]`. */
  const starts = new Int32Array(columns * rows + 1);
  const large: number[] = [];
  const small: number[] = [];
  const seen = new Uint32Array(rects.length);
  let rounds = 0;
  rects.forEach((rect, i) => {
    if (!(rect.w >= 0)) return;
    const [x0, y0, x1, y1] = cells(rect);
    if ((x1 - x0 + 1) * (y1 - y0 + 1) > MANY) large.push(i);
    else {
      small.push(i);
      for (let y = y0; y <= y1; y++) for (let x = x0; x <= x1; x++) starts[y * columns + x + 1]! += 1;
    }
  });
  for (let i = 1; i < starts.length; i++) starts[i]! += starts[i - 1]!;
  const items = new Int32Array(starts.at(-1)!);
  const next = starts.slice();
  for (const i of small) {
    const [x0, y0, x1, y1] = cells(rects[i]!);
    for (let y = y0; y <= y1; y++) for (let x = x0; x <= x1; x++) items[next[y * columns + x]!++] = i;
  }

  /** Return the indices of the rectangles that meet `part`, in ascending order. */
  function find(part: Rect) {
    const found: number[] = [];
    const round = ++rounds;
    const right = part.x + part.w;
    const bottom = part.y + part.h;
    const take = (i: number) => {
      if (seen[i] === round) return;
      seen[i] = round;
      const { x, y, w, h } = rects[i]!;
      if (x <= right && x + w >= part.x && y <= bottom && y + h >= part.y) found.push(i);
    };
    for (const i of large) take(i);
    const [x0, y0, x1, y1] = cells(part);
    for (let y = y0; y <= y1; y++)
      for (let at = starts[y * columns + x0]!, end = starts[y * columns + x1 + 1]!; at < end; at++) take(items[at]!);
    return found.sort((a, b) => a - b);
  }

  function cells({ x, y, w, h }: Rect): [number, number, number, number] {
    const clip = (value: number, most: number) => Math.min(most, Math.max(0, Math.floor(value / cell)));
    return [
      clip(x - left, columns - 1),
      clip(y - top, rows - 1),
      clip(x + w - left, columns - 1),
      clip(y + h - top, rows - 1),
    ];
  }

  return { find };
}
