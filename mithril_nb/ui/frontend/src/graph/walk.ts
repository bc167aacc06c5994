/** The keyboard of a graph: reading order, edges, groups, selection and zoom. */

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
}

export class Walk {
  /** The nodes among which Shift+↑ and Shift+↓ choose: the ends of the edges that were followed last. */
  private choices: readonly string[] = [];

  constructor(private readonly graph: GraphWalk) {}

  /** Handle a key, and return whether it had a meaning. */
  press(event: KeyboardEvent): boolean {
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    switch (event.key) {
      case "+":
      case "=":
        return (this.graph.zoomBy(1.25), true);
      case "-":
        return (this.graph.zoomBy(0.8), true);
      case "0":
        return (this.graph.fit(), true);
    }
    const { index, active } = this.graph;
    const node = index.node(active);
    if (!node) return false;
    return event.shiftKey && event.key.startsWith("Arrow") ? this.follow(event.key, node) : this.step(event, node);
  }

  private step(event: KeyboardEvent, node: SceneNode): boolean {
    const { graph } = this;
    const { nodes } = graph.index.scene;
    const at = graph.index.at(node.key);
    const go = (next: SceneNode | undefined): boolean => {
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

  /** Follow an edge forward or backward; up and down choose between several. */
  private follow(key: string, node: SceneNode): boolean {
    const { graph } = this;
    const side = key === "ArrowRight" ? "after" : key === "ArrowLeft" ? "before" : null;
    if (side) {
      const found = graph.index.neighbours(node.key, side);
      if (!found.length) return true;
      this.choices = found;
      graph.focus(found[0]!);
      return true;
    }
    const at = this.choices.indexOf(node.key);
    const next = at < 0 ? undefined : this.choices[at + (key === "ArrowDown" ? 1 : -1)];
    if (next !== undefined) graph.focus(next);
    return true;
  }
}
