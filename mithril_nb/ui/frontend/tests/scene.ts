import type { Scene } from "../src/graph/scene";
import type { Snapshot } from "../src/kernel/model";
import { NestedGraph } from "../src/layout/data";
import { layout } from "../src/layout/layout";

/** Return the graph of a snapshot, laid out. */
export function sceneOf({ graph }: Snapshot): Scene {
  return layout(new NestedGraph(graph), new Set(graph.opened), new Map(Object.entries(graph.moved)));
}
