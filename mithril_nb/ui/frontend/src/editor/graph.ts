/** Pure functions on the drawn graph: ports, cycles, reading order and edge paths. */

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
  return node.path || `${node.kind}:${node.name}`;
}

/** Escape a name for an endpoint: reserved characters become `%XX`, as in the kernel. */
export function component(name: string): string {
  return name.replace(/[%/.():[\]]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);
}

export function endpointOf(node: GraphNode, port: Port): string {
  return node.path ? `${node.path}.${component(port.name)}` : component(node.name);
}

export function parentOf(path: string): string {
  const slash = path.lastIndexOf("/");
  return slash < 0 ? "" : path.slice(0, slash);
}

export function portsOf(graph: Graph): PortRef[] {
  return graph.nodes.flatMap((node) => [
    ...node.inputs.map((port): PortRef => ({ node, port, side: "input", endpoint: endpointOf(node, port) })),
    ...node.outputs.map((port): PortRef => ({ node, port, side: "output", endpoint: endpointOf(node, port) })),
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
  const within = (block: string | null | undefined, path: string): boolean => path !== "" && !!block && block.startsWith(`${path}/`);
  if (!problems.some((problem) => problem.block?.includes("/"))) return graph;
  const ends = new Ends(graph);
  const first = (test: (problem: Diagnostic) => boolean): number | null => {
    const index = problems.findIndex(test);
    return index < 0 ? null : index;
  };
  return {
    ...graph,
    nodes: graph.nodes.map((node) => (node.problem === null && !node.expanded ? { ...node, problem: first((problem) => within(problem.block, node.path)) } : node)),
    edges: graph.edges.map((edge) => {
      const target = ends.target(edge)?.node;
      if (edge.problem !== null || !target || target.expanded) return edge;
      return { ...edge, problem: first((problem) => problem.edge?.[0] === edge.source && within(problem.block, target.path)) };
    }),
  };
}

/** Return the nodes from top to bottom and left to right; the children of an open group follow it. */
export function readingOrder(graph: Graph): GraphNode[] {
  const byParent = new Map<string, GraphNode[]>();
  for (const node of graph.nodes) {
    const parent = node.path ? parentOf(node.path) : "";
    byParent.set(parent, [...(byParent.get(parent) ?? []), node]);
  }
  const order: GraphNode[] = [];
  const visit = (parent: string): void => {
    for (const node of (byParent.get(parent) ?? []).sort((a, b) => a.y - b.y || a.x - b.x)) {
      order.push(node);
      if (node.path && node.expanded) visit(node.path);
    }
  };
  visit("");
  // Include nodes whose parent is not drawn.
  for (const node of graph.nodes) if (!order.includes(node)) order.push(node);
  return order;
}

/** Return an SVG path through the control points of an edge. */
export function pathOf(points: readonly (readonly [number, number])[]): string {
  const [start, ...rest] = points;
  if (!start) return "";
  const at = ([x, y]: readonly [number, number]): string => `${x} ${y}`;
  if (rest.length % 3 !== 0) return `M${at(start)}L${rest.map(at).join(" ")}`;
  let d = `M${at(start)}`;
  for (let i = 0; i < rest.length; i += 3) d += `C${at(rest[i]!)} ${at(rest[i + 1]!)} ${at(rest[i + 2]!)}`;
  return d;
}

/** Return the SVG path of a curve that leaves downwards and arrives from above. */
export function curve(x0: number, y0: number, x1: number, y1: number): string {
  const bend = Math.max(24, Math.abs(y1 - y0) / 2);
  return `M${x0} ${y0}C${x0} ${y0 + bend} ${x1} ${y1 - bend} ${x1} ${y1}`;
}

/** Return the midpoint of an edge, for labels and icons. */
export function middle(points: readonly (readonly [number, number])[]): [number, number] {
  const segments = Math.floor((points.length - 1) / 3);
  if (segments < 1) return [points[0]?.[0] ?? 0, points[0]?.[1] ?? 0];
  const first = Math.floor((segments - 1) / 2) * 3;
  const [a, b, c, d] = [points[first]!, points[first + 1]!, points[first + 2]!, points[first + 3]!];
  if (segments % 2 === 0) return [d[0], d[1]];
  return [(a[0] + 3 * b[0] + 3 * c[0] + d[0]) / 8, (a[1] + 3 * b[1] + 3 * c[1] + d[1]) / 8];
}
