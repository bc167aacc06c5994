/** Drags a connection from an output to the nearest input, and shows a reason if it is not allowed. */

import { followPointer } from "../dom/events";
import type { Tip } from "../controls/tip";
import type { Wire } from "../graph/painter";
import { type Port, type SceneNode, endId } from "../graph/scene";
import type { GraphView } from "../graph/view";
import type { Store } from "../store/store";
import { type PortRef, connectionProblem, portsOf } from "./graph";

const SNAP = 28;

export function createWiring(store: Store, tip: Tip, view: GraphView) {
  function begin(event: PointerEvent, node: SceneNode, port: Port) {
    const { board } = view;
    const source: PortRef = { node, port, side: "output", endpoint: endId(node.key, port.name) };
    const from = [node.x + port.x, node.y + port.y] as const;
    board.classList.add("mnb-wiring");
    let target: PortRef | null = null;
    let problem: string | null = null;
    const move = (moved: PointerEvent) => {
      const at = view.toScene(moved.clientX, moved.clientY);
      target = nearest(source, at);
      problem = target ? connectionProblem(view.index, source, target) : null;
      const to = target
        ? ([target.node.x + target.port.x, target.node.y + target.port.y] as const)
        : ([at.x, at.y] as const);
      const wire: Wire = { from, to, tone: problem ? "bad" : target ? "good" : "plain" };
      view.paint({ wire });
      if (problem) tip.show([problem], moved.clientX, moved.clientY, "error");
      else if (target) tip.show([`${source.endpoint} → ${target.endpoint}`], moved.clientX, moved.clientY);
      else tip.hide();
    };
    const finish = (_: PointerEvent, isReleased: boolean) => {
      board.classList.remove("mnb-wiring");
      view.paint({ wire: null });
      tip.hide();
      if (isReleased && target && !problem)
        store.command("connect", { source: source.endpoint, target: target.endpoint });
    };
    followPointer(board, event, move, finish);
    move(event);
  }

  function nearest(source: PortRef, at: { x: number; y: number }) {
    let best: PortRef | null = null;
    let least = SNAP;
    for (const ref of portsOf(view.scene, "input")) {
      const { node, port } = ref;
      // A drop anywhere on a block with one input connects to that input.
      const inside =
        node !== source.node &&
        node.inputs.length === 1 &&
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

  return begin;
}
