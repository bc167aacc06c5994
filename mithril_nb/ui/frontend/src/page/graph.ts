/** The graph of a saved page: it opens and closes groups without a kernel. */

import canvas from "../../styles/canvas.css";
import { Tip } from "../controls/tip";
import { h } from "../dom/dom";
import { type ExportChoice, exportMenu } from "../graph/export";
import { GraphOverlay, type OverlayValues, OverlayLayer, OverlayMenu } from "../graph/overlay";
import { GraphView } from "../graph/view";
import type { PackedGraph } from "../layout/data";
import { NestedGraph } from "../layout/data";
import { layout } from "../layout/layout";
import { Questions } from "../search/questions";
import { anchorsOf, describe, linkedKeys } from "../stages/graph-nodes";
import type { Look, Selection } from "./selection";

/** Height of the frame in px: as high as the first picture, within these limits. */
const [LEAST, MOST] = [220, 560];
const MARGIN = 40;
const WITH_INNER = ", with inner blocks";

export interface SavedGraph {
  opened: string[];
  /** Values of the boxes, in their order. */
  overlays?: OverlayValues[];
  /** Name of the overlay that is shown at first. */
  overlay?: string;
}

export class PageGraph {
  private readonly graph: NestedGraph;
  private readonly layer: OverlayLayer;
  private readonly view: GraphView;
  readonly questions: Questions;
  private readonly first: ReadonlySet<string>;
  private opened: Set<string>;

  /** Replace the picture in `frame`. */
  constructor(
    frame: HTMLElement,
    { opened, overlays = [], overlay = "", ...packed }: PackedGraph & SavedGraph,
    private readonly selection: Selection,
    search: HTMLElement,
    endSearch: () => boolean,
    files: readonly ExportChoice[] = [],
  ) {
    this.graph = new NestedGraph(packed);
    this.first = new Set(opened);
    this.opened = new Set(opened);
    frame.replaceChildren();
    frame.classList.add("mnb-live-graph");
    const tip = new Tip(frame);
    this.view = new GraphView({
      label: "Nodes of the graph",
      tip,
      describe: (node) => this.layer.describe(node.key, describe(node, this.view.scene)),
      hover: (node) => selection.hover(node && anchorsOf(node)),
      select: (node, add) => selection.pin(anchorsOf(node), add),
      toggle: (node) => this.toggle(node.key),
      open: (node) => this.toggle(node.key),
      clear: (event) => event.shiftKey || selection.pin(null),
      key: (event) => {
        if (this.questions.key(event)) return true;
        if (event.key === "Escape") endSearch() || selection.pin(null);
        return event.key === "Escape";
      },
    });
    this.layer = new OverlayLayer(this.view);
    const keys = this.graph.boxes.map(({ key }) => key);
    const hasGroups = overlays.some(({ own }) => own);
    const choices = overlays
      .filter(({ own }) => !own)
      .map(({ name, title }): [string, string] => [name, title.replace(WITH_INNER, "")]);
    const menu = new OverlayMenu((name, own) => show(name, own));
    const show = (name: string, own: boolean): void => {
      menu.update({ name, own, choices }, hasGroups);
      const data =
        overlays.find((one) => one.name === name && !!one.own === own) ?? overlays.find((one) => one.name === name);
      this.layer.show(data ? new GraphOverlay(data, keys) : null);
    };
    this.questions = new Questions(this.view, {
      graph: () => this.graph,
      open: (keys) => this.open(new Set([...this.opened, ...keys]), keys[0]),
    });
    const button = (label: string, act: () => void): HTMLElement =>
      h("button", { type: "button", onclick: act }, label);
    const tools = h(
      "div",
      { class: "tools" },
      button("Reset view", () => this.open(new Set(this.first))),
      button("Close all", () => this.open(new Set())),
      button("Smaller", () => this.view.zoomBy(0.8)),
      button("Larger", () => this.view.zoomBy(1.25)),
      ...(overlays.length ? [menu.root] : []),
      search,
      exportMenu(
        this.view,
        () => document.title || "graph",
        (why) => this.layer.fail(why),
        [...files, { title: "PDF or paper: print the page", suffix: "", make: () => globalThis.print() }],
      ),
      h("span", { class: "quiet" }, "Click a block to pin its lines, double-click to open it"),
    );
    frame.before(tools);
    frame.append(h("style", {}, canvas), this.view.root, tip.root);
    const scene = layout(this.graph, this.opened);
    frame.style.height = `${Math.min(MOST, Math.max(LEAST, scene.height + MARGIN))}px`;
    this.view.show(scene);
    this.layer.explain(scene);
    show(overlay, false);
  }

  paint(look: Look): void {
    const { selection } = this;
    if (look === "found") return this.questions.search(selection.found);
    const keys = linkedKeys(
      this.view.scene.nodes,
      selection.anchors[look],
      selection.links[look].blocks,
      new Set(selection.equations(look)),
    );
    this.questions.paint(look === "pin" ? { selected: keys } : { hovered: keys });
  }

  private toggle(key: string): void {
    if (!this.graph.byKey.get(key)?.is_group) return;
    const opened = new Set(this.opened);
    if (!opened.delete(key)) opened.add(key);
    this.open(opened, key);
  }

  private open(opened: Set<string>, anchor?: string): void {
    this.opened = opened;
    this.view.show(layout(this.graph, opened), { anchor });
    this.layer.explain(this.view.scene);
    if (anchor === undefined) this.view.fit();
    for (const look of ["on", "pin"] as const) this.paint(look);
  }
}
