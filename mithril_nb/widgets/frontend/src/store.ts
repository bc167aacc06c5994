/** What is on screen: the last snapshot, the texts that came, and what the person points at. Views subscribe to topics. */

import type { Kernel } from "./kernel";
import type { Anchor, Links, StageText } from "./links";
import type { Cost, CostView, Diagnostic, Figure, Run, Snapshot, Source, StageName } from "./types";
import { UNATTRIBUTED, linksOf, noLinks, sameAnchor, sameAnchors, selectionOf } from "./links";

export type Topic = "snapshot" | "run" | "links" | "stages" | "panes" | "edge" | "tab" | "passes" | "cost" | "outcome";

export const PANE_ORDER = ["jaxpr", "stablehlo", "hlo"];

function sameSet(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((item) => b.includes(item));
}

export class Store {
  readonly texts = new Map<StageName, StageText>();
  hover: Anchor[] = [];
  pins: Anchor[] = [];
  hoverLinks: Links = noLinks();
  pinLinks: Links = noLinks();
  /** The stages shown side by side, 1 to 3. */
  panes: StageName[] = [...PANE_ORDER];
  /** Which pane, if any, the newest pin was made in: it does not scroll. */
  pinnedIn: StageName | null = null;
  selectedEdge: string | null = null;
  tab = "cost";
  /** The result of the last command, for the status line; "" from the next command on. */
  outcome = "";
  /** What the Cost tab shows: how, by which ways of counting that were chosen (the latest last), and which figure. */
  cost: { view: CostView; sources: Source[]; figure: Figure } = { view: "table", sources: [], figure: "flops" };
  /** The costs that came for a source, each of a version of the model. */
  readonly made = new Map<Source, { version: number; cost: Cost }>();
  private readonly listeners = new Map<Topic, Set<() => void>>();
  private seenSelection: string[];
  private sentSelection: string[] | null = null;
  /** Whether the kernel's selection is still the last one that was sent or received: no command has been sent since. */
  private isSelectionSure = true;
  private turn = 0;

  constructor(
    public snapshot: Snapshot,
    readonly kernel: Kernel,
  ) {
    this.seenSelection = snapshot.selection;
    this.pins = snapshot.selection.map((path) => ({ kind: "block", path }));
    this.relink();
  }

  on(topic: Topic, listener: () => void): () => void {
    const set = this.listeners.get(topic) ?? new Set();
    this.listeners.set(topic, set.add(listener));
    return () => set.delete(listener);
  }

  emit(topic: Topic): void {
    for (const listener of this.listeners.get(topic) ?? []) listener();
  }

  /** Paths of the selected blocks: what the inspector shows and the kernel knows. */
  get selection(): string[] {
    return selectionOf(this.texts, this.pins).filter((path) => path in this.snapshot.blocks);
  }

  takeSnapshot(snapshot: Snapshot): void {
    this.snapshot = snapshot;
    const kept = this.pins.filter((pin) => pin.kind !== "block" || this.exists(pin.path));
    let changed = kept.length !== this.pins.length;
    this.pins = kept;
    if (!sameSet(snapshot.selection, this.seenSelection)) {
      this.seenSelection = snapshot.selection;
      // The selection that comes back from a click of our own is no news, and must not undo a newer click.
      const own = this.kernel.busy("select") || (this.sentSelection !== null && sameSet(snapshot.selection, this.sentSelection));
      if (!own && !sameSet(snapshot.selection, this.selection)) {
        this.pins = snapshot.selection.map((path) => ({ kind: "block", path }));
        this.pinnedIn = null;
        this.sentSelection = null;
        changed = true;
      }
    }
    if (this.selectedEdge !== null && !snapshot.graph.edges.some((edge) => edge.id === this.selectedEdge)) this.selectedEdge = null;
    if (changed) this.relink();
    this.emit("snapshot");
    if (changed) this.emit("links");
  }

  /** The run alone, again and again while it goes: everything else is as it was. */
  takeRun(run: Run): void {
    this.snapshot = { ...this.snapshot, run };
    this.emit("run");
  }

  takeText(text: StageText): void {
    const old = this.texts.get(text.stage);
    // An instruction has no name that outlives its version: a pin on one becomes a pin on its blocks.
    this.pins = this.pins.flatMap((pin): Anchor[] =>
      pin.kind === "instruction" && pin.stage === text.stage && old && old.version !== text.version
        ? selectionOf(this.texts, [pin]).map((path) => ({ kind: "block", path }))
        : [pin],
    );
    this.hover = this.hover.filter((anchor) => anchor.kind !== "instruction" || anchor.stage !== text.stage);
    this.texts.set(text.stage, text);
    this.relink();
    this.emit("stages");
    this.emit("links");
  }

