/** Putting the explorer together on one element: a program's graph, its stages side by side, costs and passes. */

import { Connection } from "./connection";
import { CostTab } from "./cost";
import { attr, h, text } from "./dom";
import { exact, percent, seconds, si } from "./format";
import { headerEnd } from "./header";
import { Help, type Keys, LOOKING } from "./help";
import { Kernel } from "./kernel";
import { listenToKeys } from "./keys";
import { Notice } from "./lists";
import { Panes } from "./panes";
import { PassesTab } from "./passes";
import { Search } from "./search";
import { StageGraph } from "./stage-graph";
import { Store } from "./store";
import { styleFor } from "./styles";
import { Tabs } from "./tabs";
import { followTheme } from "./theme";
import { Tip } from "./tip";
import { TransformsTab } from "./transforms";
import { hideTwin } from "./twin";
import type { Snapshot } from "./types";
import { type Mounted, divider } from "./workbench";

/** What a workbench has and a program to look at has not. */
const NOTHING: Pick<Snapshot, "program" | "programs" | "shapes" | "graph" | "palette" | "source" | "can_undo" | "can_redo" | "undo_label" | "run"> = {
  program: "", programs: [], shapes: {}, graph: { width: 0, height: 0, nodes: [], edges: [] }, palette: [], source: "", can_undo: false, can_redo: false, undo_label: "",
  run: { state: "none", epoch: 0, epochs: 0, step: 0, steps: 0, loss: null, accuracy: null, validation_loss: null, validation_accuracy: null, steps_per_s: null, left_s: null, learning_rate: null, learning_rate_is_relative: false, message: "", points: 0 },
};
const KEYS: Keys = [
  ["Everywhere", [["?", "this card"], ["F or /", "search blocks and stages"], ["Esc", "let go of the selection"]]],
  ["Graph", [["↑ ↓", "previous, next node"], ["→ ←", "open, close or leave a node"], ["Enter", "select; on a selected node: open, close"], ["Shift Enter", "add to the selection"]]],
  ...LOOKING,
];

export function mountExplorer({ model, el }: Mounted): () => void {
  styleFor(el);
  const showTwin = hideTwin(el);
  const kernel = new Kernel(model);
  const read = (): Snapshot => ({ ...NOTHING, ...(model.get("snapshot") as Snapshot) });
  const store = new Store(read(), kernel);
  const { costs, graph_stage: first } = store.snapshot;
  // Only a program that begins after the jaxpr has no analytic costs from the start.
  store.panes = costs?.sources.analytic?.state === "unavailable" && first ? [first] : ["jaxpr", "stablehlo"];
  const root = h("div", { class: "mnb-root mnb-explorer", role: "region", "aria-label": `Program ${store.snapshot.name}` });
  el.append(root);
  const tip = new Tip(root);
  const help = new Help(KEYS);
  const panes = new Panes(store, tip);
  const header = new Header(store, panes, () => help.toggle());
  const notice = new Notice(store);
  const cost = new CostTab(store, tip);
  const passes = new PassesTab(store);
  const transforms = store.snapshot.transforms ? new TransformsTab(store) : null;
  if (transforms) store.tab = "transforms";
  const tabs = new Tabs(store, [
    ...(transforms ? [{ name: "transforms", title: "Transforms", root: transforms.root }] : []),
    { name: "cost", title: "Cost", root: cost.root },
    { name: "passes", title: "Passes", root: passes.root, figure: () => passes.count },
  ], "Costs, passes, transforms");
  const graph = new StageGraph(store, tip);
  const lower = h("div", { class: "mnb-explorer-rest" }, panes.root, tabs.root);
  const main = h("div", { class: "mnb-main" }, graph.root, lower);
  graph.root.after(divider("y", "Height of the graph", main, graph.root, "--mnb-graph"));
  panes.root.after(divider("y", "Height of the stages", lower, panes.root, "--mnb-panes"));
  const connection = new Connection(kernel, () => store.snapshot);
  root.append(header.root, connection.root, notice.root, main, tip.root, help.root);
  const letGo = listenToKeys(root, { store, header, panes, help });
  const unfollow = followTheme(root, () => cost.recolour());
  const paint = (): void => {
    root.dataset["mnbVersion"] = String(store.snapshot.version);
    header.update();
  };
  const onSnapshot = (): void => {
    kernel.heard();
    store.takeSnapshot(read());
    paint();
  };
  model.on("change:snapshot", onSnapshot);
  const leave = [store.on("passes", () => tabs.update())];
  paint();
  void kernel.send("hello", {});
  return () => {
    model.off("change:snapshot", onSnapshot);
    unfollow();
    letGo();
    for (const one of leave) one();
    for (const part of [graph, panes, header, cost, passes, transforms, tabs, notice, connection]) part?.destroy();
    tip.hide();
    kernel.destroy();
    root.remove();
    showTwin();
  };
}

/** What is looked at, and its figures. */
class Header {
  readonly root: HTMLElement;
  readonly search: Search;
  private readonly name = h("b", { class: "mnb-model-name" });
  private readonly backend = h("span", { class: "mnb-backend" });
  private readonly figures = h("span", { class: "mnb-figures", role: "group", "aria-label": "Figures" });

  constructor(
    private readonly store: Store,
    panes: Panes,
    showHelp: () => void,
  ) {
    this.search = new Search(store, panes);
    this.root = h(
      "div",
      { class: "mnb-header", role: "group", "aria-label": "Program" },
      this.name, this.backend, this.figures, headerEnd(this.search, showHelp),
    );
  }

  destroy(): void {
    this.search.destroy();
  }

  update(): void {
    const { snapshot } = this.store;
    const { status, cost } = snapshot;
    const formula = cost?.total.formulas?.flops;
    text(this.name, snapshot.name);
    attr(this.name, "title", snapshot.name);
    text(this.backend, snapshot.backend);
    // Each has its place from the start: nothing moves when a figure arrives.
    const figures: [string, string, string][] = [
      ["trace", seconds(status.trace_s), "Seconds that JAX took to trace the program"],
      ["lower", seconds(status.lower_s), "Seconds that JAX took to lower it to StableHLO"],
      ["optimize", seconds(status.optimize_s), "Seconds that XLA took for its passes and plan of memory, without machine code: that is made when somebody looks at it or has it run"],
      ["compile", seconds(status.compile_s), "Seconds that XLA took to compile it, machine code included; nothing is compiled before somebody asks"],
      ["cost", status.flops === null ? (formula?.[0] ?? "–") : `${cost?.total.unknown?.flops ? "≥ " : ""}${si(status.flops, "FLOP")}`, formula?.[1] ?? exact(status.flops, "FLOP")],
      ["attributed", percent(status.attributed), "Share of the FLOPs traced back to a block, the loss or the optimizer"],
    ];
    if (this.figures.childElementCount === 0) this.figures.append(...figures.map(([name]) => h("span", { class: "mnb-figure-small", "data-mnb-status": name }, h("small", {}, name), h("span"))));
    figures.forEach(([, value, title], i) => {
      const element = this.figures.children[i]!;
      text(element.lastElementChild!, value);
      attr(element, "title", title);
    });
  }
}
