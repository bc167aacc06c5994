/** The pointer on a graph: hover, click, double-click, and dragging nodes. Panning is in `zoom.ts`. */

import type { Tip } from "../controls/tip";
import { zoomOf } from "../dom/dom";
import type { Description, Items } from "./items";
import type { Painter } from "./painter";
import type { SceneEdge, SceneNode } from "./scene";

const DRAG_PX = 4;
const EDGE_PX = 7;
/** Height of the title of a frame, by which it is dragged; the rest of it pans. */
const TITLE = 24;
const CONTROLS = "button, input, [data-mnb-port]";

export interface DragOptions {
  isMovable(node: SceneNode): boolean;
  /** Show the node at a place. */
  move(node: SceneNode, x: number, y: number): void;
  drop(node: SceneNode, x: number, y: number): void;
  cancel(node: SceneNode): void;
}

export interface PointerActions {
  describe(node: SceneNode): Description;
  describeEdge?: ((edge: SceneEdge) => readonly string[]) | undefined;
  hover(node: SceneNode | null, edge: SceneEdge | null): void;
  press(node: SceneNode): void;
  click(node: SceneNode | null, edge: SceneEdge | null, event: MouseEvent): void;
  open?: ((node: SceneNode) => void) | undefined;
  /** Open a menu for a node, an edge or the background. */
  menu(node: SceneNode | null, edge: SceneEdge | null, event: MouseEvent): void;
  drag?: DragOptions | undefined;
}

interface Press {
  node: SceneNode | null;
  edge: SceneEdge | null;
  x: number;
  y: number;
  hasMoved: boolean;
}

export class Gestures {
  private pressed: Press | null = null;
  private isDragging = false;
  /** The node of the first click of a double-click: the click may have moved the graph. */
  private first: { key: string; opens: boolean } | null = null;
  private over: { node: SceneNode | null; edge: SceneEdge | null } = { node: null, edge: null };

  constructor(
    private readonly board: HTMLElement,
    private readonly painter: Painter,
    private readonly items: Items,
    private readonly actions: PointerActions,
    private readonly place: (event: MouseEvent) => { x: number; y: number; k: number } | null,
    private readonly tip?: Tip,
  ) {
    board.addEventListener("pointerdown", (event) => this.down(event));
    board.addEventListener("pointermove", (event) => this.move(event));
    board.addEventListener("pointerleave", () => this.hover(null, null));
    board.addEventListener("mousedown", (event) => {
      // The press has focused the node already; the browser would focus the board.
      if (this.pressed?.node && !isControl(event.target)) event.preventDefault();
    });
    board.addEventListener("click", (event) => this.click(event));
    board.addEventListener("dblclick", (event) => {
      const { key, opens } = this.first ?? this.opened(this.at(event).node, event);
      const node = this.painter.index.node(key);
      if (!node || !opens || isControl(event.target)) return;
      event.preventDefault();
      this.actions.open?.(node);
    });
    board.addEventListener("contextmenu", (event) => {
      if ((event.target as Element).closest("input")) return;
      event.preventDefault();
      this.tip?.hide();
      const { node, edge } = this.at(event);
      this.actions.menu(node, edge, event);
    });
  }

  /** Return whether a press pans: on the background, and on nodes that cannot be dragged. */
  pans(event: PointerEvent): boolean {
    return !isControl(event.target) && !this.isMovable(this.at(event).node, event);
  }

  /** Return the node or edge at the pointer. Edges are above the frames of open groups, and below boxes. */
  private at(event: MouseEvent): { node: SceneNode | null; edge: SceneEdge | null } {
    const target = event.target as Element | null;
    const edgeId = target?.closest<HTMLElement>("[data-mnb-edge]")?.dataset["mnbEdge"];
    if (edgeId !== undefined)
      return { node: null, edge: this.painter.index.scene.edges.find((edge) => edge.id === edgeId) ?? null };
    const key = this.items.keyOf(target);
    const item = key === null ? null : (this.painter.index.node(key) ?? null);
    const place = this.place(event);
    if (!place || isControl(target)) return { node: item, edge: null };
    const node = this.painter.nodeAt(place.x, place.y);
    const edge = node && !node.expanded ? null : this.painter.edgeAt(place.x, place.y, EDGE_PX / place.k);
    return edge ? { node: null, edge } : { node, edge: null };
  }

