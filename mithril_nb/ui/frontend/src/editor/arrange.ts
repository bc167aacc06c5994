/** Aligns and distributes nodes: pure functions to their new places. */

import type { Rect } from "../drawing/lines";

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
