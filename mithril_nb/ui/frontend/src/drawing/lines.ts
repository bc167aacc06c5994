/** Geometry of pictures: rectangles, points on a line, distances for clicks, and paths on a canvas. */

export interface Rect {
  x: number;
  y: number;
  w: number;
  h: number;
}

export type Point = readonly [number, number];
/** The corners of a line, or the control points of a cubic Bézier curve: the start, then three for each piece. */
export interface Line {
  points: readonly Point[];
  curve: boolean;
}

const CORNER = 5;
const STEPS = 12;

/** Return a curve that leaves to the right and arrives from the left. */
export function bend(x0: number, y0: number, x1: number, y1: number): Line {
  const reach = Math.max(24, Math.abs(x1 - x0) / 2);
  return {
    points: [
      [x0, y0],
      [x0 + reach, y0],
      [x1 - reach, y1],
      [x1, y1],
    ],
    curve: true,
  };
}

/** Return points close enough to join them by straight lines. */
export function flat({ points, curve }: Line): readonly Point[] {
  if (!curve) return points;
  const found: Point[] = points.slice(0, 1);
  for (let at = 0; at + 3 < points.length; at += 3) {
    const [a, b, c, d] = [points[at]!, points[at + 1]!, points[at + 2]!, points[at + 3]!];
    for (let step = 1; step <= STEPS; step++) {
      const t = step / STEPS;
      const [u, v, w, z] = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t ** 3];
      found.push([u * a[0] + v * b[0] + w * c[0] + z * d[0], u * a[1] + v * b[1] + w * c[1] + z * d[1]]);
    }
  }
  return found;
}

/** Return the point between two points at `t`, 0 to 1. */
function mixed(from: Point, to: Point, t: number): Point {
  return [from[0] + (to[0] - from[0]) * t, from[1] + (to[1] - from[1]) * t];
}

function lengthOf(from: Point, to: Point) {
  return Math.hypot(to[0] - from[0], to[1] - from[1]);
}

/** Return the point at a share of the length of a line through points. */
export function pointAlong(points: readonly Point[], share: number): Point {
  const lengths = points.slice(1).map((point, i) => lengthOf(points[i]!, point));
  let left = share * lengths.reduce((sum, length) => sum + length, 0);
  for (let i = 0; i < lengths.length; i++) {
    const length = lengths[i]!;
    if (left <= length && length > 0) return mixed(points[i]!, points[i + 1]!, left / length);
    left -= length;
  }
  return points.at(-1) ?? [0, 0];
}

/** Return a point in the middle of an edge, for labels and signs: on a line, the middle of its longest piece. */
export function middle(line: Line): Point {
  const { points, curve } = line;
  if (points.length < 2) return points[0] ?? [0, 0];
  if (curve) return pointAlong(flat(line), 0.5);
  let longest = 0;
  const lengthAt = (i: number) => lengthOf(points[i]!, points[i + 1]!);
  for (let i = 1; i < points.length - 1; i++) if (lengthAt(i) > lengthAt(longest)) longest = i;
  return mixed(points[longest]!, points[longest + 1]!, 0.5);
}

/** Return the distance of a point from an edge. */
export function distanceTo(line: Line, x: number, y: number): number {
  const points = flat(line);
  let least = Infinity;
  for (let i = 0; i + 1 < points.length; i++) {
    const [a, b] = [points[i]!, points[i + 1]!];
    const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
    const along = Math.min(1, Math.max(0, ((x - a[0]) * dx + (y - a[1]) * dy) / (dx * dx + dy * dy || 1)));
    least = Math.min(least, Math.hypot(x - a[0] - along * dx, y - a[1] - along * dy));
  }
  return least;
}

/** Return two opposite corners of a rectangle. */
export function cornersOf({ x, y, w, h }: Rect): Point[] {
  return [
    [x, y],
    [x + w, y + h],
  ];
}

/** Return the rectangle around points, such as those of an edge: it contains its curve too. */
export function boxOf({ points }: Pick<Line, "points">): Rect {
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const [x, y] of points) {
    if (x < left) left = x;
    if (x > right) right = x;
    if (y < top) top = y;
    if (y > bottom) bottom = y;
  }
  return points.length ? { x: left, y: top, w: right - left, h: bottom - top } : { x: 0, y: 0, w: -1, h: -1 };
}

