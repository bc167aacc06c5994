/** Animates nodes and edges from their old places to their new ones. */

import { type Line, type Rect, between } from "../drawing/lines";
import type { View } from "../drawing/zoom";
import type { Moved, Painter } from "./painter";
import type { SceneIndex } from "./scene";

const DURATION_MS = 150;
/** With more nodes in view, the change is shown at once. */
const MOST = 1500;

/**
 * Plan the motion of the visible nodes and edges. Each node starts at its place on the screen.
 *
 * @param old - The scene before, its view, its dragged nodes, and the keys of its visible nodes.
 * @param part - The visible part of the new scene.
 * @returns null if nothing moves, or too much.
 */
export function planMotion(
  old: { index: SceneIndex; view: View; moved: Moved; keys: readonly string[] },
  painter: Painter,
  view: View,
  part: Rect,
  begin: number,
) {
  const { index } = painter;
  const scale = old.view.k / view.k;
  const [dx, dy] = [(old.view.x - view.x) / view.k, (old.view.y - view.y) / view.k];
  const from = ({ x, y, w, h }: Rect): Rect => ({ x: x * scale + dx, y: y * scale + dy, w: w * scale, h: h * scale });
  const keys = new Set([...old.keys, ...painter.nodesIn(part).map(({ key }) => key)]);
  if (keys.size > MOST) return null;
  const starts = new Map<string, Rect | null>();
  for (const key of keys) {
    const node = index.node(key);
    if (!node) continue;
    const before = old.moved.nodes.get(key) ?? old.index.node(key);
    const start = before ? from(before) : null;
    if (
      !start ||
      Math.abs(start.x - node.x) +
        Math.abs(start.y - node.y) +
        Math.abs(start.w - node.w) +
        Math.abs(start.h - node.h) >
        0.5
    )
      starts.set(key, start);
  }
  if (starts.size === 0) return null;
  const startLines = new Map<string, Line | null>();
  const edges = new Map(old.index.scene.edges.map((edge) => [edge.id, edge]));
  for (const edge of painter.linesIn(part)) {
    const before = old.moved.lines.get(edge.id) ?? edges.get(edge.id);
    const start: Line | null = before
      ? { curve: before.curve, points: before.points.map(([x, y]) => [x * scale + dx, y * scale + dy]) }
      : null;
    const isStill =
      start?.points.length === edge.points.length &&
      start.points.every(([x, y], i) => Math.abs(x - edge.points[i]![0]) + Math.abs(y - edge.points[i]![1]) < 0.5);
    if (!isStill) startLines.set(edge.id, start);
  }

  /** Return the places at a time, or null after the end. */
  function at(now: number): Moved | null {
    const passed = Math.max(0, now - begin) / DURATION_MS;
    if (passed >= 1) return null;
    const t = 1 - (1 - passed) ** 3;
    const mix = (a: number, b: number) => a + (b - a) * t;
    const nodes = new Map<string, Rect & { opacity?: number }>();
    for (const [key, from] of starts) {
      const to = index.node(key)!;
      if (from)
        nodes.set(key, { x: mix(from.x, to.x), y: mix(from.y, to.y), w: mix(from.w, to.w), h: mix(from.h, to.h) });
      else nodes.set(key, { x: to.x, y: to.y, w: to.w, h: to.h, opacity: t });
    }
    const lines = new Map<string, Line & { opacity?: number }>();
    for (const edge of index.scene.edges) {
      const from = startLines.get(edge.id);
      if (from === undefined) continue;
      const line = from && between(from, edge, t);
      lines.set(edge.id, line ?? { curve: edge.curve, points: edge.points, opacity: Math.max(0.01, t) });
    }
    return { nodes, lines };
  }

  return { at };
}

export type Motion = NonNullable<ReturnType<typeof planMotion>>;
