/** Connects blocks by keyboard: a menu of the inputs that accept a block's outputs. */

import { h, uid, zoomOf } from "../dom/dom";
import { type SceneNode, endId } from "../graph/scene";
import type { GraphView } from "../graph/view";
import type { Store } from "../store/store";
import { type PortRef, targetsOf } from "./graph";

/** The most options drawn at once. */
const DRAWN = 60;

interface KindChoice {
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
    const { index } = this.view;
    const choices = node.outputs.flatMap((port): KindChoice[] => {
      const source: PortRef = { node, port, side: "output", endpoint: endId(node.key, port.name) };
      return targetsOf(index, source).map((found) => ({ source, ...found }));
    });
    const feeders = new Map(index.scene.edges.map((edge) => [edge.target, `connected to ${edge.source}`]));
    let at = 0;
    const list = h("div", {
      class: "mnb-options",
      role: "listbox",
      tabindex: 0,
      "aria-label": `Connect ${node.name} to`,
    });
    const option = ({ source, target, connected }: KindChoice, i: number): HTMLElement => {
      const feeder = feeders.get(target.endpoint) ?? "not connected";
      return h(
        "div",
        {
          class: "mnb-option",
          role: "option",
          id: `${this.id}-${i}`,
          "aria-selected": String(i === at),
          "aria-posinset": i + 1,
          "aria-setsize": choices.length,
          onclick: () => this.take(choices[i]!),
        },
        h(
          "span",
          { title: target.endpoint },
          `${node.outputs.length > 1 ? `${source.port.name} → ` : ""}${target.endpoint}`,
        ),
        h("small", { title: feeder }, connected ? "connected; Enter disconnects" : feeder),
      );
    };
    const paint = (): void => {
      const first = Math.max(0, Math.min(at - DRAWN / 2, choices.length - DRAWN));
      list.replaceChildren(...choices.slice(first, first + DRAWN).map((choice, i) => option(choice, first + i)));
      list.setAttribute("aria-activedescendant", `${this.id}-${at}`);
      list.querySelector('[aria-selected="true"]')?.scrollIntoView?.({ block: "nearest" });
    };
    list.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "ArrowDown") at = Math.min(at + 1, choices.length - 1);
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
    this.box = h(
      "div",
      { class: "mnb-menu" },
      h("div", { class: "mnb-menu-title", title: node.name }, `Connect ${node.name} to`),
      choices.length ? list : h("p", {}, "No input can be connected to this output."),
      choices.length ? null : list,
    );
    const [outer, inner] = [this.frame.getBoundingClientRect(), beside.getBoundingClientRect()];
    const zoom = zoomOf(this.frame);
    this.frame.append(this.box);
    // A menu beyond the edge would scroll the canvas when an option is scrolled into view.
    const [right, lowest] = [outer.width / zoom - this.box.offsetWidth - 8, outer.height / zoom - 180];
    this.box.style.left = `${Math.max(4, Math.min((inner.right - outer.left) / zoom + 8, right))}px`;
    this.box.style.top = `${Math.max(4, Math.min((inner.top - outer.top) / zoom, lowest))}px`;
    paint();
    list.focus({ preventScroll: true });
  }

  private take({ source, target, connected }: KindChoice): void {
    this.store.command(connected ? "disconnect" : "connect", { source: source.endpoint, target: target.endpoint });
    this.close();
    this.view.focus(this.view.active);
  }
}
