/** The Cost tab: a bar to select view, sources and figure; below it a table, or a picture drawn by the kernel. */

import { Chips, Presses, Radios } from "../controls/choice";
import type { Tip } from "../controls/tip";
import { together } from "../dom/calls";
import { copyFrom } from "../dom/clipboard";
import { Clock } from "../dom/clock";
import { attr, h, iconButton, text } from "../dom/dom";
import { hostTheme } from "../dom/theme";
import type { CostTable, CostsInfo, Figure, Picture as Drawn, Source } from "../kernel/contract";
import type { CostView } from "../kernel/model";
import { lineage } from "../store/links";
import type { Store } from "../store/store";
import {
  FIGURES,
  FIGURE_TITLES,
  SOURCES,
  SOURCE_TITLES,
  VIEWS,
  VIEW_TITLES,
  inOrder,
  notesOf,
  shownSources,
  toCsv,
} from "./figures";
import { Picture } from "./picture";
import { TableView } from "./table";
import { WhatIf } from "./what-if";

const NO_COSTS: CostsInfo = {
  sources: {},
  what_if: { state: "empty", message: "", problem: null, settings: null, version: 0 },
};
const PROGRESS: Record<Source, string> = {
  analytic: "Tracing",
  lowered: "Lowering",
  compiled: "Compiling",
  measured: "Running the program",
};
/** Number of notes shown at first; the others can be expanded. */
const FIRST_NOTES = 2;
/** Picture widths are multiples of this, so that dragging a divider does not request hundreds of pictures. */
const STEP_PX = 80;

export class CostTab {
  readonly root: HTMLElement;
  private readonly requested = new Map<string, string>();
  /** Sources whose costs could not be decoded, with the error. */
  private readonly undecoded = new Map<Source, string>();
  /** Blocks whose memory is split into their inner blocks. */
  private opened: string[] = [];
  private readonly views = new Radios<CostView>(
    "View",
    "cost.view",
    VIEWS.map((value) => ({ value, title: VIEW_TITLES[value] })),
    (view) => this.choose({ view }),
  );
  private readonly sources = new Presses<Source>(
    "Sources of costs",
    "cost.source",
    SOURCES.map((value) => ({ value, title: SOURCE_TITLES[value][0], hint: SOURCE_TITLES[value][1] })),
    (source) => this.press(source),
  );
  private readonly figure: HTMLSelectElement;
  private readonly measure: HTMLButtonElement;
  private readonly copy: HTMLButtonElement;
  private readonly table: TableView;
  private readonly picture: Picture;
  private readonly whatIf: WhatIf;
  private readonly chips = new Chips(
    "Open blocks",
    "Close",
    (block) => this.openBlocks(this.opened.filter((one) => one !== block)),
    () => (this.open.hidden ? this.views.root.querySelector<HTMLElement>('[aria-checked="true"]') : this.open),
  );
  private readonly open = h("button", {
    type: "button",
    class: "mnb-toggle",
    "data-mnb-action": "cost.open_block",
    title: "Split the block into its inner blocks (or double-click it)",
    onclick: () => this.openSelected(),
  });
  private readonly openHint = h("span", { class: "mnb-muted" }, "Select a block to split it into its inner blocks.");
  private readonly inside = h("div", { class: "mnb-cost-inside" }, this.chips.root, this.open, this.openHint);
  private readonly legend = h(
    "span",
    { class: "mnb-cost-legend" },
    ...(["forward", "backward", "update"] as const).map((role) =>
      h("span", {}, h("b", { class: `mnb-role-${role}` }), role),
    ),
  );
  private readonly hint = h("p", { class: "mnb-hint" });
  private readonly waiting = h("p", { class: "mnb-hint mnb-cost-waiting", role: "status" });
  private readonly problems = h("div", { class: "mnb-cost-problems" });
  private readonly notes = h("div", { class: "mnb-cost-notes" });
  private readonly stale = h("span", { class: "mnb-badge", hidden: true, role: "status" }, "from the previous model");
  private readonly clock: Clock;
  private progress = "";
  private width = 0;
  private drawn = "";
  private readonly watcher: ResizeObserver | null;
  readonly destroy: () => void;

