/** Aligns, distributes and snaps nodes: pure functions to their new places. */

import type { Line, Rect } from "../drawing/lines";

type Axis = "x" | "y";

export interface Arrangement {
  title: string;
  /** The fewest nodes for which it has a meaning. */
  least: number;
  /** Return the new coordinates of the nodes on the axis. */
  axis: Axis;
  arrange: (nodes: readonly Rect[]) => number[];
}

const LENGTH = { x: "w", y: "h" } as const;

/** Align nodes so that the same share of their length, such as 0.5, lies on one line. */
function aligned(title: string, axis: Axis, share: number): Arrangement {
  const arrange = (nodes: readonly Rect[]) => {
    const length = LENGTH[axis];
    const least = Math.min(...nodes.map((node) => node[axis]));
    const most = Math.max(...nodes.map((node) => node[axis] + node[length]));
    return nodes.map((node) => least + share * (most - least - node[length]));
  };
  return { title, least: 2, axis, arrange };
}

/** Give neighbours equal gaps; the first and the last node stay. */
function distributed(title: string, axis: Axis): Arrangement {
  const arrange = (nodes: readonly Rect[]) => {
    const length = LENGTH[axis];
    const order = [...nodes].sort((a, b) => a[axis] - b[axis]);
    const [first, last] = [order[0]!, order.at(-1)!];
    const used = nodes.reduce((sum, node) => sum + node[length], 0);
    const gap = (last[axis] + last[length] - first[axis] - used) / (nodes.length - 1);
    const places = new Map<Rect, number>();
    let at = first[axis];
    for (const node of order) {
      places.set(node, at);
      at += node[length] + gap;
    }
    return nodes.map((node) => places.get(node)!);
  };
  return { title, least: 3, axis, arrange };
}

export const ARRANGEMENTS: readonly Arrangement[] = [
  aligned("Align left", "x", 0),
  aligned("Align centers", "x", 0.5),
  aligned("Align right", "x", 1),
  aligned("Align top", "y", 0),
  aligned("Align middles", "y", 0.5),
  aligned("Align bottom", "y", 1),
  distributed("Distribute horizontally", "x"),
  distributed("Distribute vertically", "y"),
];

/** Which share of the length of a dragged node snaps to which of another: edges to edges, centre to centre. */
const SNAPS = [
  [0, 0],
  [0, 1],
  [1, 0],
  [1, 1],
  [0.5, 0.5],
] as const;

type Shift = Pick<Rect, "x" | "y">;

/**
 * Return the shift of a dragged node in whole units, near `aim` and not below `least`: on each axis, an edge or its
 * centre snaps to the nearest one of other nodes, if that is at most `reach` away. The guides lead along all in line.
 */
export function snapped(
  node: Rect,
  aim: Shift,
  least: Shift,
  others: readonly Rect[],
  reach: number,
): Shift & { guides: Line[] } {
  const lines = (axis: Axis) =>
    others.flatMap((other) =>
      SNAPS.map(([own, share]) => {
        const at = other[axis] + share * other[LENGTH[axis]];
        return { other, at, shift: at - node[axis] - own * node[LENGTH[axis]] };
      }),
    );
  const snap = (axis: Axis) => {
    const away = ({ shift }: { shift: number }) => Math.abs(shift - aim[axis]);
    const near = lines(axis).filter((line) => away(line) <= reach);
    const nearest = near.sort((a, b) => away(a) - away(b))[0]?.shift ?? aim[axis];
    return Math.max(least[axis], Math.round(nearest));
  };
  const shifts = { x: snap("x"), y: snap("y") };
  const guides = (["x", "y"] as const).flatMap((axis) => {
    const across = axis === "x" ? "y" : "x";
    const spans = new Map<number, readonly [number, number]>();
    const start = node[across] + shifts[across];
    for (const { other, at, shift } of lines(axis)) {
      if (Math.abs(shift - shifts[axis]) > 0.5) continue; // the centre of an odd length is between whole units
      const [from, to] = spans.get(at) ?? [start, start + node[LENGTH[across]]];
      spans.set(at, [Math.min(from, other[across]), Math.max(to, other[across] + other[LENGTH[across]])]);
    }
    return [...spans].map(([at, span]): Line => ({
      points: span.map((end) => (axis === "x" ? [at, end] : [end, at])),
      curve: false,
    }));
  });
  return { ...shifts, guides };
}
