/** The logical graph of a model in a `GraphView`: selection, editing, wiring. */

import { createElement, render } from "preact";
import type { MenuAction } from "../controls/menu";
import { NameField } from "../controls/rename";
import type { Tip } from "../controls/tip";
import { together } from "../dom/calls";
import { h, iconButton, zoomOf } from "../dom/dom";
import { STILL } from "../graph/painter";
import type { SceneEdge, SceneNode } from "../graph/scene";
import { GraphView } from "../graph/view";
import { Questions } from "../search/questions";
import type { ReplyHead } from "../kernel/contract";
import { KernelOverlay } from "../stages/kernel-overlay";
import type { Store } from "../store/store";
import { addParts, describeEdge, describeNode, fillEdge } from "./canvas-parts";
import { Wiring } from "./canvas-wiring";
import { ConnectMenu } from "./connect-menu";
import { draggedTo, parentOf } from "./graph";
import { LaidOut } from "./laid-out";

/** Width of the open list of the palette. */
const PALETTE_PX = 250;
/** Width and margins of the element that may lie over a side of the graph, and its attribute at the left side. */
const COVER_PX = 316;
const AT_LEFT = "data-mnb-left";
/** Distance in px by which a key moves a block. */
const STEP = 16;
const STEPS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

export class Canvas {
  readonly root: HTMLElement;
  readonly destroy: () => void;
  private readonly view: GraphView;
  private readonly overlay: KernelOverlay;
  readonly questions: Questions;
  private readonly watched: (() => void)[] = [];
  private readonly empty: HTMLElement;
  private readonly wiring: Wiring;
  private readonly menu: ConnectMenu;
  /** Element that may lie over a side of the graph. */
  private cover: HTMLElement | null = null;
  private isPaletteOpen = false;
  private readonly tools: HTMLElement | undefined;
  private readonly laidOut: LaidOut;
  /** The block that the keys move, and its place. */
  private nudged: { node: SceneNode; x: number; y: number } | null = null;

  constructor(
    private readonly store: Store,
    tip: Tip,
  ) {
    this.laidOut = new LaidOut(store, (anchor) => this.show(anchor));
    this.view = this.makeView(tip);
    this.overlay = new KernelOverlay(store, this.view, () => true);
    this.questions = new Questions(this.view, {
      graph: () => this.laidOut.nested,
      open: (keys) => keys.forEach((key) => this.laidOut.open(key, true)),
    });
    this.wiring = new Wiring(store, tip, this.view);
    this.empty = h(
      "div",
      { class: "mnb-empty", hidden: true },
      h("p", {}, "This model has no blocks yet."),
      h(
        "div",
        { class: "mnb-row" },
        h(
          "button",
          {
            type: "button",
            class: "mnb-button mnb-primary",
            "data-mnb-action": "empty.add",
            onclick: () => this.startFromBlock(),
          },
          "Start from a block",
        ),
        h(
          "button",
          {
            type: "button",
            class: "mnb-button",
            "data-mnb-action": "empty.example",
            onclick: () => store.command("load_example"),
          },
          "Load an example",
        ),
      ),
    );
    this.root = h(
      "section",
      { class: "mnb-canvas", "aria-label": "Logical graph" },
      this.view.root,
      this.empty,
      (this.tools = h(
        "div",
        { class: "mnb-canvas-tools" },
        this.overlay.menu.root,
        this.overlay.exports,
        iconButton("plus", "Zoom in", "canvas.in", () => this.view.zoomBy(1.25)),
        iconButton("minus", "Zoom out", "canvas.out", () => this.view.zoomBy(0.8)),
        iconButton("fit", "Fit the graph into view", "canvas.fit", () => this.view.fit()),
        iconButton("tidy", "Tidy up the layout", "canvas.tidy", () => void store.command("tidy")),
      )),
    );
    this.menu = new ConnectMenu(store, this.view, this.root);
    for (const type of ["keyup", "focusout"]) this.view.board.addEventListener(type, () => this.endNudge());
    this.destroy = together(
      store.on("snapshot", () => this.update()),
      store.on("links", () => this.paintLinks()),
      store.on("edge", () => this.checkEdge()),
      () => this.laidOut.destroy(),
      this.overlay.destroy,
      () => this.view.destroy(),
      () => this.menu.close(),
      () => this.watched.forEach((end) => end()),
    );
    this.update();
  }

  /** Convert a point of the window to graph coordinates. */
  toScene(clientX: number, clientY: number): { x: number; y: number } {
    return this.view.toScene(clientX, clientY);
  }

  contains(clientX: number, clientY: number): boolean {
    return this.view.contains(clientX, clientY);
  }

  /** Keep the graph clear of an element that lies over one of its sides while it is shown. */
  keepClearOf(cover: HTMLElement): void {
    this.cover = cover;
    if (typeof ResizeObserver === "undefined") return;
    let covered = 0;
    const watcher = new ResizeObserver(() => {
      if (covered === cover.offsetWidth) return; // only its height has changed
      covered = cover.offsetWidth;
      this.view.refit();
      if (!covered) cover.removeAttribute(AT_LEFT);
    });
    watcher.observe(cover);
    this.watched.push(() => watcher.disconnect());
  }

