import type { Scene } from "../src/graph/scene";
import { FIGURES } from "../src/kernel/contract";
import type { Figures } from "../src/kernel/contract";
import type { Snapshot } from "../src/kernel/model";
import { NestedGraph } from "../src/layout/data";
import { layout } from "../src/layout/layout";

/** A cost of 0, without times. */
export const ZEROS: Figures = {
  ...(Object.fromEntries(FIGURES.map((figure) => [figure, 0])) as Figures),
  time_s: null,
  predicted_s: null,
};

/** Return the graph of a snapshot, laid out. */
export function sceneOf({ graph }: Snapshot): Scene {
  return layout(new NestedGraph(graph), new Set(graph.opened), new Map(Object.entries(graph.moved)));
}
