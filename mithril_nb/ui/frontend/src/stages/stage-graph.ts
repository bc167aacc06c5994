/** The graph of a stage in a `GraphView`: the kernel sends boxes and flows, which are laid out here. */

import type { Tip } from "../controls/tip";
import { together } from "../dom/calls";
import { attr, h, iconButton, text } from "../dom/dom";
import type { SceneNode } from "../graph/scene";
import { GraphView } from "../graph/view";
import type { GraphOfStage } from "../kernel/contract";
import { NestedGraph } from "../layout/data";
import { layout } from "../layout/layout";
import { Questions } from "../search/questions";
import type { Anchor, Links } from "../store/links";
import type { Store } from "../store/store";
import { anchorsOf, describe, linkedKeys } from "./graph-nodes";
import { KernelOverlay } from "./kernel-overlay";

const STEP = 1.25;

export class StageGraph {
  readonly root: HTMLElement;
  private readonly stages = h("div", { class: "mnb-toggles", role: "group", "aria-label": "Stage of the graph" });
  private readonly hint = h("p", { class: "mnb-hint" }, "The graph appears once the program is traced.");
  private readonly count = h("span", { class: "mnb-pane-figures" });
  private readonly view: GraphView;
  private readonly overlay: KernelOverlay;
  readonly questions: Questions;
  private graph: NestedGraph | null = null;
  private readonly opened = new Set<string>();
  /** The stage of the latest graph that cannot be shown, and the reason. */
  private failure: { stage: string; why: string } | null = null;
  readonly destroy: () => void;

  constructor(
    private readonly store: Store,
    tip: Tip,
  ) {
    this.view = new GraphView({
      label: "Nodes of the graph",
      tip,
      describe: (node) => this.overlay.layer.describe(node.key, describe(node, this.view.scene)),
      hover: (node) => store.setHover(node ? anchorsOf(node) : []),
      select: (node, add) => this.select(node, add),
      toggle: (node) => this.toggle(node.key),
      open: (node) => this.toggle(node.key),
      clear: (event) => event.shiftKey || store.pin([]),
      key: (event) => this.questions.key(event),
    });
    this.overlay = new KernelOverlay(
      store,
      this.view,
      (stage) => this.graph === null || this.graph.title === stage || store.snapshot.graph_stage === stage,
    );
    this.questions = new Questions(this.view, { graph: () => this.graph, open: (keys) => this.openAll(keys) });
    this.root = h(
      "section",
      { class: "mnb-stage-graph", "aria-label": "Graph" },
      h(
        "div",
        { class: "mnb-bar" },
        h("span", { class: "mnb-bar-title" }, "Graph"),
        this.stages,
        this.count,
        h("span", { class: "mnb-grow" }),
        this.overlay.menu.root,
        this.overlay.exports,
        iconButton("minus", "Smaller", "graph.smaller", () => this.view.zoomBy(1 / STEP)),
        iconButton("plus", "Larger", "graph.larger", () => this.view.zoomBy(STEP)),
        iconButton("fit", "Fit the graph into view", "graph.fit", () => this.view.fit()),
      ),
      this.view.root,
      this.hint,
    );
    this.view.root.hidden = true;
    this.destroy = together(
      store.kernel.receive(
        "graph",
        ({ stage }, graph) => this.take(stage, graph),
        (why, { stage }) => this.fail(stage, why),
      ),
      store.kernel.receive(
        "graph_shares",
        ({ stage }, shares) => this.takeShares(stage, shares),
        (why, { stage }) => this.fail(stage, why),
      ),
      store.on("snapshot", () => this.update()),
      store.on("links", () => this.paintLinks()),
      this.overlay.destroy,
      () => this.view.destroy(),
    );
    this.update();
  }