  /**
   * Keep clear of the list of the palette, which lies over the left side of the graph, and of the cover, while it is
   * open.
   */
  showPalette(isOpen: boolean): void {
    this.isPaletteOpen = isOpen;
    if (isOpen) this.cover?.removeAttribute(AT_LEFT);
    if (isOpen && this.store.selection.length) this.view.reveal(this.view.active);
  }

  private coveredAt(side: "left" | "right"): number {
    const { cover, isAtLeft } = this;
    if (!cover?.offsetWidth || isAtLeft !== (side === "left")) return 0;
    const [board, box] = [this.view.board.getBoundingClientRect(), cover.getBoundingClientRect()];
    if (box.left >= board.right) return 0; // beside the graph
    return Math.max(0, isAtLeft ? box.right - board.left : board.right - box.left) / zoomOf(this.view.board);
  }

  private get isAtLeft(): boolean {
    return this.cover?.hasAttribute(AT_LEFT) ?? false;
  }

  /** Move the cover to the side where it does not lie over the pointer. */
  private uncover({ clientX }: MouseEvent): void {
    const { left, width } = this.view.board.getBoundingClientRect();
    const from = (clientX - left) / zoomOf(this.view.board);
    const distance = this.isAtLeft ? from : width - from;
    if (distance < Math.min(COVER_PX, width / 2) && !this.isPaletteOpen)
      this.cover?.toggleAttribute(AT_LEFT, !this.isAtLeft);
  }

  /** Move the focus to the search for a new block. */
  startFromBlock(): boolean {
    this.root.dispatchEvent(new CustomEvent("mnb-focus-palette", { bubbles: true }));
    return true;
  }

  private makeView(tip: Tip): GraphView {
    const { store } = this;
    const problems = (): typeof store.snapshot.problems => store.snapshot.problems;
    const goTo = (index: number): void => {
      store.showTab("problems");
      store.goTo(problems()[index]!);
    };
    return new GraphView({
      label: "Blocks of the model",
      tip,
      describe: (node) => this.overlay.layer.describe(node.key, describeNode(node, problems())),
      describeEdge: (edge) => describeEdge(edge, problems()),
      hover: (node) => store.setHover(node ? pathsOf(node).map((path) => ({ kind: "block", path })) : []),
      select: (node, add, event) => {
        const paths = pathsOf(node);
        if (event) this.uncover(event);
        if (paths.length) store.pinBlocks([...paths], add);
        else if (!add) store.release();
      },
      toggle: (node) => this.toggle(node),
      clear: () => store.release(),
      covered: () => ({
        left: Math.max(this.isPaletteOpen ? PALETTE_PX : 0, this.coveredAt("left")),
        right: this.coveredAt("right"),
        top: this.tools ? this.tools.offsetTop + this.tools.offsetHeight : 0,
        bottom: this.questions?.root.offsetHeight ?? 0,
      }),
      selectEdge: (edge) => store.selectEdge(edge.id),
      open: (node) => (node.group ? this.toggle(node) : this.rename(node.key)),
      actions: (node, edge) => this.actionsFor(node, edge),
      drag: {
        isMovable: (node) => node.path !== "",
        move: (node, x, y) => this.view.move(draggedTo(this.view.index, node, x, y)),
        drop: (node, x, y) => this.drop(node, x, y),
        cancel: () => this.view.move(STILL),
      },
      decorate: (parts, node) =>
        addParts(parts, node, problems(), {
          wire: (event, source, port) => this.wiring.begin(event, source, port),
          problem: goTo,
        }),
      decorateEdge: (element, edge) => fillEdge(element, edge, problems()),
      key: (event, node) => this.key(event, node),
    });
  }

  private update(): void {
    this.laidOut.update();
  }

  /** Show the scene. The group at `anchor`, which the user opened or closed, stays in its place. */
  private show(anchor?: string): void {
    this.view.show(this.laidOut.scene, { anchor });
    this.empty.hidden = this.view.scene.nodes.some((node) => node.path !== "");
    this.checkEdge();
  }

  /** Keep the selected edge only if it is drawn. */
  private checkEdge(): void {
    const { selectedEdge } = this.store;
    if (selectedEdge !== null && !this.view.scene.edges.some(({ id }) => id === selectedEdge))
      return this.store.selectEdge(null);
    this.paintLinks();
  }

  private paintLinks(): void {
    const { hoverLinks, pinLinks, selectedEdge } = this.store;
    const keys = (blocks: ReadonlySet<string>): Set<string> =>
      new Set(
        this.view.scene.nodes.filter((node) => pathsOf(node).some((path) => blocks.has(path))).map(({ key }) => key),
      );
    this.questions.paint({ hovered: keys(hoverLinks.blocks), selected: keys(pinLinks.blocks), selectedEdge });
  }

