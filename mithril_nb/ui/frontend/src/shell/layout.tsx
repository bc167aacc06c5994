/** The layout of the workbench: presets, sizes, and the places of stages, palette and inspector by width. */

import { watchSize } from "../dom/events";
import type { Signal } from "@preact/signals";
import { Radios } from "../controls/choice";
import type { FullScreen } from "../controls/full-screen";
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
  /** The parts beside the graph in wide widgets; narrower ones have tabs for all of them. */
  beside: "stages" | "tabs" | "both";
}

const PLANS: Record<Preset, Arrangement> = {
  build: {
    title: "Build",
    hint: "Graph with palette and inspector; stages and tabs around it",
    tab: "stages",
    graph: { stacked: 0.45, column: 0.52, wide: 0.62 },
    beside: "both",
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
    hint: "Graph and stages 1.4 times as large, in high contrast, without palette and inspector",
    tab: "stages",
    graph: { stacked: 0.5, column: 0.55, wide: 0.5 },
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
  const { root, main, graph, inspector, rest, panes, tabs, stagesPanel, screen } = parts;
  const graphEdge = createSplitter({
    axis: "y",
    label: "Size of the graph",
    min: 0.15,
    max: 0.85,
    length: () => lengthOf(main, axis()),
    get: graphShare,
    set: (share) => resize("graph", share),
  });
  const stagesEdge = createSplitter({
    axis: "y",
    label: "Size of the stages",
    min: 0.15,
    max: 0.85,
    length: () => lengthOf(rest, "y"),
    get: stagesShare,
    set: (share) => resize("stages", share),
  });
  graph.after(graphEdge.root);
  rest.prepend(stagesEdge.root);
  const reopen = h(
    "button",
    {
      type: "button",
      class: "mnb-button mnb-inspector-reopen",
      title: "Show the inspector (I)",
      "data-mnb-action": "inspector.show",
      onclick: () => store.showInspector(true),
    },
    "Inspector",
  );
  graph.append(reopen);
  const destroy = together(
    store.on("tab", followTab),
    store.on("reveal", revealStages),
    store.on("layout", turnInspector),
    store.on("links", paintInspector),
    store.on("snapshot", paintInspector),
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
    hadStages = isWide() && tab === STAGES;
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

  function isWide() {
    return room === "wide";
  }

  function axis() {
    return isWide() ? "x" : "y";
  }

  function focusedPart() {
    const focused = focusedAt(root);
    return root.contains(focused) ? focused : null;
  }

  function graphShare() {
    const shape = room ?? "column";
    return store.memory.get(`${chosen.value} graph ${shape}`, PLANS[chosen.value].graph?.[shape] ?? 0.5);
  }

  function stagesShare(): number {
    return store.memory.get(`${chosen.value} stages ${room ?? "column"}`, 0.6);
  }

  function resize(part: string, share: number) {
    store.memory.set(`${chosen.value} ${part} ${room ?? "column"}`, share);
    paintSizes();
  }

  function paintSizes() {
    main.style.setProperty("--mnb-graph", `${(graphShare() * 100).toFixed(2)}%`);
    rest.style.setProperty("--mnb-stages", `${(stagesShare() * 100).toFixed(2)}%`);
  }

  /** Follow the width of the widget; a hidden widget has none. */
  function fit() {
    const width = root.clientWidth;
    const shape = width >= WIDE_PX ? "wide" : width > 0 && width < STACKED_PX ? "stacked" : "column";
    if (shape === room || (width === 0 && room !== null) || screen.hasPart) return;
    const wasWide = isWide();
    room = shape;
    store.isNarrow = shape === "stacked";
    arrange(chosen.value);
    isFitting = true;
    if (isWide() && store.tab === STAGES) {
      hadStages = true;
      store.showTab("cost");
    } else if (wasWide && hadStages) {
      hadStages = false;
      store.showTab(STAGES);
    }
    isFitting = false;
  }

  function arrange(preset: Preset) {
    const isBeside = isWide();
    const plan = PLANS[preset];
    chosen.value = preset;
    attr(root, "data-mnb-layout", preset);
    attr(root, "data-mnb-room", room);
    const home = isBeside ? rest : stagesPanel;
    if (panes.root.parentElement !== home) keepScroll(panes.root, () => home.prepend(panes.root));
    panes.turn(room === "stacked" ? "y" : "x");
    graph.hidden = plan.graph === null;
    panes.root.hidden = isBeside && plan.beside === "tabs";
    tabs.hidden = isBeside && plan.beside === "stages";
    store.hasStagesBeside = isBeside;
    graphEdge.root.hidden = graph.hidden;
    stagesEdge.root.hidden = !isBeside || plan.beside !== "both";
    graphEdge.turn(axis());
    paintSizes();
    paintInspector();
    paintColours();
    screen.update();
  }

  /** In Build, colours are families, unless the costs are open, whose pictures tell blocks apart. */
  function paintColours() {
    store.colourBy(chosen.value === "build" && (!!tabs.hidden || store.tab !== "cost"));
  }

  /** Remember the tab; if the tabs are hidden, another part has opened one, such as Problems, so show them. */
  function followTab() {
    paintColours();
    if (isFitting) return;
    store.memory.set("tab", store.tab);
    hadStages = false;
    if (tabs.hidden) arrange("build");
  }

  function revealStages() {
    if (isWide() && panes.root.hidden) arrange("build");
    else if (!isWide() && store.tab !== STAGES) store.showTab(STAGES);
  }

  function paintInspector() {
    const isOpen = store.hasInspector;
    const isOff = chosen.value === "lecture" || (!isWide() && store.selection.length === 0);
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