  constructor(
    private readonly store: Store,
    tip: Tip,
  ) {
    this.figure = h(
      "select",
      { class: "mnb-input mnb-cost-figure", "aria-label": "Figure", "data-mnb-action": "cost.figure" },
      ...FIGURES.map((value) => h("option", { value }, FIGURE_TITLES[value][0])),
    );
    this.figure.addEventListener("change", () => this.choose({ figure: this.figure.value as Figure }));
    this.measure = h(
      "button",
      {
        type: "button",
        class: "mnb-button mnb-cost-measure",
        "data-mnb-action": "cost.measure",
        title:
          "Run the program 20 times on this machine with JAX's profiler. Inputs given only as shapes get " +
          "placeholder values.",
        onclick: () => this.startMeasuring(),
      },
      "Measure",
    );
    this.copy = iconButton(
      "copy",
      "Copy the table as CSV",
      "cost.csv",
      () => void copyFrom(this.copy, toCsv(this.shown(), store.cost.figure)),
    );
    this.table = new TableView(store);
    this.picture = new Picture(store, tip, (block) => this.canOpen(block) && this.openBlocks([...this.opened, block]));
    this.whatIf = new WhatIf(store, tip);
    this.root = h(
      "div",
      { class: "mnb-costs", "data-mnb-part": "cost" },
      h(
        "div",
        { class: "mnb-cost-bar" },
        this.views.root,
        this.sources.root,
        this.figure,
        this.measure,
        this.copy,
        this.stale,
      ),
      this.hint,
      this.waiting,
      this.problems,
      this.table.root,
      this.legend,
      this.inside,
      this.picture.root,
      this.whatIf.root,
      this.notes,
    );
    this.clock = new Clock((elapsed) => elapsed && text(this.waiting, `${this.progress}: ${elapsed}`));
    this.watcher = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(() => this.resize());
    this.watcher?.observe(this.root);
    this.destroy = together(
      store.on("snapshot", () => this.update()),
      store.on("cost", () => this.update()),
      store.on("tab", () => this.update()),
      store.on("links", () => this.paintInside()),
      store.kernel.watch(() => this.update()),
      store.kernel.receive(
        "cost",
        ({ source, version }, cost) => this.take(source, version, cost),
        (why, { source }) => this.fail(source, why),
      ),
      store.kernel.receive(
        "cost_picture",
        ({ key }, picture) => this.takePicture(key, picture),
        (why, { key }) => this.takePicture(key, { svg: "", text: "", reason: why }),
      ),
      () => this.clock.stop(),
      () => this.watcher?.disconnect(),
      () => this.table.destroy(),
      () => this.picture.destroy(),
      () => this.whatIf.destroy(),
    );
    this.update();
  }

  /** Show the table, and move the focus to the row of a block. */
  focusRow(block: string): boolean {
    this.store.showTab("cost");
    this.choose({ view: "table" });
    return this.table.focusRow(block);
  }

  recolour(): void {
    this.picture.recolour(hostTheme());
    this.whatIf.recolour();
  }

  private get info(): CostsInfo {
    return this.store.snapshot.costs ?? NO_COSTS;
  }

  private get isLost(): boolean {
    return this.store.kernel.isGone;
  }

  private choose(part: Partial<Store["cost"]>): void {
    this.store.showCost(part);
  }

  private press(source: Source): void {
    const { view } = this.store.cost;
    const { sources } = this.store;
    const shown = shownSources(view, sources);
    // Pictures with one source show the last pressed one; pictures with two show the last two.
    const previous = view === "table" || view === "beside" ? [...(view === "table" ? sources : shown)] : [];
    const next =
      previous.includes(source) && previous.length > 1
        ? previous.filter((one) => one !== source)
        : [...previous.filter((one) => one !== source), source];
    this.choose({ sources: next });
  }

  private startMeasuring(): void {
    this.store.command("measure");
    // Only measured costs have times, so show them alone.
    this.choose({ sources: ["measured"], figure: "time_s" });
  }

  /** Return the received costs of the shown sources. */
  private shown(): CostTable[] {
    return shownSources(this.store.cost.view, this.store.sources).flatMap((source) => this.store.costBy(source) ?? []);
  }

  /** Request shown costs that are missing or of an older model. */
  private requestCosts(): void {
    const { version, cost } = this.store.snapshot;
    if (this.store.tab !== "cost" || this.isLost || cost === null || cost.stale) return;
    for (const source of shownSources(this.store.cost.view, this.store.sources)) {
      const has = this.store.received.get(source)?.version === version;
      const isReady = this.info.sources.measured?.state === "ready";
      if (
        source === this.store.defaultSource ||
        has ||
        this.requested.get(source) === String(version) ||
        (source === "measured" && !isReady)
      )
        continue;
      this.requested.set(source, String(version));
      this.store.kernel.latest(`cost ${source}`, "request_cost", { source });
    }
  }

