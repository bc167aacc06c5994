/** The layout of the workbench: presets, sizes, and the places of stages, palette and inspector by width. */

import { watchSize } from "../dom/events";
import type { Signal } from "@preact/signals";
import { Radios } from "../controls/choice";
import { type FullScreen, fullButton } from "../controls/full-screen";
import { createSplitter, lengthOf } from "../controls/split";
import { together } from "../dom/calls";
import { attr, focusedAt, h, keepScroll } from "../dom/dom";
import type { Panes } from "../stages/panes";
import type { Store } from "../store/store";

type Preset = "build" | "read" | "cost" | "train" | "lecture";
/** By width: "stacked" has stages below each other, "wide" has the stages and tabs beside the graph. */
type Shape = "stacked" | "column" | "wide";

interface Arrangement {
  title: string;
  hint: string;
  /** The selected tab. */
  tab: string;
  /** Share of the graph; null hides it. */
  graph: Record<Shape, number> | null;
  /** The parts beside the graph in wide widgets; otherwise all of them are tabs below it. */
  beside: "stages" | "tabs" | "none";
}

const PLANS: Record<Preset, Arrangement> = {
  build: {
    title: "Build",
    hint: "Graph between palette and inspector; stages and tabs below it",
    tab: "stages",
    graph: { stacked: 0.45, column: 0.6, wide: 0.6 },
    beside: "none",
  },
  read: { title: "Read", hint: "Stages at full width", tab: "stages", graph: null, beside: "stages" },
  cost: {
    title: "Cost",
    hint: "Costs below the graph",
    tab: "cost",
    graph: { stacked: 0.35, column: 0.4, wide: 0.5 },
    beside: "tabs",
  },
  train: { title: "Train", hint: "Training at full width", tab: "train", graph: null, beside: "tabs" },
  lecture: {
    title: "Lecture",
    hint: "Large, high contrast",
    tab: "stages",
    graph: { stacked: 0.28, column: 0.28, wide: 0.4 },
    beside: "stages",
  },
};
const PRESETS = Object.keys(PLANS) as Preset[];

/** Return the remembered preset, and the tab that it selects. */
export function rememberedPreset({ memory }: Store): [preset: Preset, tab: string] {
  const name = memory.get<string>("preset", "build");
  const preset = PRESETS.find((known) => known === name) ?? "build";
  return [preset, PLANS[preset].tab];
}

export const PRESET_OF_KEY: Readonly<Record<string, Preset>> = Object.fromEntries(
  PRESETS.map((preset, i) => [String(i + 1), preset]),
);

const STACKED_PX = 712;
/** From this width on, the palette is beside the graph. */
const DOCKED_PX = 900;
const WIDE_PX = 1800;

/** The tab of the stages. */
const STAGES = "stages";

/** The buttons of the presets. */
export function Presets({ preset, choose }: { preset: Signal<Preset>; choose: (preset: Preset) => void }) {
  const choices = PRESETS.map((value, i) => ({
    value,
    title: PLANS[value].title,
    hint: `${PLANS[value].hint} (${i + 1})`,
  }));
  return <Radios label="Layout" action="layout" choices={choices} value={preset.value} pick={choose} />;
}

interface LayoutParts {
  root: HTMLElement;
  main: HTMLElement;
  /** The graph with palette and inspector. */
  graph: HTMLElement;
  /** The toolbar of the graph. */
  tools: HTMLElement;
  inspector: HTMLElement;
  /** The part beside or below the graph. */
  rest: HTMLElement;
  panes: Panes;
  tabs: HTMLElement;
  /** The tab panel of the stages, which is empty in wide widgets. */
  stagesPanel: HTMLElement;
  screen: FullScreen;
}

