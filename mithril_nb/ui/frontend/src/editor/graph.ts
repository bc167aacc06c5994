/** Pure functions on the graph of a model: ports, cycles, reading order, and its scene. */

import { type Line, type Rect, bend } from "../drawing/lines";
import { type Port, type Scene, type SceneIndex, type SceneNode, endId } from "../graph/scene";
import type { ProblemData } from "../kernel/contract";

export interface PortRef {
  node: SceneNode;
  port: Port;
  side: "input" | "output";
  /** The name used by the kernel: `linear_0.output`, or `input` for a port of the model itself. */
  endpoint: string;
}

export function parentOf(path: string): string {
  const slash = path.lastIndexOf("/");
  return slash < 0 ? "" : path.slice(0, slash);
}

export function portsOf({ nodes }: Scene, side: PortRef["side"]): PortRef[] {
  return nodes.flatMap((node) =>
    (side === "input" ? node.inputs : node.outputs).map((port) => ({
      node,
      port,
      side,
      endpoint: endId(node.key, port.name),
    })),
  );
}

/** Return the keys of the nodes on a path from `start` to `goal` along edges, or null. */
function pathBetween(index: SceneIndex, start: string, goal: string) {
  const cameFrom = new Map<string, string | null>([[start, null]]);
  const queue = [start];
  for (const node of queue) {
    if (node === goal) {
      const path = [node];
      for (let back = cameFrom.get(node) ?? null; back !== null; back = cameFrom.get(back) ?? null) path.unshift(back);
      return path;
    }
    for (const after of index.neighbours(node, "after")) {
      if (cameFrom.has(after)) continue;
      cameFrom.set(after, node);
      queue.push(after);
    }
  }
  return null;
}

/** Return why an output cannot be connected to an input; null if the kernel must decide. */
export function connectionProblem(index: SceneIndex, source: PortRef, target: PortRef): string | null {
  if (source.side !== "output" || target.side !== "input") return "Connect an output to an input.";
  if (source.node === target.node) return `“${source.node.name}” cannot feed itself.`;
  if (parentOf(source.node.path) !== parentOf(target.node.path))
    return "These ports are in different groups. Use a port of the group.";
  if (index.scene.edges.some((edge) => edge.source === source.endpoint && edge.target === target.endpoint))
    return "Already connected.";
  const path = pathBetween(index, target.node.key, source.node.key);
  if (path) {
    const names = [...path, path[0]!].map((key) => index.node(key)!.name);
    return `This creates a cycle: ${names.join(" → ")}.`;
  }
  return null;
}

/** Return the inputs that an output can be connected to, or is connected to, in one search from its node. */
export function targetsOf(index: SceneIndex, source: PortRef): { target: PortRef; connected: boolean }[] {
  const feeding = new Set([source.node.key]); // connecting to a node that feeds the source creates a cycle
  for (const key of feeding) for (const before of index.neighbours(key, "before")) feeding.add(before);
  const given = new Set(index.scene.edges.flatMap((edge) => (edge.source === source.endpoint ? [edge.target] : [])));
  const group = parentOf(source.node.path);
  return portsOf(index.scene, "input").flatMap((target) => {
    const connected = given.has(target.endpoint);
    return connected || (!feeding.has(target.node.key) && parentOf(target.node.path) === group)
      ? [{ target, connected }]
      : [];
  });
}

/** Mark closed groups and their incoming edges with the problems inside the groups. */
export function withInnerProblems(index: SceneIndex, problems: readonly ProblemData[]): Scene {
  const { scene } = index;
  if (!problems.some((problem) => problem.block?.includes("/"))) return scene;
  const within = (block: string | null | undefined, node: SceneNode) =>
    !!block && (node.path ? [node.path] : (node.blocks ?? [])).some((path) => block.startsWith(`${path}/`));
  const first = (test: (problem: ProblemData) => boolean) => {
    const found = problems.findIndex(test);
    return found < 0 ? null : found;
  };
  return {
    ...scene,
    nodes: scene.nodes.map((node) =>
      node.problem === null && !node.expanded
        ? { ...node, problem: first((problem) => within(problem.block, node)) }
        : node,
    ),
    edges: scene.edges.map((edge) => {
      const target = index.endAt(edge.target, "target")?.node;
      if (edge.problem !== null || !target || target.expanded) return edge;
      return {
        ...edge,
        problem: first((problem) => problem.edge?.[0] === edge.source && within(problem.block, target)),
      };
    }),
  };
}

/** Return the places of nodes that are dragged, by key, of their inner nodes, and of their edges as simple curves. */
export function draggedBy(
  index: SceneIndex,
  dragged: ReadonlySet<string>,
  dx: number,
  dy: number,
): { nodes: Map<string, Rect>; lines: Map<string, Line> } {
  const nodes = new Map<string, Rect>();
  for (const node of index.scene.nodes) {
    if (!dragged.has(node.key) && !nodes.has(node.parent)) continue; // a frame comes before its content
    nodes.set(node.key, { x: node.x + dx, y: node.y + dy, w: node.w, h: node.h });
  }
  const lines = new Map<string, Line>();
  for (const edge of index.scene.edges) {
    const [source, target] = [index.endAt(edge.source, "source"), index.endAt(edge.target, "target")];
    if (!source || !target) continue;
    const [from, to] = [nodes.get(source.node.key), nodes.get(target.node.key)];
    if (!from && !to) continue;
    const [a, b] = [from ?? source.node, to ?? target.node];
    lines.set(edge.id, bend(a.x + source.x, a.y + source.y, b.x + target.x, b.y + target.y));
  }
  return { nodes, lines };
}
