/** Pure functions on the graph of a model: ports, cycles, reading order, and its scene. */

import { type Line, type Rect, bend } from "../drawing/lines";
import { type Scene, type SceneNode, endpointOf } from "../graph/scene";
import type { Diagnostic, Graph, GraphEdge, GraphNode, Port } from "../kernel/types";

export interface PortRef {
  node: GraphNode;
  port: Port;
  side: "input" | "output";
  /** The name used by the kernel: `linear_0.output`, or `input` for a port of the model itself. */
  endpoint: string;
}

/** Return a node's key: its path, or its side and name if it represents a port of the model. */
export function keyOf(node: GraphNode): string {
  return node.key ?? (node.path || `${node.kind}:${node.name}`);
}

export function parentOf(path: string): string {
  const slash = path.lastIndexOf("/");
  return slash < 0 ? "" : path.slice(0, slash);
}

export function portsOf(graph: Graph): PortRef[] {
  return graph.nodes.flatMap((node) => [
    ...node.inputs.map((port): PortRef => ({ node, port, side: "input", endpoint: endpointOf(node, port.name) })),
    ...node.outputs.map((port): PortRef => ({ node, port, side: "output", endpoint: endpointOf(node, port.name) })),
  ]);
}

/** Looks up the ports of an edge. Edges inside an open group may start at the group's input or end at its output. */
export class Ends {
  private readonly outputs = new Map<string, PortRef>();
  private readonly inputs = new Map<string, PortRef>();

  constructor(graph: Graph) {
    for (const ref of portsOf(graph)) (ref.side === "output" ? this.outputs : this.inputs).set(ref.endpoint, ref);
  }

  source(edge: Pick<GraphEdge, "source">): PortRef | undefined {
    return this.outputs.get(edge.source) ?? this.inputs.get(edge.source);
  }

  target(edge: Pick<GraphEdge, "target">): PortRef | undefined {
    return this.inputs.get(edge.target) ?? this.outputs.get(edge.target);
  }
}

/** Return the nodes on a path from `start` to `goal` along edges, or null. */
export function pathBetween(graph: Graph, start: string, goal: string): string[] | null {
  const ends = new Ends(graph);
  const next = new Map<string, string[]>();
  for (const edge of graph.edges) {
    const from = ends.source(edge)?.node;
    const to = ends.target(edge)?.node;
    if (from && to) next.set(keyOf(from), [...(next.get(keyOf(from)) ?? []), keyOf(to)]);
  }
  const cameFrom = new Map<string, string | null>([[start, null]]);
  const queue = [start];
  for (let node = queue.shift(); node !== undefined; node = queue.shift()) {
    if (node === goal) {
      const path = [node];
      for (let back = cameFrom.get(node) ?? null; back !== null; back = cameFrom.get(back) ?? null) path.unshift(back);
      return path;
    }
    for (const after of next.get(node) ?? []) {
      if (!cameFrom.has(after)) {
        cameFrom.set(after, node);
        queue.push(after);
      }
    }
  }
  return null;
}

/** Return why an output cannot be connected to an input; null if the kernel must decide. */
export function connectionProblem(graph: Graph, source: PortRef, target: PortRef): string | null {
  if (source.side !== "output" || target.side !== "input") return "Connect an output to an input.";
  if (source.node === target.node) return `“${source.node.name}” cannot feed itself.`;
  if (parentOf(source.node.path) !== parentOf(target.node.path)) return "These ports are in different groups. Use a port of the group.";
  if (graph.edges.some((edge) => edge.source === source.endpoint && edge.target === target.endpoint)) return "Already connected.";
  const path = pathBetween(graph, keyOf(target.node), keyOf(source.node));
  if (path) {
    const names = [...path, path[0]!].map((key) => key.split("/").pop()!);
    return `This creates a cycle: ${names.join(" → ")}.`;
  }
  return null;
}

/** Mark closed groups and their incoming edges with the problems inside the groups. */
export function withInnerProblems(graph: Graph, problems: readonly Diagnostic[]): Graph {
  const within = (block: string | null | undefined, node: GraphNode): boolean => !!block && (node.path ? [node.path] : (node.blocks ?? [])).some((path) => block.startsWith(`${path}/`));
  if (!problems.some((problem) => problem.block?.includes("/"))) return graph;
  const ends = new Ends(graph);
  const first = (test: (problem: Diagnostic) => boolean): number | null => {
    const index = problems.findIndex(test);
    return index < 0 ? null : index;
  };
  return {
    ...graph,
    nodes: graph.nodes.map((node) => (node.problem === null && !node.expanded ? { ...node, problem: first((problem) => within(problem.block, node)) } : node)),
    edges: graph.edges.map((edge) => {
      const target = ends.target(edge)?.node;
      if (edge.problem !== null || !target || target.expanded) return edge;
      return { ...edge, problem: first((problem) => problem.edge?.[0] === edge.source && within(problem.block, target)) };
    }),
  };
}

/** Return the nodes in the order of the layout, which reads like text; the children of an open group follow it. */
export function readingOrder(graph: Graph): GraphNode[] {
  const byParent = new Map<string, GraphNode[]>();
  for (const node of graph.nodes) {
    const parent = node.parent ?? (node.path ? parentOf(node.path) : "");
    const siblings = byParent.get(parent);
    if (siblings) siblings.push(node);
    else byParent.set(parent, [node]);
  }
  const order = new Set<GraphNode>();
  const visit = (parent: string): void => {
    for (const node of byParent.get(parent) ?? []) {
      order.add(node);
      if (node.expanded) visit(keyOf(node));
    }
  };
  visit("");
  // Include nodes whose parent is not drawn.
  for (const node of graph.nodes) order.add(node);
  return [...order];
}

/** Return the scene of a model's graph, with the problems inside closed groups. */
export function sceneOf(graph: Graph, problems: readonly Diagnostic[], title: string): Scene {
  const marked = withInnerProblems(graph, problems);
  const nodes = readingOrder(marked).map((node): SceneNode => ({ ...node, key: keyOf(node), parent: node.parent ?? parentOf(node.path) }));
  return { ...marked, title, nodes, is_model: true, roles: [] };
}

/** Return the places of a node that is dragged, of its inner nodes, and of their edges as simple curves. */
export function draggedTo(graph: Graph, dragged: GraphNode, x: number, y: number): { nodes: Map<string, Rect>; lines: Map<string, Line> } {
  const nodes = new Map<string, Rect>();
  const inside = `${dragged.path}/`;
  for (const node of graph.nodes) {
    if (keyOf(node) !== keyOf(dragged) && !(dragged.path && node.path.startsWith(inside))) continue;
    nodes.set(keyOf(node), { x: node.x + x - dragged.x, y: node.y + y - dragged.y, w: node.w, h: node.h });
  }
  const ends = new Ends(graph);
  const lines = new Map<string, Line>();
  for (const edge of graph.edges) {
    const [source, target] = [ends.source(edge), ends.target(edge)];
    if (!source || !target) continue;
    const [from, to] = [nodes.get(keyOf(source.node)), nodes.get(keyOf(target.node))];
    if (!from && !to) continue;
    const [a, b] = [from ?? source.node, to ?? target.node];
    lines.set(edge.id, bend(a.x + source.port.x, a.y + source.port.y, b.x + target.port.x, b.y + target.port.y));
  }
  return { nodes, lines };
}
