/**
 * The elements over a picture: one transparent tree item for each node in view that is large enough to click. They are
 * the tree for screen readers, the focus of the keyboard and the place of controls; the canvas draws their content.
 */

import { ICONS, attr, h, icon, keyed, text } from "../dom/dom";
import { type Rect, middle } from "../drawing/lines";
import type { View } from "../drawing/zoom";
import type { Moved, PaintState, Painter } from "./painter";
import type { SceneEdge, SceneNode } from "./scene";

/** The most tree items, and the most nodes that show their controls. */
const MOST = 150;
const MOST_WITH_PARTS = 20;
const LEAST_PX = { w: 12, h: 8 };
const MOST_EDGES = 50;

export interface Description {
  /** The accessible name. */
  name: string;
  /** Lines of the tooltip. */
  tip: readonly string[];
}

export interface ItemOptions {
  describe: (node: SceneNode) => Description;
  /** Called by the button that opens or closes a group; without it, no button is shown. */
  toggle?: ((node: SceneNode) => void) | undefined;
  /** Add controls, such as ports, to the hovered, focused or selected node. */
  decorate?: ((parts: HTMLElement, node: SceneNode) => void) | undefined;
  /** Complete the element of an edge that has a problem or is selected. */
  decorateEdge?: ((element: HTMLElement, edge: SceneEdge) => void) | undefined;
}

interface EdgeItem {
  edge: SceneEdge;
  isSelected: boolean;
}

export class Items {
  readonly root: HTMLElement;
  private readonly nodes = h("div", { class: "mnb-nodes" });
  private readonly edges = h("div", { class: "mnb-edges", "aria-hidden": "true" });
  private readonly elements = new Map<string, HTMLElement>();
  /** The node in the tab order, and the node under the pointer. */
  active = "";
  pointed = "";
  /** The part of the scene to which the elements are relative: layers of huge coordinates are slow to compose. */
  private frame: Rect = { x: 0, y: 0, w: 0, h: 0 };

  constructor(
    private readonly painter: Painter,
    private readonly options: ItemOptions,
  ) {
    this.root = h("div", { class: "mnb-scene" }, this.edges, this.nodes);
  }

  elementOf(key: string): HTMLElement | undefined {
    return this.elements.get(key);
  }

  /** Return the key of the node whose item contains an element. */
  keyOf(element: Element | null): string | null {
    return element?.closest<HTMLElement>("[data-mnb-node]")?.dataset["mnbNode"] ?? null;
  }

  get focused(): boolean {
    return this.nodes.contains((this.root.getRootNode() as Document | ShadowRoot).activeElement);
  }

  private transform({ x, y, k }: View): void {
    this.root.style.transform = `translate(${x + this.frame.x * k}px, ${y + this.frame.y * k}px) scale(${k})`;
    // For lines of a fixed width on the screen.
    this.root.style.setProperty("--mnb-unit", (1 / k).toFixed(4));
  }

  /** Match the elements to the nodes in a part of the scene; `null` means that the size of the frame is unknown. */
  update(part: Rect | null, view: View, state: PaintState): void {
    const { index } = this.painter;
    const { k } = view;
    this.frame = part ?? { x: 0, y: 0, w: Infinity, h: Infinity };
    this.transform(view);
    if (!index.node(this.active)) this.active = "";
    const isLarge = ({ w, h }: SceneNode): boolean => w * k >= LEAST_PX.w && h * k >= LEAST_PX.h;
    let visible = part ? this.painter.nodesIn(part).filter(isLarge) : index.scene.nodes.slice(0, MOST);
    if (part && visible.length > MOST) {
      const [x, y] = [part.x + part.w / 2, part.y + part.h / 2];
      const far = (node: SceneNode): number => Math.hypot(node.x + node.w / 2 - x, node.y + node.h / 2 - y);
      visible = visible
        .map((node) => ({ node, far: far(node) }))
        .sort((a, b) => a.far - b.far)
        .slice(0, MOST)
        .map(({ node }) => node);
    }
    const shown = new Set(visible);
    const editing = this.keyOf((this.root.getRootNode() as Document | ShadowRoot).activeElement);
    for (const key of [this.active, editing ?? ""]) {
      const node = index.node(key);
      if (node) shown.add(node);
    }
    const order = [...shown].sort((a, b) => index.at(a.key) - index.at(b.key));
    // Before others are placed: an element that is moved in the document loses the focus.
    for (const [key, element] of this.elements) if (!shown.has(index.node(key)!)) element.remove();
    this.elements.clear();
    keyed(
      this.nodes,
      order,
      (node) => node.key,
      (node) => this.create(node),
      (element: HTMLElement, node: SceneNode) => {
        this.elements.set(node.key, element);
        this.fill(element, node);
      },
    );
    this.paint(state);
    this.showEdges(part, state);
  }

