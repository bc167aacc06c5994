/** A laid-out graph as data, the same for models and programs: `viz/diagrams/nested.py` in TypeScript. */

import { type Point, type Rect, boxOf, cornersOf } from "../drawing/lines";

/** A port; its place is relative to the top left of its node. */
export interface Port {
  name: string;
  x: number;
  y: number;
}

/** A box: a block, an instruction, the frame of an open group, or an input or output. */
export interface SceneNode {
  /** Unique in the scene. */
  key: string;
  /** Key of the group that contains the node; "" at the top. */
  parent: string;
  path: string;
  /** Paths of the blocks that the node represents, if there are more than the block at `path`. */
  blocks?: readonly string[];
  name: string;
  kind: string;
  hue: number;
  x: number;
  y: number;
  w: number;
  h: number;
  label: string;
  shape: string;
  share: number | null;
  problem: number | null;
  group: boolean;
  expanded: boolean;
  repeat: number;
  /** Number of instructions inside by role, then of instructions without a role; missing in a model. */
  counts?: readonly number[];
  /** Ids of the equations of the node, for links. */
  equations?: readonly string[];
  inputs: readonly Port[];
  outputs: readonly Port[];
  /** "all" or "some" if training does not change all or some of the parameters. */
  frozen?: string;
}

export interface SceneEdge {
  id: string;
  source: string;
  target: string;
  shape: string;
  points: readonly Point[];
  /** Whether the points are control points of a curve; otherwise they are the corners of a line. */
  curve: boolean;
  problem: number | null;
  /** Whether only the backward pass reads the data. */
  is_backward?: boolean;
  /** Whether a gradient flows back along the same line. */
  returns?: boolean;
  /** False if the edge ends at a frame around the consumer, without an arrow. */
  is_end?: boolean;
  /** Whether the next round of a loop uses the data. */
  is_carried?: boolean;
}

/** Ending of the names of data that a loop passes to its next round. */
export const NEXT_ROUND = " (next round)";

export interface Scene {
  /** The accessible name. */
  title: string;
  width: number;
  height: number;
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
interface Place {
  node: SceneNode;
  /** Index in the scene. */
  at: number;
  /** 1 at the top. */
  level: number;
  /** Position among its siblings, from 1, and their number. */
  position: number;
  siblings: number;
}

/** An end of an edge: its node, and the place of the port relative to the node. */
interface End {
  node: SceneNode;
  x: number;
  y: number;
}

/** Lookup tables of a scene. Nodes of unknown parents count as top-level nodes. */
export class SceneIndex {
  readonly places = new Map<string, Place>();
  private ends: { source: Map<string, End>; target: Map<string, End> } | null = null;
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
    for (const place of this.places.values())
      place.siblings = counts.get(this.places.has(place.node.parent) ? place.node.parent : "")!;
  }

  node(key: string) {
    return this.places.get(key)?.node;
  }

  at(key: string) {
    return this.places.get(key)?.at ?? -1;
  }

  /** Return the groups around a node, outermost first. */
  groupsOf(key: string) {
    const found: SceneNode[] = [];
    for (let node = this.node(key); node && (node = this.node(node.parent)) && !found.includes(node);)
      found.unshift(node);
    return found;
  }

  /** Return the keys at the other ends of a node's outgoing or incoming edges, in reading order. */
  neighbours(key: string, side: "after" | "before"): readonly string[] {
    this.links ??= this.linked();
    return this.links[side].get(key) ?? [];
  }

  /** Return the key of the node at an end of an edge: the node itself, or the node with this port. */
  keyAt(end: string) {
    return this.endAt(end, "source")?.node.key;
  }

  /** Return an end of an edge. Edges inside an open group may start at the group's input, or end at its output. */
  endAt(end: string, side: "source" | "target") {
    if (!this.ends) {
      this.ends = { source: new Map(), target: new Map() };
      for (const one of this.scene.nodes) {
        for (const { name, x, y } of one.outputs) this.ends.source.set(endId(one.key, name), { node: one, x, y });
        for (const { name, x, y } of one.inputs) this.ends.target.set(endId(one.key, name), { node: one, x, y });
      }
    }
    const found = this.ends[side].get(end) ?? this.ends[side === "source" ? "target" : "source"].get(end);
    const node = found?.node ?? this.node(end);
    return found ?? (node && { node, x: side === "source" ? node.w : 0, y: node.h / 2 }); // a node without ports
  }

  private linked() {
    const found = { after: new Map<string, string[]>(), before: new Map<string, string[]>() };
    const push = (map: Map<string, string[]>, from: string, to: string) => {
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
    for (const map of [found.after, found.before])
      for (const list of map.values()) list.sort((a, b) => this.at(a) - this.at(b));
    return found;
  }
}

/** Return whether a node is an input or output of a model or program. */
export function isPill(node: Pick<SceneNode, "path" | "kind">): boolean {
  return !node.path && (node.kind === "input" || node.kind === "output");
}

/** Escape a name for an endpoint: reserved characters become `%XX`, as in the kernel. */
export function component(name: string): string {
  return name.replace(/[%/.():[\]]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** Return one end of an edge as text: `relu_0.output`; the name alone for an input or output of the model. */
export function endId(key: string, port: string): string {
  if (!port) return key;
  return /^(input|output):/.test(key) ? component(port) : `${key}.${component(port)}`;
}

/** Return the rectangle around all nodes and lines, or null if there are no nodes. */
export function boundsOf({ nodes, edges }: Pick<Scene, "nodes" | "edges">): Rect | null {
  if (nodes.length === 0) return null;
  // Lines run outside of the blocks.
  return boxOf({ points: [...nodes.flatMap(cornersOf), ...edges.flatMap(({ points }) => points)] });
}

/** Return the new keys of renamed nodes: of each kind as many nodes vanished as appeared, and they keep their order. */
export function renamedNodes(gone: readonly SceneNode[], fresh: readonly SceneNode[]): Map<string, string> {
  const renamed = new Map<string, string>();
  for (const kind of new Set(gone.map((node) => node.kind))) {
    const [before, after] = [gone, fresh].map((nodes) => nodes.filter((node) => node.kind === kind));
    if (before!.length === after!.length) before!.forEach(({ key }, at) => renamed.set(key, after![at]!.key));
  }
  return renamed;
}
