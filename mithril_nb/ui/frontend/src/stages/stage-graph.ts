/** The graph of a stage: a picture drawn by the kernel, with nodes that can be linked, opened and selected. */

import type { Tip } from "../controls/tip";
import { together } from "../dom/calls";
import { attr, h, iconButton, text } from "../dom/dom";
import { decodeJson, attempt } from "../kernel/messages";
import type { GraphPictureNode } from "../kernel/types";
import { type Anchor, sameAnchor } from "../store/links";
import type { Store } from "../store/store";

/** Below this scale the text is unreadable, so the picture scrolls instead. */
const LEAST_SCALE = 0.6;
const STEP = 1.25;
const DRAWN = new Set(["svg", "g", "rect", "path", "text", "tspan", "title", "desc"]);

/** Parse a picture into elements of this document. Its names are user data, so only drawing elements are kept. */
export function pictureOf(markup: string): SVGSVGElement | null {
  const parsed = new DOMParser().parseFromString(markup, "image/svg+xml").documentElement;
  if (parsed.nodeName !== "svg") return null;
  const clean = (element: Element): void => {
    for (const child of [...element.children]) {
      if (DRAWN.has(child.nodeName)) clean(child);
      else child.remove(); // also removes the style sheet: the page sets the colours
    }
    for (const { name } of [...element.attributes]) if (name.startsWith("on") || name.endsWith("href") || name === "style") element.removeAttribute(name);
  };
  clean(parsed);
  parsed.removeAttribute("class"); // the style sheet of the static picture would apply to it
  return document.importNode(parsed, true) as unknown as SVGSVGElement;
}

export class StageGraph {
  readonly root: HTMLElement;
  private readonly stages = h("div", { class: "mnb-toggles", role: "group", "aria-label": "Stage of the graph" });
  private readonly board = h("div", { class: "mnb-graph-board" });
  private readonly hint = h("p", { class: "mnb-hint" }, "The graph appears once the program is traced.");
  private readonly count = h("span", { class: "mnb-pane-figures" });
  private svg: SVGSVGElement | null = null;
  private nodes: GraphPictureNode[] = [];
  private readonly elements = new Map<string, SVGGElement>();
  private current = "";
  /** Key of the node that the user opened or closed; it keeps the focus. */
  private toggled: string | null = null;
  private scale: number | null = null;
  private size: [number, number] = [1, 1];
  /** The stage of the latest picture that cannot be shown, and the reason. */
  private failure: { stage: string; why: string } | null = null;
  private readonly watcher: ResizeObserver | null;
  readonly destroy: () => void;

  constructor(
    private readonly store: Store,
    private readonly tip: Tip,
  ) {
    const zoom = (by: number): void => this.zoom((this.scale ?? this.fitted()) * by);
    this.root = h(
      "section",
      { class: "mnb-stage-graph", "aria-label": "Graph" },
      h("div", { class: "mnb-bar" }, h("span", { class: "mnb-bar-title" }, "Graph"), this.stages, this.count, h("span", { class: "mnb-grow" }),
        iconButton("minus", "Smaller", "graph.smaller", () => zoom(1 / STEP)), iconButton("plus", "Larger", "graph.larger", () => zoom(STEP)), iconButton("fit", "Fit the width", "graph.fit", () => this.zoom(null))),
      this.board,
    );
    this.board.append(this.hint);
    this.board.addEventListener("pointerover", (event) => this.hover(event));
    this.board.addEventListener("pointerleave", () => {
      store.setHover([]);
      tip.hide();
    });
    this.board.addEventListener("click", (event) => this.click(event));
    this.board.addEventListener("dblclick", (event) => this.toggle(this.nodeAt(event.target)));
    this.board.addEventListener("keydown", (event) => this.key(event));
    this.watcher = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(() => this.resize());
    this.watcher?.observe(this.board);
    this.destroy = together(
      store.kernel.on("graph", (message: { stage: string }, buffers) => void attempt(() => this.receive(message, buffers[0]), (why) => this.fail(message.stage, why))),
      store.on("snapshot", () => this.update()),
      store.on("links", () => this.paintLinks()),
      () => this.watcher?.disconnect(),
    );
    this.update();
  }

