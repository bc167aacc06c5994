/** The graph of a saved page: it opens and closes groups without a kernel. */

import canvas from "../../styles/canvas.css";
import { createTip } from "../controls/tip";
import { h, textButton } from "../dom/dom";
import { type ExportChoice, exportMenu } from "../graph/export";
import { createOverlayLayer, createOverlayMenu, GraphOverlay, type OverlayValues } from "../graph/overlay";
import { createGraphView } from "../graph/view";
import type { PackedGraph } from "../kernel/contract";
import { NestedGraph } from "../layout/data";
import { layout } from "../layout/layout";
import { createQuestions } from "../search/questions";
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

export function createPageGraph(
  frame: HTMLElement,
  { opened, overlays = [], overlay = "", ...packed }: PackedGraph & SavedGraph,
  selection: Selection,
  search: HTMLElement,
  endSearch: () => boolean,
  files: readonly ExportChoice[] = [],
) {
  let openKeys: Set<string>;
  const nested = new NestedGraph(packed);
  const first = new Set(opened);
  openKeys = new Set(opened);
  frame.replaceChildren();
  frame.classList.add("mnb-live-graph");
  const tip = createTip(frame);
  const view = createGraphView({
    label: "Nodes of the graph",
    tip,
    describe: (node) => layer.describe(node.key, describe(node, view.scene)),
    hover: (node) => selection.hover(node && anchorsOf(node)),
    select: (node, add) => selection.pin(anchorsOf(node), add),
    rewrap: () => {
      nested.rows.clear();
      view.show(layout(nested, openKeys, undefined, view.rowWidth));
    },
    toggle: (node) => toggle(node.key),
    open: (node) => toggle(node.key),
    clear: (event) => event.shiftKey || selection.pin(null),
    key: (event) => {
      if (questions.key(event)) return true;
      if (event.key === "Escape") endSearch() || selection.pin(null);
      return event.key === "Escape";
    },
  });
  const layer = createOverlayLayer(view);
  const keys = nested.boxes.map(({ key }) => key);
  const hasGroups = overlays.some(({ own }) => own);
  const choices = overlays
    .filter(({ own }) => !own)
    .map(({ name, title }): [string, string] => [name, title.replace(WITH_INNER, "")]);
  const menu = createOverlayMenu((name, own) => show(name, own));
  const show = (name: string, own: boolean) => {
    menu.update({ name, own, choices }, hasGroups);
    const data =
      overlays.find((one) => one.name === name && !!one.own === own) ?? overlays.find((one) => one.name === name);
    layer.show(data ? new GraphOverlay(data, keys) : null);
  };
  const questions = createQuestions(view, {
    graph: () => nested,
    open: (keys) => open(new Set([...openKeys, ...keys]), keys[0]),
  });
  const tools = h(
    "div",
    { class: "tools" },
    textButton("Reset view", () => open(new Set(first))),
    textButton("Close all", () => open(new Set())),
    textButton("Smaller", () => view.zoomBy(0.8)),
    textButton("Larger", () => view.zoomBy(1.25)),
    ...(overlays.length ? [menu.root] : []),
    search,
    exportMenu(
      view,
      () => document.title || "graph",
      (why) => layer.fail(why),
      [...files, { title: "PDF or paper: print the page", suffix: "", make: () => globalThis.print() }],
    ),
    h("span", { class: "quiet" }, "Click a block to pin its lines, double-click to open it"),
  );
  frame.before(tools);
  frame.append(h("style", {}, canvas), view.root, tip.root);
  frame.style.height = `${MOST}px`;
  view.rewrap();
  frame.style.height = `${Math.min(MOST, Math.max(LEAST, view.scene.height + MARGIN))}px`;
  layer.explain(view.scene);
  show(overlay, false);

  function paint(look: Look) {
    if (look === "found") return questions.search(selection.found);
    const keys = linkedKeys(
      view.scene.nodes,
      selection.anchors[look],
      selection.links[look].blocks,
      new Set(selection.equations(look)),
    );
    questions.paint(look === "pin" ? { selected: keys } : { hovered: keys });
  }

  function toggle(key: string) {
    if (!nested.byKey.get(key)?.is_group) return;
    const opened = new Set(openKeys);
    if (!opened.delete(key)) opened.add(key);
    open(opened, key);
  }

  function open(opened: Set<string>, anchor?: string) {
    openKeys = opened;
    view.show(layout(nested, opened, undefined, view.rowWidth), { anchor });
    layer.explain(view.scene);
    if (anchor === undefined) view.fit();
    for (const look of ["on", "pin"] as const) paint(look);
  }

  return { questions, paint };
}

export type PageGraph = ReturnType<typeof createPageGraph>;