  private toggle(node: SceneNode): void {
    if (!node.group) return;
    this.laidOut.open(node.key, !node.expanded);
  }

  private drop(node: SceneNode, x: number, y: number): void {
    const frame = this.view.index.node(node.parent);
    this.laidOut.move(node.path, [Math.round(x - (frame?.x ?? 0)), Math.round(y - (frame?.y ?? 0))]);
  }

  /** Move a block by a step with each key; the release of a key sends the new place once. */
  private nudge(node: SceneNode, key: string): boolean {
    const [dx, dy] = STEPS[key] ?? [0, 0];
    const from = this.nudged?.node.key === node.key ? this.nudged : node;
    this.nudged = { node, x: Math.max(0, from.x + dx * STEP), y: Math.max(0, from.y + dy * STEP) };
    this.view.move(draggedTo(this.view.index, node, this.nudged.x, this.nudged.y));
    return true;
  }

  private endNudge(): void {
    const { nudged } = this;
    this.nudged = null;
    if (nudged) this.drop(nudged.node, nudged.x, nudged.y);
  }

  private key(event: KeyboardEvent, node: SceneNode | undefined): boolean {
    const isMove = event.altKey && event.shiftKey && !event.ctrlKey && !event.metaKey && event.key in STEPS;
    if (isMove && node?.path) return this.nudge(node, event.key);
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    if (event.key === "Delete" || event.key === "Backspace") return this.removeSelected(node);
    if (this.questions.key(event)) return true;
    if (!node) return false;
    if (isRepeat(node) && (event.key === "F2" || event.key === "c"))
      this.toggle(node); // its blocks can be edited
    else if (event.key === "F2") this.rename(node.key);
    else if (event.key === "c") this.connect(node);
    else return false;
    return true;
  }

  private actionsFor(node: SceneNode | null, edge: SceneEdge | null): MenuAction[] {
    const { store } = this;
    const remove = { title: "Remove (Delete)", act: () => void this.removeSelected(node ?? undefined) };
    if (edge) return [remove];
    if (!node)
      return [
        { title: "Add a block… (n)", act: () => void this.startFromBlock() },
        {
          title: "Select all blocks (Ctrl+A)",
          act: () => store.pinBlocks(Object.keys(store.snapshot.blocks).filter((path) => parentOf(path) === "")),
        },
        { title: "Tidy up the layout", act: () => void store.command("tidy") },
      ];
    const edits = [
      { title: "Rename (F2)", act: () => void this.rename(node.key) },
      { title: "Connect to… (c)", act: () => this.connect(node) },
      remove,
    ];
    return [...(node.path ? edits : pathsOf(node).length ? [remove] : []), ...this.questions.actions()];
  }

  private connect(node: SceneNode): void {
    this.menu.open(node, this.view.elementOf(node.key) ?? this.view.root);
  }

  /** Rename a block in place; return whether it is drawn. */
  private rename(key: string): boolean {
    const node = this.view.scene.nodes.find((one) => one.key === key);
    if (!node?.path) return false;
    this.view.reveal(key);
    const element = this.view.elementOf(key);
    if (!element || element.querySelector(".mnb-rename")) return false;
    const slot = h("div", { class: "mnb-rename-slot" });
    element.append(slot);
    const close = (byKey: boolean): void => {
      if (byKey) element.focus({ preventScroll: true });
      render(null, slot);
      slot.remove();
    };
    const take = (name: string): Promise<ReplyHead> => this.store.command("rename", { path: node.path, name });
    render(createElement(NameField, { name: node.name, take, close }), slot);
    return true;
  }

  /** Rename the first selected block in place; return whether a block is selected. */
  renameSelected(): boolean {
    return this.rename(this.store.selection[0] ?? "");
  }

  /** Remove the selected edge or blocks, else the focused block; return whether anything was removed. */
  removeSelected(focused?: SceneNode): boolean {
    const edge = this.view.scene.edges.find((candidate) => candidate.id === this.store.selectedEdge);
    if (edge) {
      const { source, target } = edge;
      const repeat = this.view.scene.nodes.find(
        (node) => isRepeat(node) && (node.key === source || node.key === target),
      );
      if (repeat) {
        this.toggle(repeat); // the connection belongs to a block inside
        return true;
      }
      this.store.command("disconnect", { source, target }, `Removed ${source} → ${target}. Undo: Ctrl+Z`);
      return true;
    }
    const { selection } = this.store;
    const paths = selection.length ? selection : focused ? [...pathsOf(focused)] : [];
    if (paths.length) this.store.remove(paths);
    return paths.length > 0;
  }
}

/** Return whether a node represents a repeated part of the model. */
function isRepeat(node: SceneNode): boolean {
  return node.group && !node.path;
}

/** Return the paths of the blocks that a node represents. */
function pathsOf(node: SceneNode): readonly string[] {
  return node.path ? [node.path] : (node.blocks ?? []);
}