  private update(): void {
    const { graph_stages = [], graph_stage, stages } = this.store.snapshot;
    if (this.stages.childElementCount !== graph_stages.length) {
      this.stages.replaceChildren(...graph_stages.map((stage) => h("button", { type: "button", class: "mnb-toggle", "data-mnb-action": `graph.${stage}`, onclick: () => this.store.command("show_graph", { stage }) }, this.store.titleOf(stage))));
    }
    graph_stages.forEach((stage, i) => attr(this.stages.children[i]!, "aria-pressed", String(stage === graph_stage)));
    const info = stages[graph_stage ?? ""];
    const isShown = attrOf(this.root, "data-mnb-graph") === graph_stage;
    const failure = this.failure?.stage === graph_stage ? this.failure : null;
    const why = failure?.why ?? (info?.state === "unavailable" || info?.state === "failed" ? info.message : null);
    attr(this.root, "data-mnb-state", failure ? "failed" : isShown ? "ready" : (info?.state ?? null));
    this.root.classList.toggle("mnb-graph-old", this.svg !== null && (!isShown || failure !== null));
    if (this.svg === null && info) text(this.hint, why === null ? "The graph appears once the program is traced." : `No graph: ${why}`);
    if (this.svg === null) return;
    if (isShown && !failure) text(this.count, `${this.nodes.length} ${this.nodes.length === 1 ? "node" : "nodes"}`);
    else text(this.count, why === null ? `drawing ${this.store.titleOf(graph_stage!)}` : `no graph of ${this.store.titleOf(graph_stage!)}: ${why}`);
  }

  private fail(stage: string, why: string): void {
    this.failure = { stage, why };
    this.update();
  }

  private async receive({ stage }: { stage: string }, buffer: DataView | undefined): Promise<void> {
    if (!buffer) return;
    const { svg, nodes } = await decodeJson<{ svg: string; nodes: GraphPictureNode[] }>(buffer);
    const picture = pictureOf(svg);
    if (!picture) throw new Error("not an SVG picture");
    this.failure = null;
    const [, , width, height] = (picture.getAttribute("viewBox") ?? "0 0 1 1").split(" ").map(Number);
    this.size = [width ?? 1, height ?? 1];
    const scroll = [this.board.scrollLeft, this.board.scrollTop] as const;
    const root = this.root.getRootNode() as Document | ShadowRoot;
    const focused = this.toggled ?? (this.board.contains(root.activeElement) ? this.current : null);
    this.svg = picture;
    this.nodes = nodes;
    this.elements.clear();
    const byMark = new Map([...picture.querySelectorAll<SVGGElement>("g.node[data-node]")].map((element) => [element.dataset["node"]!, element]));
    for (const node of nodes) {
      const element = byMark.get(node.mark);
      if (element) this.elements.set(node.key, element);
    }
    // One stop in the tab order; arrows move from there.
    if (!this.elements.has(this.current)) this.current = nodes[0]?.key ?? "";
    for (const [key, element] of this.elements) {
      attr(element, "tabindex", key === this.current ? 0 : -1);
      element.querySelector(":scope > title")?.remove(); // the widget's tooltip replaces it
    }
    attr(picture, "tabindex", null);
    this.resize(); // before insertion, so that the page is laid out once
    this.board.replaceChildren(picture);
    attr(this.root, "data-mnb-graph", stage);
    attr(this.root, "data-mnb-nodes", nodes.length);
    [this.board.scrollLeft, this.board.scrollTop] = scroll;
    if (focused !== null) this.focus(this.elements.has(focused) ? focused : this.current);
    this.toggled = null;
    this.update();
    this.paintLinks();
  }

  private fitted(): number {
    const { clientWidth, clientHeight } = this.board;
    const [width, height] = this.size;
    // Enlarge small graphs by at most 1.15; graphs that would become unreadable scroll instead.
    return Math.max(LEAST_SCALE, Math.min(1.15, (clientWidth || width) / width, Math.max((clientHeight || height) / height, 0.9)));
  }

  private zoom(scale: number | null): void {
    this.scale = scale === null ? null : Math.min(4, Math.max(0.2, scale));
    this.resize();
  }

  private resize(): void {
    if (!this.svg) return;
    const scale = this.scale ?? this.fitted();
    attr(this.svg, "width", Math.floor(this.size[0] * scale));
    attr(this.svg, "height", Math.ceil(this.size[1] * scale));
  }

  private nodeAt(target: EventTarget | null): GraphPictureNode | null {
    const mark = (target as Element | null)?.closest?.("g.node")?.getAttribute("data-node");
    return mark == null ? null : (this.nodes.find((node) => node.mark === mark) ?? null);
  }

  private anchorsOf(node: GraphPictureNode): Anchor[] {
    if (node.blocks.length) return node.blocks.map((path) => ({ kind: "block", path }));
    return node.equations.length ? [{ kind: "equations", name: node.key, ids: node.equations }] : [];
  }

  private hover(event: PointerEvent): void {
    const node = this.nodeAt(event.target);
    this.store.setHover(node ? this.anchorsOf(node) : []);
    const element = node && this.elements.get(node.key);
    if (!node || !element || event.buttons !== 0) return this.tip.hide();
    this.tip.later([...(element.getAttribute("aria-label") ?? node.name).split(", "), ...(node.opens ? [node.opened ? "double-click or ← to close" : "double-click or → to open"] : [])], event.clientX, event.clientY);
  }

