/** Drags a new wire from a port, or an end of a wire, to the nearest port, and gives why a port is refused. */

import { followPointer } from "../dom/events";
import type { Tip } from "../controls/tip";
import type { Wire } from "../graph/painter";
import { type SceneEdge, type SceneNode, endId } from "../graph/scene";
import type { GraphView } from "../graph/view";
import type { Store } from "../store/store";
import { shapeProblem } from "./connect-menu";
import { type PortRef, connectionProblem, portsOf, targetsOf } from "./graph";

const SNAP = 28;
const DRAG_PX = 4;
/** Distance in px on the screen from an output port within which a press on its edge begins a new wire. */
const PORT_PX = 12;

/** A wire that is dragged: the end that stays, and the edge whose other end moves; null for a new wire. */
export interface Pull {
  fixed: PortRef;
  edge: SceneEdge | null;
}

export function createWiring(
  store: Store,
  tip: Tip,
  view: GraphView,
  ended: () => void,
  dropped: (fixed: PortRef, event: PointerEvent) => void,
) {
  const { board } = view;

  /** Begin to drag once the pointer has moved by `least` px. */
  function begin(event: PointerEvent, { fixed, edge }: Pull, least = edge ? DRAG_PX : 0) {
    const isForward = fixed.side === "output";
    const from = [fixed.node.x + fixed.port.x, fixed.node.y + fixed.port.y] as const;
    let hasMoved = false;
    let end: PortRef | null = null;
    let problem: string | null = null;
    const start = () => {
      hasMoved = true;
      board.classList.add("mnb-wiring");
      if (!isForward) return;
      const possible = new Set(targetsOf(view.index, fixed).map(({ target }) => target.node.key));
      const isOut = ({ key }: { key: string }) => !possible.has(key) && key !== fixed.node.key;
      view.paint({ dimmed: new Set(view.scene.nodes.filter(isOut).map(({ key }) => key)) });
    };
    const move = (moved: PointerEvent) => {
      if (!hasMoved && Math.hypot(moved.clientX - event.clientX, moved.clientY - event.clientY) < least) return;
      if (!hasMoved) start();
      const at = view.toScene(moved.clientX, moved.clientY);
      end = nearest(fixed, at, edge !== null);
      const isBack = end !== null && end.endpoint === (isForward ? edge?.target : edge?.source);
      const ends = end && (isForward ? ([fixed, end] as const) : ([end, fixed] as const));
      problem = ends && !isBack ? connectionProblem(view.index, ...ends) : null;
      const to = end ? ([end.node.x + end.port.x, end.node.y + end.port.y] as const) : ([at.x, at.y] as const);
      const wire: Wire = { from, to, tone: problem ? "bad" : end ? "good" : "plain" };
      view.paint({ wire });
      const text =
        problem ?? (ends ? `${ends[0].endpoint} → ${ends[1].endpoint}` : edge ? "Release to disconnect" : "");
      if (text) tip.show([text], moved.clientX, moved.clientY, problem ? "error" : undefined);
      else tip.hide();
    };
    const finish = (last: PointerEvent, isReleased: boolean) => {
      board.classList.remove("mnb-wiring");
      if (!hasMoved) return;
      ended();
      tip.hide();
      if (isReleased && !end && !edge) return dropped(fixed, last); // the wire stays while a block is searched
      view.paint({ wire: null });
      if (!isReleased || problem) return;
      if (!end) disconnect(edge!);
      else if (!edge) store.command("connect", { source: fixed.endpoint, target: end.endpoint });
      else if (!isForward) store.command("connect", { source: end.endpoint, target: fixed.endpoint });
      else if (end.endpoint !== edge.target)
        store.command("reconnect", { source: edge.source, target: edge.target, to: end.endpoint });
    };
    followPointer(board, event, move, finish);
    move(event);
  }

  /** Begin to drag a parameter to another block, which then uses it too. */
  function shareFrom(event: PointerEvent, { node, port, endpoint }: PortRef) {
    const paramsOf = ({ path }: SceneNode) =>
      (store.snapshot.blocks[path]?.params ?? []).filter(({ is_trainable }) => is_trainable !== null);
    const own = paramsOf(node).find((param) => param.port === port.name)!;
    const from = [node.x + port.x, node.y + port.y] as const;
    let target = "";
    const fitting = (over: SceneNode) => {
      const params = paramsOf(over);
      const fit = params.filter((param) => !shapeProblem(own, param));
      return { param: [...fit, ...params].find(({ port: name }) => name === port.name) ?? fit[0] ?? params[0], fit };
    };
    const move = ({ clientX, clientY }: PointerEvent) => {
      board.classList.add("mnb-wiring");
      const { x, y } = view.toScene(clientX, clientY);
      const isOver = (over: SceneNode) => x >= over.x && x <= over.x + over.w && y >= over.y && y <= over.y + over.h;
      const over = view.scene.nodes.findLast((other) => other.path && other !== node && isOver(other));
      const param = over && fitting(over).param;
      const problem = param ? shapeProblem(own, param) : over ? `“${over.name}” has no parameters.` : "";
      target = param && !problem ? endId(over.key, param.port) : "";
      const isOut = (other: SceneNode) => other !== node && !other.expanded && !fitting(other).fit.length;
      view.paint({
        wire: { from, to: [x, y], tone: problem ? "bad" : target ? "good" : "plain" },
        dimmed: new Set(view.scene.nodes.filter(isOut).map(({ key }) => key)),
      });
      const text = problem || (target ? `${target} uses ${endpoint}` : "Drop it on the block that shares it");
      tip.show([text], clientX, clientY, problem ? "error" : undefined);
    };
    followPointer(board, event, move, (_, isReleased) => {
      board.classList.remove("mnb-wiring");
      ended();
      tip.hide();
      view.paint({ wire: null });
      if (isReleased && target) store.command("share", { source: endpoint, target });
    });
  }

  function disconnect({ source, target }: SceneEdge) {
    store.command("disconnect", { source, target }, `Removed ${source} → ${target}. Undo: Ctrl+Z`);
  }

  /** Begin to drag the end of an edge that is nearer to the pointer, or at its output port a new wire. */
  function pull(event: PointerEvent, edge: SceneEdge) {
    const [source, target] = (["output", "input"] as const).map((side) =>
      portsOf(view.scene, side).find(({ endpoint }) => endpoint === (side === "output" ? edge.source : edge.target)),
    );
    if (!source || !target) return; // a port of an open group
    const at = view.toScene(event.clientX, event.clientY);
    const far = ({ node, port }: PortRef) => Math.hypot(at.x - node.x - port.x, at.y - node.y - port.y);
    const isAtSource = far(source) < far(target);
    if (isAtSource && far(source) * view.scale <= PORT_PX) begin(event, { fixed: source, edge: null }, DRAG_PX);
    else begin(event, { fixed: isAtSource ? target : source, edge });
  }

  /** Return the port that a wire reaches; an edge is not moved to an output of the model. */
  function nearest(fixed: PortRef, at: { x: number; y: number }, isEdge: boolean) {
    const side = fixed.side === "output" ? "input" : "output";
    let best: PortRef | null = null;
    let least = SNAP;
    for (const ref of portsOf(view.scene, side)) {
      const { node, port } = ref;
      if (isEdge && side === "input" && !node.path) continue;
      // A drop anywhere on a block with one port connects to that port.
      const inside =
        node !== fixed.node &&
        (side === "input" ? node.inputs : node.outputs).length === 1 &&
        at.x >= node.x &&
        at.x <= node.x + node.w &&
        at.y >= node.y &&
        at.y <= node.y + node.h;
      const distance = inside ? SNAP / 2 : Math.hypot(at.x - node.x - port.x, at.y - node.y - port.y);
      if (distance < least) {
        least = distance;
        best = ref;
      }
    }
    return best;
  }

  return { begin, pull, shareFrom, disconnect };
}
