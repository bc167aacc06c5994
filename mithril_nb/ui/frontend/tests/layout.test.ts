import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, it } from "vitest";
import type { PackedGraph } from "../src/kernel/contract";
import { forksOf } from "../src/graph/wires";
import { NestedGraph, NO_GRAPH } from "../src/layout/data";
import { layout } from "../src/layout/layout";
import type { Point } from "../src/drawing/lines";

interface Case {
  graph: PackedGraph;
  opened: string[];
  moved: Record<string, Point>;
  scene: { size: number[]; nodes: unknown[]; edges: unknown[]; forks: Point[] };
}

// Written by tests/viz/test_layout_parity.py, which compares it with the layout in Python.
const CASES = JSON.parse(
  readFileSync(resolve(import.meta.dirname, "../../../../tests/viz/golden/layouts.json"), "utf8"),
) as Case[];

describe("a graph is laid out as in Python", () => {
  it.each(CASES.map((one, at) => [at, one] as const))("case %i", (_, one) => {
    const scene = layout(new NestedGraph(one.graph), new Set(one.opened), new Map(Object.entries(one.moved)));
    expect([scene.width, scene.height]).toEqual(one.scene.size);
    expect(
      scene.nodes.map((node) => [
        node.key,
        node.x,
        node.y,
        node.w,
        node.h,
        [...node.inputs, ...node.outputs].map(({ name, x, y }) => [name, x, y]),
      ]),
    ).toEqual(one.scene.nodes);
    expect(
      scene.edges.map((edge) => [
        edge.source,
        edge.target,
        edge.points,
        edge.shape,
        edge.is_backward,
        edge.returns,
        edge.is_end,
      ]),
    ).toEqual(one.scene.edges);
    const forks = forksOf(scene.edges).map(({ point }) => point);
    expect(forks.sort(([x, y], [u, v]) => x - u || y - v)).toEqual(one.scene.forks);
  });
});

it("gives each piece of a wire its own id, also across frames", () => {
  let crossing = 0;
  for (const { graph: packed } of CASES) {
    const graph = new NestedGraph(packed);
    const { edges } = layout(graph, new Set(graph.boxes.filter((box) => box.is_group).map(({ key }) => key)));
    expect(new Set(edges.map(({ id }) => id)).size).toBe(edges.length);
    crossing += edges.filter(({ is_end }) => !is_end).length;
  }
  expect(crossing).toBeGreaterThan(0);
});

/** Return a model: each block reads the one before it and some earlier ones; the output reads the last block. */
function modelOf(inputs: readonly (readonly number[])[]): PackedGraph {
  const names = ["input:input", ...inputs.map((_, at) => `block_${at}`), "output:output"];
  const isPill = (at: number) => at === 0 || at === names.length - 1;
  const flows = [...inputs, [names.length - 2]].flatMap((sources, at) =>
    sources.map((source, port) => ({ source, target: at + 1, out: "output", into: `in${port}` })),
  );
  return {
    ...NO_GRAPH,
    boxes: {
      key: names,
      kind: names.map((name, at) => (isPill(at) ? name.split(":")[0] : "Op")),
      path: names.map((name, at) => (isPill(at) ? "" : name)),
      w: names.map((_, at) => (isPill(at) ? 128 : 168)),
      h: names.map((_, at) => (isPill(at) ? 40 : 64)),
      inputs: names.map((_, at) => ([[], ...inputs, [0]][at] ?? []).map((_, port) => `in${port}`)),
      outputs: names.map(() => ["output"]),
    },
    flows: Object.fromEntries(
      (["source", "target", "out", "into"] as const).map((name) => [name, flows.map((flow) => flow[name])]),
    ),
  };
}

describe("blocks stay where they are", () => {
  const placesOf = (graph: NestedGraph, width: number, opened = new Set<string>(), moved = new Map<string, Point>()) =>
    new Map(layout(graph, opened, moved, width).nodes.map(({ key, x, y }) => [key, [x, y]]));
  const blocks = (places: Map<string, number[]>) => [...places].filter(([key]) => key.startsWith("block_"));

  it.each([1, 2, 3, 4, 5, 6])("when blocks are added at the end, and when one is dropped (%i)", (seed) => {
    let state = seed;
    const random = (below: number) => (state = (state * 48271) % 2147483647) % below;
    const width = 500 + random(900);
    const inputs = Array.from({ length: 1 + random(30) }, (_, at) => [at, ...(random(3) ? [] : [random(at + 1)])]);
    let graph = new NestedGraph(modelOf(inputs));
    let before = placesOf(graph, width);
    for (let added = 0; added < 12; added++) {
      inputs.push([inputs.length]);
      graph = new NestedGraph(modelOf(inputs), graph.rows);
      const after = placesOf(graph, width);
      expect(blocks(after).slice(0, -1)).toEqual(blocks(before));
      const ends = [...after].map(([key, [x]]) => x! + (key.startsWith("block_") ? 168 : 128));
      expect(Math.max(...ends)).toBeLessThan(width + 50);
      before = after;
    }
    const dropped = modelOf(inputs);
    const block = { key: "dropped", kind: "Op", path: "dropped", w: 168, h: 64, inputs: ["in0"], outputs: ["output"] };
    for (const [name, value] of Object.entries(block)) dropped.boxes[name]!.push(value);
    const after = placesOf(new NestedGraph(dropped, graph.rows), width, new Set(), new Map([["dropped", [40, 50]]]));
    expect(after.get("dropped")).toEqual([40, 50]);
    expect(blocks(after)).toEqual(blocks(before));
  });
});
