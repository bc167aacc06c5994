/** The pointer on a graph: hover, click, double-click, and dragging nodes. Panning is in `zoom.ts`. */

import { followPointer } from "../dom/events";
import type { Tip } from "../controls/tip";
import { h, zoomOf } from "../dom/dom";
import type { Rect } from "../drawing/lines";
import type { Description, Items } from "./items";
import type { Painter } from "./painter";
import type { SceneEdge, SceneNode } from "./scene";

const DRAG_PX = 4;
export const EDGE_PX = 7;
/** Height of the title of a frame, by which it is dragged; the rest of it pans. */
const TITLE = 24;
const CONTROLS = "button, input, [data-mnb-port]";

export interface DragOptions {
  isMovable(node: SceneNode): boolean;
  /** Show the node at a place or near it, and return where it is shown. */
  move(node: SceneNode, x: number, y: number, event: PointerEvent): Pick<Rect, "x" | "y">;
  drop(node: SceneNode, x: number, y: number): void;
  cancel(node: SceneNode): void;
}

/**
 * Begin a marquee: return a function that shows the nodes in it as selected, and selects them at the end. `add` keeps
 * the nodes that were selected before.
 */
export type Marquee = () => (nodes: readonly SceneNode[], add: boolean, isDone: boolean) => void;

interface PointerActions {
  describe(node: SceneNode): Description;
  describeEdge?: ((edge: SceneEdge) => readonly string[]) | undefined;
  hover(node: SceneNode | null, edge: SceneEdge | null): void;
  press(node: SceneNode): void;
  click(node: SceneNode | null, edge: SceneEdge | null, event: MouseEvent): void;
  open?: ((node: SceneNode) => void) | undefined;
  /** Open a menu for a node, an edge or the background. */
  menu(node: SceneNode | null, edge: SceneEdge | null, event: MouseEvent): void;
  drag?: DragOptions | undefined;
  /** Without it, a drag of the background pans. */
  marquee?: Marquee | undefined;
  /** Follow a press on an edge. */
  pull?: ((event: PointerEvent, edge: SceneEdge) => void) | undefined;
  /** Return whether the key is held with which every drag pans. */
  isPanning(): boolean;
}

interface Press {
  node: SceneNode | null;
  edge: SceneEdge | null;
  x: number;
  y: number;
  hasMoved: boolean;
}