export function createLayout(store: Store, chosen: Signal<Preset>, parts: LayoutParts) {
  let room: Shape | null = null;
  /** True if the tab of the stages is shown again once the widget is narrower. */
  let hadStages = false;
  let isFitting = false;
  const { root, main, graph, tools, inspector, rest, panes, tabs, stagesPanel, screen } = parts;
  const graphEdge = createSplitter({
    axis: "y",
    label: "Size of the graph",
    min: 0.15,
    max: 0.85,
    length: () => lengthOf(main, axis()),
    get: graphShare,
    set: resize,
  });
  graph.after(graphEdge.root);
  const reopen = h(
    "button",
    {
      type: "button",
      class: "mnb-button",
      title: "Show the inspector (I)",
      "data-mnb-action": "inspector.show",
      onclick: () => store.showInspector(true),
    },
    "Inspector",
  );
  tools.append(reopen, fullButton("the graph", "graph"));
  const destroy = together(
    store.on("tab", followTab),
    store.on("reveal", revealStages),
    store.on("layout", turnInspector),
    store.on("snapshot", paintTabs),
    store.on("panes", paintTabs),
    watchSize(root, fit),
  );
  fit();

  /** Apply a preset. If it hides the focused part, the focus moves to the main part of the preset. */
  function choose(preset: Preset) {
    const focused = focusedPart();
    arrange(preset);
    store.memory.set("preset", preset);
    screen.leave();
    const { tab } = PLANS[preset];
    hadStages = isBeside() && tab === STAGES;
    if (!hadStages) store.showTab(tab);
    panes.reveal();
    if (focused?.closest("[hidden]")) focusMain();
  }

  /**
   * Bring the palette into view: leave the full screen of another part, or choose Build if the preset has no palette.
   */
  function revealPalette() {
    if (graph.hasAttribute("data-mnb-away")) screen.leave();
    if (graph.hidden || chosen.value === "lecture") choose("build");
  }

  function toggleInspector() {
    if (chosen.value === "lecture") return false;
    store.showInspector(!store.hasInspector);
    return true;
  }

  /** Return whether stages or tabs are beside the graph, and not below it. */
  function isBeside() {
    return room === "wide" && PLANS[chosen.value].beside !== "none";
  }

  function axis() {
    return isBeside() ? "x" : "y";
  }

  function focusedPart() {
    const focused = focusedAt(root);
    return root.contains(focused) ? focused : null;
  }

  function graphShare() {
    const shape = room ?? "column";
    return store.memory.get(`${chosen.value} graph ${shape}`, PLANS[chosen.value].graph?.[shape] ?? 0.5);
  }

  function resize(share: number) {
    store.memory.set(`${chosen.value} graph ${room ?? "column"}`, share);
    paintSizes();
  }

  function paintSizes() {
    main.style.setProperty("--mnb-graph", `${(graphShare() * 100).toFixed(2)}%`);
  }

  /** Follow the width of the widget; a hidden widget has none. */
  function fit() {
    const width = root.clientWidth;
    if (width > 0) attr(root, "data-mnb-docked", width >= DOCKED_PX ? "" : null);
    const shape = width >= WIDE_PX ? "wide" : width > 0 && width < STACKED_PX ? "stacked" : "column";
    if (shape === room || (width === 0 && room !== null) || screen.hasPart) return;
    const wasBeside = isBeside();
    room = shape;
    store.isNarrow = shape === "stacked";
    arrange(chosen.value);
    isFitting = true;
    if (isBeside() && store.tab === STAGES) {
      hadStages = true;
      store.showTab("cost");
    } else if (wasBeside && hadStages) {
      hadStages = false;
      store.showTab(STAGES);
    }
    isFitting = false;
  }

  function arrange(preset: Preset) {
    const plan = PLANS[preset];
    chosen.value = preset;
    attr(root, "data-mnb-layout", preset);
    attr(root, "data-mnb-room", room);
    attr(root, "data-mnb-beside", isBeside() ? "" : null);
    const home = isBeside() ? rest : stagesPanel;
    if (panes.root.parentElement !== home) keepScroll(panes.root, () => home.prepend(panes.root));
    panes.turn(room === "stacked" ? "y" : "x");
    graph.hidden = plan.graph === null;
    panes.root.hidden = isBeside() && plan.beside === "tabs";
    tabs.hidden = isBeside() && plan.beside === "stages";
    store.hasStagesBeside = isBeside();
    graphEdge.turn(axis());
    paintSizes();
    paintInspector();
    paintTabs();
    screen.update();
  }

  /**
   * In Build, the tab of the stages is closed while the compiler has nothing to show, and colours are families, unless
   * the costs are open, whose pictures tell blocks apart.
   */
  function paintTabs() {
    const isBuild = chosen.value === "build";
    const { stages } = store.snapshot;
    const isEmpty = store.panes.every((pane) => stages[pane]?.state === "empty" && stages[pane].message);
    const isClosed = isBuild && isEmpty && store.tab === STAGES;
    attr(root, "data-mnb-closed", isClosed ? "" : null);
    graphEdge.root.hidden = graph.hidden || isClosed;
    store.colourBy(isBuild && store.tab !== "cost");
  }

  /** Remember the tab; if the tabs are hidden, another part has opened one, such as Problems, so show them. */
  function followTab() {
    paintTabs();
    if (isFitting) return;
    store.memory.set("tab", store.tab);
    hadStages = false;
    if (tabs.hidden) arrange("build");
  }

  function revealStages() {
    if (isBeside() && panes.root.hidden) arrange("build");
    if (!isBeside() && store.tab !== STAGES) store.showTab(STAGES);
  }

  function paintInspector() {
    const isOpen = store.hasInspector;
    const isOff = chosen.value === "lecture";
    inspector.hidden = isOff || !isOpen;
    reopen.hidden = isOff || isOpen;
  }

  /** Show or hide the inspector, and keep the focus beside it. */
  function turnInspector() {
    const focused = focusedPart();
    const isBeside = focused !== null && (focused === reopen || inspector.contains(focused));
    paintInspector();
    if (isBeside)
      (reopen.hidden ? inspector.querySelector<HTMLElement>('[data-mnb-action="inspector.hide"]') : reopen)?.focus();
  }

  function focusMain() {
    const [part, stop] = graph.hidden
      ? store.tab === STAGES || tabs.hidden
        ? [panes.root, ".cm-content"]
        : [tabs, '[role="tab"][tabindex="0"]']
      : [graph, '[role="tree"] [tabindex="0"]'];
    (part as HTMLElement).querySelector<HTMLElement>(stop as string)?.focus();
  }

  return { destroy, choose, revealPalette, toggleInspector };
}

export type Layout = ReturnType<typeof createLayout>;