  private isMovable(node: SceneNode | null, event: MouseEvent): node is SceneNode {
    if (!node || !this.actions.drag?.isMovable(node)) return false;
    return !node.expanded || this.isTitle(node, event);
  }

  /** Return the key of a node, and whether a double-click opens it: an open group by its title, not by its inside. */
  private opened(node: SceneNode | null, event: MouseEvent): { key: string; opens: boolean } {
    return { key: node?.key ?? "", opens: node !== null && (!node.expanded || this.isTitle(node, event)) };
  }

  private isTitle(node: SceneNode, event: MouseEvent): boolean {
    return (this.place(event)?.y ?? node.y) <= node.y + TITLE;
  }

  private down(event: PointerEvent): void {
    this.pressed = null;
    if (event.button !== 0 || isControl(event.target)) return;
    const { node, edge } = this.at(event);
    this.pressed = { node, edge, x: event.clientX, y: event.clientY, hasMoved: false };
    this.tip?.hide();
    if (!node) return;
    this.actions.press(node);
    if (this.isMovable(node, event)) this.drag(event, node, this.pressed);
  }

  private drag(event: PointerEvent, node: SceneNode, press: Press): void {
    const drag = this.actions.drag!;
    const k = this.place(event)?.k ?? 1;
    let at = { x: node.x, y: node.y };
    this.board.setPointerCapture(event.pointerId);
    const move = (moved: PointerEvent): void => {
      const zoom = zoomOf(this.board);
      const [dx, dy] = [(moved.clientX - event.clientX) / zoom, (moved.clientY - event.clientY) / zoom];
      if (!this.isDragging && Math.hypot(dx, dy) < DRAG_PX) return;
      this.isDragging = press.hasMoved = true;
      at = { x: node.x + dx / k, y: node.y + dy / k };
      this.board.classList.add("mnb-dragging");
      drag.move(node, at.x, at.y);
    };
    const done = (ended: PointerEvent): void => {
      this.board.removeEventListener("pointermove", move);
      this.board.removeEventListener("pointerup", done);
      this.board.removeEventListener("pointercancel", done);
      this.board.classList.remove("mnb-dragging");
      if (this.isDragging && ended.type === "pointerup") drag.drop(node, at.x, at.y);
      else if (this.isDragging) drag.cancel(node);
      this.isDragging = false;
    };
    this.board.addEventListener("pointermove", move);
    this.board.addEventListener("pointerup", done);
    this.board.addEventListener("pointercancel", done);
  }

  private move(event: PointerEvent): void {
    const press = this.pressed;
    if (press && event.buttons && Math.hypot(event.clientX - press.x, event.clientY - press.y) >= DRAG_PX)
      press.hasMoved = true;
    if (event.buttons) return;
    const { node, edge } = this.at(event);
    this.hover(node, edge);
    if (!this.tip) return;
    const lines = isControl(event.target)
      ? []
      : node
        ? this.actions.describe(node).tip
        : edge
          ? (this.actions.describeEdge?.(edge) ?? [])
          : [];
    if (lines.length) this.tip.later(lines, event.clientX, event.clientY);
    else this.tip.hide();
  }

  private hover(node: SceneNode | null, edge: SceneEdge | null): void {
    if (node?.key === this.over.node?.key && edge?.id === this.over.edge?.id) return;
    this.over = { node, edge };
    this.board.classList.toggle("mnb-over-edge", edge !== null);
    this.board.classList.toggle("mnb-over-node", node !== null && !node.expanded);
    if (!node && !edge) this.tip?.hide();
    this.actions.hover(node, edge);
  }

  private click(event: MouseEvent): void {
    const press = this.pressed;
    this.pressed = null;
    if (event.detail === 1)
      this.first = isControl(event.target) ? null : this.opened((press ?? this.at(event)).node, event);
    if (press?.hasMoved || event.detail > 1 || isControl(event.target)) return;
    // While the pointer is captured, the board is the target of its events.
    const { node, edge } = press ?? this.at(event);
    this.actions.click(node, edge, event);
  }
}

function isControl(target: EventTarget | null): boolean {
  return (target as Element | null)?.closest?.(CONTROLS) != null;
}
