/**
 * The elements over a picture: one transparent tree item for each node in view that is large enough to click. They are
 * the tree for screen readers, the focus of the keyboard and the place of controls; the canvas draws their content.
 */

import { icon } from "../dom/view";
import { attr, focusedAt, h, keyed, setKey, text } from "../dom/dom";
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

interface ItemOptions {
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

export function createItems(painter: Painter, options: ItemOptions) {
  const nodes = h("div", { class: "mnb-nodes" });
  const edgeItems = h("div", { class: "mnb-edges", "aria-hidden": "true" });
  const elements = new Map<string, HTMLElement>();
  /** The node in the tab order, and the node under the pointer. */
  let active = "";
  let pointed = "";
  /** The part of the scene to which the elements are relative: layers of huge coordinates are slow to compose. */
  let frame: Rect = { x: 0, y: 0, w: 0, h: 0 };
  const root = h("div", { class: "mnb-scene" }, edgeItems, nodes);

  /** Return the key of the node whose item contains an element. */
  function keyOf(element: Element | null) {
    return element?.closest<HTMLElement>("[data-mnb-node]")?.dataset["mnbNode"] ?? null;
  }

  function focused() {
    return nodes.contains(focusedAt(root));
  }

  function transform({ x, y, k }: View) {
    root.style.transform = `translate(${x + frame.x * k}px, ${y + frame.y * k}px) scale(${k})`;
    // For lines of a fixed width on the screen.
    root.style.setProperty("--mnb-unit", (1 / k).toFixed(4));
  }

  /** Match the elements to the nodes in a part of the scene; `null` means that the size of the frame is unknown. */
  function update(part: Rect | null, view: View, state: PaintState) {
    const { index } = painter;
    const { k } = view;
    frame = part ?? { x: 0, y: 0, w: Infinity, h: Infinity };
    transform(view);
    if (!index.node(active)) active = "";
    const isLarge = ({ w, h }: SceneNode) => w * k >= LEAST_PX.w && h * k >= LEAST_PX.h;
    let visible = part ? painter.nodesIn(part).filter(isLarge) : index.scene.nodes.slice(0, MOST);
    if (part && visible.length > MOST) {
      const [x, y] = [part.x + part.w / 2, part.y + part.h / 2];
      const far = (node: SceneNode) => Math.hypot(node.x + node.w / 2 - x, node.y + node.h / 2 - y);
      visible = visible
        .map((node) => ({ node, far: far(node) }))
        .sort((a, b) => a.far - b.far)
        .slice(0, MOST)
        .map(({ node }) => node);
    }
    const shown = new Set(visible);
    const editing = keyOf(focusedAt(root));
    for (const key of [active, editing ?? ""]) {
      const node = index.node(key);
      if (node) shown.add(node);
    }
    const order = [...shown].sort((a, b) => index.at(a.key) - index.at(b.key));
    // Before others are placed: an element that is moved in the document loses the focus.
    for (const [key, element] of elements) if (!shown.has(index.node(key)!)) element.remove();
    elements.clear();
    keyed(
      nodes,
      order,
      (node) => node.key,
      (node) =>
        h(
          "div",
          { class: "mnb-node", role: "treeitem", "data-mnb-node": node.key },
          h("span", { class: "mnb-node-text" }),
        ),
      (element: HTMLElement, node: SceneNode) => {
        elements.set(node.key, element);
        fill(element, node);
      },
    );
    paint(state);
    showEdges(part, state);
  }

  function fill(element: HTMLElement, node: SceneNode) {
    const place = painter.index.places.get(node.key)!;
    const { name } = options.describe(node);
    put(element, node);
    element.classList.toggle("mnb-frame", node.expanded);
    // Invisible, for the search of the browser.
    text(element.firstElementChild!, name);
    attr(element, "aria-label", name);
    attr(element, "aria-level", place.level);
    attr(element, "aria-posinset", place.position);
    attr(element, "aria-setsize", place.siblings);
    attr(element, "aria-expanded", node.group ? String(node.expanded) : null);
    const parts = element.querySelector(":scope > .mnb-node-parts");
    if (parts) decorate(parts as HTMLElement, node);
  }

  /** Show hover, selection and tab order, and give the nodes in question their controls. */
  function paint(state: PaintState) {
    if (!active) active = painter.index.scene.nodes[0]?.key ?? "";
    const hasFocus = focused();
    let left = MOST_WITH_PARTS;
    for (const [key, element] of elements) {
      const isSelected = state.selected.has(key);
      attr(element, "data-mnb-linked", isSelected ? "pinned" : state.hovered.has(key) ? "hover" : null);
      attr(element, "aria-selected", String(isSelected));
      attr(element, "tabindex", key === active ? 0 : -1);
      const isActive = (key === active && hasFocus) || key === pointed;
      const parts = element.querySelector<HTMLElement>(":scope > .mnb-node-parts");
      if (isActive || (isSelected && left-- > 0)) {
        if (parts) continue;
        const fresh = h("div", { class: "mnb-node-parts" });
        element.append(fresh);
        decorate(fresh, painter.index.node(key)!);
      } else parts?.remove();
    }
  }

  function decorate(parts: HTMLElement, node: SceneNode) {
    const { toggle, decorate } = options;
    parts.replaceChildren();
    if (node.group && toggle) {
      const label = node.expanded ? `Close ${node.name}` : `Open ${node.name}`;
      const press = (event: Event) => {
        event.stopPropagation();
        toggle(painter.index.node(node.key) ?? node);
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
          icon("chevron"),
        ),
      );
    }
    decorate?.(parts, node);
  }

