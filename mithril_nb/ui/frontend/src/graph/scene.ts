/** A laid-out graph as data, the same for models and programs: `viz/diagrams/scene.py` in TypeScript. */

import type { Rect } from "../drawing/lines";
import type { Graph, GraphEdge, GraphNode } from "../kernel/types";

/** A box: a block, an instruction, the frame of an open group, or an input or output. */
export interface SceneNode extends GraphNode {
  /** Unique in the scene. */
  key: string;
  /** Key of the group that contains it; "" at the top. */
  parent: string;
  /** Number of instructions inside it by role, then those without a role; missing in a model. */
  counts?: readonly number[];
  /** Paths of the blocks that it represents, if it is more than the block at `path`. */
  blocks?: readonly string[];
  /** Ids of its equations, for links. */
  equations?: readonly string[];
}

export interface SceneEdge extends GraphEdge {
  /** Whether only the backward pass reads it. */
  is_backward?: boolean;
  /** Whether a gradient flows back along the same line. */
  returns?: boolean;
  /** False if it ends at a frame around the consumer; it then has no arrow. */
  is_end?: boolean;
}

export interface Scene extends Omit<Graph, "nodes" | "edges"> {
  /** The accessible name. */
  title: string;
  /** Boxes in reading order; a frame comes before its content. */
  nodes: readonly SceneNode[];
  edges: readonly SceneEdge[];
  /** True for the blocks of a model, false for the graph of a program. */
  is_model: boolean;
  /** Names of the roles that `counts` counts. */
  roles: readonly string[];
}

export const EMPTY: Scene = { title: "", width: 0, height: 0, nodes: [], edges: [], is_model: true, roles: [] };

/** A node together with its place in the tree. */
export interface Place {
  node: SceneNode;
  /** Index in the scene. */
  at: number;
  /** 1 at the top. */
  level: number;
  /** Position among its siblings, from 1, and their number. */
  position: number;
  siblings: number;
}

/** Lookup tables of a scene. Nodes of unknown parents count as top-level nodes. */
export class SceneIndex {
  readonly places = new Map<string, Place>();
  private ports: Map<string, string> | null = null;
  private links: { after: Map<string, string[]>; before: Map<string, string[]> } | null = null;

  constructor(readonly scene: Scene) {
    const counts = new Map<string, number>();
    scene.nodes.forEach((node, at) => {
      const outer = this.places.get(node.parent);
      const parent = outer ? node.parent : "";
      const position = (counts.get(parent) ?? 0) + 1;
      counts.set(parent, position);
      this.places.set(node.key, { node, at, level: outer ? outer.level + 1 : 1, position, siblings: 0 });
    });
    for (const place of this.places.values()) place.siblings = counts.get(this.places.has(place.node.parent) ? place.node.parent : "")!;
  }

  node(key: string): SceneNode | undefined {
    return this.places.get(key)?.node;
  }

  at(key: string): number {
    return this.places.get(key)?.at ?? -1;
  }

  /** Return the groups around a node, outermost first. */
  groupsOf(key: string): SceneNode[] {
    const found: SceneNode[] = [];
    for (let node = this.node(key); node && (node = this.node(node.parent)) && !found.includes(node); ) found.unshift(node);
    return found;
  }

  /** Return the keys at the other ends of a node's outgoing or incoming edges, in reading order. */
  neighbours(key: string, side: "after" | "before"): readonly string[] {
    this.links ??= this.linked();
    return this.links[side].get(key) ?? [];
  }

  /** Return the key of the node at an end of an edge: the node itself, or the node with this port. */
  keyAt(end: string): string | undefined {
    if (this.places.has(end)) return end;
    if (!this.ports) {
      this.ports = new Map();
      for (const node of this.scene.nodes) for (const port of [...node.inputs, ...node.outputs]) this.ports.set(endpointOf(node, port.name), node.key);
    }
    return this.ports.get(end);
  }

  private linked(): { after: Map<string, string[]>; before: Map<string, string[]> } {
    const found = { after: new Map<string, string[]>(), before: new Map<string, string[]>() };
    const push = (map: Map<string, string[]>, from: string, to: string): void => {
      const list = map.get(from);
      if (!list) map.set(from, [to]);
      else if (!list.includes(to)) list.push(to);
    };
    for (const edge of this.scene.edges) {
      const [source, target] = [this.keyAt(edge.source), this.keyAt(edge.target)];
      if (source === undefined || target === undefined || source === target) continue;
      push(found.after, source, target);
      push(found.before, target, source);
    }
    for (const map of [found.after, found.before]) for (const list of map.values()) list.sort((a, b) => this.at(a) - this.at(b));
    return found;
  }
}

/** Return the name of a node's port in an edge: `linear_0.output`; a port of the model itself is its name alone. */
export function endpointOf(node: Pick<GraphNode, "path" | "name">, port: string): string {
  return node.path ? `${node.path}.${component(port)}` : component(node.name);
}

/** Escape a name for an endpoint: reserved characters become `%XX`, as in the kernel. */
export function component(name: string): string {
  return name.replace(/[%/.():[\]]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** Return the rectangle around all nodes and lines, or null if there are no nodes. */
export function boundsOf({ nodes, edges }: Pick<Scene, "nodes" | "edges">): Rect | null {
  if (nodes.length === 0) return null;
  let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
  const include = (x: number, y: number): void => {
    if (x < left) left = x;
    if (x > right) right = x;
    if (y < top) top = y;
    if (y > bottom) bottom = y;
  };
  for (const { x, y, w, h } of nodes) {
    include(x, y);
    include(x + w, y + h);
  }
  for (const { points } of edges) for (const [x, y] of points) include(x, y); // lines run outside of the blocks
  return { x: left, y: top, w: right - left, h: bottom - top };
}
