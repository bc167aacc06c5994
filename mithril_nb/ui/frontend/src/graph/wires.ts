/** Draws the edges of a scene: lines, arrows, signs of problems and shapes. */

import { push } from "../dom/lists";
import { type Line, type Point, type Rect, flat, fork, middle, pointAlong, trace, traceArrow } from "../drawing/lines";
import { drawSign } from "../drawing/signs";
import type { Brush } from "./boxes";
import type { SceneEdge, SceneIndex } from "./scene";

const CHUNK = 250;
const LABEL = 10;
const LONGEST_LABEL = 180;
/** Larger scenes have no room for labels beside their lines. */
const MOST_PLACED = 300;

/** Radius of the dot at a fork. */
const FORK = 3;

const SOLID: number[] = [];
const DASHED = [5, 3];
const DOTTED = [2, 3];

/** Return the dashes of a line: for a problem or the backward pass, or for data of the next round of a loop. */
function dashesOf({ problem, is_backward, is_carried }: SceneEdge) {
  return problem !== null || is_backward ? DASHED : is_carried ? DOTTED : SOLID;
}

export interface DrawnEdge {
  edge: SceneEdge;
  line: Line;
}

/** Draw lines with their arrows. Far away, corners and arrows are left out. */
export function drawWires(brush: Brush, drawn: readonly DrawnEdge[]): void {
  const { c, colours, k } = brush;
  const isNear = k >= 0.3;
  const width = Math.max(1.5, (isNear ? 1 : 0.7) / k);
  for (const isBad of [false, true]) {
    for (const dashes of isBad ? [DASHED] : [SOLID, DOTTED, DASHED]) {
      const some = drawn.filter(({ edge }) => (edge.problem !== null) === isBad && dashesOf(edge) === dashes);
      c.strokeStyle = isBad ? colours.bad : colours.wire;
      c.lineWidth = isBad ? width * 1.3 : width;
      c.setLineDash(isNear ? dashes : SOLID);
      for (let from = 0; from < some.length; from += CHUNK) {
        c.beginPath();
        for (const { line } of some.slice(from, from + CHUNK)) isNear ? trace(c, line) : traceCoarse(c, line, k);
        c.stroke();
      }
      c.setLineDash(SOLID);
      if (isNear) drawArrows(brush, some, isBad ? colours.bad : colours.wire);
    }
  }
}

/** A point where edges of one wire part. */
export interface Fork {
  point: Point;
  isBad: boolean;
}

/** Return where edges of one wire part. A dot there distinguishes a fork from a crossing. */
export function forksOf(edges: readonly SceneEdge[]): Fork[] {
  const wires = new Map<string, SceneEdge[]>();
  for (const edge of edges)
    if (!edge.curve) push(wires, `${edge.source} ${edge.is_carried ?? false} ${edge.points[0]}`, edge);
  const forks = new Map<string, Fork>();
  for (const wire of wires.values()) {
    // In the order of their corners, a line has its longest part in common with a neighbour.
    if (wire.length > 1) wire.sort((one, other) => compared(one.points, other.points));
    wire.slice(1).forEach((edge, at) => {
      const point = fork(wire[at]!.points, edge.points);
      const isBad = edge.problem !== null || wire[at]!.problem !== null;
      if (point) forks.set(`${point}`, { point, isBad: isBad || (forks.get(`${point}`)?.isBad ?? false) });
    });
  }
  return [...forks.values()];
}

function compared(one: readonly Point[], other: readonly Point[]) {
  const at = one.findIndex(([x, y], at) => x !== other[at]?.[0] || y !== other[at]?.[1]);
  const [a, b] = [one[at], other[at]];
  return a && b ? a[0] - b[0] || a[1] - b[1] : one.length - other.length;
}

export function drawForks({ c, colours }: Brush, forks: readonly Fork[]): void {
  for (const { point, isBad } of forks) {
    c.fillStyle = isBad ? colours.bad : colours.wire;
    c.beginPath();
    c.arc(point[0], point[1], FORK, 0, 2 * Math.PI);
    c.fill();
  }
}

function traceCoarse(c: CanvasRenderingContext2D, { points, curve }: Line, k: number) {
  const [start, end] = [points[0], points.at(-1)];
  if (!start || !end) return;
  c.moveTo(start[0], start[1]);
  if (!curve && k >= 0.08) for (const [x, y] of points) c.lineTo(x, y);
  else c.lineTo(end[0], end[1]);
}

function drawArrows({ c, colours }: Brush, drawn: readonly DrawnEdge[], colour: string) {
  c.fillStyle = colour;
  c.beginPath();
  for (const { edge, line } of drawn)
    if (edge.is_end !== false && line.points.length > 1) traceArrow(c, line.points.at(-2)!, line.points.at(-1)!);
  c.fill();
  // An open arrow at the start: a gradient flows back.
  c.fillStyle = colours.ground;
  c.strokeStyle = colour;
  c.lineWidth = 1.5;
  c.beginPath();
  for (const { edge, line } of drawn) {
    const [x, y] = line.points[0] ?? [0, 0];
    if (edge.returns) traceArrow(c, [x + 8, y], [x + 1, y]);
  }
  c.fill();
  c.stroke();
}