export function createGestures(
  board: HTMLElement,
  painter: Painter,
  items: Items,
  actions: PointerActions,
  placeOf: (event: MouseEvent) => { x: number; y: number; k: number } | null,
  tip?: Tip,
) {
  let pressed: Press | null = null;
  let isDragging = false;
  /** The node of the first click of a double-click: the click may have moved the graph. */
  let first: { key: string; opens: boolean } | null = null;
  let over: { node: SceneNode | null; edge: SceneEdge | null } = { node: null, edge: null };
  board.addEventListener("pointerdown", down);
  board.addEventListener("pointermove", move);
  board.addEventListener("pointerleave", () => hover(null, null));
  board.addEventListener("mousedown", (event) => {
    // The press has focused the node already; the browser would focus the board, or scroll by the middle button.
    if ((pressed?.node || event.button === 1) && !isControl(event.target)) event.preventDefault();
  });
  board.addEventListener("click", click);
  board.addEventListener("dblclick", (event) => {
    const { key, opens } = first ?? opened(at(event).node, event);
    const node = painter.index.node(key);
    if (!node || !opens || isControl(event.target)) return;
    event.preventDefault();
    actions.open?.(node);
  });
  board.addEventListener("contextmenu", (event) => {
    if ((event.target as Element).closest("input")) return;
    event.preventDefault();
    tip?.hide();
    const { node, edge } = at(event);
    actions.menu(node, edge, event);
  });

  /**
   * Return whether a press pans: with the middle button or a held key, by touch on the background, and with any pointer
   * where nothing is selected by a marquee or dragged.
   */
  function pans(event: PointerEvent) {
    if (event.button === 1 || actions.isPanning()) return true;
    const isFree = !isControl(event.target) && !isMovable(at(event).node, event);
    if (isFree && actions.pull && at(event).edge) return false;
    return isFree && (!actions.marquee || event.pointerType === "touch");
  }

  /** Return the node or edge at the pointer. Edges are above the frames of open groups, and below boxes. */
  function at(event: MouseEvent): { node: SceneNode | null; edge: SceneEdge | null } {
    const target = event.target as Element | null;
    const edgeId = target?.closest<HTMLElement>("[data-mnb-edge]")?.dataset["mnbEdge"];
    if (edgeId !== undefined)
      return { node: null, edge: painter.index.scene.edges.find((edge) => edge.id === edgeId) ?? null };
    const key = items.keyOf(target);
    const item = key === null ? null : (painter.index.node(key) ?? null);
    const place = placeOf(event);
    if (!place || isControl(target)) return { node: item, edge: null };
    const node = painter.nodeAt(place.x, place.y);
    const edge = node && !node.expanded ? null : painter.edgeAt(place.x, place.y, EDGE_PX / place.k);
    return edge ? { node: null, edge } : { node, edge: null };
  }

  function isMovable(node: SceneNode | null, event: MouseEvent): node is SceneNode {
    if (!node || !actions.drag?.isMovable(node)) return false;
    return !node.expanded || isTitle(node, event);
  }

  /** Return the key of a node, and whether a double-click opens it: an open group by its title, not by its inside. */
  function opened(node: SceneNode | null, event: MouseEvent) {
    return { key: node?.key ?? "", opens: node !== null && (!node.expanded || isTitle(node, event)) };
  }

  function isTitle(node: SceneNode, event: MouseEvent) {
    return (placeOf(event)?.y ?? node.y) <= node.y + TITLE;
  }

  function down(event: PointerEvent) {
    pressed = null;
    if (event.button !== 0 || isControl(event.target)) return;
    const { node, edge } = at(event);
    pressed = { node, edge, x: event.clientX, y: event.clientY, hasMoved: false };
    tip?.hide();
    if (actions.isPanning()) return;
    if (node) actions.press(node);
    if (isMovable(node, event)) drag(event, node, pressed);
    else if (edge && actions.pull) actions.pull(event, edge);
    else if (actions.marquee && !pans(event)) drawMarquee(event, actions.marquee(), pressed);
  }

  function drawMarquee(event: PointerEvent, select: ReturnType<Marquee>, press: Press) {
    const from = placeOf(event);
    if (!from) return;
    const frame = h("div", { class: "mnb-marquee" });
    let nodes: SceneNode[] = [];
    const move = (moved: PointerEvent) => {
      const to = placeOf(moved);
      if (!to || Math.hypot(moved.clientX - event.clientX, moved.clientY - event.clientY) < DRAG_PX) return;
      press.hasMoved = true;
      const [x, y] = [Math.min(from.x, to.x), Math.min(from.y, to.y)];
      const part: Rect = { x, y, w: Math.abs(to.x - from.x), h: Math.abs(to.y - from.y) };
      items.put(frame, part);
      if (!frame.isConnected) items.root.append(frame);
      nodes = touched(part);
      select(nodes, moved.shiftKey, false);
    };
    followPointer(board, event, move, (last) => {
      frame.remove();
      if (press.hasMoved) select(nodes, last.shiftKey, true);
    });
  }

  /** Return the nodes that meet a rectangle: open groups only as a whole, and then without the nodes inside. */
  function touched(part: Rect) {
    const isInside = ({ x, y, w, h }: Rect) =>
      x >= part.x && y >= part.y && x + w <= part.x + part.w && y + h <= part.y + part.h;
    const nodes = painter.nodesIn(part).filter((node) => !node.expanded || isInside(node));
    const keys = new Set(nodes.map(({ key }) => key));
    return nodes.filter(({ key }) => !painter.index.groupsOf(key).some((group) => keys.has(group.key)));
  }

  function drag(event: PointerEvent, node: SceneNode, press: Press) {
    const drag = actions.drag!;
    const k = placeOf(event)?.k ?? 1;
    let at: Pick<Rect, "x" | "y"> = node;
    const move = (moved: PointerEvent) => {
      const zoom = zoomOf(board);
      const [dx, dy] = [(moved.clientX - event.clientX) / zoom, (moved.clientY - event.clientY) / zoom];
      if (!isDragging && Math.hypot(dx, dy) < DRAG_PX) return;
      isDragging = press.hasMoved = true;
      board.classList.add("mnb-dragging");
      at = drag.move(node, node.x + dx / k, node.y + dy / k, moved);
    };
    const done = (_: PointerEvent, isReleased: boolean) => {
      board.classList.remove("mnb-dragging");
      if (isDragging && isReleased) drag.drop(node, at.x, at.y);
      else if (isDragging) drag.cancel(node);
      isDragging = false;
    };
    followPointer(board, event, move, done);
  }

  function move(event: PointerEvent) {
    const press = pressed;
    if (press && event.buttons && Math.hypot(event.clientX - press.x, event.clientY - press.y) >= DRAG_PX)
      press.hasMoved = true;
    if (event.buttons) return;
    const { node, edge } = at(event);
    hover(node, edge);
    if (!tip) return;
    const lines = isControl(event.target)
      ? []
      : node
        ? actions.describe(node).tip
        : edge
          ? (actions.describeEdge?.(edge) ?? [])
          : [];
    if (lines.length) tip.later(lines, event.clientX, event.clientY);
    else tip.hide();
  }

  function hover(node: SceneNode | null, edge: SceneEdge | null) {
    if (node?.key === over.node?.key && edge?.id === over.edge?.id) return;
    over = { node, edge };
    board.classList.toggle("mnb-over-edge", edge !== null);
    board.classList.toggle("mnb-over-node", node !== null && !node.expanded);
    if (!node && !edge) tip?.hide();
    actions.hover(node, edge);
  }

  function click(event: MouseEvent) {
    const press = pressed;
    pressed = null;
    if (event.detail === 1) first = isControl(event.target) ? null : opened((press ?? at(event)).node, event);
    if (press?.hasMoved || event.detail > 1 || isControl(event.target)) return;
    // While the pointer is captured, the board is the target of its events.
    const { node, edge } = press ?? at(event);
    actions.click(node, edge, event);
  }

  return pans;
}

function isControl(target: EventTarget | null) {
  return (target as Element | null)?.closest?.(CONTROLS) != null;
}
