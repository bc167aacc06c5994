/** The view of a graph: a canvas with pan and zoom, and an accessible tree over it. */

import { type MenuAction, openMenu } from "../controls/menu";
import type { Tip } from "../controls/tip";
import { oncePerFrame, together } from "../dom/calls";
import { h, zoomOf } from "../dom/dom";
import { isWriting } from "../dom/focus";
import { type Colours, readColours, watchColours } from "../drawing/colours";
import type { Rect } from "../drawing/lines";
import { LEAST, type View, Zoom } from "../drawing/zoom";
import { type DragOptions, Gestures } from "./gestures";
import { type Description, Items } from "./items";
import { Motion } from "./motion";
import { Crumbs, Minimap } from "./orientation";
import { type Moved, type PaintState, PLAIN, Painter, STILL } from "./painter";
import { type Scene, type SceneEdge, SceneIndex, type SceneNode } from "./scene";
import { Walk } from "./walk";

export interface GraphOptions {
  /** The accessible name of the tree. */
  label: string;
  tip?: Tip;
  describe: (node: SceneNode) => Description;
  describeEdge?: (edge: SceneEdge) => readonly string[];
  hover?: (node: SceneNode | null) => void;
  /** Select a node; `event` is the click, if any. */
  select: (node: SceneNode, add: boolean, event?: MouseEvent) => void;
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
  /** Return the px at each side of the frame that something else covers; at the left, only for a while. */
  covered?: () => { left: number; right: number; top: number; bottom: number };
  decorate?: (parts: HTMLElement, node: SceneNode) => void;
  decorateEdge?: (element: HTMLElement, edge: SceneEdge) => void;
  /** Handle a key before the view does; return whether it had a meaning. */
  key?: (event: KeyboardEvent, node: SceneNode | undefined) => boolean;
}

const MARGIN = 14;
/** Largest and smallest scale of the first view. */
const LARGEST_FIT = 1.15;
const SMALLEST_FIRST = 0.35;
/** Revealed nodes that are smaller than this on the screen are enlarged. */
const LEAST_REVEALED_PX = 14;
/** Length of the graph that stays in view, however far the user pans. */
const KEPT_PX = 80;
/** The tree items follow when the view has rested for this time. */
const REST_MS = 90;

