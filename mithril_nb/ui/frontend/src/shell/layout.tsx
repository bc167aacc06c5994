/** The layout of the workbench: presets, sizes, and the places of stages, palette and inspector by width. */

import type { Signal } from "@preact/signals";
import { Radios } from "../controls/choice";
import type { FullScreen } from "../controls/full-screen";
import { Splitter, lengthOf } from "../controls/split";
import { together } from "../dom/calls";
import { attr, h, keepScroll } from "../dom/dom";
import type { Panes } from "../stages/panes";
import type { Store } from "../store/store";

export type Preset = "build" | "read" | "cost" | "train" | "lecture";
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

export interface LayoutParts {
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

export class Layout {
  private readonly graphEdge: Splitter;
  private readonly stagesEdge: Splitter;
  private readonly reopen: HTMLButtonElement;
  private shape: Shape | null = null;
  /** True if the tab of the stages is shown again once the widget is narrower. */
  private hadStages = false;
  private isFitting = false;
  readonly destroy: () => void;

  constructor(
    private readonly store: Store,
    private readonly chosen: Signal<Preset>,
    private readonly parts: LayoutParts,
  ) {
    const { root, main, rest, graph } = parts;
    this.graphEdge = new Splitter({
      axis: "y",
      label: "Size of the graph",
      min: 0.15,
      max: 0.85,
      length: () => lengthOf(main, this.axis),
      get: () => this.graphShare,
      set: (share) => this.resize("graph", share),
    });
    this.stagesEdge = new Splitter({
      axis: "y",
      label: "Size of the stages",
      min: 0.15,
      max: 0.85,
      length: () => lengthOf(rest, "y"),
      get: () => this.stagesShare,
      set: (share) => this.resize("stages", share),
    });
    graph.after(this.graphEdge.root);
    rest.prepend(this.stagesEdge.root);
    this.reopen = h(
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
    graph.append(this.reopen);
    const watcher = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(() => this.fit());
    watcher?.observe(root);
    this.destroy = together(
      store.on("tab", () => this.followTab()),
      store.on("reveal", () => this.revealStages()),
      store.on("layout", () => this.turnInspector()),
      store.on("links", () => this.paintInspector()),
      store.on("snapshot", () => this.paintInspector()),
      () => watcher?.disconnect(),
    );
    this.fit();
  }

  /** Apply a preset. If it hides the focused part, the focus moves to the main part of the preset. */
  choose(preset: Preset): void {
    const focused = this.focused;
    this.arrange(preset);
    this.store.memory.set("preset", preset);
    this.parts.screen.leave();
    const { tab } = PLANS[preset];
    this.hadStages = this.isWide && tab === STAGES;
    if (!this.hadStages) this.store.showTab(tab);
    this.parts.panes.reveal();
    if (focused?.closest("[hidden]")) this.focusMain();
  }

  /**
   * Bring the palette into view: leave the full screen of another part, or choose Build if the preset has no palette.
   */
  revealPalette(): void {
    const { graph, screen } = this.parts;
    if (graph.hasAttribute("data-mnb-away")) screen.leave();
    if (graph.hidden || this.preset === "lecture") this.choose("build");
  }

  toggleInspector(): boolean {
    if (this.preset === "lecture") return false;
    this.store.showInspector(!this.store.hasInspector);
    return true;
  }

  private get preset(): Preset {
    return this.chosen.value;
  }

  private get isWide(): boolean {
    return this.shape === "wide";
  }

  private get axis(): "x" | "y" {
    return this.isWide ? "x" : "y";
  }

  private get focused(): Element | null {
    const { activeElement } = this.parts.root.getRootNode() as Document | ShadowRoot;
    return this.parts.root.contains(activeElement) ? activeElement : null;
  }

  private get graphShare(): number {
    const shape = this.shape ?? "column";
    return this.store.memory.get(`${this.preset} graph ${shape}`, PLANS[this.preset].graph?.[shape] ?? 0.5);
  }

  private get stagesShare(): number {
    return this.store.memory.get(`${this.preset} stages ${this.shape ?? "column"}`, 0.6);
  }

  private resize(part: string, share: number): void {
    this.store.memory.set(`${this.preset} ${part} ${this.shape ?? "column"}`, share);
    this.paintSizes();
  }

  private paintSizes(): void {
    this.parts.main.style.setProperty("--mnb-graph", `${(this.graphShare * 100).toFixed(2)}%`);
    this.parts.rest.style.setProperty("--mnb-stages", `${(this.stagesShare * 100).toFixed(2)}%`);
  }

  /** Follow the width of the widget; a hidden widget has none. */
  private fit(): void {
    const width = this.parts.root.clientWidth;
    const shape = width >= WIDE_PX ? "wide" : width > 0 && width < STACKED_PX ? "stacked" : "column";
    if (shape === this.shape || (width === 0 && this.shape !== null) || this.parts.screen.hasPart) return;
    const wasWide = this.isWide;
    this.shape = shape;
    this.store.isNarrow = shape === "stacked";
    this.arrange(this.preset);
    this.isFitting = true;
    if (this.isWide && this.store.tab === STAGES) {
      this.hadStages = true;
      this.store.showTab("cost");
    } else if (wasWide && this.hadStages) {
      this.hadStages = false;
      this.store.showTab(STAGES);
    }
    this.isFitting = false;
  }

  private arrange(preset: Preset): void {
    const { root, graph, rest, panes, tabs, stagesPanel, screen } = this.parts;
    const { isWide } = this;
    const plan = PLANS[preset];
    this.chosen.value = preset;
    attr(root, "data-mnb-layout", preset);
    attr(root, "data-mnb-room", this.shape);
    const home = isWide ? rest : stagesPanel;
    if (panes.root.parentElement !== home) keepScroll(panes.root, () => home.prepend(panes.root));
    panes.turn(this.shape === "stacked" ? "y" : "x");
    graph.hidden = plan.graph === null;
    panes.root.hidden = isWide && plan.beside === "tabs";
    tabs.hidden = isWide && plan.beside === "stages";
    this.store.hasStagesBeside = isWide;
    this.graphEdge.root.hidden = graph.hidden;
    this.stagesEdge.root.hidden = !isWide || plan.beside !== "both";
    this.graphEdge.turn(this.axis);
    this.paintSizes();
    this.paintInspector();
    screen.update();
  }

  /** Remember the tab; if the tabs are hidden, another part has opened one, such as Problems, so show them. */
  private followTab(): void {
    if (this.isFitting) return;
    this.store.memory.set("tab", this.store.tab);
    this.hadStages = false;
    if (this.parts.tabs.hidden) this.arrange("build");
  }

  private revealStages(): void {
    if (this.isWide && this.parts.panes.root.hidden) this.arrange("build");
    else if (!this.isWide && this.store.tab !== STAGES) this.store.showTab(STAGES);
  }

  private paintInspector(): void {
    const isOpen = this.store.hasInspector;
    const isOff = this.preset === "lecture" || (!this.isWide && this.store.selection.length === 0);
    this.parts.inspector.hidden = isOff || !isOpen;
    this.reopen.hidden = isOff || isOpen;
  }

  /** Show or hide the inspector, and keep the focus beside it. */
  private turnInspector(): void {
    const { inspector } = this.parts;
    const { focused } = this;
    const isBeside = focused !== null && (focused === this.reopen || inspector.contains(focused));
    this.paintInspector();
    if (isBeside)
      (this.reopen.hidden
        ? inspector.querySelector<HTMLElement>('[data-mnb-action="inspector.hide"]')
        : this.reopen
      )?.focus();
  }

  private focusMain(): void {
    const { graph, panes, tabs } = this.parts;
    const [part, stop] = graph.hidden
      ? this.store.tab === STAGES || tabs.hidden
        ? [panes.root, ".cm-content"]
        : [tabs, '[role="tab"][tabindex="0"]']
      : [graph, '[role="tree"] [tabindex="0"]'];
    (part as HTMLElement).querySelector<HTMLElement>(stop as string)?.focus();
  }
}
