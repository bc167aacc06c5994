/** Connects blocks by keyboard: a menu of the inputs that accept a block's outputs. */

import { h, uid, zoomOf } from "../dom/dom";
import { type SceneNode, endId } from "../graph/scene";
import type { GraphView } from "../graph/view";
import type { Store } from "../store/store";
import { type PortRef, portsOf, connectionProblem } from "./graph";

interface Choice {
  source: PortRef;
  target: PortRef;
  connected: boolean;
}

export class ConnectMenu {
  private readonly id = uid("connect");
  private box: HTMLElement | null = null;

  constructor(
    private readonly store: Store,
    private readonly view: GraphView,
    private readonly frame: HTMLElement,
  ) {}

  close(): void {
    // Removing the list blurs it, which calls close() again.
    const { box } = this;
    this.box = null;
    box?.remove();
  }

  open(node: SceneNode, beside: HTMLElement): void {
    this.close();
    const { index, scene } = this.view;
    const choices: Choice[] = [];
    for (const port of node.outputs) {
      const source: PortRef = { node, port, side: "output", endpoint: endId(node.key, port.name) };
      for (const target of portsOf(scene, "input")) {
        const connected = scene.edges.some((edge) => edge.source === source.endpoint && edge.target === target.endpoint);
        if (connected || connectionProblem(index, source, target) === null) choices.push({ source, target, connected });
      }
    }
    let at = 0;
    const options = choices.map(({ source, target, connected }, i) =>
      h("div", { class: "mnb-option", role: "option", id: `${this.id}-${i}`, "aria-selected": "false", onclick: () => this.take(choices[i]!) },
        h("span", { title: target.endpoint }, `${node.outputs.length > 1 ? `${source.port.name} → ` : ""}${target.endpoint}`),
        h("small", { title: this.feeder(target) }, connected ? "connected; Enter disconnects" : this.feeder(target)),
      ),
    );
    const list = h("div", { class: "mnb-options", role: "listbox", tabindex: 0, "aria-label": `Connect ${node.name} to` }, ...options);
    const paint = (): void => {
      options.forEach((option, i) => option.setAttribute("aria-selected", String(i === at)));
      list.setAttribute("aria-activedescendant", `${this.id}-${at}`);
      options[at]?.scrollIntoView?.({ block: "nearest" });
    };
    list.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "ArrowDown") at = Math.min(at + 1, options.length - 1);
      else if (event.key === "ArrowUp") at = Math.max(at - 1, 0);
      else if (event.key === "Enter" && choices[at]) this.take(choices[at]!);
      else if (event.key === "Escape") {
        this.close();
        this.view.focus(this.view.active);
      } else return;
      event.preventDefault();
      paint();
    });
    list.addEventListener("blur", () => this.close());
    this.box = h("div", { class: "mnb-menu" }, h("div", { class: "mnb-menu-title", title: node.name }, `Connect ${node.name} to`), choices.length ? list : h("p", {}, "No input can be connected to this output."), choices.length ? null : list);
    const [outer, inner] = [this.frame.getBoundingClientRect(), beside.getBoundingClientRect()];
    const zoom = zoomOf(this.frame);
    this.frame.append(this.box);
    // A menu beyond the edge would scroll the canvas when an option is scrolled into view.
    this.box.style.left = `${Math.max(4, Math.min((inner.right - outer.left) / zoom + 8, outer.width / zoom - this.box.offsetWidth - 8))}px`;
    this.box.style.top = `${Math.max(4, Math.min((inner.top - outer.top) / zoom, outer.height / zoom - 180))}px`;
    paint();
    list.focus({ preventScroll: true });
  }

  private feeder(target: PortRef): string {
    const edge = this.view.scene.edges.find((candidate) => candidate.target === target.endpoint);
    return edge ? `connected to ${edge.source}` : "not connected";
  }

  private take({ source, target, connected }: Choice): void {
    this.store.command(connected ? "disconnect" : "connect", { source: source.endpoint, target: target.endpoint });
    this.close();
    this.view.focus(this.view.active);
  }
}
