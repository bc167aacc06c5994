/** Builds the workbench inside one element. */

import type { PassRow } from "./kernel/contract";
import { signal } from "@preact/signals";
import { createFullScreen, FullButton } from "./controls/full-screen";
import { createTip } from "./controls/tip";
import { CostTab } from "./costs/tab";
import { h } from "./dom/dom";
import { holdKeyboard } from "./dom/focus";
import { hideFallback } from "./dom/static-fallback";
import { styleFor } from "./dom/styles";
import { Holder, mount } from "./dom/view";
import { createCanvas } from "./editor/canvas";
import { Inspector } from "./editor/inspector";
import { Palette } from "./editor/palette";
import { Kernel } from "./kernel/kernel";
import type { Mounted, Snapshot, WidgetModel } from "./kernel/model";
import { connect } from "./shell/connect";
import { Connection } from "./shell/connection";
import { MissingCompiler } from "./shell/device";
import { Header } from "./shell/header";
import { lowerEdge } from "./shell/height";
import { Help, WORKBENCH_KEYS } from "./shell/help";
import { createLayout, Presets, rememberedPreset } from "./shell/layout";
import { NewTabButton } from "./shell/new-tab";
import { Notice, ProblemsTab } from "./shell/problems";
import { Restore } from "./shell/restore";
import { SourceTab } from "./shell/source";
import { Status } from "./shell/status";
import { storeSearch } from "./shell/store-search";
import { type Tab, Tabs, restoreTab } from "./shell/tabs";
import { createPanes } from "./stages/panes";
import { PassesTab } from "./stages/passes";
import { followAddress } from "./store/address";
import { Store } from "./store/store";
import { feedCurves } from "./train/curves";
import { Train } from "./train/train";

function hasContent(snapshot: unknown): snapshot is Snapshot {
  return typeof snapshot === "object" && snapshot !== null && "graph" in snapshot;
}

/** Mount a workbench and return its cleanup function. Until the first snapshot arrives, a waiting line is shown. */
export function mountWorkbench({ model, el }: Mounted): () => void {
  styleFor(el);
  let cleanup: (() => void) | null = null;
  const showFallback = hideFallback(el);
  const waiting = h("div", { class: "mnb-root mnb-waiting" }, "Waiting for the kernel to send the model…");
  const releaseKeyboard = holdKeyboard(waiting);
  const start = () => {
    const snapshot = model.get("snapshot");
    if (cleanup || !hasContent(snapshot)) return;
    waiting.remove();
    model.off("change:snapshot", start);
    cleanup = build(model, el, snapshot);
  };
  el.append(waiting);
  model.on("change:snapshot", start);
  start();
  return () => {
    model.off("change:snapshot", start);
    waiting.remove();
    releaseKeyboard();
    cleanup?.();
    showFallback();
  };
}

function build(model: WidgetModel, el: HTMLElement, first: Snapshot) {
  const kernel = new Kernel(model);
  const store = new Store(first, kernel);
  const root = h("div", {
    class: "mnb-root mnb-workbench",
    role: "region",
    "aria-label": `Workbench of ${first.name}`,
  });
  el.append(root);
  const tip = createTip(root);
  const help = signal(false);
  const canvas = createCanvas(store, tip);
  const panes = createPanes(store, tip, true);
  const search = storeSearch(store, panes, canvas.questions);
  const rows = signal<PassRow[]>([]);
  const passes = mount(<PassesTab store={store} rows={rows} />);
  const feed = feedCurves(kernel, () => store.snapshot.run.points);
  const [preset, usual] = rememberedPreset(store);
  const chosen = signal(preset);
  const train = mount(
    <Train
      kernel={kernel}
      curves={feed.curves}
      run={() => store.snapshot.run}
      canStart={true}
      loss={() => store.snapshot}
    />,
  );
  const cost = mount(<CostTab store={store} tip={tip} />);
  const source = mount(<SourceTab store={store} />);
  const problems = mount(<ProblemsTab store={store} />);
  const stages = h("div", { class: "mnb-stages-panel" });
  const list: Tab[] = [
    { name: "stages", title: "Stages", root: stages, isAway: () => store.hasStagesBeside },
    { name: "cost", title: "Cost", root: cost.root },
    { name: "passes", title: "Passes", root: passes.root, figure: () => String(rows.value.length || "") },
    {
      name: "train",
      title: "Train",
      root: train.root,
      figure: () => (store.snapshot.run.state === "running" && !kernel.isGone ? "running" : ""),
    },
    { name: "source", title: "Source", root: source.root },
    {
      name: "problems",
      title: "Problems",
      root: problems.root,
      figure: () => String(store.snapshot.problems.length || ""),
    },
  ];
  restoreTab(store, list, usual);
  const tabs = mount(<Tabs store={store} tabs={list} />);
  const palette = mount(<Palette store={store} canvas={canvas} />);
  const inspector = mount(<Inspector store={store} />);
  const graph = h(
    "div",
    { class: "mnb-graph-area", "data-mnb-full": "the graph" },
    canvas.root, // first: it has the focus if what had it above disappears
    palette.root,
    inspector.root,
  );
  const rest = h("div", { class: "mnb-rest" }, tabs.root);
  const main = h("div", { class: "mnb-main" }, graph, rest);
  const shell = [
    mount(
      <Header
        store={store}
        presets={<Presets preset={chosen} choose={(preset) => layout.choose(preset)} />}
        showHelp={() => void (help.value = !help.value)}
      >
        <Holder class="mnb-held" nodes={[search.root]} />
        <NewTabButton model={model} name={first.name} />
        <FullButton label="the workbench" action="all" />
      </Header>,
    ),
    mount(<MissingCompiler store={store} />),
    mount(<Connection kernel={kernel} work={() => store.snapshot} />),
    mount(<Restore store={store} />),
    mount(<Notice store={store} />),
    { root: main },
    mount(<Status store={store} />),
    { root: lowerEdge(root, store.memory) },
    tip,
    mount(<Help keys={WORKBENCH_KEYS} isOpen={help} />),
  ];
  root.append(...shell.map((part) => part.root));
  const screen = createFullScreen(root, main);
  const layout = createLayout(store, chosen, {
    root,
    main,
    graph,
    tools: canvas.tools,
    inspector: inspector.root,
    rest,
    panes,
    tabs: tabs.root,
    stagesPanel: stages,
    screen,
  });
  root.addEventListener("mnb-focus-palette", () => {
    layout.revealPalette();
    palette.root.querySelector("input")!.focus();
  });
  feed.check();
  const read = () => {
    const snapshot = model.get("snapshot");
    return hasContent(snapshot) ? snapshot : null;
  };
  const targets = { store, search, panes, train: train.root, help, canvas, layout, screen };
  const tabPanels = [passes, train, cost, source, problems];
  const parts = [canvas, panes, search, ...tabPanels, tabs, palette, inspector, layout, screen, ...shell];
  return connect({ model, root, cost: cost.root, targets, read, parts }, [
    store.on("snapshot", feed.check),
    kernel.on("run", ({ run }) => store.takeRun(run)),
    followAddress(root, store),
    feed.stop,
  ]);
}