  private click(event: MouseEvent): void {
    if (event.detail > 1) return;
    const node = this.nodeAt(event.target);
    this.tip.hide();
    if (!node) {
      if (!event.shiftKey) this.store.pin([]);
      return;
    }
    this.focus(node.key);
    this.store.pin(this.anchorsOf(node), event.shiftKey);
  }

  private toggle(node: GraphPictureNode | null, open = !node?.opened): void {
    if (!node?.opens || node.opened === open) return;
    this.toggled = node.key;
    this.store.command(open ? "open_node" : "close_node", { key: node.key });
  }

  private focus(key: string): void {
    attr(this.elements.get(this.current) ?? this.root, "tabindex", this.elements.has(this.current) ? -1 : null);
    this.current = key;
    const element = this.elements.get(key);
    attr(element ?? this.root, "tabindex", element ? 0 : null);
    element?.focus({ preventScroll: true });
    if (element) this.scrollIntoView(element);
  }

  /** Scroll the graph, but never the notebook around it. */
  private scrollIntoView(element: SVGGElement): void {
    const [inner, outer] = [element.getBoundingClientRect(), this.board.getBoundingClientRect()];
    if (inner.top < outer.top || inner.height > outer.height) this.board.scrollTop += inner.top - outer.top - 8;
    else if (inner.bottom > outer.bottom) this.board.scrollTop += inner.bottom - outer.bottom + 8;
    if (inner.left < outer.left || inner.width > outer.width) this.board.scrollLeft += inner.left - outer.left - 8;
    else if (inner.right > outer.right) this.board.scrollLeft += inner.right - outer.right + 8;
  }

  private key(event: KeyboardEvent): void {
    const at = this.nodes.findIndex((node) => node.key === this.current);
    const node = this.nodes[at];
    if (!node || event.ctrlKey || event.metaKey || event.altKey) return;
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: this.nodes.length - 1 }[event.key];
    const pinned = this.anchorsOf(node).every((anchor) => this.store.pins.some((pin) => sameAnchor(pin, anchor)));
    if (to !== undefined) {
      const next = this.nodes[Math.max(0, Math.min(to, this.nodes.length - 1))]!;
      this.focus(next.key);
      this.store.setHover(this.anchorsOf(next));
    } else if (event.key === "ArrowRight" && node.opens && !node.opened) this.toggle(node, true);
    else if (event.key === "ArrowRight") return this.key(new KeyboardEvent("keydown", { key: "ArrowDown" }));
    else if (event.key === "ArrowLeft" && node.opened) this.toggle(node, false);
    else if (event.key === "ArrowLeft") {
      const outer = [...this.nodes.slice(0, at)].reverse().find((one) => one.opened && node.key.startsWith(one.key));
      if (outer) this.focus(outer.key);
    } else if (event.key === "Enter" && (!pinned || event.shiftKey)) this.store.pin(this.anchorsOf(node), event.shiftKey);
    else if (event.key === "Enter") this.toggle(node);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private paintLinks(): void {
    const { hoverLinks, pinLinks, hover, pins } = this.store;
    const isLinked = (node: GraphPictureNode, blocks: Set<string>, anchors: readonly Anchor[], ids: Set<string>): boolean => {
      if (anchors.length === 0) return false;
      if (node.blocks.length) return node.blocks.some((path) => blocks.has(path));
      return node.equations.some((id) => ids.has(id)) || anchors.some((anchor) => anchor.kind === "equations" && anchor.name === node.key);
    };
    const [hoverIds, pinIds] = [this.idsOf(hover), this.idsOf(pins)];
    for (const node of this.nodes) {
      const element = this.elements.get(node.key);
      if (!element) continue;
      const pinned = isLinked(node, pinLinks.blocks, pins, pinIds);
      const hovered = isLinked(node, hoverLinks.blocks, hover, hoverIds);
      element.classList.toggle("mnb-pinned", pinned);
      element.classList.toggle("mnb-hovered", hovered);
      attr(element, "data-mnb-linked", pinned ? "pinned" : hovered ? "hover" : null);
    }
  }

  /** Return the ids of the equations of anchors. */
  private idsOf(anchors: readonly Anchor[]): Set<string> {
    const found = new Set<string>();
    for (const anchor of anchors) {
      if (anchor.kind === "equations") for (const id of anchor.ids) found.add(id);
      if (anchor.kind === "instruction") for (const id of this.store.texts.get(anchor.stage)?.instructions[anchor.index]?.equations ?? []) found.add(id);
      if (anchor.kind === "block") {
        const jaxpr = this.store.texts.get("jaxpr");
        for (const index of jaxpr?.ofBlock(anchor.path) ?? []) for (const id of jaxpr!.instructions[index]!.equations) found.add(id);
      }
    }
    return found;
  }
}

function attrOf(element: Element, name: string): string | null {
  return element.getAttribute(name);
}
