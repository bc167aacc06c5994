/** The view of a graph: a canvas with pan and zoom, and an accessible tree over it. */

import { handled, hasModifier, watchSize } from "../dom/events";
import { type MenuAction, openMenu } from "../controls/menu";
import type { Tip } from "../controls/tip";
import { oncePerFrame, together } from "../dom/calls";
import { focusedAt, h, zoomOf } from "../dom/dom";
import { isWriting } from "../dom/focus";
import { type Colours, readColours, watchColours } from "../drawing/colours";
import type { Rect } from "../drawing/lines";
import { createZoom, LEAST, type View } from "../drawing/zoom";
import { createGestures, EDGE_PX, type DragOptions, type Marquee } from "./gestures";
import { createItems, type Description } from "./items";
import { type Motion, planMotion } from "./motion";
import { createCrumbs, createMinimap } from "./orientation";
import { createPainter, type Moved, type PaintState, PLAIN, STILL } from "./painter";
import { boundsOf, renamedNodes, type Scene, type SceneEdge, SceneIndex, type SceneNode } from "./scene";
import { type GraphWalk, createWalk } from "./walk";

export interface GraphOptions {
  /** The accessible name of the tree. */
  label: string;
  tip?: Tip;
  describe: (node: SceneNode) => Description;
  describeEdge?: (edge: SceneEdge) => readonly string[];
  hover?: (node: SceneNode | null) => void;
  select: (node: SceneNode, add: boolean) => void;
  /** Open or close a group. */
  toggle?: (node: SceneNode) => void;
  /** Handle a click on the background. */
  clear?: (event: MouseEvent) => void;
  selectEdge?: (edge: SceneEdge) => void;
  /** Handle a double-click. */
  open?: (node: SceneNode) => void;
  /** Return the actions of the menu of a node, an edge or the background. */
  actions?: (node: SceneNode | null, edge: SceneEdge | null) => readonly MenuAction[];
  drag?: DragOptions;
  /** Select nodes by a drag of the background, which then pans only while Space is held or with the middle button. */
  marquee?: Marquee;
  /** Follow a press on an edge, which may drag one of its ends. */
  pull?: (event: PointerEvent, edge: SceneEdge) => void;
  /** Return the px at sides of the frame that something else covers; at the left, only for a while. */
  covered?: () => { left: number; top: number };
  decorate?: (parts: HTMLElement, node: SceneNode) => void;
  decorateEdge?: (element: HTMLElement, edge: SceneEdge) => void;
  /** Lay out the graph again: `rowWidth` of the view has changed. */
  rewrap?: () => void;
  /** Handle a key before the view does; return whether it had a meaning. */
  key?: (event: KeyboardEvent, node: SceneNode | undefined) => boolean;
}

const MARGIN = 14;
/** Largest scale of the first view, the scale at which a full row fills it, and the least if all is then in view. */
const LARGEST_FIT = 1.15;
const ROW_SCALE = 0.92;
const LEAST_FIT = 0.7;
/** For this time after the first drawing, parts of the page beside the frame may still appear. */
const SETTLING_MS = 1000;
/** Room in px for wires beside a row. */
const BESIDE = 12;
/** Revealed nodes that are smaller than this on the screen are enlarged. */
const LEAST_REVEALED_PX = 14;
/** Length of the graph that stays in view, however far the user pans. */
const KEPT_PX = 80;
/** The tree items follow when the view has rested for this time. */
const REST_MS = 90;

