/** Drags a connection from an output to the nearest input, and shows a reason if it is not allowed. */

import type { Tip } from "../controls/tip";
import { svg } from "../dom/dom";
import type { GraphNode, Port } from "../kernel/types";
import type { Store } from "../store/store";
import { type PortRef, curve, endpointOf, keyOf, portsOf, connectionProblem } from "./graph";

const SNAP = 28;

export class Wiring {
  constructor(
    private readonly store: Store,
    private readonly tip: Tip,
    private readonly layer: SVGGElement,
    private readonly board: HTMLElement,
    private readonly place: (event: PointerEvent) => { x: number; y: number },
  ) {}

  begin(event: PointerEvent, node: GraphNode, port: Port): void {
    const source: PortRef = { node, port, side: "output", endpoint: endpointOf(node, port) };
    const from = { x: node.x + port.x, y: node.y + port.y };
    const wire = svg("path", { class: "mnb-wire" });
    this.layer.append(wire);
    this.board.classList.add("mnb-wiring");
    this.board.setPointerCapture(event.pointerId);
    let target: PortRef | null = null;
    let problem: string | null = null;
    const move = (moved: PointerEvent): void => {
      const at = this.place(moved);
      target = this.nearest(source, at);
      problem = target ? connectionProblem(this.store.snapshot.graph, source, target) : null;
      const end = target ? { x: target.node.x + target.port.x, y: target.node.y + target.port.y } : at;
      wire.setAttribute("d", curve(from.x, from.y, end.x, end.y));
      wire.setAttribute("class", problem ? "mnb-wire mnb-wrong" : target ? "mnb-wire mnb-snapped" : "mnb-wire");
      this.mark(target, problem);
      if (problem) this.tip.show([problem], moved.clientX, moved.clientY, "error");
      else if (target) this.tip.show([`${source.endpoint} → ${target.endpoint}`], moved.clientX, moved.clientY);
      else this.tip.hide();
    };
    const finish = (ended: PointerEvent): void => {
      this.board.removeEventListener("pointermove", move);
      this.board.removeEventListener("pointerup", finish);
      this.board.removeEventListener("pointercancel", finish);
      wire.remove();
      this.board.classList.remove("mnb-wiring");
      this.mark(null, null);
      this.tip.hide();
      if (ended.type === "pointerup" && target && !problem) this.store.command("connect", { source: source.endpoint, target: target.endpoint });
    };
    this.board.addEventListener("pointermove", move);
    this.board.addEventListener("pointerup", finish);
    this.board.addEventListener("pointercancel", finish);
    move(event);
  }

  private nearest(source: PortRef, at: { x: number; y: number }): PortRef | null {
    let best: PortRef | null = null;
    let least = SNAP;
    for (const ref of portsOf(this.store.snapshot.graph)) {
      if (ref.side !== "input") continue;
      const { node, port } = ref;
      // Anywhere on a block means its only input.
      const inside = node !== source.node && node.inputs.length === 1 && at.x >= node.x && at.x <= node.x + node.w && at.y >= node.y && at.y <= node.y + node.h;
      const distance = inside ? SNAP / 2 : Math.hypot(at.x - node.x - port.x, at.y - node.y - port.y);
      if (distance < least) {
        least = distance;
        best = ref;
      }
    }
    return best;
  }

  private mark(target: PortRef | null, problem: string | null): void {
    for (const dot of this.board.querySelectorAll(".mnb-port-target, .mnb-port-rejected")) dot.classList.remove("mnb-port-target", "mnb-port-rejected");
    if (!target) return;
    const node = this.board.querySelector(`[data-mnb-node="${CSS.escape(keyOf(target.node))}"]`);
    const dot = node?.querySelector(`[data-side="input"][data-mnb-port="${CSS.escape(target.endpoint)}"]`);
    dot?.classList.add(problem ? "mnb-port-rejected" : "mnb-port-target");
  }
}
