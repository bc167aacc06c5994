/** The graph of the model, laid out. Changes of the view are shown at once, before the kernel confirms them. */

import { EMPTY, type Scene, SceneIndex } from "../graph/scene";
import type { ModelGraph } from "../kernel/contract";
import type { ProblemData } from "../kernel/contract";
import { NestedGraph } from "../layout/data";
import { layout } from "../layout/layout";
import type { Store } from "../store/store";
import { withInnerProblems } from "./graph";

interface LaidOutView {
  opened: Set<string>;
  moved: Map<string, [number, number]>;
}

interface LayoutChange {
  apply: (view: LaidOutView) => void;
  /** True once the kernel has executed the command: the next snapshot contains the change. */
  isDone: boolean;
}

export class LaidOut {
  scene: Scene = EMPTY;
  nested: NestedGraph | null = null;
  private shown: { graph: ModelGraph; problems: readonly ProblemData[]; name: string } | null = null;
  private changes: LayoutChange[] = [];
  private isEnded = false;

  /** `show` is called with the key of the group that the user opened or closed, if any. */
  constructor(
    private readonly store: Store,
    private readonly show: (anchor?: string) => void,
  ) {}

  destroy(): void {
    this.isEnded = true;
  }

  /** Lay out the graph of the latest snapshot. */
  update(): void {
    const { graph, problems, name } = this.store.snapshot;
    const { shown } = this;
    this.changes = this.changes.filter(({ isDone }) => !isDone);
    if (shown?.graph === graph && shown.problems === problems && shown.name === name) return;
    if (shown?.graph !== graph) this.nested = new NestedGraph(graph);
    this.draw();
  }

  /** Open or close a group. */
  open(key: string, isOpen: boolean): void {
    const apply = ({ opened }: LaidOutView): void => void (isOpen ? opened.add(key) : opened.delete(key));
    this.change(isOpen ? "expand" : "collapse", { path: key }, apply, key);
  }

  /** Move a block to a position relative to the frame of its group. */
  move(path: string, place: [number, number]): void {
    this.change("move", { path, x: place[0], y: place[1] }, ({ moved }) => void moved.set(path, place));
  }

  private change(name: string, args: Record<string, unknown>, apply: LayoutChange["apply"], anchor?: string): void {
    const change = { apply, isDone: false };
    this.changes.push(change);
    this.draw(anchor);
    void this.store.command(name, args).then(({ ok, error }) => {
      change.isDone = ok;
      if (ok || this.isEnded || (name !== "move" && !error)) return; // groups open without a kernel
      this.changes = this.changes.filter((one) => one !== change);
      this.draw(anchor);
    });
  }

  private draw(anchor?: string): void {
    const { graph, problems, name } = this.store.snapshot;
    const view: LaidOutView = { opened: new Set(graph.opened), moved: new Map(Object.entries(graph.moved)) };
    for (const { apply } of this.changes) apply(view);
    const scene = layout(this.nested!, view.opened, view.moved);
    this.scene = { ...withInnerProblems(new SceneIndex(scene), problems), title: `Model ${name}` };
    this.shown = { graph, problems, name };
    this.show(anchor);
  }
}
