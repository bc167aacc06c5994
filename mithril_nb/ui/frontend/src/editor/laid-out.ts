/** The graph of the model, laid out. Changes of the view are shown at once, before the kernel confirms them. */

import { EMPTY, type Scene, SceneIndex } from "../graph/scene";
import type { ModelGraph, ProblemData } from "../kernel/contract";
import type { GraphView } from "../graph/view";
import { NestedGraph } from "../layout/data";
import { layout } from "../layout/layout";
import type { Store } from "../store/store";
import { withInnerProblems } from "./graph";

interface LaidOutView {
  opened: Set<string>;
  moved: Map<string, [number, number]>;
}

/** Path of a block, and its position relative to the frame of its group. */
export type BlockPlace = readonly [path: string, x: number, y: number];

interface LayoutChange {
  apply: (view: LaidOutView) => void;
  /** True once the kernel has executed the command: the next snapshot contains the change. */
  isDone: boolean;
}

export function createLaidOut(
  store: Store,
  viewOf: () => Pick<GraphView, "rowWidth" | "rewrap">,
  changed: (anchor?: string) => void,
) {
  let scene: Scene = EMPTY;
  let nested: NestedGraph | null = null;
  let shown: { graph: ModelGraph; problems: readonly ProblemData[]; name: string } | null = null;
  let changes: LayoutChange[] = [];
  let isEnded = false;

  function destroy() {
    isEnded = true;
  }

  /** Lay out the graph of the latest snapshot. */
  function update() {
    const { graph, problems, name } = store.snapshot;
    changes = changes.filter(({ isDone }) => !isDone);
    if (shown?.graph === graph && shown.problems === problems && shown.name === name) return;
    if (shown?.graph !== graph) nested = nextGraph(graph);
    if (nested!.rows.size) draw();
    else viewOf().rewrap();
  }

  /** Return a graph whose blocks stay in their rows, unless most of them are new. */
  function nextGraph(graph: ModelGraph) {
    const next = new NestedGraph(graph, nested?.rows);
    const gone = [...next.rows.keys()].filter((key) => !next.byKey.has(key));
    if (2 * gone.length > next.rows.size) next.rows.clear();
    for (const key of gone) next.rows.delete(key);
    return next;
  }

  /** Lay out the graph as at first: its blocks leave their rows. */
  function rewrap() {
    nested?.rows.clear();
    draw();
  }

  /** Open or close a group. */
  function open(key: string, isOpen: boolean) {
    const apply = ({ opened }: LaidOutView): void => void (isOpen ? opened.add(key) : opened.delete(key));
    change(isOpen ? "expand" : "collapse", { path: key }, apply, key);
  }

  /** Move blocks to positions relative to the frames of their groups, as one step. */
  function move(places: readonly BlockPlace[], label = "") {
    const apply = ({ moved }: LaidOutView) => places.forEach(([path, x, y]) => moved.set(path, [x, y]));
    change("move", { places, ...(label && { label }) }, apply);
  }

  function change(name: string, args: Record<string, unknown>, apply: LayoutChange["apply"], anchor?: string) {
    const change = { apply, isDone: false };
    changes.push(change);
    draw(anchor);
    void store.command(name, args).then(({ ok, error }) => {
      change.isDone = ok;
      if (ok || isEnded || (name !== "move" && !error)) return; // groups open without a kernel
      changes = changes.filter((one) => one !== change);
      draw(anchor);
    });
  }

  function draw(anchor?: string) {
    const { graph, problems, name } = store.snapshot;
    const view: LaidOutView = { opened: new Set(graph.opened), moved: new Map(Object.entries(graph.moved)) };
    for (const { apply } of changes) apply(view);
    const laidOut = layout(nested!, view.opened, view.moved, viewOf().rowWidth);
    scene = { ...withInnerProblems(new SceneIndex(laidOut), problems), title: `Model ${name}` };
    shown = { graph, problems, name };
    changed(anchor);
  }

  return {
    get scene() {
      return scene;
    },
    get nested() {
      return nested;
    },
    update,
    rewrap,
    open,
    move,
    destroy,
  };
}
