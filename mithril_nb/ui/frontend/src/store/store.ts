/** State shared by the views: the latest snapshot, stage texts, hover and pins. Views subscribe to topics. */

import { batch } from "@preact/signals";
import { Memory } from "../dom/memory";
import { followFields } from "../dom/view";
import type { Kernel } from "../kernel/kernel";
import type {
  BlockDetails,
  CostTableData,
  Figure,
  ProblemData,
  ReplyHead,
  RunData,
  SettingField,
  Source,
} from "../kernel/contract";
import type { StageName } from "../kernel/messages";
import type { CostView, Snapshot } from "../kernel/model";
import {
  type Anchor,
  blockAnchors,
  type Links,
  linksOf,
  noLinks,
  sameAnchors,
  selectionOf,
  type StageText,
  UNATTRIBUTED,
  withAnchors,
} from "./links";

type Topic = "snapshot" | "links" | "stages" | "panes" | "edge" | "tab" | "cost" | "reveal" | "layout" | "colours";

const PANE_ORDER = ["jaxpr", "stablehlo", "hlo"];

function sameSet(a: readonly string[], b: readonly string[]) {
  const known = new Set(b);
  return a.length === b.length && a.every((item) => known.has(item));
}

export class Store {
  texts: ReadonlyMap<StageName, StageText> = new Map();
  /** The layout of this widget, kept by the browser. A cell of a notebook has its own autosave file. */
  readonly memory: Memory;
  hover: Anchor[] = [];
  pins: Anchor[] = [];
  hoverLinks: Links = noLinks();
  pinLinks: Links = noLinks();
  /** The stages shown side by side, 1 to 3. */
  panes: StageName[] = [...PANE_ORDER];
  /** The pane of the newest pin, if any; it does not scroll. */
  pinnedIn: StageName | null = null;
  selectedEdge: string | null = null;
  /** The open tab. "" while the tabs are built, and if all are closed. */
  tab = "";
  /** True if stages, graph and inspector have no room beside each other. */
  isNarrow = false;
  /** True if colours mean the families of blocks, false if they tell blocks apart. */
  isByFamily = false;
  /** True if the stages are beside the tabs, and not in a tab. */
  hasStagesBeside = false;
  /** The result of the last command, for the status line; reset by the next command. */
  outcome = "";
  /** The view, selected sources (latest last) and figure of the Cost tab. */
  cost: { view: CostView; sources: Source[]; figure: Figure } = { view: "table", sources: [], figure: "flops" };
  /** The costs received for each source, with their model version. */
  received: ReadonlyMap<Source, { version: number; cost: CostTableData }> = new Map();
  private readonly listeners = new Map<Topic, Set<() => void>>();
  private seenSelection: string[];
  private seenRun: RunData;
  private sentSelection: string[] | null = null;
  /** True if no command was sent since the last selection was sent or received, so the kernel still has it. */
  private isSelectionSure = true;
  private turn = 0;

  constructor(
    public snapshot: Snapshot,
    readonly kernel: Kernel,
  ) {
    this.memory = new Memory(snapshot.autosave?.path ?? `${location.pathname} ${snapshot.name}`);
    this.seenSelection = snapshot.selection;
    this.seenRun = snapshot.run;
    this.pins = blockAnchors(snapshot.selection);
    this.relink();
    followFields(
      this,
      "snapshot",
      "texts",
      "hover",
      "pins",
      "hoverLinks",
      "pinLinks",
      "panes",
      "tab",
      "hasStagesBeside",
      "isByFamily",
      "outcome",
      "cost",
      "received",
    );
  }

  on(topic: Topic, listener: () => void): () => void {
    const set = this.listeners.get(topic) ?? new Set();
    this.listeners.set(topic, set.add(listener));
    return () => set.delete(listener);
  }

  emit(topic: Topic) {
    for (const listener of this.listeners.get(topic) ?? []) listener();
  }

  /** Paths of the selected blocks, as shown by the inspector and sent to the kernel. */
  get selection() {
    return selectionOf(this.texts, this.pins).filter((path) => path in this.snapshot.blocks);
  }

