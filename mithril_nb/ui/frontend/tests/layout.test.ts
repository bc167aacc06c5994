import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, it } from "vitest";
import type { PackedGraph } from "../src/kernel/contract";
import { NestedGraph } from "../src/layout/data";
import { layout } from "../src/layout/layout";
import type { Point } from "../src/drawing/lines";

interface Case {
  graph: PackedGraph;
  opened: string[];
  moved: Record<string, Point>;
  scene: { size: number[]; nodes: unknown[]; edges: unknown[] };
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
