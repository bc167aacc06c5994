/** The keyboard of a graph: reading order, edges, groups, selection and zoom. */

import { hasModifier } from "../dom/events";
import type { SceneIndex, SceneNode } from "./scene";

export interface GraphWalk {
  readonly index: SceneIndex;
  readonly active: string;
  isSelected(key: string): boolean;
  focus(key: string): void;
  select(node: SceneNode, add: boolean): void;
  toggle(node: SceneNode): void;
  zoomBy(factor: number): void;
  fit(): void;
  fitSelection(): void;
}

/** Return a function that handles a key, and returns whether it had a meaning. */
export function createWalk(): (event: KeyboardEvent, graph: GraphWalk) => boolean {
  /** The nodes among which Shift+↑ and Shift+↓ choose: the ends of the edges that were followed last. */
  let choices: readonly string[] = [];
  return (event, graph) => {
    if (hasModifier(event)) return false;
    switch (event.key) {
      case "+":
      case "=":
        return (graph.zoomBy(1.25), true);
      case "-":
        return (graph.zoomBy(0.8), true);
      case "0":
        return (graph.fit(), true);
      case "z":
        return (graph.fitSelection(), true);
    }
    const node = graph.index.node(graph.active);
    if (!node) return false;
    if (!event.shiftKey || !event.key.startsWith("Arrow")) return step(event, node, graph);
    // Follow an edge forward or backward; up and down choose between several.
    const side = { ArrowRight: "after" as const, ArrowLeft: "before" as const }[event.key];
    const at = choices.indexOf(node.key);
    const ends = side ? graph.index.neighbours(node.key, side) : [];
    if (ends.length) choices = ends;
    const next = side ? ends[0] : at < 0 ? undefined : choices[at + (event.key === "ArrowDown" ? 1 : -1)];
    if (next !== undefined) graph.focus(next);
    return true;
  };
}

function step(event: KeyboardEvent, node: SceneNode, graph: GraphWalk) {
  const { nodes } = graph.index.scene;
  const at = graph.index.at(node.key);
  const go = (next: SceneNode | undefined) => {
    if (next) graph.focus(next.key);
    return true;
  };
  switch (event.key) {
    case "ArrowDown":
      return go(nodes[at + 1]);
    case "ArrowUp":
      return go(nodes[at - 1]);
    case "Home":
      return go(nodes[0]);
    case "End":
      return go(nodes.at(-1));
    case "ArrowRight":
      if (!node.group || node.expanded) return go(nodes[at + 1]);
      return (graph.toggle(node), true);
    case "ArrowLeft":
      if (!node.group || !node.expanded) return go(graph.index.node(node.parent) ?? nodes[at - 1]);
      return (graph.toggle(node), true);
    case " ":
      return (graph.select(node, event.shiftKey), true);
    case "Enter":
      // First Enter selects, as everywhere; on the selected group it opens.
      if (node.group && graph.isSelected(node.key) && !event.shiftKey) graph.toggle(node);
      else graph.select(node, event.shiftKey);
      return true;
    default:
      return false;
  }
}
