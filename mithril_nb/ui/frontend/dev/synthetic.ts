/** Graphs of any size, for measurements and tests. */

import type { Scene, SceneEdge, SceneNode } from "../src/graph/scene";

const PER_ROW = 40;
const STEP = { x: 190, y: 104 };

/**
 * Return a chain in rows with some skips: `count` closed nodes, in open groups of `inside` nodes if this is above 0.
 */
export function syntheticScene(count: number, inside = 0): Scene {
  const nodes: SceneNode[] = [];
  const edges: SceneEdge[] = [];
  const places: { x: number; y: number }[] = [];
  const columns = inside ? Math.ceil(Math.sqrt(inside)) : PER_ROW;
  const groups = inside ? Math.ceil(count / inside) : 1;
  const across = Math.ceil(Math.sqrt(groups));
  const [width, height] = [columns * STEP.x + 40, Math.ceil(inside / columns) * STEP.y + 60];
  const shared = { label: "", shape: "", problem: null, inputs: [], outputs: [], repeat: 1 };
  for (let group = 0; group < groups; group++) {
    const [left, top] = inside ? [(group % across) * width, Math.floor(group / across) * height] : [0, 0];
    const key = inside ? `group_${group}` : "";
    if (inside)
      nodes.push({
        ...shared,
        key,
        path: key,
        parent: "",
        name: key,
        kind: "block",
        hue: group % 8,
        x: left,
        y: top,
        w: width - 20,
        h: height - 20,
        group: true,
        expanded: true,
        share: 1 / groups,
      });
    for (let at = 0; at < (inside ? Math.min(inside, count - group * inside) : count); at++) {
      const name = `layer_${group * inside + at}`;
      const place = { x: left + 20 + (at % columns) * STEP.x, y: top + 40 + Math.floor(at / columns) * STEP.y };
      places.push(place);
      nodes.push({
        ...shared,
        key: `${key}/${name}`,
        path: `${key}/${name}`,
        parent: key,
        name: `${name}/dense`,
        kind: "block",
        hue: inside ? group % 8 : Math.floor(at / 7) % 8,
        ...place,
        w: 152,
        h: 64,
        group: at % 9 === 0,
        expanded: false,
        share: 1 / count,
        shape: "f32[32,128]",
        label: at % 3 ? "" : "64 → 128",
        counts: [3, at % 2, 0, 0],
      });
    }
  }
  const leaves = nodes.filter((node) => !node.expanded);
  const connect = (a: number, b: number): void => {
    const [from, to] = [places[a]!, places[b]!];
    const [y0, y1] = [from.y + 32, to.y + 32];
    const across = [from.x + 152, from.x + 166, to.x - 14, to.x] as const;
    const points: [number, number][] =
      y0 === y1
        ? [
            [across[0], y0],
            [across[3], y1],
          ]
        : [
            [across[0], y0],
            [across[1], y0],
            [across[1], y1 - 46],
            [across[2], y1 - 46],
            [across[2], y1],
            [across[3], y1],
          ];
    edges.push({
      id: `${a} -> ${b}`,
      source: leaves[a]!.key,
      target: leaves[b]!.key,
      shape: "f32[32,128]",
      points,
      curve: false,
      problem: null,
      is_backward: a % 5 === 0,
    });
  };
  for (let at = 0; at + 1 < leaves.length; at++) {
    connect(at, at + 1);
    if (at % 5 === 0 && at + PER_ROW + 1 < leaves.length) connect(at, at + PER_ROW + 1);
  }
  const [right, bottom] = [
    Math.max(...nodes.slice(0, 2000).map((node) => node.x + node.w)),
    nodes.reduce((most, node) => Math.max(most, node.y + node.h), 0),
  ];
  return {
    title: "synthetic",
    width: right + 20,
    height: bottom + 20,
    nodes,
    edges,
    is_model: false,
    roles: ["forward", "backward", "update"],
  };
}
