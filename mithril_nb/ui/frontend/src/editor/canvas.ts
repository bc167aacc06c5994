/** The logical graph of a model in a `GraphView`: selection, editing, wiring. */

import { iconButton } from "../dom/view";
import { hasModifier, watchSize } from "../dom/events";
import { createElement, render } from "preact";
import { type MenuAction, openMenu } from "../controls/menu";
import { NameField } from "../controls/rename";
import type { Tip } from "../controls/tip";
import { together } from "../dom/calls";
import { h, zoomOf } from "../dom/dom";
import { STILL } from "../graph/painter";
import type { SceneEdge, SceneNode } from "../graph/scene";
import { createGraphView, type GraphView } from "../graph/view";
import { createQuestions } from "../search/questions";
import { createKernelOverlay } from "../stages/kernel-overlay";
import type { Store } from "../store/store";
import { addParts, describeEdge, describeNode, fillEdge } from "./canvas-parts";
import { createWiring } from "./canvas-wiring";
import { openConnectMenu } from "./connect-menu";
import { ARRANGEMENTS, type Arrangement } from "./arrange";
import { draggedBy, parentOf } from "./graph";
import { type BlockPlace, createLaidOut } from "./laid-out";

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

export function createCanvas(store: Store, tip: Tip) {
  let unwatch = () => {};
  let closeMenu = () => {};
  /** Element that may lie over a side of the graph. */
  let covering: HTMLElement | null = null;
  let isPaletteOpen = false;
  let tools: HTMLElement | undefined;
  /** The block that the keys move, with those selected beside it, and how far. */
  let nudging: { node: SceneNode; dx: number; dy: number } | null = null;
  const laidOut = createLaidOut(store, show);
  const view = makeView(tip);
  const overlay = createKernelOverlay(store, view, () => true);
  const questions = createQuestions(view, {
    graph: () => laidOut.nested,
    open: (keys) => keys.forEach((key) => laidOut.open(key, true)),
  });
  const wire = createWiring(store, tip, view);
  const empty = h(
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
          onclick: startFromBlock,
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
  const root = h(
    "section",
    { class: "mnb-canvas", "aria-label": "Logical graph" },
    view.root,
    empty,
    (tools = h(
      "div",
      { class: "mnb-canvas-tools" },
      overlay.menu.root,
      overlay.exports,
      iconButton("plus", "Zoom in", "canvas.in", () => view.zoomBy(1.25)),
      iconButton("minus", "Zoom out", "canvas.out", () => view.zoomBy(0.8)),
      iconButton("fit", "Fit the graph into view", "canvas.fit", () => view.fit()),
      iconButton("tidy", "Tidy up the layout", "canvas.tidy", () => void store.command("tidy")),
    )),
  );
  for (const type of ["keyup", "focusout"]) view.board.addEventListener(type, endNudge);
  const destroy = together(
    store.on("snapshot", laidOut.update),
    store.on("links", paintLinks),
    store.on("edge", checkEdge),
    laidOut.destroy,
    overlay.destroy,
    view.destroy,
    () => closeMenu(),
    () => unwatch(),
  );
  laidOut.update();

  /** Keep the graph clear of an element that lies over one of its sides while it is shown. */
  function keepClearOf(cover: HTMLElement) {
    covering = cover;
    let covered = 0;
    unwatch = watchSize(cover, () => {
      if (covered === cover.offsetWidth) return; // only its height has changed
      covered = cover.offsetWidth;
      view.refit();
      if (!covered) cover.removeAttribute(AT_LEFT);
    });
  }

  /**
   * Keep clear of the list of the palette, which lies over the left side of the graph, and of the cover, while it is
   * open.
   */
  function showPalette(isOpen: boolean) {
    isPaletteOpen = isOpen;
    if (isOpen) covering?.removeAttribute(AT_LEFT);
    if (isOpen && store.selection.length) view.reveal(view.active);
  }

  function coveredAt(side: "left" | "right"): number {
    const cover = covering;
    const isLeft = isAtLeft();
    if (!cover?.offsetWidth || isLeft !== (side === "left")) return 0;
    const [board, box] = [view.board.getBoundingClientRect(), cover.getBoundingClientRect()];
    if (box.left >= board.right) return 0; // beside the graph
    return Math.max(0, isLeft ? box.right - board.left : board.right - box.left) / zoomOf(view.board);
  }

  function isAtLeft() {
    return covering?.hasAttribute(AT_LEFT) ?? false;
  }

  /** Move the cover to the side where it does not lie over the pointer. */
  function uncover({ clientX }: MouseEvent) {
    const { left, width } = view.board.getBoundingClientRect();
    const from = (clientX - left) / zoomOf(view.board);
    const distance = isAtLeft() ? from : width - from;
    if (distance < Math.min(COVER_PX, width / 2) && !isPaletteOpen) covering?.toggleAttribute(AT_LEFT, !isAtLeft());
  }

  /** Move the focus to the search for a new block. */
  function startFromBlock() {
    root.dispatchEvent(new CustomEvent("mnb-focus-palette", { bubbles: true }));
    return true;
  }

  function makeView(tip: Tip): GraphView {
    const problems = () => store.snapshot.problems;
    const goTo = (index: number) => {
      store.showTab("problems");
      store.goTo(problems()[index]!);
    };
    return createGraphView({
      label: "Blocks of the model",
      tip,
      describe: (node) => overlay.layer.describe(node.key, describeNode(node, problems())),
      describeEdge: (edge) => describeEdge(edge, problems()),
      hover: (node) => store.setHover(node ? pathsOf(node).map((path) => ({ kind: "block", path })) : []),
      select: (node, add, event) => {
        const paths = pathsOf(node);
        if (event) uncover(event);
        if (paths.length) store.pinBlocks([...paths], add);
        else if (!add) store.release();
      },
      toggle: toggle,
      clear: () => store.release(),
      covered: () => ({
        left: Math.max(isPaletteOpen ? PALETTE_PX : 0, coveredAt("left")),
        right: coveredAt("right"),
        top: tools ? tools.offsetTop + tools.offsetHeight : 0,
        bottom: questions?.root.offsetHeight ?? 0,
      }),
      selectEdge: (edge) => store.selectEdge(edge.id),
      open: (node) => (node.group ? toggle(node) : rename(node.key)),
      actions: actionsFor,
      drag: {
        isMovable: (node) => node.path !== "",
        move: (node, x, y) => view.move(draggedBy(view.index, movedWith(node), x - node.x, y - node.y)),
        drop: (node, x, y) => shift(movedWith(node), x - node.x, y - node.y),
        cancel: () => view.move(STILL),
      },
      marquee: () => {
        const { selection } = store;
        return (nodes, add) => {
          const paths = nodes.flatMap(pathsOf);
          store.pinBlocks(add ? [...new Set([...selection, ...paths])] : paths);
        };
      },
      decorate: (parts, node) =>
        addParts(parts, node, problems(), {
          wire: (event, source, port) => wire(event, source, port),
          problem: goTo,
        }),
      decorateEdge: (element, edge) => fillEdge(element, edge, problems()),
      key: key,
    });
  }

  /** Show the scene. The group at `anchor`, which the user opened or closed, stays in its place. */
  function show(anchor?: string) {
    view.show(laidOut.scene, { anchor });
    empty.hidden = view.scene.nodes.some((node) => node.path !== "");
    checkEdge();
  }

  /** Keep the selected edge only if it is drawn. */
  function checkEdge() {
    const { selectedEdge } = store;
    if (selectedEdge !== null && !view.scene.edges.some(({ id }) => id === selectedEdge)) return store.selectEdge(null);
    paintLinks();
  }

  function paintLinks() {
    const { hoverLinks, pinLinks, selectedEdge } = store;
    const keys = (blocks: ReadonlySet<string>): Set<string> =>
      new Set(view.scene.nodes.filter((node) => pathsOf(node).some((path) => blocks.has(path))).map(({ key }) => key));
    questions.paint({ hovered: keys(hoverLinks.blocks), selected: keys(pinLinks.blocks), selectedEdge });
  }

  function toggle(node: SceneNode) {
    if (!node.group) return;
    laidOut.open(node.key, !node.expanded);
  }

  /** Return the selected blocks, without those inside of other selected ones. */
  function selectedNodes() {
    const selected = new Set(store.selection);
    const isIn = (key: string) => view.index.groupsOf(key).some(({ path }) => selected.has(path));
    return view.scene.nodes.filter(({ key, path }) => selected.has(path) && !isIn(key));
  }

  /** Return the keys of the blocks that move with a block: all selected ones if it is one of them. */
  function movedWith({ key }: SceneNode): ReadonlySet<string> {
    const keys = new Set(selectedNodes().map((node) => node.key));
    return keys.has(key) ? keys : new Set([key]);
  }

  function shift(keys: ReadonlySet<string>, dx: number, dy: number) {
    const nodes = view.scene.nodes.filter(({ key }) => keys.has(key));
    laidOut.move(nodes.map((node) => placeOf(node, node.x + dx, node.y + dy)));
  }

  function placeOf({ path, parent }: SceneNode, x: number, y: number): BlockPlace {
    const frame = view.index.node(parent);
    return [path, Math.round(x - (frame?.x ?? 0)), Math.round(y - (frame?.y ?? 0))];
  }

  function arrange({ title, axis, arrange }: Arrangement) {
    const nodes = selectedNodes();
    const at = arrange(nodes);
    const places = nodes.map((node, i) =>
      axis === "x" ? placeOf(node, at[i]!, node.y) : placeOf(node, node.x, at[i]!),
    );
    laidOut.move(places, title.toLowerCase());
  }

  /** Select the other blocks of the level of the selected blocks. */
  function invert() {
    const selected = new Set(store.selection);
    const level = parentOf(store.selection[0] ?? "");
    const paths = Object.keys(store.snapshot.blocks).filter((path) => parentOf(path) === level);
    store.pinBlocks(paths.filter((path) => !selected.has(path)));
    return true;
  }

  /** Move blocks by a step with each key; the release of a key sends their new places once. */
  function nudge(node: SceneNode, key: string) {
    const [dx, dy] = STEPS[key] ?? [0, 0];
    const from = nudging?.node.key === node.key ? nudging : { dx: 0, dy: 0 };
    nudging = { node, dx: from.dx + dx * STEP, dy: from.dy + dy * STEP };
    view.move(draggedBy(view.index, movedWith(node), nudging.dx, nudging.dy));
    return true;
  }

  function endNudge() {
    const nudged = nudging;
    nudging = null;
    if (nudged) shift(movedWith(nudged.node), nudged.dx, nudged.dy);
  }

  function key(event: KeyboardEvent, node: SceneNode | undefined) {
    const isMove = event.altKey && event.shiftKey && !event.ctrlKey && !event.metaKey && event.key in STEPS;
    if (isMove && node?.path) return nudge(node, event.key);
    if (hasModifier(event)) return false;
    if (event.key === "Delete" || event.key === "Backspace") return removeSelected(node);
    if (questions.key(event)) return true;
    if (event.key === "v") return invert();
    if (!node) return false;
    if (isRepeat(node) && (event.key === "F2" || event.key === "c"))
      toggle(node); // its blocks can be edited
    else if (event.key === "F2") rename(node.key);
    else if (event.key === "c") connect(node);
    else return false;
    return true;
  }

  function actionsFor(node: SceneNode | null, edge: SceneEdge | null): MenuAction[] {
    const remove = { title: "Remove (Delete)", act: () => void removeSelected(node ?? undefined) };
    if (edge) return [remove];
    if (!node)
      return [
        { title: "Add a block… (n)", act: () => void startFromBlock() },
        {
          title: "Select all blocks (Ctrl+A)",
          act: () => store.pinBlocks(Object.keys(store.snapshot.blocks).filter((path) => parentOf(path) === "")),
        },
        { title: "Invert the selection (v)", act: () => void invert() },
        { title: "Tidy up the layout", act: () => void store.command("tidy") },
      ];
    const selected = selectedNodes();
    if (selected.length > 1 && movedWith(node).size > 1)
      return [
        { title: "Align, distribute…", act: () => openArrangements(node) },
        { title: `Remove ${selected.length} blocks (Delete)`, act: remove.act },
        ...questions.actions(),
      ];
    const edits = [
      { title: "Rename (F2)", act: () => void rename(node.key) },
      { title: "Connect to… (c)", act: () => connect(node) },
      remove,
    ];
    return [...(node.path ? edits : pathsOf(node).length ? [remove] : []), ...questions.actions()];
  }

  function openArrangements(node: SceneNode) {
    const { length } = selectedNodes();
    const { right = 0, top = 0 } = view.elementOf(node.key)?.getBoundingClientRect() ?? {};
    const choices = ARRANGEMENTS.filter(({ least }) => length >= least);
    const actions = choices.map((choice) => ({ title: choice.title, act: () => arrange(choice) }));
    openMenu(view.root, "Align, distribute", actions, right, top, () => view.focus(node.key));
  }

  function connect(node: SceneNode) {
    const beside = view.elementOf(node.key) ?? view.root;
    closeMenu();
    closeMenu = openConnectMenu(store, view, root, node, beside);
  }

  /** Rename a block in place; return whether it is drawn. */
  function rename(key: string) {
    const node = view.scene.nodes.find((one) => one.key === key);
    if (!node?.path) return false;
    view.reveal(key);
    const element = view.elementOf(key);
    if (!element || element.querySelector(".mnb-rename")) return false;
    const slot = h("div", { class: "mnb-rename-slot" });
    element.append(slot);
    const close = (byKey: boolean) => {
      if (byKey) element.focus({ preventScroll: true });
      render(null, slot);
      slot.remove();
    };
    const take = (name: string) => store.command("rename", { path: node.path, name });
    render(createElement(NameField, { name: node.name, take, close }), slot);
    return true;
  }

  /** Remove the selected edge or blocks, else the focused block; return whether anything was removed. */
  function removeSelected(focused?: SceneNode) {
    const edge = view.scene.edges.find((candidate) => candidate.id === store.selectedEdge);
    if (edge) {
      const { source, target } = edge;
      const repeat = view.scene.nodes.find((node) => isRepeat(node) && (node.key === source || node.key === target));
      if (repeat) {
        toggle(repeat); // the connection belongs to a block inside
        return true;
      }
      store.command("disconnect", { source, target }, `Removed ${source} → ${target}. Undo: Ctrl+Z`);
      return true;
    }
    const { selection } = store;
    const paths = selection.length ? selection : focused ? [...pathsOf(focused)] : [];
    if (paths.length) store.remove(paths);
    return paths.length > 0;
  }

  return {
    root,
    destroy,
    questions,
    toScene: view.toScene,
    contains: view.contains,
    keepClearOf,
    showPalette,
    startFromBlock,
    /** Rename the first selected block in place; return whether a block is selected. */
    renameSelected: () => rename(store.selection[0] ?? ""),
    removeSelected,
  };
}

export type Canvas = ReturnType<typeof createCanvas>;

/** Return whether a node represents a repeated part of the model. */
function isRepeat(node: SceneNode) {
  return node.group && !node.path;
}

/** Return the paths of the blocks that a node represents. */
function pathsOf(node: SceneNode) {
  return node.path ? [node.path] : (node.blocks ?? []);
}
