/** The logical graph: nodes, edges, pan and zoom. The kernel computes the positions. */

import type { Tip } from "../controls/tip";
import { together } from "../dom/calls";
import { attr, h, iconButton, keyed, svg, zoomOf } from "../dom/dom";
import type { GraphEdge, GraphNode } from "../kernel/types";
import type { Store } from "../store/store";
import { type EdgeView, createEdge, updateEdge } from "./canvas-edges";
import { type NodeActions, createNode, paintLink, updateNode } from "./canvas-nodes";
import { Wiring } from "./canvas-wiring";
import { ConnectMenu } from "./connect-menu";
import { Ends, curve, keyOf, parentOf, readingOrder, withInnerProblems } from "./graph";
import { Zoom } from "./zoom";

const MARGIN = 14;
const LABEL_ZOOM = 1.25;

export class Canvas {
  readonly root: HTMLElement;
  readonly board: HTMLElement;
  private readonly scene: HTMLElement;
  private readonly edgeLayer = svg("g");
  private readonly wireLayer = svg("g");
  private readonly nodeLayer = h("div", { class: "mnb-nodes" });
  private readonly empty: HTMLElement;
  private readonly zoom: Zoom;
  private readonly nodes = new Map<string, HTMLElement>();
  private readonly edges = new Map<string, EdgeView>();
  private readonly moved = new Map<string, { x: number; y: number }>();
  private readonly wiring: Wiring;
  private readonly menu: ConnectMenu;
  private readonly watcher: ResizeObserver | null;
  readonly destroy: () => void;
  private touched = false;
  private active = "";

  constructor(
    private readonly store: Store,
    tip: Tip,
  ) {
    const edgeRoot = svg("svg", { class: "mnb-edges", "aria-hidden": "true" }, this.edgeLayer, this.wireLayer);
    this.scene = h("div", { class: "mnb-scene" }, edgeRoot, this.nodeLayer);
    this.empty = h(
      "div",
      { class: "mnb-empty", hidden: true },
      h("p", {}, "This model has no blocks yet."),
      h(
        "div",
        { class: "mnb-row" },
        h("button", { type: "button", class: "mnb-button mnb-primary", "data-mnb-action": "empty.add", onclick: () => this.startFromBlock() }, "Start from a block"),
        h("button", { type: "button", class: "mnb-button", "data-mnb-action": "empty.example", onclick: () => store.command("load_example") }, "Load an example"),
      ),
    );
    this.board = h("div", { class: "mnb-board", role: "tree", "aria-label": "Blocks of the model", "aria-multiselectable": "true", tabindex: -1 }, this.scene);
    this.root = h(
      "section",
      { class: "mnb-canvas", "aria-label": "Logical graph" },
      this.board,
      this.empty,
      h(
        "div",
        { class: "mnb-canvas-tools" },
        iconButton("plus", "Zoom in", "canvas.in", () => this.zoom.by(1.25)),
        iconButton("minus", "Zoom out", "canvas.out", () => this.zoom.by(0.8)),
        iconButton("fit", "Fit the graph into view", "canvas.fit", () => this.fit()),
        iconButton("tidy", "Tidy up the layout", "canvas.tidy", () => store.command("tidy")),
      ),
    );
    this.wiring = new Wiring(store, tip, this.wireLayer, this.board, (event) => this.toScene(event.clientX, event.clientY));
    this.menu = new ConnectMenu(store, this.root, () => this.focusNode(this.active));
    this.zoom = this.makeZoom();
    this.destroy = together(store.on("snapshot", () => this.update()), store.on("links", () => this.paintLinks()), store.on("edge", () => this.paintEdges()), () => this.watcher?.disconnect(), () => this.menu.close());
    this.watcher = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(() => this.touched || this.fit());
    this.watcher?.observe(this.board);
    this.board.addEventListener("focusin", (event) => {
      const node = (event.target as Element).closest<HTMLElement>("[data-mnb-node]");
      if (!node) return;
      this.active = node.dataset["mnbNode"]!;
      this.updateTabOrder();
    });
    this.board.addEventListener("keydown", (event) => this.key(event));
    this.board.addEventListener("click", (event) => {
      if (event.target === this.board || event.target === this.scene || event.target === edgeRoot) store.release();
    });
    this.update();
  }

  /** Convert a point of the window to graph coordinates. */
  toScene(clientX: number, clientY: number): { x: number; y: number } {
    const box = this.board.getBoundingClientRect();
    const zoom = zoomOf(this.board);
    return this.zoom.invert((clientX - box.left) / zoom, (clientY - box.top) / zoom);
  }

  contains(clientX: number, clientY: number): boolean {
    const box = this.board.getBoundingClientRect();
    return clientX >= box.left && clientX <= box.right && clientY >= box.top && clientY <= box.bottom;
  }

