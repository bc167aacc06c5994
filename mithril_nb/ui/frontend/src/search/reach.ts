/** Reachability along the data flow of a nested graph, through its groups. Pure: no DOM. */

import { GRADIENT, type NestedGraph } from "../layout/data";

/** Boxes, and ports of groups: a group of a model passes on only the data of the same port. */
type Vertex = string;

export class Reach {
  private readonly next = new Map<Vertex, Vertex[]>();
  private readonly before = new Map<Vertex, Vertex[]>();
  private readonly boxOf = new Map<Vertex, string>();

  /** With `onlyForward`, data that only other passes read does not count, as in `StageGraph.ancestors` in Python. */
  constructor(
    private readonly graph: NestedGraph,
    onlyForward = false,
  ) {
    for (const { source, target, out, into, roles } of [...graph.flows, ...graph.rounds]) {
      if ((onlyForward && roles.length && !roles.includes(0)) || roles[0] === GRADIENT) continue;
      // Inside a group, its inputs are sources and its outputs are targets.
      const from = this.vertex(source, out, this.isIn(target, source) ? "in" : "out");
      const to = this.vertex(target, into, this.isIn(source, target) ? "out" : "in");
      push(this.next, from, to);
      push(this.before, to, from);
    }
  }

  /** Return the keys of the boxes whose data reaches a box. */
  ancestors(key: string): Set<string> {
    return this.boxes(this.walk(key, this.before), key);
  }

  /** Return the keys of the boxes that the data of a box reaches. */
  descendants(key: string): Set<string> {
    return this.boxes(this.walk(key, this.next), key);
  }

  /** Return the keys of the boxes on all ways from one box to another; null if no way exists. */
  between(start: string, goal: string): Set<string> | null {
    const [ahead, back] = [this.walk(start, this.next), this.walk(goal, this.before)];
    const shared = new Set([...ahead].filter((vertex) => back.has(vertex)));
    const found = new Set([...this.boxes(shared, "")].filter((key) => !this.isIn(key, start) && !this.isIn(key, goal)));
    const isReached = [...ahead].some((vertex) => this.isIn(this.boxOf.get(vertex)!, goal));
    return isReached ? found : null;
  }

  /** Return whether a box is another one or inside it. */
  isIn(inner: string, outer: string): boolean {
    return this.graph.byKey.has(inner) && this.graph.above(inner).includes(outer);
  }

  private vertex(key: string, port: string, side: "in" | "out"): Vertex {
    const name = this.graph.isModel && this.graph.children.has(key) ? `${side} ${port}\n${key}` : key;
    this.boxOf.set(name, key);
    return name;
  }

  private walk(start: string, links: ReadonlyMap<Vertex, readonly Vertex[]>): Set<Vertex> {
    const inside = [...this.boxOf].flatMap(([vertex, key]) => (this.isIn(key, start) ? [vertex] : []));
    const seen = new Set(inside);
    for (const vertex of seen) for (const other of links.get(vertex) ?? []) seen.add(other);
    return seen;
  }

  /** Return the boxes of vertices that hold no others, except those inside `but`. */
  private boxes(vertices: ReadonlySet<Vertex>, but: string): Set<string> {
    const keys = [...vertices].map((vertex) => this.boxOf.get(vertex)!);
    return new Set(keys.filter((key) => !this.graph.children.has(key) && !(but && this.isIn(key, but))));
  }
}

/** Return what a box reaches: along forward data only, if the box has instructions of the forward pass. */
export function reachFrom(graph: NestedGraph, key: string): Reach {
  return new Reach(graph, (graph.byKey.get(key)?.counts[0] ?? 0) > 0);
}

function push(map: Map<Vertex, Vertex[]>, key: Vertex, value: Vertex): void {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}
