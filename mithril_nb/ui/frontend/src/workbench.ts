/** Builds the workbench inside one element. */

import { FullScreen, fullButton } from "./controls/full-screen";
import { Tip } from "./controls/tip";
import { CostTab } from "./costs/tab";
import { h } from "./dom/dom";
import { holdKeyboard } from "./dom/focus";
import { oncePerFrame } from "./dom/calls";
import { hideFallback } from "./dom/static-fallback";
import { styleFor } from "./dom/styles";
import { followTheme } from "./dom/theme";
import { Canvas } from "./editor/canvas";
import { Inspector } from "./editor/inspector";
import { Palette } from "./editor/palette";
import { Kernel } from "./kernel/kernel";
import type { Mounted, Snapshot, WidgetModel } from "./kernel/model";
import { ROW } from "./search/questions";
import { Connection } from "./shell/connection";
import { Header } from "./shell/header";
import { lowerEdge } from "./shell/height";
import { Help } from "./shell/help";
import { listenToKeys } from "./shell/keys";
import { Layout, presetButtons } from "./shell/layout";
import { newTabButton } from "./shell/new-tab";
import { Notice, ProblemsTab } from "./shell/problems";
import { Restore } from "./shell/restore";
import { SourceTab } from "./shell/source";
import { storeSearch } from "./shell/store-search";
import { Status } from "./shell/status";
import { Tabs } from "./shell/tabs";
import { Panes } from "./stages/panes";
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
  const start = (): void => {
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

function build(model: WidgetModel, el: HTMLElement, first: Snapshot): () => void {
  const kernel = new Kernel(model);
  const store = new Store(first, kernel);
  const root = h("div", {
    class: "mnb-root mnb-workbench",
    role: "region",
    "aria-label": `Workbench of ${first.name}`,
  });
  el.append(root);
  const tip = new Tip(root);
  const help = new Help();
  const canvas = new Canvas(store, tip);
  const palette = new Palette(store, canvas);
  const panes = new Panes(store, tip, true);
  const presets = presetButtons((preset) => layout.choose(preset));
  const search = storeSearch(store, panes, canvas.questions);
  const header = new Header(
    store,
    search,
    () => help.toggle(),
    presets.root,
    newTabButton(model, first.name),
    fullButton("the workbench", "all"),
  );
  const inspector = new Inspector(store);
  canvas.keepClearOf(inspector.root);
  const cost = new CostTab(store, tip);
  const passes = new PassesTab(store);
  const source = new SourceTab(store);
  const problems = new ProblemsTab(store);
  const feed = feedCurves(kernel, () => store.snapshot.run.points);
  const train = new Train({
    kernel,
    curves: feed.curves,
    run: () => store.snapshot.run,
    canStart: true,
    loss: () => store.snapshot,
  });
  const stagesPanel = h("div", { class: "mnb-stages-panel" });
  const tabs = new Tabs(store, [
    { name: "stages", title: "Stages", root: stagesPanel, isAway: () => !stagesPanel.contains(panes.root) },
    { name: "cost", title: "Cost", root: cost.root },
    { name: "passes", title: "Passes", root: passes.root, figure: () => passes.count },
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
      figure: () => (store.snapshot.problems.length ? String(store.snapshot.problems.length) : ""),
    },
  ]);
  const status = new Status(store);
  const notice = new Notice(store);
  const connection = new Connection(
    kernel,
    () => store.snapshot,
    () => store.emit("snapshot"),
  );
  const restore = new Restore(store);
  const graph = h(
    "div",
    { class: "mnb-graph-area", "data-mnb-full": "the graph" },
    canvas.root,
    palette.root,
    inspector.root,
    fullButton("the graph", "graph"),
  );
  const rest = h("div", { class: "mnb-rest" }, tabs.root);
  const main = h("div", { class: "mnb-main" }, graph, rest);
  const screen = new FullScreen(root, main);
  const layout = new Layout(store, presets, {
    root,
    main,
    graph,
    inspector: inspector.root,
    rest,
    panes,
    tabs,
    stagesPanel,
    screen,
  });
  root.append(
    header.root,
    connection.root,
    restore.root,
    notice.root,
    main,
    status.root,
    lowerEdge(root, store.memory),
    tip.root,
    help.root,
  );
  root.addEventListener("mnb-focus-palette", () => {
    layout.revealPalette();
    palette.input.focus();
  });
  root.addEventListener(ROW, (event) => cost.focusRow((event as CustomEvent<string>).detail) && event.preventDefault());
  const releaseKeyboard = listenToKeys(root, { store, header, panes, train, help, canvas, layout, screen });
  const unfollowTheme = followTheme(root, () => {
    train.recolour();
    cost.recolour();
  });

  const paintVersion = (): void => {
    root.dataset["mnbVersion"] = String(store.snapshot.version);
    feed.check();
    train.update();
  };
  const onSnapshot = (): void => {
    const snapshot = model.get("snapshot");
    if (!hasContent(snapshot)) return;
    kernel.receivedMessage();
    store.takeSnapshot(snapshot);
    paintVersion();
  };
  model.on("change:snapshot", onSnapshot);
  const unsubscribeKernel = [
    store.on("passes", () => tabs.update()),
    kernel.watch(() => {
      train.update();
      tabs.update();
    }),
    kernel.on("run", (message) => store.takeRun(message.run)),
    store.on(
      "run",
      oncePerFrame(() => {
        train.update();
        tabs.update();
      }),
    ),
  ];
  paintVersion();
  void kernel.send("hello", {});
  const unfollowAddress = followAddress(root, store);
  return () => {
    unfollowAddress();
    model.off("change:snapshot", onSnapshot);
    unfollowTheme();
    releaseKeyboard();
    feed.stop();
    for (const unsubscribe of unsubscribeKernel) unsubscribe();
    for (const part of [
      canvas,
      palette,
      panes,
      header,
      inspector,
      cost,
      passes,
      source,
      problems,
      train,
      tabs,
      status,
      notice,
      connection,
      restore,
      layout,
      screen,
    ])
      part.destroy();
    tip.hide();
    kernel.destroy();
    root.remove();
  };
}