export class GraphView {
  readonly root: HTMLElement;
  readonly board: HTMLElement;
  readonly destroy: () => void;
  private readonly canvas = h("canvas", { class: "mnb-graph-canvas", "aria-hidden": "true" }) as HTMLCanvasElement;
  private readonly painter = new Painter();
  private readonly items: Items;
  private readonly zoom: Zoom;
  private readonly minimap: Minimap;
  private readonly crumbs: Crumbs;
  private readonly redraw = oncePerFrame(() => this.draw());
  private state: PaintState = PLAIN;
  private moved: Moved = STILL;
  private motion: Motion | null = null;
  private colours: Colours | null = null;
  private size = { width: 0, height: 0 };
  private hasUserView = false;
  private rest: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly options: GraphOptions) {
    this.items = new Items(this.painter, options);
    this.board = h(
      "div",
      { class: "mnb-board", role: "tree", "aria-label": options.label, "aria-multiselectable": "true", tabindex: -1 },
      this.canvas,
      this.items.root,
    );
    this.minimap = new Minimap(
      this.painter,
      (x, y) => this.centre(x, y, true),
      () => this.redraw(),
    );
    this.crumbs = new Crumbs(
      (key) => this.focus(key),
      () => this.fit(),
    );
    this.root = h("div", { class: "mnb-graph" }, this.board, this.crumbs.root, this.minimap.root);
    const gestures = new Gestures(
      this.board,
      this.painter,
      this.items,
      {
        describe: options.describe,
        describeEdge:
          options.describeEdge ??
          ((edge) => [edge.is_carried ? "For the next round of the loop" : "", edge.shape].filter(Boolean)),
        open: options.open,
        drag: options.drag,
        hover: (node, edge) => this.hover(node, edge),
        press: (node) => this.focusItem(node.key),
        click: (node, edge, event) => this.click(node, edge, event),
        menu: (node, edge, event) => this.openMenu(node, edge, event),
      },
      (event) => (this.size.width ? { ...this.toScene(event.clientX, event.clientY), k: this.zoom.view.k } : null),
      options.tip,
    );
    this.zoom = new Zoom(this.board, {
      pans: (event) => gestures.pans(event),
      // The wheel scrolls the notebook unless the graph has the focus or Ctrl is pressed.
      wheels: (event) => event.ctrlKey || event.metaKey || this.root.contains(this.activeElement()),
      changed: (_, byUser) => this.changedView(byUser),
      kept: (view) => this.kept(view),
    });
    const walk = new Walk(this.walked());
    this.board.addEventListener("keydown", (event) => {
      if ((event.target as Element).closest("input")) return;
      if (!options.key?.(event, this.painter.index.node(this.items.active)) && !walk.press(event)) return;
      event.preventDefault();
      event.stopPropagation();
    });
    this.board.addEventListener("focusin", (event) => {
      const key = this.items.keyOf(event.target as Element);
      if (key === null) return;
      this.setActive(key);
      this.items.paint(this.state);
    });
    this.board.addEventListener("focusout", () => this.items.paint(this.state));
    // The browser scrolls to focused or found elements; the view moves instead.
    this.board.addEventListener("scroll", () => {
      const { scrollLeft, scrollTop } = this.board;
      if (!scrollLeft && !scrollTop) return;
      this.board.scrollTo(0, 0);
      this.pan(-scrollLeft, -scrollTop);
    });
    const watcher = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(() => this.resized());
    watcher?.observe(this.board);
    this.destroy = together(
      () => watcher?.disconnect(),
      watchColours(this.root, () => this.recolour()),
      () => clearTimeout(this.rest),
      () => this.minimap.destroy(),
      () => options.tip?.hide(),
    );
  }

  get scene(): Scene {
    return this.index.scene;
  }

  get index(): SceneIndex {
    return this.painter.index;
  }

  /** Key of the node in the tab order. */
  get active(): string {
    return this.items.active;
  }

  get scale(): number {
    return this.zoom.view.k;
  }

  /** Show a scene. The node at `anchor` stays where it is on the screen, and the others move to their new places. */
  show(scene: Scene, { anchor }: { anchor?: string | undefined } = {}): void {
    const part = this.part();
    const old = {
      index: this.painter.index,
      view: this.zoom.view,
      moved: this.moved,
      keys: part ? this.painter.nodesIn(part).map(({ key }) => key) : [],
    };
    const hadFocus = this.items.focused && !isWriting(this.activeElement());
    const place = old.index.at(this.items.active);
    this.painter.show(new SceneIndex(scene));
    this.moved = STILL;
    const { index } = this.painter;
    if (!index.node(this.items.active)) {
      // Renamed or removed: the focus moves to the node that replaced it.
      const next =
        scene.nodes.find(({ key }) => this.state.selected.has(key) && !old.index.node(key)) ??
        scene.nodes[Math.min(Math.max(place, 0), scene.nodes.length - 1)];
      this.items.active = next?.key ?? "";
    }
    const isNew =
      scene.width !== old.index.scene.width ||
      scene.height !== old.index.scene.height ||
      scene.nodes.length !== old.index.scene.nodes.length ||
      scene.nodes.some(({ key }, i) => key !== old.index.scene.nodes[i]!.key);
    const [before, after] = anchor === undefined ? [] : [old.index.node(anchor), index.node(anchor)];
    const { view } = this.zoom;
    if (before && after)
      this.zoom.set({ ...view, x: view.x + (before.x - after.x) * view.k, y: view.y + (before.y - after.y) * view.k });
    else if (isNew && !this.hasUserView) this.fitFirst();
    else if (isNew) this.zoom.view = this.kept(view);
    const fresh = this.part();
    this.motion =
      fresh && old.keys.length && !prefersLessMotion()
        ? Motion.plan(old, this.painter, this.zoom.view, fresh, performance.now())
        : null;
    this.updateItems();
    if (hadFocus && !this.items.focused) this.focusItem(this.items.active);
    this.redraw();
  }

  /** Change the state of the picture: hover, selection, dimmed nodes, overlay, edges. */
  paint(state: Partial<PaintState>): void {
    const before = this.state;
    this.state = { ...before, ...state };
    if (before.selectedEdge === this.state.selectedEdge && before.overlay === this.state.overlay)
      this.items.paint(this.state);
    else this.updateItems();
    this.redraw();
  }

  /**
   * Draw some nodes and edges elsewhere, until the next call or the next scene. Moved nodes stay where they are put.
   */
  move(moved: Moved): void {
    this.hasUserView ||= moved !== STILL;
    this.items.place(moved, this.moved);
    this.moved = moved;
    this.motion = null;
    this.redraw();
  }

  /** Show the whole graph. */
  fit(): void {
    this.fitTo(0);
  }

  /** Zoom about the centre. */
  zoomBy(factor: number): void {
    this.zoom.by(factor);
  }

  /** Move the focus to a node, and show it. */
  focus(key: string): void {
    if (!this.painter.index.node(key)) return;
    this.reveal(key);
    this.focusItem(key);
  }

  /** Move the view as little as possible, so that a node is visible. */
  reveal(key: string): void {
    const node = this.painter.index.node(key);
    const { top, height, ...free } = this.free;
    const left = this.options.covered?.().left ?? 0;
    const width = free.width - left;
    if (!node || !free.width) return;
    this.setActive(key);
    const { view } = this.zoom;
    if (Math.min(node.w, node.h) * view.k < LEAST_REVEALED_PX) {
      this.zoom.view = { ...view, k: 1 };
      return this.centre(node.x + node.w / 2, node.y + node.h / 2, true);
    }
    const shift = (from: number, length: number, room: number): number =>
      from < MARGIN || length > room - 2 * MARGIN ? MARGIN - from : Math.min(0, room - MARGIN - from - length);
    const [x, y] = [node.x * view.k + view.x - left, node.y * view.k + view.y - top];
    const isIn =
      x >= 0 &&
      y >= 0 &&
      x + Math.min(node.w * view.k, width) <= width &&
      y + Math.min(node.h * view.k, height) <= height;
    if (!isIn) this.pan(shift(x, node.w * view.k, width), shift(y, node.h * view.k, height));
  }

  /** Convert a point of the window to the coordinates of the scene. */
  toScene(clientX: number, clientY: number): { x: number; y: number } {
    const box = this.board.getBoundingClientRect();
    const zoom = zoomOf(this.board);
    return this.zoom.invert((clientX - box.left) / zoom, (clientY - box.top) / zoom);
  }

  contains(clientX: number, clientY: number): boolean {
    const box = this.board.getBoundingClientRect();
    return clientX >= box.left && clientX <= box.right && clientY >= box.top && clientY <= box.bottom;
  }

  /** Return the element of a node; nodes far outside of the view have none. */
  elementOf(key: string): HTMLElement | undefined {
    return this.items.elementOf(key);
  }

  /** Draw the whole graph, with the legend of its overlay, as PNG (very large graphs smaller than `scale`) or SVG. */
  toPng = (scale = 2): Promise<Blob> =>
    this.painter.toPng((this.colours ??= readColours(this.root)), this.state, scale);
  toSvg = (title: string): string => this.painter.toSvg((this.colours ??= readColours(this.root)), this.state, title);

  private walked(): ConstructorParameters<typeof Walk>[0] {
    const view = this;
    return {
      get index() {
        return view.painter.index;
      },
      get active() {
        return view.items.active;
      },
      isSelected: (key) => view.state.selected.has(key),
      focus: (key) => view.focus(key),
      select: (node, add) => view.options.select(node, add),
      toggle: (node) => view.options.toggle?.(node),
      zoomBy: (factor) => view.zoomBy(factor),
      fit: () => view.fit(),
    };
  }

  private hover(node: SceneNode | null, edge: SceneEdge | null): void {
    const pointed = node?.key ?? "";
    if (pointed !== this.items.pointed) this.options.hover?.(node);
    this.items.pointed = pointed;
    this.paint({ hoveredEdge: edge?.id ?? null });
  }

  private click(node: SceneNode | null, edge: SceneEdge | null, event: MouseEvent): void {
    if (node) {
      this.setActive(node.key);
      this.options.select(node, event.shiftKey, event);
    } else if (edge && this.options.selectEdge) {
      this.options.selectEdge(edge);
      this.board.focus({ preventScroll: true }); // the board handles Delete
    } else this.options.clear?.(event);
  }

  private openMenu(node: SceneNode | null, edge: SceneEdge | null, event: MouseEvent): void {
    const { options } = this;
    if (node) {
      this.focusItem(node.key);
      if (!this.state.selected.has(node.key)) options.select(node, false, event);
    } else {
      if (edge) options.selectEdge?.(edge);
      this.board.focus({ preventScroll: true });
    }
    const toggle =
      node?.group && options.toggle
        ? [{ title: node.expanded ? "Close" : "Open", act: () => options.toggle!(this.index.node(node.key) ?? node) }]
        : [];
    const actions = [
      ...toggle,
      ...(options.actions?.(node, edge) ?? []),
      { title: "Show the whole graph", act: () => this.fit() },
    ];
    openMenu(this.root, node ? node.name : "Graph", actions, event.clientX, event.clientY, () =>
      node ? this.focusItem(node.key) : this.board.focus({ preventScroll: true }),
    );
  }

  private setActive(key: string): void {
    if (this.items.active !== key) {
      this.items.active = key;
      if (this.items.elementOf(key)) this.items.paint(this.state);
      else this.updateItems();
    }
    this.crumbs.show(this.painter.index.groupsOf(key));
  }

  /** Move the focus to a node. A node outside of the view gets an element first. */
  private focusItem(key: string): void {
    this.setActive(key);
    if (!this.items.elementOf(key)) this.updateItems();
    this.items.elementOf(key)?.focus({ preventScroll: true });
  }

  private activeElement(): Element | null {
    return (this.root.getRootNode() as Document | ShadowRoot).activeElement;
  }

  /** Return the visible part of the scene; null while the size of the frame is unknown. */
  private part(): Rect | null {
    if (!this.size.width && this.board.clientWidth) this.resized();
    const { width, height } = this.size;
    const { x, y, k } = this.zoom.view;
    return width ? { x: -x / k, y: -y / k, w: width / k, h: height / k } : null;
  }

  /** The size of the frame without what something else covers. */
  private get free(): { top: number; width: number; height: number } {
    const { width, height } = this.size;
    const { right, top, bottom } = this.options.covered?.() ?? { right: 0, top: 0, bottom: 0 };
    return {
      top: Math.min(height / 4, top),
      width: Math.max(width / 2, width - right),
      height: Math.max(height * 0.75, height - top) - Math.min(height / 4, bottom),
    };
  }

  /**
   * Fit the graph again, because something else covers more or less of the frame, unless the user has moved the view.
   * After a click in the graph nothing moves: the second click of a double-click would miss.
   */
  refit(): void {
    const isPointed = this.root.closest<HTMLElement>("[data-mnb-input]")?.dataset["mnbInput"] === "pointer";
    if (isPointed && this.root.contains(this.activeElement())) return;
    if (!this.hasUserView) this.fitFirst();
    else this.reveal(this.items.active);
  }

  private measure(): void {
    this.size = { width: this.board.clientWidth, height: this.board.clientHeight };
  }

  private resized(): void {
    const { width, height } = this.size;
    this.measure();
    if (this.size.width === width && this.size.height === height) return;
    if (this.hasUserView) this.zoom.set(this.kept(this.zoom.view));
    else this.fitFirst();
    this.redraw();
  }

  private fitFirst(): void {
    this.fitTo(SMALLEST_FIRST);
  }

  /** Show the whole graph, or its start if it would become smaller than `least`. */
  private fitTo(least: number): void {
    if (!this.size.width) this.measure();
    const { top, width, height } = this.free;
    const { x, y, w, h: tall } = this.painter.bounds;
    if (!width || !height || !this.scene.nodes.length) return;
    const edge = top ? MARGIN / 2 : MARGIN; // the cover has its own margin
    const whole = Math.min(LARGEST_FIT, (width - 2 * MARGIN) / Math.max(1, w), (height - 2 * edge) / Math.max(1, tall));
    const k = Math.max(least, whole);
    this.zoom.least = Math.min(LEAST, whole);
    this.zoom.set({
      x: Math.max(MARGIN, (width - w * k) / 2) - x * k,
      y: top + Math.max(edge, (height - tall * k) / 2) - y * k,
      k,
    });
    this.hasUserView = false;
  }

  private pan(dx: number, dy: number): void {
    const { view } = this.zoom;
    this.zoom.set(this.kept({ ...view, x: view.x + dx, y: view.y + dy }));
    this.hasUserView = true;
  }

  /** Return the nearest view in which a part of the graph is visible. */
  private kept(view: View): View {
    const { x, y, w, h: tall } = this.painter.bounds;
    const { top, width, height } = this.free;
    if (!width || !this.scene.nodes.length) return view;
    const keep = (at: number, start: number, length: number, from: number, to: number): number => {
      const least = Math.min(KEPT_PX, length * view.k, (to - from) / 2);
      return Math.max(from + least - (start + length) * view.k, Math.min(at, to - least - start * view.k));
    };
    return { ...view, x: keep(view.x, x, w, 0, width), y: keep(view.y, y, tall, top, top + height) };
  }

  private centre(x: number, y: number, isByUser: boolean): void {
    const { k } = this.zoom.view;
    this.zoom.set({ x: this.size.width / 2 - x * k, y: this.size.height / 2 - y * k, k });
    this.hasUserView = isByUser;
  }

  private changedView(byUser: boolean): void {
    this.redraw();
    if (!byUser) return this.updateItems();
    this.hasUserView = true;
    // While the user moves the view, only the picture follows.
    this.board.classList.add("mnb-moving");
    clearTimeout(this.rest);
    this.rest = setTimeout(() => this.updateItems(), REST_MS);
  }

  private updateItems(): void {
    clearTimeout(this.rest);
    this.board.classList.remove("mnb-moving");
    this.items.update(this.part(), this.zoom.view, this.state);
    this.items.place(this.moved, STILL);
    this.crumbs.show(this.painter.index.groupsOf(this.items.active));
  }

  private recolour(): void {
    this.colours = null;
    this.redraw();
  }

  private draw(): void {
    const part = this.part();
    const c = this.canvas.getContext("2d");
    if (!part || !c || !this.root.isConnected) return;
    const { width, height } = this.size;
    const ratio = Math.min(3, (globalThis.devicePixelRatio || 1) * zoomOf(this.board));
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      Object.assign(this.canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    }
    const colours = (this.colours ??= readColours(this.root));
    const moved = this.motion?.at(performance.now()) ?? null;
    if (this.motion && !moved) this.motion = null;
    this.painter.draw(c, this.zoom.view, { width, height, ratio }, colours, this.state, moved ?? this.moved);
    this.minimap.draw(part, ratio, colours, this.state);
    if (this.motion) this.redraw();
  }
}

function prefersLessMotion(): boolean {
  return globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? false;
}