  function showEdges(part: Rect | null, state: PaintState) {
    const { edges } = painter.index.scene;
    const items: EdgeItem[] = [];
    for (const edge of edges) {
      const isSelected = edge.id === state.selectedEdge;
      if ((edge.problem === null && !isSelected) || items.length >= MOST_EDGES) continue;
      const [x, y] = middle(edge);
      if (!part || isSelected || (x >= part.x && x <= part.x + part.w && y >= part.y && y <= part.y + part.h))
        items.push({ edge, isSelected });
    }
    keyed(
      edgeItems,
      items,
      ({ edge }) => edge.id,
      ({ edge }) => h("div", { class: "mnb-edge", "data-mnb-edge": edge.id }),
      (element: HTMLElement, { edge, isSelected }: EdgeItem) => {
        const [x, y] = middle(edge);
        element.style.transform = `translate(${x - frame.x}px, ${y - frame.y}px)`;
        element.classList.toggle("mnb-selected", isSelected);
        options.decorateEdge?.(element, edge);
      },
    );
  }

  /** Give elements the new keys of their nodes, so that they keep the focus and a field in them. */
  function rename(keys: ReadonlyMap<string, string>) {
    active = keys.get(active) ?? active;
    pointed = keys.get(pointed) ?? pointed;
    for (const [old, key] of keys) {
      const element = elements.get(old);
      if (!element) continue;
      elements.delete(old);
      elements.set(key, element);
      setKey(element, key);
      element.dataset["mnbNode"] = key;
    }
  }

  /** Put the items of moved nodes where they are drawn; all others are in their place. */
  function place(moved: Moved, before: Moved) {
    for (const key of before.nodes.keys()) {
      const [element, node] = [elements.get(key), painter.index.node(key)];
      if (element && node && !moved.nodes.has(key)) put(element, node);
    }
    for (const [key, rect] of moved.nodes) {
      const element = elements.get(key);
      if (element) put(element, rect);
    }
  }

  /** Place an element. The element of a distant node is kept near the view. */
  function put(element: HTMLElement, { x, y, w, h }: Rect) {
    const near = (at: number, length: number) => Math.min(Math.max(at, -2 * length), 2 * length);
    element.style.transform =
      `translate(${near(x - frame.x, Math.max(frame.w, w))}px, ` + `${near(y - frame.y, Math.max(frame.h, h))}px)`;
    element.style.width = `${w}px`;
    element.style.height = `${h}px`;
  }

  return {
    root,
    get active() {
      return active;
    },
    set active(value) {
      active = value;
    },
    get pointed() {
      return pointed;
    },
    set pointed(value) {
      pointed = value;
    },
    get focused() {
      return focused();
    },
    /** Return the element of a node; nodes far outside of the view have none. */
    elementOf: (key: string) => elements.get(key),
    keyOf,
    rename,
    update,
    paint,
    place,
    put,
  };
}

export type Items = ReturnType<typeof createItems>;