  fit(): void {
    const { clientWidth: width, clientHeight: height } = this.board;
    const box = this.bounds();
    if (!width || !height || !box) return;
    const scale = Math.min(1.15, (width - 2 * MARGIN) / Math.max(1, box.w), (height - 2 * MARGIN) / Math.max(1, box.h));
    const x = (width - box.w * scale) / 2 - box.x * scale;
    const y = Math.max(MARGIN, (height - box.h * scale) / 2) - box.y * scale;
    this.zoom.set({ x, y, k: scale });
    this.touched = false;
  }

  focusNode(key: string): void {
    this.nodes.get(key)?.focus({ preventScroll: true });
  }

  private startFromBlock(): void {
    this.root.dispatchEvent(new CustomEvent("mnb-focus-palette", { bubbles: true }));
  }

  private makeZoom(): Zoom {
    return new Zoom(this.board, {
      pans: (target) => !target.closest(".mnb-node, .mnb-edge, button, input"),
      // The wheel scrolls the notebook unless the canvas has the focus or Ctrl is pressed.
      wheels: (event) => event.ctrlKey || event.metaKey || this.board.contains(this.activeElement()),
      changed: ({ x, y, k }, byUser) => {
        this.scene.style.transform = `translate(${x}px, ${y}px) scale(${k})`;
        this.board.classList.toggle("mnb-zoomed-in", k >= LABEL_ZOOM);
        if (byUser) this.touched = true;
      },
    });
  }

  private activeElement(): Element | null {
    return (this.root.getRootNode() as Document | ShadowRoot).activeElement;
  }