  private update(): void {
    const { snapshot, cost: chosen } = this.store;
    const { view, figure } = chosen;
    const sources = shownSources(view, this.store.sources);
    const hasCost = snapshot.cost !== null;
    this.views.show(view);
    this.sources.show(sources, (source) => {
      const state = this.info.sources[source];
      const reason = state && (state.state === "unavailable" || state.state === "failed") ? state.message : "";
      return { title: reason ? `Not available: ${reason}` : SOURCE_TITLES[source][1] };
    });
    this.figure.value = figure;
    this.sources.root.hidden = view === "what_if";
    this.figure.hidden = view === "memory" || view === "roofline";
    this.hint.hidden = hasCost;
    const jaxpr = snapshot.stages["jaxpr"];
    const needsJaxpr = this.info.sources.analytic?.state !== "unavailable"; // HLO and StableHLO text have no jaxpr
    text(
      this.hint,
      needsJaxpr && (jaxpr?.state === "unavailable" || jaxpr?.state === "failed")
        ? `Costs need the jaxpr, which failed: ${jaxpr.message}`
        : "Costs appear once the model can run.",
    );
    this.opened = this.opened.filter((block) => this.hasInside(block));
    this.table.root.hidden = view !== "table" || !hasCost;
    this.picture.root.hidden = view === "table" || view === "what_if" || !hasCost;
    this.whatIf.root.hidden = view !== "what_if" || !hasCost;
    this.copy.hidden = view !== "table" || !hasCost;
    const isMeasuring = this.info.sources.measured?.state === "loading";
    attr(this.measure, "aria-disabled", isMeasuring || !hasCost ? "true" : null);
    text(this.measure, isMeasuring ? "Measuring…" : this.store.received.has("measured") ? "Measure again" : "Measure");
    this.measure.hidden = this.info.sources.measured === undefined;
    const old = sources.filter((source) => this.store.isOld(source));
    this.stale.hidden = old.length === 0;
    this.root.classList.toggle("mnb-stale", old.length > 0);
    this.requestCosts();
    if (view === "table") this.paintTable(figure);
    this.paintStates(sources);
    if (view !== "table" && view !== "what_if") this.requestPicture(sources);
    if (view === "what_if") this.whatIf.update();
    this.paintInside();
  }

  private paintTable(figure: Figure): void {
    const costs = this.shown();
    this.table.show(costs, figure, this.store.tab === "cost");
    this.legend.hidden = !costs.some((cost) =>
      cost.rows.some((row) => row.roles?.backward?.flops || row.roles?.update?.flops),
    );
  }

  /** Show progress, errors and notes. */
  private paintStates(sources: Source[]): void {
    const { view, figure } = this.store.cost;
    this.legend.hidden ||= view !== "table";
    const states = sources.map((source) => [source, this.info.sources[source]] as const);
    const pending = states.find(
      ([source, info]) =>
        info?.state === "loading" ||
        (source !== this.store.defaultSource &&
          source !== "measured" &&
          this.requested.get(source) === String(this.store.snapshot.version) &&
          !this.store.received.has(source) &&
          !this.undecoded.has(source) &&
          info?.state !== "failed" &&
          info?.state !== "unavailable"),
    );
    this.progress = pending ? PROGRESS[pending[0]] : "";
    const isWaiting = pending !== undefined && !this.isLost && view === "table";
    this.waiting.hidden = !isWaiting;
    this.clock.run(isWaiting);
    if (!isWaiting) text(this.waiting, "");
    const failed =
      view === "what_if" ? [] : states.filter(([, info]) => info?.state === "failed" || info?.state === "unavailable");
    const messages = failed.map(
      ([source, info]) =>
        `${SOURCE_TITLES[source][0]} costs ${info!.state === "failed" ? "failed" : "are not available"}: ` +
        `${info!.message}`,
    );
    for (const source of sources)
      if (this.undecoded.has(source))
        messages.push(`${SOURCE_TITLES[source][0]} costs: ${this.undecoded.get(source)!}`);
    if (
      view === "table" &&
      sources.includes("measured") &&
      !this.store.received.has("measured") &&
      this.info.sources.measured?.state === "empty"
    )
      messages.push("Not measured yet. Press “Measure” to run the program.");
    if (
      this.isLost &&
      sources.some((source) => source !== this.store.defaultSource && !this.store.received.has(source))
    )
      messages.push(`Not connected to the kernel, so only ${this.store.defaultSource} costs can be shown.`);
    this.problems.replaceChildren(...messages.map((message) => h("p", { class: "mnb-note" }, message)));
    const notes =
      view === "what_if"
        ? []
        : this.shown().flatMap((cost) =>
            notesOf(cost, figure).map((note) =>
              sources.length > 1 ? `${SOURCE_TITLES[cost.source][0]}: ${note}` : note,
            ),
          );
    const unique = [...new Set(notes)];
    if (this.notes.dataset["notes"] === unique.join("\n")) return;
    this.notes.dataset["notes"] = unique.join("\n");
    const more = unique.slice(FIRST_NOTES);
    this.notes.replaceChildren(
      ...unique.slice(0, FIRST_NOTES).map((note) => h("p", { class: "mnb-note" }, note)),
      ...(more.length
        ? [
            h(
              "details",
              { class: "mnb-words" },
              h("summary", {}, `${more.length} more ${more.length === 1 ? "note" : "notes"}`),
              ...more.map((note) => h("p", { class: "mnb-note" }, note)),
            ),
          ]
        : []),
    );
  }

