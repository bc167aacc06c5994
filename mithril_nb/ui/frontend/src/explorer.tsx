/** Builds the explorer inside one element: a program's graph, stages, costs, passes and transforms. */

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { createFullScreen, FullButton, fullButton } from "./controls/full-screen";
import { divider } from "./controls/split";
import { createTip } from "./controls/tip";
import { ATTRIBUTED, FIGURE_TITLES, figureText } from "./costs/figures";
import { CostTab } from "./costs/tab";
import { attr, h } from "./dom/dom";
import { percent, seconds } from "./dom/format";
import { hideFallback } from "./dom/static-fallback";
import { styleFor } from "./dom/styles";
import { Holder, mount } from "./dom/view";
import type { PassRow, WorkbenchSnapshot } from "./kernel/contract";
import { Kernel } from "./kernel/kernel";
import type { Mounted, Snapshot } from "./kernel/model";
import { NO_GRAPH } from "./layout/data";
import { connect } from "./shell/connect";
import { Connection } from "./shell/connection";
import { DeviceMenu, MissingCompiler } from "./shell/device";
import { HeaderEnd } from "./shell/header";
import { lowerEdge } from "./shell/height";
import { Help, type Keys, SHARED_KEYS } from "./shell/help";
import { NewTabButton } from "./shell/new-tab";
import { Notice } from "./shell/problems";
import { storeSearch } from "./shell/store-search";
import { type Tab, Tabs, restoreTab } from "./shell/tabs";
import { createLecture } from "./stages/lecture";
import { createPanes } from "./stages/panes";
import { PassesTab } from "./stages/passes";
import { createStageGraph } from "./stages/stage-graph";
import { TransformsTab } from "./stages/transforms";
import { Store } from "./store/store";
import { NO_RUN } from "./train/train";

/** Defaults for the parts of a snapshot that only the workbench has. */
const EXPLORER_DEFAULTS: Partial<WorkbenchSnapshot> = {
  program: "",
  programs: [],
  shapes: {},
  graph: NO_GRAPH,
  kinds: {},
  palette: [],
  costs: { sources: {}, what_if: { state: "empty", message: "", version: 0, problem: null, settings: null } },
  source: "",
  can_undo: false,
  can_redo: false,
  undo_label: "",
  run: NO_RUN,
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
      ["5", "Lecture"],
    ],
  ],
  [
    "Lecture",
    [
      [". ,", "next, previous moment of the tour; also Page Down, Page Up"],
      ["s", "spotlight the selected block; again: end"],
      ["h", "hide the second stage, reveal it"],
      ["[ ]", "previous, next linked line"],
    ],
  ],
  [
    "Graph",
    [
      ["↑ ↓", "previous, next node"],
      ["→ ←", "open, close or leave a node"],
      ["Shift → ←", "along an edge, forward or back; Shift ↑ ↓: other edge"],
      ["+ − 0 z", "zoom in, zoom out, show all, zoom to the selection"],
      ["Enter", "select; on a selected node: open, close"],
      ["Shift Enter", "add to the selection"],
      ["a d", "ancestors, descendants of the node"],
      ["p", "path between the two selected nodes"],
      ["t", "to its row in the table of costs"],
    ],
  ],
  ...SHARED_KEYS,
];

/** The header: the program's name, backend and figures. */
function Header({ store, showHelp, children }: { store: Store; showHelp: () => void; children: ComponentChildren }) {
  const { name, backend, status, cost } = store.snapshot;
  const [flops, exact] = cost ? figureText(cost.total, "flops") : ["–", "unknown"];
  // All figures are shown from the start, so that nothing moves when a value arrives.
  const figures = [
    ["trace", seconds(status.trace_s), "Time to trace the program"],
    ["lower", seconds(status.lower_s), "Time to lower the program to StableHLO"],
    [
      "optimize",
      seconds(status.optimize_s),
      "Time for XLA's passes and memory planning. Machine code is generated on demand.",
    ],
    ["compile", seconds(status.compile_s), "Time to compile with code generation, on demand."],
    [FIGURE_TITLES.flops[0], flops, exact],
    ["FLOPs attributed", percent(status.attributed), ATTRIBUTED],
  ] as const;
  return (
    <div class="mnb-header" role="group" aria-label="Program">
      <b class="mnb-model-name" title={name}>
        {name}
      </b>
      <span class="mnb-backend">{backend}</span>
      <DeviceMenu store={store} />
      <span class="mnb-figures" role="group" aria-label="Figures">
        {figures.map(([title, value, hint]) => (
          <span key={title} class="mnb-figure-small" data-mnb-status={title} title={hint}>
            <small>{title}</small>
            <span>{value}</span>
          </span>
        ))}
      </span>
      <HeaderEnd showHelp={showHelp}>{children}</HeaderEnd>
    </div>
  );
}