  /** Return the fields of a block with their values; none for an unknown block. */
  fieldsOf(path: string): SettingField[] {
    const { blocks, kinds } = this.snapshot;
    const block = blocks[path];
    const values = block?.values ?? {};
    return (kinds?.[block?.kind ?? ""]?.fields ?? []).map(({ default: usual, ...field }) => ({
      ...field,
      value: Object.hasOwn(values, field.name) ? values[field.name]! : usual,
    }));
  }

  /** Return the colour of a block. */
  hueOf({ kind, hue }: BlockDetails) {
    return this.isByFamily ? (this.snapshot.kinds?.[kind]?.hue ?? hue) : hue;
  }

  colourBy(isByFamily: boolean) {
    if (isByFamily === this.isByFamily) return;
    this.isByFamily = isByFamily;
    this.emit("colours");
  }

  titleOf(stage: StageName) {
    return this.snapshot.stage_kinds[stage]?.[0] ?? stage;
  }

  /** Return the label of the progress of a stage. */
  verbOf(stage: StageName) {
    return this.snapshot.stage_kinds[stage]?.[1] ?? stage;
  }

  languageOf(stage: StageName) {
    return this.snapshot.stage_kinds[stage]?.[2] ?? "";
  }

  takeSnapshot(snapshot: Snapshot) {
    batch(() => this.follow(snapshot));
  }

  private follow(snapshot: Snapshot) {
    // A snapshot with an unchanged run may hold an older run than the latest message.
    const run = snapshot.run === this.seenRun ? this.snapshot.run : snapshot.run;
    this.seenRun = snapshot.run;
    this.snapshot = { ...snapshot, run };
    const kept = this.pins.filter((pin) => pin.kind !== "block" || this.exists(pin.path));
    let changed = kept.length !== this.pins.length;
    this.pins = kept;
    if (!sameSet(snapshot.selection, this.seenSelection)) {
      this.seenSelection = snapshot.selection;
      // The kernel echoes a selection made here. The echo must not undo a newer click.
      const isEcho =
        this.kernel.busy("select") || (this.sentSelection !== null && sameSet(snapshot.selection, this.sentSelection));
      if (!isEcho && !sameSet(snapshot.selection, this.selection)) {
        this.pins = blockAnchors(snapshot.selection);
        this.pinnedIn = null;
        this.sentSelection = null;
        changed = true;
      }
    }
    if (changed) this.relink();
    this.emit("snapshot");
    if (changed) this.emit("links");
  }

  /** Update only the run: while training, it changes far more often than the rest of the snapshot. */
  takeRun(run: RunData) {
    this.snapshot = { ...this.snapshot, run };
  }

  takeText(text: StageText) {
    const old = this.texts.get(text.stage);
    // Instruction indices change with each version, so a pin on an instruction becomes a pin on its blocks.
    this.pins = this.pins.flatMap((pin) =>
      pin.kind === "instruction" && pin.stage === text.stage && old && old.version !== text.version
        ? blockAnchors(selectionOf(this.texts, [pin]))
        : [pin],
    );
    this.hover = this.hover.filter((anchor) => anchor.kind !== "instruction" || anchor.stage !== text.stage);
    batch(() => {
      this.texts = new Map(this.texts).set(text.stage, text);
      this.relink();
      this.emit("stages");
      this.emit("links");
    });
  }

  setHover(anchors: Anchor[]) {
    if (sameAnchors(anchors, this.hover)) return;
    batch(() => {
      this.hover = anchors;
      this.hoverLinks = linksOf(this.texts, anchors);
      this.emit("links");
    });
  }

  /** Pin anchors (Shift adds or removes). `stage` is the pane of the click. */
  pin(anchors: Anchor[], add = false, stage: StageName | null = null) {
    performance.mark("mnb:link:start");
    batch(() => {
      this.pins = add ? withAnchors(this.pins, anchors) : anchors;
      this.pinnedIn = stage;
      if (this.selectedEdge !== null) {
        this.selectedEdge = null;
        this.emit("edge");
      }
      this.relink();
      this.emit("links");
    });
    this.sendSelection();
    requestAnimationFrame(() => {
      // Frame callbacks run before painting, so the second one starts after the first frame is drawn.
      requestAnimationFrame(() => {
        try {
          performance.measure("mnb:link", "mnb:link:start");
        } catch {
          // Another workbench may have cleared the marks; the measurement is then lost.
        }
      });
    });
  }

  pinBlocks(paths: string[], add = false) {
    this.pin(blockAnchors(paths), add);
  }