/**
 * Return the pieces of an edge inside a part of the plane. A dashed line over a whole picture of thousands of nodes
 * would take as long to draw as all visible nodes.
 */
export function piecesIn(line: Line, part: Rect): { points: [number, number][]; isEnd: boolean }[] {
  const points = flat(line);
  const found: { points: [number, number][]; isEnd: boolean }[] = [];
  let piece: [number, number][] | null = null;
  for (let i = 0; i + 1 < points.length; i++) {
    const [a, b] = [points[i]!, points[i + 1]!];
    const [dx, dy] = [b[0] - a[0], b[1] - a[1]];
    // Liang and Barsky: the part of the segment inside of each side.
    let [from, to] = [0, 1];
    for (const [step, room] of [
      [-dx, a[0] - part.x],
      [dx, part.x + part.w - a[0]],
      [-dy, a[1] - part.y],
      [dy, part.y + part.h - a[1]],
    ] as const) {
      if (step === 0) to = room < 0 ? -1 : to;
      else if (step < 0) from = Math.max(from, room / step);
      else to = Math.min(to, room / step);
    }
    if (from > to) {
      piece = null;
      continue;
    }
    if (!piece || from > 0) found.push({ points: (piece = [[a[0] + from * dx, a[1] + from * dy]]), isEnd: false });
    piece.push([a[0] + to * dx, a[1] + to * dy]);
    found.at(-1)!.isEnd = to === 1 && i + 2 === points.length;
    if (to < 1) piece = null;
  }
  return found;
}

/** Return where two lines with one start part; null if they part there or never. Their corners are right angles. */
export function fork(one: readonly Point[], other: readonly Point[]): Point | null {
  let at = 1;
  while (one[at] && one[at]![0] === other[at]?.[0] && one[at]![1] === other[at]?.[1]) at++;
  const [from, a, b] = [one[at - 1]!, one[at], other[at]];
  if (!a || !b) return null;
  const alongBoth = (a[0] - from[0]) * (b[0] - from[0]) + (a[1] - from[1]) * (b[1] - from[1]) > 0;
  if (alongBoth) return lengthOf(from, a) < lengthOf(from, b) ? a : b;
  return at > 1 ? from : null;
}

/** Return the line between two lines at `t`, 0 to 1; null if they have different forms. */
export function between(from: Line, to: Line, t: number): Line | null {
  if (from.curve !== to.curve || from.points.length !== to.points.length) return null;
  return {
    curve: to.curve,
    points: to.points.map((point, i) => mixed(from.points[i]!, point, t)),
  };
}

/** Add an edge to the current path: a curve, or a line with rounded corners. */
export function trace(c: CanvasRenderingContext2D, { points, curve }: Line): void {
  const start = points[0];
  if (!start) return;
  c.moveTo(start[0], start[1]);
  if (curve) {
    for (let at = 1; at + 2 < points.length; at += 3) {
      const [a, b, end] = [points[at]!, points[at + 1]!, points[at + 2]!];
      c.bezierCurveTo(a[0], a[1], b[0], b[1], end[0], end[1]);
    }
    return;
  }
  for (let i = 1; i < points.length - 1; i++) {
    const corner = points[i]!;
    const [x0, y0] = towards(corner, points[i - 1]!);
    const [x1, y1] = towards(corner, points[i + 1]!);
    c.lineTo(x0, y0);
    c.quadraticCurveTo(corner[0], corner[1], x1, y1);
  }
  const end = points.at(-1)!;
  c.lineTo(end[0], end[1]);
}

function towards(corner: Point, end: Point): Point {
  const length = lengthOf(corner, end);
  return mixed(corner, end, length ? Math.min(CORNER, length / 2) / length : 0);
}

/** Add a small triangle with its tip at `end`, pointing away from `start`, to the current path. */
export function traceArrow(c: CanvasRenderingContext2D, start: Point, end: Point): void {
  const length = lengthOf(start, end);
  const [ux, uy] = length > 0.01 ? [(end[0] - start[0]) / length, (end[1] - start[1]) / length] : [1, 0];
  const [x, y] = [end[0] - 7 * ux, end[1] - 7 * uy];
  c.moveTo(end[0], end[1]);
  c.lineTo(x - 3.2 * uy, y + 3.2 * ux);
  c.lineTo(x + 3.2 * uy, y - 3.2 * ux);
  c.closePath();
}
