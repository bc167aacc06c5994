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

/** Return the nodes in the order of the layout, which reads like text; the children of an open group follow it. */
export function readingOrder(graph: Graph): GraphNode[] {
  const byParent = new Map<string, GraphNode[]>();
  for (const node of graph.nodes) {
    const parent = node.path ? parentOf(node.path) : "";
    const siblings = byParent.get(parent);
    if (siblings) siblings.push(node);
    else byParent.set(parent, [node]);
  }
  const order = new Set<GraphNode>();
  const visit = (parent: string): void => {
    for (const node of byParent.get(parent) ?? []) {
      order.add(node);
      if (node.path && node.expanded) visit(node.path);
    }
  };
  visit("");
  // Include nodes whose parent is not drawn.
  for (const node of graph.nodes) order.add(node);
  return [...order];
}

type Point = readonly [number, number];
const CORNER = 5;

/** Return the SVG path of an edge: a curve through control points, or a line with rounded corners. */
export function pathOf({ points, curve }: Pick<GraphEdge, "points" | "curve">): string {
  const [start, ...rest] = points;
  if (!start) return "";
  const at = ([x, y]: Point): string => `${x} ${y}`;
  let d = `M${at(start)}`;
  if (curve) {
    for (let i = 0; i < rest.length; i += 3) d += `C${at(rest[i]!)} ${at(rest[i + 1]!)} ${at(rest[i + 2]!)}`;
    return d;
  }
  const towards = (corner: Point, end: Point): Point => {
    const length = Math.hypot(end[0] - corner[0], end[1] - corner[1]);
    const reach = length ? Math.min(CORNER, length / 2) / length : 0;
    return [corner[0] + (end[0] - corner[0]) * reach, corner[1] + (end[1] - corner[1]) * reach];
  };
  for (let i = 1; i < points.length - 1; i++) d += `L${at(towards(points[i]!, points[i - 1]!))}Q${at(points[i]!)} ${at(towards(points[i]!, points[i + 1]!))}`;
  return `${d}L${at(points.at(-1)!)}`;
}

/** Return the SVG path of the arrow at the end of an edge. */
export function arrowOf(points: readonly Point[]): string {
  const [end, before] = [points.at(-1), points.at(-2)];
  if (!end || !before) return "";
  const length = Math.hypot(end[0] - before[0], end[1] - before[1]) || 1;
  const [ux, uy] = [(end[0] - before[0]) / length, (end[1] - before[1]) / length];
  const [x, y] = [end[0] - 7 * ux, end[1] - 7 * uy];
  return `M${end[0]} ${end[1]}L${x - 3.2 * uy} ${y + 3.2 * ux}L${x + 3.2 * uy} ${y - 3.2 * ux}Z`;
}

/** Return the SVG path of a curve that leaves to the right and arrives from the left. */
export function curve(x0: number, y0: number, x1: number, y1: number): string {
  const bend = Math.max(24, Math.abs(x1 - x0) / 2);
  return `M${x0} ${y0}C${x0 + bend} ${y0} ${x1 - bend} ${y1} ${x1} ${y1}`;
}

/** Return a point in the middle of an edge, for labels and icons: on a line, the middle of its longest piece. */
export function middle({ points, curve }: Pick<GraphEdge, "points" | "curve">): [number, number] {
  const between = (a: Point, b: Point): [number, number] => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
  if (points.length < 2) return [points[0]?.[0] ?? 0, points[0]?.[1] ?? 0];
  if (curve) return between(between(points[0]!, points.at(-1)!), between(points[1]!, points.at(-2)!));
  let longest = 0;
  const lengthOf = (i: number): number => Math.hypot(points[i + 1]![0] - points[i]![0], points[i + 1]![1] - points[i]![1]);
  for (let i = 1; i < points.length - 1; i++) if (lengthOf(i) > lengthOf(longest)) longest = i;
  return between(points[longest]!, points[longest + 1]!);
}
