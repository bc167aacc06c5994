/** Builds the explorer inside one element: a program's graph, stages, costs, passes and transforms. */

import { FullScreen, fullButton } from "./controls/full-screen";
import { divider } from "./controls/split";
import { Tip } from "./controls/tip";
import { ATTRIBUTED, FIGURE_TITLES, figureText } from "./costs/figures";
import { CostTab } from "./costs/tab";
import { attr, h, text } from "./dom/dom";
import { percent, seconds } from "./dom/format";
import { hideFallback } from "./dom/static-fallback";
import { styleFor } from "./dom/styles";
import { followTheme } from "./dom/theme";
import { NO_GRAPH } from "./layout/data";
import { Kernel } from "./kernel/kernel";
import type { Mounted, Snapshot } from "./kernel/model";
import { ROW } from "./search/questions";
import { Connection } from "./shell/connection";
import { headerEnd } from "./shell/header";
import { lowerEdge } from "./shell/height";
import { Help, type Keys, SHARED_KEYS } from "./shell/help";
import { listenToKeys } from "./shell/keys";
import { newTabButton } from "./shell/new-tab";
import { Notice } from "./shell/problems";
import { storeSearch } from "./shell/store-search";
import { Tabs } from "./shell/tabs";
import type { Search } from "./search/search";
import { Panes } from "./stages/panes";
import { PassesTab } from "./stages/passes";
import { StageGraph } from "./stages/stage-graph";
import { TransformsTab } from "./stages/transforms";
import { Store } from "./store/store";

/** Defaults for the parts of a snapshot that only the workbench has. */
const EXPLORER_DEFAULTS: Pick<
  Snapshot,
  "program" | "programs" | "shapes" | "graph" | "palette" | "source" | "can_undo" | "can_redo" | "undo_label" | "run"
> = {
  program: "",
  programs: [],
  shapes: {},
  graph: NO_GRAPH,
  palette: [],
  source: "",
  can_undo: false,
  can_redo: false,
  undo_label: "",
  run: {
    state: "none",
    epoch: 0,
    epochs: 0,
    step: 0,
    steps: 0,
    loss: null,
    accuracy: null,
    validation_loss: null,
    validation_accuracy: null,
    steps_per_s: null,
    left_s: null,
    learning_rate: null,
    learning_rate_is_relative: false,
    message: "",
    points: 0,
    is_current_model: true,
  },
};
const KEYS: Keys = [
  [
    "Everywhere",
    [
      ["Esc", "leave full screen; clear the selection"],
      ["↑ ↓", "on a divider or the lower edge: move it"],
    ],
  ],
  [
    "Graph and stages",
    [
      ["?", "show this card"],
      ["F or /", "search; Enter, Shift Enter: next, previous match"],
      ["E", "show the part with the focus in full screen, and back"],
    ],
  ],
  [
    "Graph",
    [
      ["↑ ↓", "previous, next node"],
      ["→ ←", "open, close or leave a node"],
      ["Shift → ←", "along an edge, forward or back; Shift ↑ ↓: other edge"],
      ["+ − 0", "zoom in, zoom out, show all"],
      ["Enter", "select; on a selected node: open, close"],
      ["Shift Enter", "add to the selection"],
      ["a d", "ancestors, descendants of the node"],
      ["p", "path between the two selected nodes"],
      ["t", "to its row in the table of costs"],
    ],
  ],
  ...SHARED_KEYS,
];