  private take(source: Source, version: number, cost: CostTable): void {
    if ((this.store.received.get(source)?.version ?? 0) > version) return;
    this.store.received.set(source, { version, cost });
    this.undecoded.delete(source);
    this.table.discardDetails();
    this.drawn = "";
    this.store.emit("cost");
  }

  private fail(source: Source, why: string): void {
    this.undecoded.set(source, why);
    this.update();
  }

  // Pictures

  private resize(): void {
    const width = Math.floor(this.root.clientWidth / STEP_PX) * STEP_PX;
    if (width === this.width || width === 0) return;
    this.width = width;
    this.update();
  }

  private requestPicture(sources: Source[]): void {
    const { view, figure } = this.store.cost;
    const { version, cost } = this.store.snapshot;
    if (this.isLost && !this.drawn)
      return this.picture.showMessage("Not connected to the kernel, so pictures cannot be loaded.");
    if (this.store.tab !== "cost" || cost === null || cost.stale || this.isLost) return;
    if (sources.includes("measured") && !this.info.sources.measured?.version)
      return this.picture.showMessage("Not measured yet. Press “Measure” to run the program.");
    const key = JSON.stringify([
      view,
      sources,
      view === "memory" ? this.opened : view === "roofline" ? null : figure,
      this.width,
      version,
      this.info.sources.measured?.version ?? 0,
    ]);
    if (key === this.drawn) return;
    this.drawn = key;
    const slowest = inOrder(sources).at(-1)!;
    this.picture.wait(
      slowest === "measured" ||
        this.store.received.get(slowest)?.version === version ||
        slowest === this.store.defaultSource
        ? "Drawing"
        : PROGRESS[slowest],
    );
    this.store.kernel.latest("cost picture", "request_cost_picture", {
      key,
      view,
      sources,
      figure,
      width: this.width || 900,
      opened: view === "memory" ? this.opened : [],
    });
  }

  private takePicture(key: string, drawn: Drawn): void {
    if (key !== this.drawn) return;
    this.picture.show(drawn, hostTheme());
    attr(this.root, "data-mnb-drawn", this.store.cost.view);
    this.paintInside();
  }

  // Blocks that open

  private canOpen(block: string): boolean {
    return this.store.cost.view === "memory" && !this.opened.includes(block) && this.hasInside(block);
  }

  private hasInside(block: string): boolean {
    return this.store.snapshot.cost?.rows.some((row) => row.block.startsWith(`${block}/`)) ?? false;
  }

  /** Return the block of the picture that contains the selected block and can be opened, or null. */
  private selectedToOpen(): string | null {
    const { blocks } = this.picture.drawing;
    const selected = this.store.pins.flatMap((pin) => (pin.kind === "block" ? lineage(pin.path) : []));
    return selected.find((block) => blocks.has(block) && this.canOpen(block)) ?? null;
  }

  private openSelected(): void {
    const block = this.selectedToOpen();
    if (block === null) return;
    this.openBlocks([...this.opened, block]);
    (this.chips.root.lastElementChild as HTMLElement).focus();
  }

  private openBlocks(blocks: string[]): void {
    // Closing a block also closes the open blocks inside it.
    this.opened = blocks.filter((block) =>
      lineage(block).every((around) => blocks.includes(around) || !this.opened.includes(around)),
    );
    this.paintInside();
    this.update();
  }

  private paintInside(): void {
    this.inside.hidden =
      this.store.cost.view !== "memory" || this.picture.root.hidden || this.picture.drawing.root.hidden;
    if (this.inside.hidden) return;
    const block = this.selectedToOpen();
    this.chips.show(this.opened.map((one) => ({ key: one, label: one.split("/").join(" / ") })));
    this.open.hidden = block === null;
    text(this.open, block === null ? "" : `Open ${block.split("/").join(" / ")}`);
    this.openHint.hidden = block !== null || ![...this.picture.drawing.blocks].some((one) => this.canOpen(one));
  }
}