export function createGraphView(options: GraphOptions) {
  const canvas = h("canvas", { class: "mnb-graph-canvas", "aria-hidden": "true" }) as HTMLCanvasElement;
  const painter = createPainter();
  const redraw = oncePerFrame(draw);
  let look: PaintState = PLAIN;
  let places: Moved = STILL;
  let motion: Motion | null = null;
  let palette: Colours | null = null;
  let size = { width: 0, height: 0, top: 0 };
  /** The longest row that fills the frame; 0 until the frame has a size. It stays until the graph is tidied. */
  let rowWidth = 0;
  /** When the graph was first laid out for the size of the frame, by `performance.now`. */
  let wrappedAt: number | null = null;
  let hasUserView = false;
  /** Whether the user fitted the whole graph, which then stays whole as the frame changes. */
  let isFitWhole = false;
  let rest: ReturnType<typeof setTimeout> | undefined;
  /** The press of Space, while it is held to pan; its release selects if nothing was panned. */
  let held: KeyboardEvent | null = null;
  const items = createItems(painter, options);
  const board = h(
    "div",
    { class: "mnb-board", role: "tree", "aria-label": options.label, "aria-multiselectable": "true", tabindex: -1 },
    canvas,
    items.root,
  );
  const minimap = createMinimap(
    painter,
    (x, y) => centre(x, y, true),
    () => redraw(),
  );
  const crumbs = createCrumbs(focus, () => fit());
  const back = h(
    "button",
    { type: "button", class: "mnb-button mnb-back", hidden: true, "data-mnb-action": "graph.back", onclick: goBack },
    "Back to the graph",
  );
  const root = h("div", { class: "mnb-graph" }, board, crumbs.root, minimap.root, back);
  const pans = createGestures(
    board,
    painter,
    items,
    {
      describe: options.describe,
      describeEdge:
        options.describeEdge ??
        ((edge) => [edge.is_carried ? "For the next round of the loop" : "", edge.shape].filter(Boolean)),
      open: options.open,
      drag: options.drag,
      marquee: options.marquee,
      pull: options.pull,
      isPanning: () => held !== null,
      hover: hover,
      press: (node) => focusItem(node.key),
      click: click,
      menu: (node, edge, event) => openMenuOf(node, edge, event.clientX, event.clientY),
    },
    (event) => (size.width ? { ...toScene(event.clientX, event.clientY), k: zooming.view.k } : null),
    options.tip,
  );
  const zooming = createZoom(board, {
    pans,
    // The wheel scrolls the notebook unless the graph has the focus or Ctrl is pressed.
    wheels: (event) => event.ctrlKey || event.metaKey || root.contains(focusedAt(root)),
    changed: (_, byUser) => changedView(byUser),
    kept: kept,
  });
  const walk = createWalk();
  board.addEventListener("keydown", (event) => {
    if ((event.target as Element).closest("input")) return;
    if (event.key === "ContextMenu" || (event.key === "F10" && event.shiftKey)) return openMenuByKey(event);
    const isHeld = options.marquee && event.key === " " && !hasModifier(event);
    if (isHeld) hold(held ?? event);
    else if (!options.key?.(event, painter.index.node(items.active)) && !walk(event, walked())) return;
    handled(event);
  });
  board.addEventListener("keyup", (event) => {
    const press = held;
    if (event.key !== " ") return;
    hold(null);
    if (press) walk(press, walked());
  });
  board.addEventListener("focusin", (event) => {
    const key = items.keyOf(event.target as Element);
    if (key === null) return;
    setActive(key);
    items.paint(look);
  });
  board.addEventListener("focusout", () => {
    hold(null);
    // Later: Chromium sends this while `paint` removes a part with the focus, which must not be removed twice.
    queueMicrotask(() => items.paint(look));
  });
  // The browser scrolls to focused or found elements; the view moves instead.
  board.addEventListener("scroll", () => {
    const { scrollLeft, scrollTop } = board;
    if (!scrollLeft && !scrollTop) return;
    board.scrollTo(0, 0);
    pan(-scrollLeft, -scrollTop);
  });
  const destroy = together(
    watchSize(board, resized),
    watchColours(root, recolour),
    () => clearTimeout(rest),
    minimap.destroy,
    () => options.tip?.hide(),
  );

  function hold(press: KeyboardEvent | null) {
    held = press;
    board.classList.toggle("mnb-panning", press !== null);
  }

  /** Show a scene. The node at `anchor` stays where it is on the screen, and the others move to their new places. */
  function show(scene: Scene, { anchor }: { anchor?: string | undefined } = {}) {
    const lastWidth = rowWidth;
    const part = visiblePart();
    // The frame has a size now, for which the graph was laid out again and shown.
    if (rowWidth !== lastWidth && options.rewrap) return;
    const old = {
      index: painter.index,
      view: zooming.view,
      moved: places,
      keys: part ? painter.nodesIn(part).map(({ key }) => key) : [],
    };
    const hadFocus = items.focused && !isWriting(focusedAt(root));
    const place = old.index.at(items.active);
    painter.show(new SceneIndex(scene));
    places = STILL;
    const { index } = painter;
    const fresh = scene.nodes.filter(({ key }) => !old.index.node(key));
    const gone = old.index.scene.nodes.filter(({ key }) => !index.node(key));
    items.rename(renamedNodes(gone, fresh));
    if (!index.node(items.active)) {
      // Removed: the focus moves to the node that replaced it.
      const next =
        fresh.find(({ key }) => look.selected.has(key)) ??
        scene.nodes[Math.min(Math.max(place, 0), scene.nodes.length - 1)];
      items.active = next?.key ?? "";
    }
    const isNew =
      scene.width !== old.index.scene.width ||
      scene.height !== old.index.scene.height ||
      scene.nodes.length !== old.index.scene.nodes.length ||
      scene.nodes.some(({ key }, i) => key !== old.index.scene.nodes[i]!.key);
    const still = anchor ?? (isNew ? scene.nodes.find(({ key }) => old.index.node(key))?.key : undefined) ?? "";
    const [before, after] = [old.index.node(still), index.node(still)];
    let { view } = zooming;
    if (before && after)
      view = { ...view, x: view.x + (before.x - after.x) * view.k, y: view.y + (before.y - after.y) * view.k };
    if (anchor !== undefined) zooming.set(view);
    else if (isNew) {
      const isEdit = 2 * gone.length < old.index.scene.nodes.length;
      if (hasUserView || (isEdit && isWhole(view))) zooming.set(kept(view));
      else fitRows();
      const added = isEdit && fresh.at(-1);
      if (added) {
        if (!items.focused) items.active = added.key;
        bringIn(added);
      }
    }
    const seen = visiblePart();
    motion =
      seen && old.keys.length && !prefersLessMotion()
        ? planMotion(old, painter, zooming.view, seen, performance.now())
        : null;
    updateItems();
    if (hadFocus && !items.focused) focusItem(items.active);
    redraw();
  }

  /** Return whether a view shows the whole graph. */
  function isWhole({ x, y, k }: View) {
    const { top, width, height } = free();
    const bounds = painter.bounds;
    const [left, above] = [bounds.x * k + x, bounds.y * k + y];
    return left >= 0 && above >= top && left + bounds.w * k <= width && above + bounds.h * k <= top + height;
  }

  /** Change the state of the picture: hover, selection, dimmed nodes, overlay, edges. */
  function paint(state: Partial<PaintState>) {
    const before = look;
    look = { ...before, ...state };
    if (before.selectedEdge === look.selectedEdge && before.overlay === look.overlay) items.paint(look);
    else updateItems();
    redraw();
  }

  /**
   * Draw some nodes and edges elsewhere, until the next call or the next scene. Moved nodes stay where they are put.
   */
  function move(moved: Moved) {
    hasUserView ||= moved !== STILL;
    items.place(moved, places);
    places = moved;
    motion = null;
    redraw();
  }

  /** Move the focus to a node, and show it. */
  function focus(key: string) {
    if (!painter.index.node(key)) return;
    reveal(key);
    focusItem(key);
  }

  /** Show a node, which becomes the active one. */
  function reveal(key: string) {
    const node = painter.index.node(key);
    if (!node || !free().width) return;
    setActive(key);
    bringIn(node);
  }

  /** Move the view as little as possible, so that a node is visible. */
  function bringIn(node: SceneNode) {
    const { top, height, ...room } = free();
    const left = options.covered?.().left ?? 0;
    const width = room.width - left;
    if (!room.width) return;
    const { view } = zooming;
    if (Math.min(node.w, node.h) * view.k < LEAST_REVEALED_PX) {
      zooming.view = { ...view, k: 1 };
      return centre(node.x + node.w / 2, node.y + node.h / 2, true);
    }
    const shift = (from: number, length: number, room: number) => {
      if (from >= 0 && from + Math.min(length, room) <= room) return 0;
      return from < MARGIN || length > room - 2 * MARGIN ? MARGIN - from : room - MARGIN - from - length;
    };
    const dx = shift(node.x * view.k + view.x - left, node.w * view.k, width);
    const dy = shift(node.y * view.k + view.y - top, node.h * view.k, height);
    if (dx || dy) pan(dx, dy);
  }

  /** Convert a point of the window to the coordinates of the scene. */
  function toScene(clientX: number, clientY: number) {
    const box = board.getBoundingClientRect();
    const zoom = zoomOf(board);
    return zooming.invert((clientX - box.left) / zoom, (clientY - box.top) / zoom);
  }

  function contains(clientX: number, clientY: number) {
    const box = board.getBoundingClientRect();
    return clientX >= box.left && clientX <= box.right && clientY >= box.top && clientY <= box.bottom;
  }

  /** Draw the whole graph, with the legend of its overlay, as PNG (very large graphs smaller than `scale`) or SVG. */
  function toPng(scale = 2): Promise<Blob> {
    return painter.toPng((palette ??= readColours(root)), look, scale);
  }

  function toSvg(title: string) {
    return painter.toSvg((palette ??= readColours(root)), look, title);
  }

  /** What the keys act on. */
  function walked(): GraphWalk {
    return {
      index: painter.index,
      active: items.active,
      isSelected: (key) => look.selected.has(key),
      focus,
      select: options.select,
      toggle: (node) => options.toggle?.(node),
      zoomBy: (factor) => zooming.by(factor),
      fit,
      fitSelection,
    };
  }

  function hover(node: SceneNode | null, edge: SceneEdge | null) {
    const pointed = node?.key ?? "";
    if (pointed !== items.pointed) options.hover?.(node);
    items.pointed = pointed;
    paint({ hoveredEdge: edge?.id ?? null });
  }

  function click(node: SceneNode | null, edge: SceneEdge | null, event: MouseEvent) {
    if (node) {
      setActive(node.key);
      options.select(node, event.shiftKey);
    } else if (edge && options.selectEdge) {
      options.selectEdge(edge);
      board.focus({ preventScroll: true }); // the board handles Delete
    } else options.clear?.(event);
  }

  /** Open the menu of the focused node, else of the selected edge, else of the background. */
  function openMenuByKey(event: KeyboardEvent) {
    handled(event);
    const node = items.focused ? (painter.index.node(items.active) ?? null) : null;
    const edge = node ? null : (painter.index.scene.edges.find(({ id }) => id === look.selectedEdge) ?? null);
    const { left, top, width, height } = ((node && items.elementOf(node.key)) || board).getBoundingClientRect();
    openMenuOf(node, edge, left + width / 2, top + height / 2);
  }

  function openMenuOf(node: SceneNode | null, edge: SceneEdge | null, x: number, y: number) {
    if (node) {
      focusItem(node.key);
      if (!look.selected.has(node.key)) options.select(node, false);
    } else {
      if (edge) options.selectEdge?.(edge);
      board.focus({ preventScroll: true });
    }
    const toggle =
      node?.group && options.toggle
        ? [
            {
              title: node.expanded ? "Close" : "Open",
              keys: node.expanded ? "←" : "→",
              act: () => options.toggle!(painter.index.node(node.key) ?? node),
            },
          ]
        : [];
    const actions = [
      ...toggle,
      ...(options.actions?.(node, edge) ?? []),
      ...(look.selected.size ? [{ title: "Zoom to the selection", keys: "Z", starts: true, act: fitSelection }] : []),
      { title: "Show the whole graph", keys: "0", starts: !look.selected.size, act: () => fit() },
    ];
    openMenu(root, node ? node.name : "Graph", actions, x, y, () =>
      node ? focusItem(node.key) : board.focus({ preventScroll: true }),
    );
  }

  function setActive(key: string) {
    if (items.active !== key) {
      items.active = key;
      if (items.elementOf(key)) items.paint(look);
      else updateItems();
    }
    crumbs.show(painter.index.groupsOf(key));
  }

  /** Move the focus to a node. A node outside of the view gets an element first. */
  function focusItem(key: string) {
    setActive(key);
    if (!items.elementOf(key)) updateItems();
    items.elementOf(key)?.focus({ preventScroll: true });
  }

  /** Return the visible part of the scene; null while the size of the frame is unknown. */
  function visiblePart(): Rect | null {
    if (!size.width && board.clientWidth) resized();
    const { width, height } = size;
    const { x, y, k } = zooming.view;
    return width ? { x: -x / k, y: -y / k, w: width / k, h: height / k } : null;
  }

  /** The size of the frame without what something else covers. */
  function free() {
    const { width, height } = size;
    const top = options.covered?.().top ?? 0;
    return {
      top: Math.min(height / 3, top),
      width,
      height: Math.max(height * (2 / 3), height - top),
    };
  }

  function measure() {
    size = { width: board.clientWidth, height: board.clientHeight, top: options.covered?.().top ?? 0 };
  }

  /** Fit the graph into the frame when its size has changed, or when something covers more of it. */
  function resized() {
    const { width, height, top } = size;
    measure();
    if (size.width === width && size.height === height && size.top <= top) return;
    if (!rowWidth || performance.now() - (wrappedAt ??= performance.now()) < SETTLING_MS) rewrap();
    else if (hasUserView) zooming.set(kept(zooming.view));
    else if (isFitWhole) fit();
    else fitRows();
    redraw();
  }

  /** Lay out the graph for the frame: in longer rows than usual if only these show it whole. */
  function rewrap() {
    hasUserView = false;
    const tries = [ROW_SCALE, LEAST_FIT, ROW_SCALE].findIndex((scale) => {
      measure();
      rowWidth = size.width && Math.max(1, (free().width - 2 * MARGIN) / scale - BESIDE);
      options.rewrap?.();
      // Rows that are a third longer are at least half as many.
      return !size.width || wholeScale() >= LEAST_FIT || 2 * wholeScale() < LEAST_FIT;
    });
    if (tries) motion = null; // from a layout that was never drawn
    fitRows();
  }

  /** Return the scale at which a part of the graph fits into the frame. */
  function wholeScale({ w, h } = painter.bounds) {
    const { top, width, height } = free();
    const across = (width - 2 * MARGIN) / Math.max(1, w);
    return Math.min(LARGEST_FIT, across, (height - 2 * edgeBelow(top)) / Math.max(1, h));
  }

  function edgeBelow(top: number) {
    return top ? MARGIN / 2 : MARGIN; // the cover has its own margin
  }

  /** Show the whole graph, or its start if full rows would not fill the frame. */
  function fitRows() {
    if (rowWidth) fit(Math.min(LARGEST_FIT, (free().width - 2 * MARGIN) / (rowWidth + BESIDE)));
  }

  /**
   * Show the whole graph, or a part of it, or its start beside the minimap if it would become smaller than `least` and
   * `LEAST_FIT`.
   */
  function fit(least = 0, part = painter.bounds) {
    if (!size.width) measure();
    const { top, height, ...room } = free();
    const { x, y, w, h: tall } = part;
    if (!room.width || !height || !painter.index.scene.nodes.length) return;
    const whole = wholeScale(part);
    const isStart = whole < Math.min(least, LEAST_FIT);
    const width = room.width - (isStart ? minimap.sizeIn(size.height).w : 0);
    const k = isStart ? Math.min(least, Math.max(LEAST_FIT, (width - 2 * MARGIN) / w)) : whole;
    if (part === painter.bounds) zooming.least = Math.min(LEAST, whole);
    zooming.set({
      x: Math.max(MARGIN, (width - w * k) / 2) - x * k,
      y: top + Math.max(edgeBelow(top), (height - tall * k) / 2) - y * k,
      k,
    });
    hasUserView = part !== painter.bounds;
    isFitWhole = least === 0;
  }

  /** Show the selected nodes as large as they fit, or the whole graph if none is selected. */
  function fitSelection() {
    const nodes = painter.index.scene.nodes.filter(({ key }) => look.selected.has(key));
    fit(0, boundsOf({ ...painter.index.scene, nodes, edges: [] }) ?? painter.bounds);
  }

  function goBack() {
    fit();
    board.focus({ preventScroll: true });
  }

  function pan(dx: number, dy: number) {
    const { view } = zooming;
    zooming.set(kept({ ...view, x: view.x + dx, y: view.y + dy }));
    hasUserView = true;
  }

  /** Return the nearest view in which a part of the graph is visible. */
  function kept(view: View) {
    const { x, y, w, h: tall } = painter.bounds;
    const { top, width, height } = free();
    if (!width || !painter.index.scene.nodes.length) return view;
    const keep = (at: number, start: number, length: number, from: number, to: number) => {
      const least = Math.min(KEPT_PX, length * view.k, (to - from) / 2);
      return Math.max(from + least - (start + length) * view.k, Math.min(at, to - least - start * view.k));
    };
    return { ...view, x: keep(view.x, x, w, 0, width), y: keep(view.y, y, tall, top, top + height) };
  }

  function centre(x: number, y: number, isByUser: boolean) {
    const { k } = zooming.view;
    zooming.set({ x: size.width / 2 - x * k, y: size.height / 2 - y * k, k });
    hasUserView = isByUser;
  }

  function changedView(byUser: boolean) {
    redraw();
    if (!byUser) return updateItems();
    hasUserView = true;
    if (held) held = new KeyboardEvent("keydown"); // it has panned, so its release selects nothing
    // While the user moves the view, only the picture follows.
    board.classList.add("mnb-moving");
    clearTimeout(rest);
    rest = setTimeout(updateItems, REST_MS);
  }

  function updateItems() {
    clearTimeout(rest);
    board.classList.remove("mnb-moving");
    items.update(visiblePart(), zooming.view, look);
    items.place(places, STILL);
    crumbs.show(painter.index.groupsOf(items.active));
    const part = visiblePart();
    back.hidden = !part || !painter.bounds.w || painter.nodesIn(part).some(({ expanded }) => !expanded);
  }

  function recolour() {
    palette = null;
    redraw();
  }

  function draw() {
    const part = visiblePart();
    const c = canvas.getContext("2d");
    if (!part || !c || !root.isConnected) return;
    const { width, height } = size;
    const ratio = Math.min(3, (globalThis.devicePixelRatio || 1) * zoomOf(board));
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    }
    const colours = (palette ??= readColours(root));
    const moved = motion?.at(performance.now()) ?? null;
    if (motion && !moved) motion = null;
    painter.draw(c, zooming.view, { width, height, ratio }, colours, look, moved ?? places);
    minimap.draw(part, zooming.view.k, ratio, colours, look);
    if (motion) redraw();
  }

  return {
    root,
    board,
    destroy,
    get scene() {
      return painter.index.scene;
    },
    get index() {
      return painter.index;
    },
    /** Key of the node in the tab order. */
    get active() {
      return items.active;
    },
    get scale() {
      return zooming.view.k;
    },
    show,
    paint,
    move,
    fit: () => fit(),
    /** Zoom about the centre. */
    zoomBy: (factor: number) => zooming.by(factor),
    focus,
    reveal,
    /** Return the nodes that meet the frame. */
    visible: () => {
      const part = visiblePart();
      return part ? painter.nodesIn(part) : [];
    },
    toScene,
    contains,
    /** Return the edge near a point of the scene. */
    edgeAt: (x: number, y: number) => painter.edgeAt(x, y, EDGE_PX / zooming.view.k),
    elementOf: items.elementOf,
    /** Return the key of the node whose item contains an element. */
    keyOf: items.keyOf,
    toPng,
    toSvg,
    /** Length of the rows of the graph; undefined until the frame has a size. */
    get rowWidth() {
      return rowWidth || undefined;
    },
    rewrap,
    resized,
  };
}

export type GraphView = ReturnType<typeof createGraphView>;

function prefersLessMotion() {
  return globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;
}