  setHover(anchors: Anchor[]): void {
    if (sameAnchors(anchors, this.hover)) return;
    this.hover = anchors;
    this.hoverLinks = linksOf(this.texts, anchors);
    this.emit("links");
  }

  /** Pin anchors (Shift adds or takes away). `stage` says in which pane it was done. */
  pin(anchors: Anchor[], add = false, stage: StageName | null = null): void {
    performance.mark("mnb:link:start");
    if (add) {
      const fresh = anchors.filter((anchor) => !this.pins.some((pin) => sameAnchor(pin, anchor)));
      const dropped = this.pins.filter((pin) => !anchors.some((anchor) => sameAnchor(pin, anchor)));
      this.pins = fresh.length ? [...this.pins, ...fresh] : dropped;
    } else this.pins = anchors;
    this.pinnedIn = stage;
    if (this.selectedEdge !== null) {
      this.selectedEdge = null;
      this.emit("edge");
    }
    this.relink();
    this.emit("links");
    this.sendSelection();
    requestAnimationFrame(() => {
      // A frame's callbacks run before it is painted: the second one starts after the first has been drawn.
      requestAnimationFrame(() => {
        try {
          performance.measure("mnb:link", "mnb:link:start");
        } catch {
          // Another workbench's marks may have been cleared meanwhile; a lost measurement hurts nobody.
        }
      });
    });
  }

  pinBlocks(paths: string[], add = false): void {
    this.pin(paths.map((path) => ({ kind: "block", path })), add);
  }

  /** Let go of everything: pins, hover, selected edge. Returns whether there was anything. */
  release(): boolean {
    const had = this.pins.length > 0 || this.selectedEdge !== null || this.hover.length > 0;
    this.setHover([]);
    if (this.selectedEdge !== null) this.selectEdge(null);
    if (this.pins.length > 0) this.pin([]);
    return had;
  }

  selectEdge(id: string | null): void {
    this.selectedEdge = id;
    this.emit("edge");
  }

  showPanes(panes: StageName[]): void {
    this.panes = panes;
    this.emit("panes");
  }

  showTab(tab: string): void {
    this.tab = tab;
    this.emit("tab");
  }

  showCost(part: Partial<Store["cost"]>): void {
    this.cost = { ...this.cost, ...part };
    this.emit("cost");
  }

  /** The way of counting of the costs in the snapshot: "analytic", unless the program has no jaxpr. */
  get own(): Source {
    return this.snapshot.cost?.source ?? "analytic";
  }

  /** The ways of counting that the Cost tab shows, the latest chosen last. */
  get sources(): Source[] {
    return this.cost.sources.length ? this.cost.sources : [this.own];
  }

  /** The costs of a source that are there. */
  costBy(source: Source): Cost | null {
    return source === this.own ? this.snapshot.cost : this.made.get(source)?.cost ?? null;
  }

  /** The costs that the lines of Python are coloured by: of the source that was chosen last, if they are there. */
  get lineCosts(): Cost | null {
    return this.sources.flatMap((source) => this.costBy(source) ?? []).at(-1) ?? this.snapshot.cost;
  }

  /** Send a command. `done` goes to the status line once it is done. */
  command(name: string, args: Record<string, unknown> = {}, done = ""): void {
    // The kernel adds blocks after its own selection, and may select another block for any command.
    this.kernel.flush("select");
    this.isSelectionSure = false;
    this.report("");
    const turn = ++this.turn;
    void this.kernel.send(name, args).then(({ ok }) => ok && turn === this.turn && this.report(done));
  }

  /** Remove blocks, and name them in the status line: with the graph out of view the change is easy to miss. */
  remove(paths: string[]): void {
    this.command("remove", { paths }, `Removed ${paths.join(", ")}. Undo: Ctrl+Z`);
  }

  private report(what: string): void {
    if (what === this.outcome) return;
    this.outcome = what;
    this.emit("outcome");
  }

  /** Select where a problem is, so that the eye finds it. */
  goTo(problem: Diagnostic): void {
    if (problem.edge) {
      const [source, target] = problem.edge;
      const edge = this.snapshot.graph.edges.find((candidate) => candidate.source === source && candidate.target === target);
      if (edge) this.selectEdge(edge.id);
    }
    if (problem.block && problem.block in this.snapshot.blocks) this.pinBlocks([problem.block]);
  }

  private exists(path: string): boolean {
    return path in this.snapshot.blocks || path.startsWith("(") || path === UNATTRIBUTED;
  }

  private relink(): void {
    this.pinLinks = linksOf(this.texts, this.pins);
    this.hoverLinks = linksOf(this.texts, this.hover);
  }

  private sendSelection(): void {
    const paths = this.selection;
    if (this.isSelectionSure && sameSet(paths, this.sentSelection ?? this.seenSelection)) return;
    this.sentSelection = paths;
    this.isSelectionSure = true;
    this.kernel.latest("select", "select", { paths });
  }
}
