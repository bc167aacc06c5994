/** Questions about the drawn graph: which port is meant, what would close a cycle, in which order to read. Pure. */

import type { Diagnostic, Graph, GraphEdge, GraphNode, Port } from "./types";

export interface PortRef {
  node: GraphNode;
  port: Port;
  side: "input" | "output";
  /** What the kernel calls it: `linear_0.output`, or `input` for a port of the model itself. */
  endpoint: string;
}

/** A node's key: its path, or its side and name if it stands for a port of the model. */
export function keyOf(node: GraphNode): string {
  return node.path || `${node.kind}:${node.name}`;
}

/** A name as it stands in an endpoint: the characters that mean something there are written `%XX`, as in the kernel. */
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

/** Finds the ports at an edge's ends. An edge inside an open group may start at the group's input and end at its output. */
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

/** The nodes on a way from `start` to `goal` along edges, or null. */
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
      const way = [node];
      for (let back = cameFrom.get(node) ?? null; back !== null; back = cameFrom.get(back) ?? null) way.unshift(back);
      return way;
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

/** Why an output cannot go to an input, as far as the page can know; null if it can be tried. */
export function refusal(graph: Graph, source: PortRef, target: PortRef): string | null {
  if (source.side !== "output" || target.side !== "input") return "Connect an output to an input.";
  if (source.node === target.node) return `“${source.node.name}” cannot feed itself.`;
  if (parentOf(source.node.path) !== parentOf(target.node.path)) return "These are in different groups: use the group's own port.";
  if (graph.edges.some((edge) => edge.source === source.endpoint && edge.target === target.endpoint)) return "They are connected already.";
  const way = pathBetween(graph, keyOf(target.node), keyOf(source.node));
  if (way) {
    const names = [...way, way[0]!].map((key) => key.split("/").pop()!);
    return `This closes a cycle: ${names.join(" → ")}.`;
  }
  return null;
}

/** The graph with the problems inside closed groups shown on the groups, and on the edges that lead there. */
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

/** Nodes in reading order: along the edges, then from top to bottom; the children of an open group after it. */
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
  // A child whose parent is not drawn would be lost: a page must show whatever the kernel sent.
  for (const node of graph.nodes) if (!order.includes(node)) order.push(node);
  return order;
}

/** An edge as an SVG path: the control points that the layout gave. */
export function pathOf(points: readonly (readonly [number, number])[]): string {
  const [start, ...rest] = points;
  if (!start) return "";
  const at = ([x, y]: readonly [number, number]): string => `${x} ${y}`;
  if (rest.length % 3 !== 0) return `M${at(start)}L${rest.map(at).join(" ")}`;
  let d = `M${at(start)}`;
  for (let i = 0; i < rest.length; i += 3) d += `C${at(rest[i]!)} ${at(rest[i + 1]!)} ${at(rest[i + 2]!)}`;
  return d;
}

/** A simple curve between two points, leaving downwards and arriving from above. */
export function curve(x0: number, y0: number, x1: number, y1: number): string {
  const bend = Math.max(24, Math.abs(y1 - y0) / 2);
  return `M${x0} ${y0}C${x0} ${y0 + bend} ${x1} ${y1 - bend} ${x1} ${y1}`;
}

/** The point half-way along control points, for labels and icons. */
export function middle(points: readonly (readonly [number, number])[]): [number, number] {
  const segments = Math.floor((points.length - 1) / 3);
  if (segments < 1) return [points[0]?.[0] ?? 0, points[0]?.[1] ?? 0];
  const first = Math.floor((segments - 1) / 2) * 3;
  const [a, b, c, d] = [points[first]!, points[first + 1]!, points[first + 2]!, points[first + 3]!];
  if (segments % 2 === 0) return [d[0], d[1]];
  return [(a[0] + 3 * b[0] + 3 * c[0] + d[0]) / 8, (a[1] + 3 * b[1] + 3 * c[1] + d[1]) / 8];
}
