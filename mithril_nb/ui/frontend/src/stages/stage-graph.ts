/** The graph of a stage in a `GraphView`: the kernel sends boxes and flows, which are laid out here. */

import { iconButton } from "../dom/view";
import { counted } from "../dom/format";
import type { Tip } from "../controls/tip";
import { together } from "../dom/calls";
import { attr, h, text } from "../dom/dom";
import { BLOCK_COLOURS } from "../graph/overlay";
import { createGraphView } from "../graph/view";
import type { GraphOfStage } from "../kernel/contract";
import { NestedGraph } from "../layout/data";
import { layout } from "../layout/layout";
import { createQuestions } from "../search/questions";
import type { Anchor, Links } from "../store/links";
import type { Store } from "../store/store";
import { anchorsOf, describe, linkedKeys } from "./graph-nodes";
import { createKernelOverlay } from "./kernel-overlay";

const STEP = 1.25;

export function createStageGraph(store: Store, tip: Tip) {
  const stages = h("div", { class: "mnb-toggles", role: "group", "aria-label": "Stage of the graph" });
  const hint = h("p", { class: "mnb-hint" }, "The graph appears once the program is traced.");
  const count = h("span", { class: "mnb-pane-figures" });
  let graph: NestedGraph | null = null;
  const openKeys = new Set<string>();
  /** The stage of the latest graph that cannot be shown, and the reason. */
  let failed: { stage: string; why: string } | null = null;
  const view = createGraphView({
    label: "Nodes of the graph",
    tip,
    describe: (node) => overlay.layer.describe(node.key, describe(node, view.scene)),
    hover: (node) => store.setHover(node ? anchorsOf(node) : []),
    select: (node, add) => store.pin(anchorsOf(node), add),
    rewrap: () => {
      graph?.rows.clear();
      draw();
    },
    toggle: (node) => toggle(node.key),
    open: (node) => toggle(node.key),
    clear: (event) => event.shiftKey || store.pin([]),
    key: (event) => questions.key(event),
  });
  const overlay = createKernelOverlay(
    store,
    view,
    (stage) => graph === null || graph.title === stage || store.snapshot.graph_stage === stage,
  );
  const questions = createQuestions(view, { graph: () => graph, open: openAll });
  const root = h(
    "section",
    { class: "mnb-stage-graph", "aria-label": "Graph" },
    h(
      "div",
      { class: "mnb-bar" },
      h("span", { class: "mnb-bar-title" }, "Graph"),
      stages,
      count,
      h("span", { class: "mnb-grow" }),
      overlay.menu.root,
      overlay.exports,
      iconButton("minus", "Smaller", "graph.smaller", () => view.zoomBy(1 / STEP)),
      iconButton("plus", "Larger", "graph.larger", () => view.zoomBy(STEP)),
      iconButton("fit", "Fit the graph into view", "graph.fit", () => view.fit()),
    ),
    view.root,
    hint,
  );
  view.root.hidden = true;
  const destroy = together(
    store.kernel.receive(
      "graph",
      ({ stage }, graph) => take(stage, graph),
      (why, { stage }) => fail(stage, why),
    ),
    store.kernel.receive(
      "graph_shares",
      ({ stage }, shares) => takeShares(stage, shares),
      (why, { stage }) => fail(stage, why),
    ),
    store.on("snapshot", update),
    store.on("links", paintLinks),
    overlay.destroy,
    view.destroy,
  );
  update();

  function update() {
    const { graph_stages = [], graph_stage } = store.snapshot;
    if (stages.childElementCount !== graph_stages.length) {
      stages.replaceChildren(
        ...graph_stages.map((stage) =>
          h(
            "button",
            {
              type: "button",
              class: "mnb-toggle",
              "data-mnb-action": `graph.${stage}`,
              onclick: () => store.command("show_graph", { stage }),
            },
            store.titleOf(stage),
          ),
        ),
      );
    }
    graph_stages.forEach((stage, i) => attr(stages.children[i]!, "aria-pressed", String(stage === graph_stage)));
    const info = store.snapshot.stages[graph_stage ?? ""];
    const isShown = graph?.title === graph_stage;
    const failure = failed?.stage === graph_stage ? failed : null;
    const why = failure?.why ?? (info?.state === "unavailable" || info?.state === "failed" ? info.message : null);
    attr(root, "data-mnb-state", failure ? "failed" : isShown ? "ready" : (info?.state ?? null));
    root.classList.toggle("mnb-graph-old", graph !== null && (!isShown || failure !== null));
    hint.hidden = graph !== null;
    if (graph === null) {
      if (info) text(hint, why === null ? "The graph appears once the program is traced." : `No graph: ${why}`);
      return;
    }
    const { length } = view.scene.nodes;
    if (isShown && !failure) text(count, counted(length, "node"));
    else
      text(
        count,
        why === null ? `drawing ${store.titleOf(graph_stage!)}` : `no graph of ${store.titleOf(graph_stage!)}: ${why}`,
      );
  }

  function fail(stage: string, why: string) {
    failed = { stage, why };
    update();
  }

  function take(stage: string, { opened, ...packed }: GraphOfStage) {
    failed = null;
    graph = new NestedGraph(packed);
    openKeys.clear();
    for (const key of opened) openKeys.add(key);
    view.root.hidden = false;
    draw();
    attr(root, "data-mnb-graph", stage);
  }

  function takeShares(stage: string, shares: readonly (number | null)[]) {
    if (graph?.title !== stage) return; // the shares of a former graph
    graph.boxes.forEach((box, at) => (box.share = shares[at] ?? null));
    draw();
  }

  function draw(anchor?: string) {
    if (!graph) return;
    view.show(layout(graph, openKeys, undefined, view.rowWidth), { anchor });
    overlay.layer.explain(view.scene, BLOCK_COLOURS);
    attr(root, "data-mnb-nodes", view.scene.nodes.length);
    update();
    paintLinks();
  }

  function openAll(keys: readonly string[]) {
    for (const key of keys) {
      if (openKeys.has(key)) continue;
      openKeys.add(key);
      store.command("open_node", { key });
    }
    draw();
  }

  function toggle(key: string) {
    if (!graph?.byKey.get(key)?.is_group) return;
    const isOpen = openKeys.delete(key);
    if (!isOpen) openKeys.add(key);
    draw(key);
    store.command(isOpen ? "close_node" : "open_node", { key }); // remembered for the next page
  }

  function paintLinks() {
    const { hoverLinks, pinLinks, hover, pins } = store;
    const { nodes } = view.scene;
    const linked = (anchors: readonly Anchor[], links: Links) =>
      linkedKeys(nodes, anchors, links.blocks, idsOf(anchors));
    const [hovered, selected] = [linked(hover, hoverLinks), linked(pins, pinLinks)];
    questions.paint({ hovered, selected });
  }

  /** Return the ids of the equations of anchors. */
  function idsOf(anchors: readonly Anchor[]) {
    const found = new Set<string>();
    for (const anchor of anchors) {
      if (anchor.kind === "equations") for (const id of anchor.ids) found.add(id);
      if (anchor.kind === "instruction")
        for (const id of store.texts.get(anchor.stage)?.instructions[anchor.index]?.equations ?? []) found.add(id);
      if (anchor.kind === "block") {
        const jaxpr = store.texts.get("jaxpr");
        for (const index of jaxpr?.ofBlock(anchor.path) ?? [])
          for (const id of jaxpr!.instructions[index]!.equations) found.add(id);
      }
    }
    return found;
  }

  return { root, questions, destroy };
}