  private bounds(): { x: number; y: number; w: number; h: number } | null {
    const { nodes, edges } = this.store.snapshot.graph;
    if (nodes.length === 0) return null;
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    const include = (x: number, y: number): void => {
      [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x), Math.max(bottom, y)];
    };
    for (const { x, y, w, h } of nodes) {
      include(x, y);
      include(x + w, y + h);
    }
    for (const { points } of edges) for (const [x, y] of points) include(x, y); // lines run outside of the blocks
    return { x: left, y: top, w: right - left, h: bottom - top };
  }

  private shape = "";

  private update(): void {
    const { problems } = this.store.snapshot;
    const graph = withInnerProblems(this.store.snapshot.graph, problems);
    this.moved.clear();
    const order = readingOrder(graph);
    const focused = this.nodeLayer.contains(this.activeElement());
    const place = [...this.nodes.keys()].indexOf(this.active);
    this.nodes.clear();
    keyed(this.nodeLayer, order, keyOf, (node) => createNode(node, this.actions), (element: HTMLElement, node: GraphNode) => {
      updateNode(element, node, problems);
      this.nodes.set(keyOf(node), element);
    });
    if (!this.nodes.has(this.active)) {
      // Renamed or removed: move the focus to the node that replaced it.
      const next = order.find((node) => node.path !== "" && node.path === this.store.snapshot.selection[0]) ?? order[Math.min(Math.max(place, 0), order.length - 1)];
      this.active = next ? keyOf(next) : "";
    }
    this.updateTabOrder();
    if (focused && !this.nodeLayer.contains(this.activeElement())) this.focusNode(this.active);
    this.edges.clear();
    keyed(this.edgeLayer, graph.edges, (edge) => edge.id, (edge) => createEdge(edge, this.store), (element: any, edge: GraphEdge) => {
      updateEdge(element, edge, problems);
      this.edges.set(edge.id, element);
    });
    this.empty.hidden = graph.nodes.some((node) => node.path !== "");
    this.paintLinks();
    this.paintEdges();
    const shape = `${graph.width} ${graph.height} ${order.map(keyOf).join()}`;
    if (shape !== this.shape && !this.touched) this.fit();
    this.shape = shape;
  }

  private paintLinks(): void {
    const { hoverLinks, pinLinks } = this.store;
    for (const element of this.nodes.values()) paintLink(element, hoverLinks, pinLinks);
  }

  private paintEdges(): void {
    for (const [id, element] of this.edges) element.classList.toggle("mnb-selected", id === this.store.selectedEdge);
  }

  private readonly actions: NodeActions = {
    hover: (path) => this.store.setHover(path ? [{ kind: "block", path }] : []),
    select: (key, path, add) => {
      this.active = key;
      this.updateTabOrder();
      if (path) this.store.pinBlocks([path], add);
      else if (!add) this.store.release();
    },
    rename: (path, name) => this.store.command("rename", { path, name }),
    toggle: (path) => this.toggle(path),
    scale: () => this.zoom.view.k * zoomOf(this.board),
    drag: (node, x, y) => this.drag(node, x, y),
    restore: () => this.update(),
    drop: (node, x, y) => this.store.command("move", { path: node.path, x: Math.round(x), y: Math.round(y) }),
    wire: (event, node, port) => this.wiring.begin(event, node, port),
    problem: (index) => this.store.showTab("problems") ?? this.store.goTo(this.store.snapshot.problems[index]!),
  };

  /** Move a node and its inner nodes; edges become simple curves until the kernel replies with a layout. */
  private drag(node: GraphNode, x: number, y: number): void {
    const { graph } = this.store.snapshot;
    const dx = x - node.x;
    const dy = y - node.y;
    for (const other of graph.nodes) {
      if (other !== node && !(node.path && other.path.startsWith(`${node.path}/`))) continue;
      this.moved.set(keyOf(other), { x: other.x + dx, y: other.y + dy });
      const element = this.nodes.get(keyOf(other));
      element?.classList.add("mnb-dragging");
      if (element) element.style.transform = `translate(${other.x + dx}px, ${other.y + dy}px)`;
    }
    const ends = new Ends(graph);
    for (const edge of graph.edges) {
      const [source, target] = [ends.source(edge), ends.target(edge)];
      if (!source || !target || (!this.moved.has(keyOf(source.node)) && !this.moved.has(keyOf(target.node)))) continue;
      const from = this.moved.get(keyOf(source.node)) ?? source.node;
      const to = this.moved.get(keyOf(target.node)) ?? target.node;
      const d = curve(from.x + source.port.x, from.y + source.port.y, to.x + target.port.x, to.y + target.port.y);
      for (const path of this.edges.get(edge.id)?.querySelectorAll("path.mnb-edge-line, path.mnb-edge-hit") ?? []) path.setAttribute("d", d);
      this.edges.get(edge.id)?.querySelector("path.mnb-edge-arrow")?.setAttribute("d", "");
    }
  }

  private toggle(path: string): void {
    const node = this.store.snapshot.graph.nodes.find((candidate) => candidate.path === path);
    if (node?.group) this.store.command(node.expanded ? "collapse" : "expand", { path });
  }

  /** Keep one node in the tab order. */
  private updateTabOrder(): void {
    for (const [key, element] of this.nodes) attr(element, "tabindex", key === this.active ? 0 : -1);
  }

  private key(event: KeyboardEvent): void {
    if ((event.target as Element).closest("input, [role=listbox]")) return;
    const order = readingOrder(this.store.snapshot.graph);
    const at = order.findIndex((node) => keyOf(node) === this.active);
    const node = order[at];
    const go = (next: GraphNode | undefined): void => {
      if (!next) return;
      this.active = keyOf(next);
      this.updateTabOrder();
      this.focusNode(this.active);
    };
    const handled = ((): boolean => {
      if (event.ctrlKey || event.metaKey || event.altKey) return false;
      if ((event.key === "Delete" || event.key === "Backspace") && this.removeSelected(node)) return true;
      if (!node) return false;
      switch (event.key) {
        case "ArrowDown": return go(order[at + 1]), true;
        case "ArrowUp": return go(order[at - 1]), true;
        case "Home": return go(order[0]), true;
        case "End": return go(order.at(-1)), true;
        case "ArrowRight":
          if (node.group && !node.expanded) this.toggle(node.path);
          else go(order[at + 1]);
          return true;
        case "ArrowLeft":
          if (node.group && node.expanded) this.toggle(node.path);
          else go(order.find((next) => next.path !== "" && next.path === parentOf(node.path)) ?? order[at - 1]);
          return true;
        case " ": return this.actions.select(keyOf(node), node.path, event.shiftKey), true;
        case "Enter":
          // First Enter selects, as everywhere; on the selected group it opens.
          if (node.group && this.store.selection.includes(node.path)) this.toggle(node.path);
          else this.actions.select(keyOf(node), node.path, event.shiftKey);
          return true;
        case "F2": return this.nodes.get(this.active)?.dispatchEvent(new CustomEvent("mnb-rename")), true;
        case "c": return this.menu.open(node, this.nodes.get(this.active)!), true;
        default: return false;
      }
    })();
    if (handled) {
      event.preventDefault();
      event.stopPropagation();
    }
  }

  /** Rename the first selected block in place; return whether a block is selected. */
  renameSelected(): boolean {
    const node = this.nodes.get(this.store.selection[0] ?? "");
    return node?.dispatchEvent(new CustomEvent("mnb-rename")) ?? false;
  }

  /** Remove the selected edge or blocks, else the focused block; return whether anything was removed. */
  removeSelected(focused?: GraphNode): boolean {
    const edge = this.store.snapshot.graph.edges.find((candidate) => candidate.id === this.store.selectedEdge);
    if (edge) {
      const { source, target } = edge;
      this.store.command("disconnect", { source, target }, `Removed ${source} → ${target}. Undo: Ctrl+Z`);
      return true;
    }
    const { selection } = this.store;
    const paths = selection.length ? selection : focused?.path ? [focused.path] : [];
    if (paths.length) this.store.remove(paths);
    return paths.length > 0;
  }
}
