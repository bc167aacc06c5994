/** Reachability along the data flow of a nested graph, through its groups. Pure: no DOM. */

import { push } from "../dom/lists";
import { GRADIENT, type NestedGraph } from "../layout/data";

/** Boxes, and ports of groups: a group of a model passes on only the data of the same port. */
type Vertex = string;

function createReach(graph: NestedGraph, onlyForward = false) {
  const next = new Map<Vertex, Vertex[]>();
  const before = new Map<Vertex, Vertex[]>();
  const boxOf = new Map<Vertex, string>();
  for (const { source, target, out, into, roles } of [...graph.flows, ...graph.rounds]) {
    if ((onlyForward && roles.length && !roles.includes(0)) || roles[0] === GRADIENT) continue;
    // Inside a group, its inputs are sources and its outputs are targets.
    const from = vertex(source, out, isIn(target, source) ? "in" : "out");
    const to = vertex(target, into, isIn(source, target) ? "out" : "in");
    push(next, from, to);
    push(before, to, from);
  }

  /** Return the keys of the boxes whose data reaches a box. */
  function ancestors(key: string) {
    return boxes(walk(key, before), key);
  }

  /** Return the keys of the boxes that the data of a box reaches. */
  function descendants(key: string) {
    return boxes(walk(key, next), key);
  }

  /** Return the keys of the boxes on all ways from one box to another; null if no way exists. */
  function between(start: string, goal: string) {
    const [ahead, back] = [walk(start, next), walk(goal, before)];
    const shared = new Set([...ahead].filter((vertex) => back.has(vertex)));
    const found = new Set([...boxes(shared, "")].filter((key) => !isIn(key, start) && !isIn(key, goal)));
    const isReached = [...ahead].some((vertex) => isIn(boxOf.get(vertex)!, goal));
    return isReached ? found : null;
  }

  /** Return whether a box is another one or inside it. */
  function isIn(inner: string, outer: string) {
    return graph.byKey.has(inner) && graph.above(inner).includes(outer);
  }

  function vertex(key: string, port: string, side: "in" | "out") {
    const name = graph.isModel && graph.children.has(key) ? `${side} ${port}\n${key}` : key;
    boxOf.set(name, key);
    return name;
  }

  function walk(start: string, links: ReadonlyMap<Vertex, readonly Vertex[]>) {
    const inside = [...boxOf].flatMap(([vertex, key]) => (isIn(key, start) ? [vertex] : []));
    const seen = new Set(inside);
    for (const vertex of seen) for (const other of links.get(vertex) ?? []) seen.add(other);
    return seen;
  }

  /** Return the boxes of vertices that hold no others, except those inside `but`. */
  function boxes(vertices: ReadonlySet<Vertex>, but: string) {
    const keys = [...vertices].map((vertex) => boxOf.get(vertex)!);
    return new Set(keys.filter((key) => !graph.children.has(key) && !(but && isIn(key, but))));
  }

  return { ancestors, descendants, between };
}

type Reach = ReturnType<typeof createReach>;

/** Return what a box reaches: along forward data only, if the box has instructions of the forward pass. */
export function reachFrom(graph: NestedGraph, key: string): Reach {
  return createReach(graph, (graph.byKey.get(key)?.counts[0] ?? 0) > 0);
}