/** Draw one edge in a colour, over the others. */
export function drawLit({ c, k }: Brush, { edge, line }: DrawnEdge, colour: string, width: number): void {
  c.strokeStyle = colour;
  c.fillStyle = colour;
  c.lineWidth = Math.max(width, width / k / 1.5);
  c.setLineDash(dashesOf(edge));
  c.beginPath();
  trace(c, line);
  c.stroke();
  c.setLineDash([]);
  if (edge.is_end === false || line.points.length < 2) return;
  c.beginPath();
  traceArrow(c, line.points.at(-2)!, line.points.at(-1)!);
  c.fill();
}

/** Draw the shape of an edge in a frame on its line. */
export function drawChip(brush: Brush, { edge, line }: DrawnEdge): void {
  const { c, colours, lettering } = brush;
  const text = lettering.fit(edge.shape, LABEL, LONGEST_LABEL);
  if (!text) return;
  const [x, y] = middle(line);
  const width = lettering.width(text, LABEL) + 10;
  c.fillStyle = colours.ground;
  c.strokeStyle = colours.line;
  c.lineWidth = 1;
  c.beginPath();
  c.roundRect(x - width / 2, y - 8, width, 16, 3);
  c.fill();
  c.stroke();
  setText(brush, colours.ink);
  c.fillText(text, x - width / 2 + 5, y + 3.5);
}

/** Draw the signs of edges with problems. */
export function drawEdgeSigns({ c, colours, k }: Brush, drawn: readonly DrawnEdge[]): void {
  for (const { edge, line } of drawn) if (edge.problem !== null) drawSign(c, colours, ...middle(line), k);
}

export interface PlacedLabel {
  edge: SceneEdge;
  text: string;
  x: number;
  y: number;
}

/** Draw shapes beside their lines, with a rim that keeps them readable. */
export function drawLabels(brush: Brush, labels: readonly PlacedLabel[]): void {
  const { c, colours } = brush;
  c.strokeStyle = colours.ground;
  c.lineWidth = 3;
  c.lineJoin = "round";
  setText(brush, colours.muted);
  for (const { text, x, y } of labels) {
    c.strokeText(text, x, y + 3.5);
    c.fillText(text, x, y + 3.5);
  }
}

function setText({ c, lettering }: Brush, colour: string) {
  lettering.use(LABEL);
  c.fillStyle = colour;
  c.textAlign = "left";
}

/**
 * Place shapes above or below the lines where they cover nothing. A shape is shown where it changes: not if the box of
 * the source shows it, nor if data of the same shape enters the source.
 */
export function placeLabels(index: SceneIndex, brush: Brush): PlacedLabel[] {
  const { edges, nodes } = index.scene;
  if (edges.length > MOST_PLACED) return [];
  const taken: Rect[] = nodes.flatMap(({ x, y, w, h, expanded }) =>
    expanded
      ? [
          { x, y, w, h: 24 },
          { x, y: y + h, w, h: 0 },
        ]
      : [{ x: x - 2, y: y - 2, w: w + 4, h: h + 4 }],
  );
  const entering = new Set(edges.map((edge) => `${index.keyAt(edge.target)} ${edge.shape}`));
  const lines = edges.map(flat);
  const wires = lines.flatMap((line) => Array.from({ length: 25 }, (_, i) => pointAlong(line, i / 24)));
  const found: PlacedLabel[] = [];
  edges.forEach((edge, i) => {
    const source = index.node(index.keyAt(edge.source) ?? "");
    const isInBox =
      source &&
      !source.expanded &&
      source.shape !== "" &&
      (index.scene.is_model || !source.label || source.kind === "lines");
    if (!edge.shape || isInBox || entering.has(`${source?.key} ${edge.shape}`)) return;
    const text = brush.lettering.fit(edge.shape, LABEL, LONGEST_LABEL);
    const width = brush.lettering.width(text, LABEL);
    const place = freePlace(lines[i]!, width, taken, wires);
    if (!place) return;
    taken.push({ x: place[0] - 1, y: place[1] - 6, w: width + 2, h: 12 });
    found.push({ edge, text, x: place[0], y: place[1] });
  });
  return found;
}

function freePlace(
  line: readonly Point[],
  width: number,
  taken: readonly Rect[],
  wires: readonly Point[],
): Point | null {
  for (const share of [0.5, 0.35, 0.65, 0.2, 0.8]) {
    const [x, middleY] = pointAlong(line, share);
    const left = x - width / 2;
    for (const y of [middleY - 9, middleY + 9]) {
      const overlaps = (one: Rect) =>
        one.x < left + width + 1 && one.x + one.w > left - 1 && one.y < y + 6 && one.y + one.h > y - 6;
      if (taken.some(overlaps)) continue;
      if (!wires.some(([wx, wy]) => left - 1 < wx && wx < left + width + 1 && y - 6 < wy && wy < y + 6))
        return [left, y];
    }
  }
  return null;
}