/** The result of the last command. */
function Outcome({ store }: { store: Store }) {
  return (
    <span class="mnb-outcome" role="status">
      {store.outcome}
    </span>
  );
}

export function mountExplorer({ model, el }: Mounted): () => void {
  styleFor(el);
  const showFallback = hideFallback(el);
  const kernel = new Kernel(model);
  const read = (): Snapshot => ({ ...EXPLORER_DEFAULTS, ...(model.get("snapshot") as Snapshot) });
  const store = new Store(read(), kernel);
  const { costs, graph_stage: first, name } = store.snapshot;
  // Programs without a jaxpr, such as HLO text, have no analytic costs.
  store.panes = costs.sources.analytic?.state === "unavailable" && first ? [first] : ["jaxpr", "stablehlo"];
  const root = h("div", { class: "mnb-root mnb-explorer", role: "region", "aria-label": `Program ${name}` });
  el.append(root);
  const tip = createTip(root);
  const help = signal(false);
  const panes = createPanes(store, tip);
  const outcome = mount(<Outcome store={store} />);
  panes.root.firstElementChild!.append(outcome.root);
  const graph = createStageGraph(store, tip);
  const { tour = [] } = store.snapshot;
  const lecture = createLecture({
    root,
    moments: tour,
    texts: () => store.texts,
    pins: () => store.pins,
    pin: (anchors) => store.pin(anchors),
    showStages: (stages) => store.showPanes(stages),
    walk: (direction) => (panes.focused() ?? panes.pane(store.panes[0]!))?.walk(direction),
    turn: (isOn) => attr(root, "data-mnb-layout", isOn ? "lecture" : null),
    dim: graph.questions.dim,
  });
  outcome.root.after(lecture.tools);
  panes.root.firstElementChild!.after(lecture.caption);
  root.addEventListener("keydown", lecture.key, true);
  const search = storeSearch(store, panes, graph.questions);
  const cost = mount(<CostTab store={store} tip={tip} />);
  const rows = signal<PassRow[]>([]);
  const passes = mount(<PassesTab store={store} rows={rows} />);
  const transforms = store.snapshot.transforms && mount(<TransformsTab store={store} />);
  const list: Tab[] = [
    ...(transforms ? [{ name: "transforms", title: "Transforms", root: transforms.root }] : []),
    { name: "cost", title: "Cost", root: cost.root },
    { name: "passes", title: "Passes", root: passes.root, figure: () => String(rows.value.length || "") },
  ];
  // The others are closed at first: the graph and the stages then have room.
  restoreTab(store, list, transforms ? "transforms" : "", true);
  const tabs = mount(<Tabs store={store} tabs={list} label="Costs, passes, transforms" canClose={true} />);
  graph.root.dataset["mnbFull"] = "the graph";
  graph.root.querySelector(".mnb-bar")?.append(fullButton("the graph", "graph"));
  const lower = h("div", { class: "mnb-explorer-rest" }, panes.root, tabs.root);
  const main = h("div", { class: "mnb-main" }, graph.root, lower);
  graph.root.after(divider("Height of the graph", main, graph.root, "--mnb-graph", store.memory));
  panes.root.after(divider("Height of the stages", lower, panes.root, "--mnb-panes", store.memory));
  const shell = [
    mount(
      <Header store={store} showHelp={() => void (help.value = !help.value)}>
        <Holder class="mnb-held" nodes={[search.root, lecture.toggle]} />
        <NewTabButton model={model} name={name} />
        <FullButton label="the explorer" action="all" />
      </Header>,
    ),
    mount(<MissingCompiler store={store} />),
    mount(<Connection kernel={kernel} work={() => store.snapshot} />),
    mount(<Notice store={store} />),
    { root: main },
    { root: lowerEdge(root, store.memory) },
    tip,
    mount(<Help keys={KEYS} isOpen={help} />),
  ];
  root.append(...shell.map((part) => part.root));
  const screen = createFullScreen(root, main);
  // The other presets are those of the workbench: their keys leave the lecture.
  const layout = { choose: (preset: string) => lecture.set(preset === "lecture" && !lecture.isOn) };
  if (tour.length) lecture.set(true);
  return connect(
    {
      model,
      root,
      cost: cost.root,
      targets: { store, search, panes, help, screen, layout },
      read,
      parts: [graph, panes, outcome, search, cost, passes, transforms, tabs, screen, ...shell],
    },
    [store.on("tab", () => store.memory.set("tab", store.tab)), store.on("links", lecture.follow), showFallback],
  );
}