  private create(node: SceneNode): HTMLElement {
    return h(
      "div",
      { class: "mnb-node", role: "treeitem", "data-mnb-node": node.key },
      h("span", { class: "mnb-node-text" }),
    );
  }

  private fill(element: HTMLElement, node: SceneNode): void {
    const place = this.painter.index.places.get(node.key)!;
    const { name } = this.options.describe(node);
    this.put(element, node);
    element.classList.toggle("mnb-frame", node.expanded);
    // Invisible, for the search of the browser.
    text(element.firstElementChild!, name);
    attr(element, "aria-label", name);
    attr(element, "aria-level", place.level);
    attr(element, "aria-posinset", place.position);
    attr(element, "aria-setsize", place.siblings);
    attr(element, "aria-expanded", node.group ? String(node.expanded) : null);
    const parts = element.querySelector(":scope > .mnb-node-parts");
    if (parts) this.decorate(parts as HTMLElement, node);
  }

  /** Show hover, selection and tab order, and give the nodes in question their controls. */
  paint(state: PaintState): void {
    if (!this.active) this.active = this.painter.index.scene.nodes[0]?.key ?? "";
    const hasFocus = this.focused;
    let left = MOST_WITH_PARTS;
    for (const [key, element] of this.elements) {
      const isSelected = state.selected.has(key);
      attr(element, "data-mnb-linked", isSelected ? "pinned" : state.hovered.has(key) ? "hover" : null);
      attr(element, "aria-selected", String(isSelected));
      attr(element, "tabindex", key === this.active ? 0 : -1);
      const isActive = (key === this.active && hasFocus) || key === this.pointed;
      const parts = element.querySelector<HTMLElement>(":scope > .mnb-node-parts");
      if (isActive || (isSelected && left-- > 0)) {
        if (parts) continue;
        const fresh = h("div", { class: "mnb-node-parts" });
        element.append(fresh);
        this.decorate(fresh, this.painter.index.node(key)!);
      } else parts?.remove();
    }
  }

  private decorate(parts: HTMLElement, node: SceneNode): void {
    const { toggle, decorate } = this.options;
    parts.replaceChildren();
    if (node.group && toggle) {
      const label = node.expanded ? `Close ${node.name}` : `Open ${node.name}`;
      const press = (event: Event): void => {
        event.stopPropagation();
        toggle(this.painter.index.node(node.key) ?? node);
      };
      parts.append(
        h(
          "button",
          {
            type: "button",
            class: "mnb-node-chevron",
            tabindex: -1,
            "aria-label": label,
            title: label,
            onclick: press,
          },
          icon(ICONS.chevron),
        ),
      );
    }
    decorate?.(parts, node);
  }

  private showEdges(part: Rect | null, state: PaintState): void {
    const { edges } = this.painter.index.scene;
    const items: EdgeItem[] = [];
    for (const edge of edges) {
      const isSelected = edge.id === state.selectedEdge;
      if ((edge.problem === null && !isSelected) || items.length >= MOST_EDGES) continue;
      const [x, y] = middle(edge);
      if (!part || isSelected || (x >= part.x && x <= part.x + part.w && y >= part.y && y <= part.y + part.h))
        items.push({ edge, isSelected });
    }
    keyed(
      this.edges,
      items,
      ({ edge }) => edge.id,
      ({ edge }) => h("div", { class: "mnb-edge", "data-mnb-edge": edge.id }),
      (element: HTMLElement, { edge, isSelected }: EdgeItem) => {
        const [x, y] = middle(edge);
        element.style.transform = `translate(${x - this.frame.x}px, ${y - this.frame.y}px)`;
        element.classList.toggle("mnb-selected", isSelected);
        this.options.decorateEdge?.(element, edge);
      },
    );
  }

  /** Put the items of moved nodes where they are drawn; all others are in their place. */
  place(moved: Moved, before: Moved): void {
    for (const key of before.nodes.keys()) {
      const [element, node] = [this.elements.get(key), this.painter.index.node(key)];
      if (element && node && !moved.nodes.has(key)) this.put(element, node);
    }
    for (const [key, rect] of moved.nodes) {
      const element = this.elements.get(key);
      if (element) this.put(element, rect);
    }
  }

  /** Place an element. The element of a distant node is kept near the view. */
  private put(element: HTMLElement, { x, y, w, h }: Rect): void {
    const { frame } = this;
    const near = (at: number, length: number): number => Math.min(Math.max(at, -2 * length), 2 * length);
    element.style.transform =
      `translate(${near(x - frame.x, Math.max(frame.w, w))}px, ` + `${near(y - frame.y, Math.max(frame.h, h))}px)`;
    element.style.width = `${w}px`;
    element.style.height = `${h}px`;
  }
}