export function mountExplorer({ model, el }: Mounted): () => void {
  styleFor(el);
  const showFallback = hideFallback(el);
  const kernel = new Kernel(model);
  const read = (): Snapshot => ({ ...EXPLORER_DEFAULTS, ...(model.get("snapshot") as Snapshot) });
  const store = new Store(read(), kernel);
  const { costs, graph_stage: first } = store.snapshot;
  // Programs without a jaxpr, such as HLO text, have no analytic costs.
  store.panes = costs?.sources.analytic?.state === "unavailable" && first ? [first] : ["jaxpr", "stablehlo"];
  const root = h("div", {
    class: "mnb-root mnb-explorer",
    role: "region",
    "aria-label": `Program ${store.snapshot.name}`,
  });
  el.append(root);
  const tip = new Tip(root);
  const help = new Help(KEYS);
  const panes = new Panes(store, tip);
  const outcome = h("span", { class: "mnb-outcome", role: "status" });
  panes.root.firstElementChild!.append(outcome);
  const graph = new StageGraph(store, tip);
  const search = storeSearch(store, panes, graph.questions);
  const header = new Header(
    store,
    search,
    () => help.toggle(),
    newTabButton(model, store.snapshot.name),
    fullButton("the explorer", "all"),
  );
  const notice = new Notice(store);
  const cost = new CostTab(store, tip);
  const passes = new PassesTab(store);
  const transforms = store.snapshot.transforms ? new TransformsTab(store) : null;
  const tabs = new Tabs(
    store,
    [
      ...(transforms ? [{ name: "transforms", title: "Transforms", root: transforms.root }] : []),
      { name: "cost", title: "Cost", root: cost.root },
      { name: "passes", title: "Passes", root: passes.root, figure: () => passes.count },
    ],
    "Costs, passes, transforms",
    true,
  );
  // The others are closed at first: the graph and the stages then have room.
  tabs.restore(transforms ? "transforms" : "");
  graph.root.dataset["mnbFull"] = "the graph";
  graph.root.querySelector(".mnb-bar")?.append(fullButton("the graph", "graph"));
  const lower = h("div", { class: "mnb-explorer-rest" }, panes.root, tabs.root);
  const main = h("div", { class: "mnb-main" }, graph.root, lower);
  graph.root.after(divider("Height of the graph", main, graph.root, "--mnb-graph", store.memory));
  panes.root.after(divider("Height of the stages", lower, panes.root, "--mnb-panes", store.memory));
  const connection = new Connection(kernel, () => store.snapshot);
  const screen = new FullScreen(root, main);
  root.append(header.root, connection.root, notice.root, main, lowerEdge(root, store.memory), tip.root, help.root);
  root.addEventListener(ROW, (event) => cost.focusRow((event as CustomEvent<string>).detail) && event.preventDefault());
  const releaseKeyboard = listenToKeys(root, { store, header, panes, help, screen });
  const unfollowTheme = followTheme(root, () => cost.recolour());
  const paint = (): void => {
    root.dataset["mnbVersion"] = String(store.snapshot.version);
    header.update();
  };
  const onSnapshot = (): void => {
    kernel.receivedMessage();
    store.takeSnapshot(read());
    paint();
  };
  model.on("change:snapshot", onSnapshot);
  const leave = [
    store.on("passes", () => tabs.update()),
    store.on("tab", () => store.memory.set("tab", store.tab)),
    store.on("outcome", () => text(outcome, store.outcome)),
  ];
  paint();
  void kernel.send("hello", {});
  return () => {
    model.off("change:snapshot", onSnapshot);
    unfollowTheme();
    releaseKeyboard();
    for (const unsubscribe of leave) unsubscribe();
    for (const part of [graph, panes, header, cost, passes, transforms, tabs, notice, connection, screen])
      part?.destroy();
    tip.hide();
    kernel.destroy();
    root.remove();
    showFallback();
  };
}

/** The header: the program's name, backend and figures. */
class Header {
  readonly root: HTMLElement;
  private readonly name = h("b", { class: "mnb-model-name" });
  private readonly backend = h("span", { class: "mnb-backend" });
  private readonly figures = h("span", { class: "mnb-figures", role: "group", "aria-label": "Figures" });

  constructor(
    private readonly store: Store,
    readonly search: Search,
    showHelp: () => void,
    ...buttons: (HTMLElement | null)[]
  ) {
    this.root = h(
      "div",
      { class: "mnb-header", role: "group", "aria-label": "Program" },
      this.name,
      this.backend,
      this.figures,
      headerEnd(this.search, showHelp, ...buttons),
    );
  }

  destroy(): void {
    this.search.destroy();
  }

  update(): void {
    const { snapshot } = this.store;
    const { status, cost } = snapshot;
    const [flops, whole] = cost ? figureText(cost.total, "flops") : ["–", "unknown"];
    text(this.name, snapshot.name);
    attr(this.name, "title", snapshot.name);
    text(this.backend, snapshot.backend);
    // All figures are shown from the start, so that nothing moves when a value arrives.
    const figures: [string, string, string][] = [
      ["trace", seconds(status.trace_s), "Time to trace the program"],
      ["lower", seconds(status.lower_s), "Time to lower the program to StableHLO"],
      [
        "optimize",
        seconds(status.optimize_s),
        "Time for XLA's passes and memory planning, without code generation. Machine code is generated on demand.",
      ],
      [
        "compile",
        seconds(status.compile_s),
        "Time to compile the program, with code generation. The program is compiled on demand.",
      ],
      [FIGURE_TITLES.flops[0], flops, whole],
      ["FLOPs attributed", percent(status.attributed), ATTRIBUTED],
    ];
    if (this.figures.childElementCount === 0)
      this.figures.append(
        ...figures.map(([name]) =>
          h("span", { class: "mnb-figure-small", "data-mnb-status": name }, h("small", {}, name), h("span")),
        ),
      );
    figures.forEach(([, value, title], i) => {
      const element = this.figures.children[i]!;
      text(element.lastElementChild!, value);
      attr(element, "title", title);
    });
  }
}
