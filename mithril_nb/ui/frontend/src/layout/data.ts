/** A graph in levels as data: boxes and the data that flows between them. It mirrors `viz/diagrams/nested.py`. */

import { push } from "../dom/lists";
import { NEXT_ROUND, endId } from "../graph/scene";
import type { ModelGraph, PackedGraph } from "../kernel/contract";

/** The values of columns that the kernel leaves out. */
const BOX = {
  key: "",
  name: "",
  kind: "",
  w: 0,
  h: 0,
  title_w: 0,
  /** Key of the box around this box; `""` at the top. */
  parent: "",
  is_group: false,
  hue: 0,
  path: "",
  label: "",
  shape: "",
  repeat: 1,
  share: null as number | null,
  problem: null as number | null,
  counts: [] as number[],
  blocks: [] as string[],
  equations: [] as string[],
  inputs: [] as string[],
  outputs: [] as string[],
  frozen: "",
};
export type Box = typeof BOX;

const FLOW = {
  source: "",
  target: "",
  out: "",
  into: "",
  roles: [] as number[],
  shapes: [] as number[],
  problem: null as number | null,
  /** Key of the loop if the data is for its next round, else `""`. */
  loop: "",
};
type Flow = typeof FLOW;

export const NO_GRAPH: ModelGraph = {
  title: "",
  is_model: true,
  roles: [],
  shapes: [],
  idle: [],
  boxes: {},
  flows: {},
  opened: [],
  moved: {},
};

/** All flows between the same two visible ends, drawn as one wire. */
type Bundle = Flow;

/** The part of a bundle on one level; `""` as tail or head is the border of the level. */
export interface Piece {
  tail: string;
  source: string;
  head: string;
  port: string;
  bundle: Bundle;
}

/** In `Flow.roles`: a gradient that sums pass on, from the user of data to its producer; not drawn by itself. */
export const GRADIENT = 3;

function records<T extends object>(columns: Record<string, unknown[]>, defaults: T) {
  const names = Object.keys(columns);
  const found = Array.from({ length: Math.max(0, ...names.map((name) => columns[name]!.length)) }, () => ({
    ...defaults,
  }));
  // Column by column: engines are several times slower if the name changes with each assignment.
  for (const name of names) columns[name]!.forEach((value, at) => (found[at]![name as keyof T] = value as T[keyof T]));
  return found;
}

/** Return a text that is different for each pair of texts. */
export function paired(one: string, other: string): string {
  return `${one.length},${one}${other}`;
}

/** Return a text that identifies a wire by its ends, and by whether it leads to the next round of a loop. */
export function wireId(source: string, target: string, loop: string): string {
  return paired(source, target) + (loop ? NEXT_ROUND : "");
}

export class NestedGraph {
  readonly title: string;
  readonly isModel: boolean;
  readonly roles: string[];
  readonly shapes: string[];
  /** The output ports of groups that nothing feeds. */
  readonly idlePorts = new Map<string, string[]>();
  readonly boxes: Box[];
  readonly flows: Flow[];
  /** Data that flows between the rounds of equal parts, which is not drawn. */
  readonly rounds: Flow[];
  readonly byKey = new Map<string, Box>();
  readonly children = new Map<string, Box[]>();

  /** Make a graph. `rows` are the rows of boxes that keep theirs, by key; a layout adds those of others. */
  constructor(
    packed: PackedGraph,
    readonly rows = new Map<string, number>(),
  ) {
    this.title = packed.title;
    this.isModel = packed.is_model;
    this.roles = packed.roles;
    this.shapes = packed.shapes;
    for (const [group, port] of packed.idle) push(this.idlePorts, group, port);
    this.boxes = records<Box>(packed.boxes, BOX);
    this.flows = records<Flow>(packed.flows, FLOW);
    this.rounds = records<Flow>(packed.rounds ?? {}, FLOW);
    const keyAt = (place: unknown) => this.boxes[place as number]?.key ?? "";
    for (const box of this.boxes) {
      box.parent = typeof box.parent === "number" ? keyAt(box.parent) : box.parent;
      this.byKey.set(box.key, box);
      push(this.children, box.parent, box);
    }
    for (const flow of [...this.flows, ...this.rounds])
      [flow.source, flow.target, flow.loop] = [keyAt(flow.source), keyAt(flow.target), keyAt(flow.loop)];
  }

  /** Return the keys of the groups that are drawn open if the boxes of some keys are open. */
  shownGroups(opened: ReadonlySet<string>) {
    const found = new Set<string>();
    for (const box of this.boxes)
      if (box.is_group && opened.has(box.key) && (!box.parent || found.has(box.parent))) found.add(box.key);
    return found;
  }

  /** Return a key and the keys of the boxes around it, ending with the root, `""`. */
  above(key: string) {
    const found = [key];
    while (key) found.push((key = this.byKey.get(key)!.parent));
    return found;
  }

  private isAround(outer: string, inner: string) {
    return outer !== "" && inner !== "" && this.above(inner).indexOf(outer, 1) > 0;
  }