  /** Clear pins, hover and selected edge. Returns whether there was anything to clear. */
  release() {
    const had = this.pins.length > 0 || this.selectedEdge !== null || this.hover.length > 0;
    this.setHover([]);
    if (this.selectedEdge !== null) this.selectEdge(null);
    if (this.pins.length > 0) this.pin([]);
    return had;
  }

  selectEdge(id: string | null) {
    this.selectedEdge = id;
    this.emit("edge");
  }

  showPanes(panes: StageName[]) {
    this.panes = panes;
    this.emit("panes");
  }

  showTab(tab: string) {
    this.tab = tab;
    this.emit("tab");
  }

  /** Bring the stages into view if the layout hides them. */
  revealStages() {
    this.emit("reveal");
  }

  /** True if the inspector is open. In a narrow widget it takes half of the graph, so there it opens on request. */
  get hasInspector() {
    return this.memory.get(this.isNarrow ? "inspector narrow" : "inspector", !this.isNarrow);
  }

  showInspector(isOpen: boolean) {
    this.memory.set(this.isNarrow ? "inspector narrow" : "inspector", isOpen);
    this.emit("layout");
  }

  /** Store the costs of a source, unless newer ones are known. */
  takeCost(source: Source, version: number, cost: CostTableData) {
    if ((this.received.get(source)?.version ?? 0) > version) return;
    this.received = new Map(this.received).set(source, { version, cost });
    this.emit("cost");
  }

  showCost(part: Partial<Store["cost"]>) {
    this.cost = { ...this.cost, ...part };
    this.emit("cost");
  }

  /** The source of the costs in the snapshot: "analytic", unless the program has no jaxpr. */
  get defaultSource() {
    return this.snapshot.cost?.source ?? "analytic";
  }

  /** The sources shown in the Cost tab, latest selected last. */
  get sources() {
    return this.cost.sources.length ? this.cost.sources : [this.defaultSource];
  }

  /** The costs received for a source, or null. */
  costBy(source: Source) {
    return source === this.defaultSource ? this.snapshot.cost : (this.received.get(source)?.cost ?? null);
  }

  /** Return whether the costs received for a source are those of an earlier model. */
  isOld(source: Source) {
    if (source === this.defaultSource) return this.snapshot.cost?.stale ?? false;
    return this.received.has(source) && this.received.get(source)!.version !== this.snapshot.version;
  }

  /** The costs used to colour lines of Python: those of the last selected source, if received for this model. */
  get lineCosts() {
    return (
      this.sources.flatMap((source) => (this.isOld(source) ? [] : (this.costBy(source) ?? []))).at(-1) ??
      this.snapshot.cost
    );
  }

  /** Send a command, and return its reply. `done` appears in the status line once the command succeeds. */
  async command(name: string, args: Record<string, unknown> = {}, done = ""): Promise<ReplyHead> {
    // The kernel adds blocks after the selection that it has received, and may select another block for any command.
    this.kernel.flush("select");
    this.isSelectionSure = false;
    this.outcome = "";
    const turn = ++this.turn;
    const reply = await this.kernel.send(name, args);
    if (reply.ok && turn === this.turn) this.outcome = done;
    return reply;
  }

  /** Remove blocks, and name them in the status line: the change is easy to miss while the graph is out of view. */
  remove(paths: string[]) {
    void this.command("remove", { paths }, `Removed ${paths.join(", ")}. Undo: Ctrl+Z`);
  }

  /** Select the location of a problem. */
  goTo(problem: ProblemData) {
    if (problem.edge) this.selectEdge(problem.edge.join(" -> "));
    if (problem.block && problem.block in this.snapshot.blocks) this.pinBlocks([problem.block]);
  }

  private exists(path: string) {
    return path in this.snapshot.blocks || path.startsWith("(") || path === UNATTRIBUTED;
  }

  private relink() {
    this.pinLinks = linksOf(this.texts, this.pins);
    this.hoverLinks = linksOf(this.texts, this.hover);
  }

  private sendSelection() {
    const paths = this.selection;
    if (this.isSelectionSure && sameSet(paths, this.sentSelection ?? this.seenSelection)) return;
    this.sentSelection = paths;
    this.isSelectionSure = true;
    this.kernel.afterRest("select", "select", { paths });
  }
}