  private update(): void {
    const { graph_stages = [], graph_stage, stages } = this.store.snapshot;
    if (this.stages.childElementCount !== graph_stages.length) {
      this.stages.replaceChildren(
        ...graph_stages.map((stage) =>
          h(
            "button",
            {
              type: "button",
              class: "mnb-toggle",
              "data-mnb-action": `graph.${stage}`,
              onclick: () => this.store.command("show_graph", { stage }),
            },
            this.store.titleOf(stage),
          ),
        ),
      );
    }
    graph_stages.forEach((stage, i) => attr(this.stages.children[i]!, "aria-pressed", String(stage === graph_stage)));
    const info = stages[graph_stage ?? ""];
    const isShown = this.graph?.title === graph_stage;
    const failure = this.failure?.stage === graph_stage ? this.failure : null;
    const why = failure?.why ?? (info?.state === "unavailable" || info?.state === "failed" ? info.message : null);
    attr(this.root, "data-mnb-state", failure ? "failed" : isShown ? "ready" : (info?.state ?? null));
    this.root.classList.toggle("mnb-graph-old", this.graph !== null && (!isShown || failure !== null));
    this.hint.hidden = this.graph !== null;
    if (this.graph === null) {
      if (info) text(this.hint, why === null ? "The graph appears once the program is traced." : `No graph: ${why}`);
      return;
    }
    const { length } = this.view.scene.nodes;
    if (isShown && !failure) text(this.count, `${length} ${length === 1 ? "node" : "nodes"}`);
    else
      text(
        this.count,
        why === null
          ? `drawing ${this.store.titleOf(graph_stage!)}`
          : `no graph of ${this.store.titleOf(graph_stage!)}: ${why}`,
      );
  }

  private fail(stage: string, why: string): void {
    this.failure = { stage, why };
    this.update();
  }

  private take(stage: string, { opened, ...packed }: GraphOfStage): void {
    this.failure = null;
    this.graph = new NestedGraph(packed);
    this.opened.clear();
    for (const key of opened) this.opened.add(key);
    this.view.root.hidden = false;
    this.draw();
    attr(this.root, "data-mnb-graph", stage);
  }

  private takeShares(stage: string, shares: readonly (number | null)[]): void {
    if (this.graph?.title !== stage) return; // the shares of a former graph
    this.graph.boxes.forEach((box, at) => (box.share = shares[at] ?? null));
    this.draw();
  }

  private draw(anchor?: string): void {
    if (!this.graph) return;
    this.view.show(layout(this.graph, this.opened), { anchor });
    this.overlay.layer.explain(this.view.scene);
    attr(this.root, "data-mnb-nodes", this.view.scene.nodes.length);
    this.update();
    this.paintLinks();
  }

  private openAll(keys: readonly string[]): void {
    for (const key of keys) {
      if (this.opened.has(key)) continue;
      this.opened.add(key);
      this.store.command("open_node", { key });
    }
    this.draw();
  }

  private toggle(key: string): void {
    if (!this.graph?.byKey.get(key)?.is_group) return;
    const isOpen = this.opened.delete(key);
    if (!isOpen) this.opened.add(key);
    this.draw(key);
    this.store.command(isOpen ? "close_node" : "open_node", { key }); // remembered for the next page
  }

  private select(node: SceneNode, add: boolean): void {
    this.store.pin(anchorsOf(node), add);
  }

  private paintLinks(): void {
    const { hoverLinks, pinLinks, hover, pins } = this.store;
    const { nodes } = this.view.scene;
    const linked = (anchors: readonly Anchor[], links: Links): Set<string> =>
      linkedKeys(nodes, anchors, links.blocks, this.idsOf(anchors));
    const [hovered, selected] = [linked(hover, hoverLinks), linked(pins, pinLinks)];
    this.questions.paint({ hovered, selected });
  }

  /** Return the ids of the equations of anchors. */
  private idsOf(anchors: readonly Anchor[]): Set<string> {
    const found = new Set<string>();
    for (const anchor of anchors) {
      if (anchor.kind === "equations") for (const id of anchor.ids) found.add(id);
      if (anchor.kind === "instruction")
        for (const id of this.store.texts.get(anchor.stage)?.instructions[anchor.index]?.equations ?? []) found.add(id);
      if (anchor.kind === "block") {
        const jaxpr = this.store.texts.get("jaxpr");
        for (const index of jaxpr?.ofBlock(anchor.path) ?? [])
          for (const id of jaxpr!.instructions[index]!.equations) found.add(id);
      }
    }
    return found;
  }
}