  /** Return the wires between visible boxes, where `shown` are the groups drawn open. */
  bundles(shown: ReadonlySet<string>) {
    const visible = new Map([["", ""]]);
    for (const box of this.boxes) {
      const around = visible.get(box.parent)!;
      visible.set(box.key, box.parent === around && (!around || shown.has(around)) ? box.key : around);
    }
    const found = new Map<string, Bundle>();
    for (const flow of this.flows) {
      const [tail, head] = [visible.get(flow.source)!, visible.get(flow.target)!];
      // From border to border of a group.
      const isThrough = flow.source === flow.target && flow.source === tail && shown.has(tail);
      if (tail === head && !isThrough && !shown.has(flow.loop)) continue;
      // Data for an open node flows on to the nodes inside it, which have separate flows.
      if (!this.isModel && (shown.has(head) || this.isAround(tail, head))) continue;
      const [out, into] = [tail === flow.source ? flow.out : "", head === flow.target ? flow.into : ""];
      const ends = paired(paired(paired(tail, head), paired(out, into)), flow.loop);
      const known = found.get(ends);
      if (!known) {
        const [roles, shapes] = [[...flow.roles], [...flow.shapes]];
        found.set(ends, { ...flow, source: tail, target: head, out, into, roles, shapes });
        continue;
      }
      known.roles.push(...flow.roles);
      known.shapes.push(...flow.shapes);
      known.problem ??= flow.problem;
    }
    const ascending = (numbers: number[]) =>
      numbers.length < 2 ? numbers : [...new Set(numbers)].sort((a, b) => a - b);
    for (const bundle of found.values())
      [bundle.roles, bundle.shapes] = [ascending(bundle.roles), ascending(bundle.shapes)];
    return [...found.values()];
  }

  /** Return the pieces of wires on each level, by key of the group. */
  pieces(bundles: readonly Bundle[]) {
    const levels = new Map<string, Piece[]>();
    for (const bundle of this.drawn(bundles)) {
      const [tails, heads] = [this.above(bundle.source), this.above(bundle.target)];
      // The data for a next round may flow from a box to itself, around it.
      const from = bundle.loop ? 1 : 0;
      const common = tails.find((key, at) => at >= from && heads.indexOf(key, from) >= 0)!;
      const outOf = tails.slice(0, tails.indexOf(common));
      const into = heads.slice(0, heads.indexOf(common));
      const name = endId(bundle.source, bundle.out) + (bundle.loop ? NEXT_ROUND : "");
      const port = bundle.into || name;
      let source = bundle.out || name;
      for (let at = 0; at + 1 < outOf.length; at++) {
        push(levels, outOf[at + 1]!, { tail: outOf[at]!, source, head: "", port: name, bundle });
        source = name;
      }
      push(levels, common, {
        tail: outOf.at(-1) ?? "",
        source,
        head: into.at(-1) ?? "",
        port: into.length < 2 ? port : name,
        bundle,
      });
      for (let at = into.length - 1; at > 0; at--)
        push(levels, into[at]!, { tail: "", source: name, head: into[at - 1]!, port: at === 1 ? port : name, bundle });
    }
    return levels;
  }

  /** Return the wires along which a gradient flows back, as `wireId` names them. */
  returned(bundles: readonly Bundle[]) {
    return new Set(
      bundles
        .filter(({ roles }) => roles.includes(1) || roles.includes(GRADIENT))
        .map(({ source, target, loop }) => wireId(target, source, loop)),
    );
  }

  /** Return the bundles that are drawn as wires: the main ones, and all with the data of a box without any of these. */
  private drawn(bundles: readonly Bundle[]) {
    const main = new Set(bundles.filter((bundle) => this.isMain(bundle)));
    const ends = new Set([...main].flatMap(({ source, target }) => (source === target ? [] : [source, target])));
    return bundles.filter((bundle) => main.has(bundle) || !(ends.has(bundle.target) || isGradient(bundle)));
  }

  /** Return whether the forward pass uses the data of a bundle; cells in the boxes show other roles. */
  private isMain(bundle: Bundle) {
    const { roles } = bundle;
    if (this.isModel || roles.length === 0 || roles.includes(0)) return true;
    if (isGradient(bundle)) return false;
    const ends = [this.byKey.get(bundle.source)!, this.byKey.get(bundle.target)!];
    return !(roles.length === 1 && roles[0] === 2) && ends.some((end) => !end.counts[0] && end.kind !== "input");
  }

  /** Return the largest of some shapes, and the number of others. */
  shapeText(shapes: readonly number[]) {
    if (shapes.length === 0) return "";
    return this.shapes[shapes.at(-1)!]! + (shapes.length > 1 ? ` +${shapes.length - 1}` : "");
  }
}

/** Return whether only sums that pass on a gradient use the data of a bundle. */
function isGradient({ roles }: Bundle) {
  return roles.length === 1 && roles[0] === GRADIENT;
}
