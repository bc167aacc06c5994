/**
 * Layout of a nested graph: each level in rows, from the inside out; an open group is one large box on the level around
 * it.
 *
 * It mirrors `viz/diagrams/layout.py`, so that groups open without a kernel; a test compares the two. It runs on the
 * main thread: 1,000 boxes on one level take about 20 ms.
 */

import { getOrCreate } from "../dom/lists";
import { type Point, bend } from "../drawing/lines";
import { NEXT_ROUND, type Port, type Scene, type SceneEdge, type SceneNode, endId, isPill } from "../graph/scene";
import { type Box, type NestedGraph, paired, type Piece, wireId } from "./data";
import { LANE, type Net, type Part, WIDTH, arrangeLines } from "./rows";

const MARGIN = 12;
const PAD = 10;
const TITLE_H = 28;
/** Room in a group without boxes, where wires lead from its inputs to its outputs. */
const EMPTY: Part = { w: 24, h: 16, ins: new Map(), outs: new Map(), isInput: false, isOutput: false };

/**
 * One level, from (0, 0). `borders` holds for each of its own edges, the first of `edges`, whether it starts and ends
 * at the border.
 */
interface Level {
  w: number;
  h: number;
  nodes: SceneNode[];
  edges: SceneEdge[];
  borders: [boolean, boolean][];
  ins: Map<string, number>;
  outs: Map<string, number>;
}

interface WiredNet extends Net {
  wires: Piece[][];
}

interface RowItem {
  node: SceneNode;
  part: Part;
  inner: Level | null;
}

/**
 * Lay out a graph with some groups open, in rows of a width. `moved` holds the top left corners of boxes that the user
 * has moved, relative to the frame of their group. Boxes stay in the `rows` of the graph.
 */
export function layout(
  graph: NestedGraph,
  opened: ReadonlySet<string>,
  moved: ReadonlyMap<string, Point> = new Map(),
  width = WIDTH,
): Scene {
  const shown = graph.shownGroups(opened);
  const bundles = graph.bundles(shown);
  const pieces = graph.pieces(bundles);
  const returned = graph.returned(bundles);
  const { w, h, nodes, edges } = shift(levelOf("", width), MARGIN, MARGIN);
  const { title, isModel, roles } = graph;
  return { title, width: w + 2 * MARGIN, height: h + 2 * MARGIN, nodes, edges, is_model: isModel, roles };

  function levelOf(key: string, width: number) {
    const boxes = graph.children.get(key) ?? [];
    const items = new Map(boxes.map((box) => [box.key, item(box, width)]));
    const nets = netsOf(key);
    const parts = new Map([...items].map(([name, { part }]) => [name, part]));
    const idle = graph.idlePorts.get(key) ?? [];
    const apart = new Set(boxes.flatMap(({ key }) => (moved.has(key) && !graph.rows.has(key) ? [key] : [])));
    if (apart.size === parts.size) parts.set(":", EMPTY);
    const placed = arrangeLines(parts, nets, idle, width, apart, graph.rows);
    const { corners } = placed;
    corners.delete(":");
    move(corners, key);
    const { w, h, ins, outs } = placed;
    const level: Level = { w, h, nodes: [], edges: [], borders: [], ins, outs };
    for (const [name, { part }] of items) {
      const [x, y] = corners.get(name)!;
      [level.w, level.h] = [Math.max(level.w, x + part.w), Math.max(level.h, y + part.h)];
    }
    for (const [name, [x, y]] of corners) {
      const { node, inner } = items.get(name)!;
      [node.x, node.y] = [x, y];
      level.nodes.push(node);
      if (!inner) continue;
      shift(inner, x, y);
      for (const one of inner.nodes) level.nodes.push(one);
    }
    nets.forEach((net, n) =>
      net.heads.forEach((head, i) => {
        let points: readonly Point[] | null = placed.routes[n]![i]!;
        const isCurve = !points || moved.has(net.tail) || moved.has(head.part);
        if (!points || isCurve) {
          const at = (name: string, side: "ins" | "outs", port: string): Point => {
            const [[x, y], { part }] = [corners.get(name)!, items.get(name)!];
            return [side === "ins" ? x : x + part.w, y + (part[side].get(port) ?? part.h / 2)];
          };
          const start: Point = net.tail ? at(net.tail, "outs", net.source) : [0, ins.get(net.source)!];
          const end: Point = head.part ? at(head.part, "ins", head.port) : [level.w, outs.get(head.port)!];
          points = bend(...start, ...end).points;
        }
        level.edges.push(edgeOf(key, net.wires[i]!, head.part || key, points, isCurve));
        level.borders.push([!net.tail, !head.part]);
      }),
    );
    for (const { inner } of items.values()) if (inner) for (const edge of inner.edges) level.edges.push(edge);
    return level;
  }

  /** Return the nets of a level, with the pieces of each wire. */
  function netsOf(key: string) {
    const nets = new Map<string, WiredNet>();
    const places = new Map<string, number>();
    for (const source of graph.byKey.get(key)?.inputs ?? [])
      nets.set(paired("", source), { tail: "", source, heads: [], wires: [] });
    for (const piece of pieces.get(key) ?? []) {
      const id = paired(piece.tail, piece.source);
      const { tail, source } = piece;
      const net = getOrCreate(nets, id, () => ({ tail, source, heads: [], wires: [] }));
      const end = paired(id, paired(piece.head, piece.port));
      const place = places.get(end);
      if (place !== undefined) net.wires[place]!.push(piece);
      else {
        places.set(end, net.heads.length);
        net.heads.push({ part: piece.head, port: piece.port });
        net.wires.push([piece]);
      }
    }
    return [...nets.values()];
  }

  /** Apply the positions that the user chose. */
  function move(corners: Map<string, Point>, key: string) {
    const [dx, dy] = insetOf(key);
    for (const { key: name } of graph.children.get(key) ?? []) {
      const place = moved.get(name);
      if (place) corners.set(name, [Math.max(0, Math.round(place[0]) - dx), Math.max(0, Math.round(place[1]) - dy)]);
    }
  }

  /**
   * Return an edge of a level. A wire that crosses the frame of a group has one on each side, so ids name the level.
   */
  function edgeOf(
    level: string,
    wires: readonly Piece[],
    end: string,
    points: readonly Point[],
    isCurve: boolean,
  ): SceneEdge {
    const first = wires[0]!.bundle;
    const source = endId(first.source, first.out);
    const target = wires.length === 1 ? endId(first.target, first.into) : end;
    return {
      id: `${source} -> ${target}${first.loop ? NEXT_ROUND : ""}${level && ` in ${level}`}`,
      source,
      target,
      shape: graph.shapeText(first.shapes),
      points,
      curve: isCurve,
      problem: first.problem,
      is_backward: !wires.some(({ bundle }) => bundle.roles.includes(0) || bundle.roles.length === 0),
      returns: wires.some(({ bundle }) => returned.has(wireId(bundle.source, bundle.target, bundle.loop))),
      is_end: end === first.target,
      is_carried: first.loop !== "",
    };
  }

  function item(box: Box, width: number): RowItem {
    const expanded = shown.has(box.key);
    const { w, kind } = box;
    const [inputs, outputs] = expanded ? [[], []] : [portsAt(box.inputs, 0, box.h), portsAt(box.outputs, w, box.h)];
    // A copy of the whole box: engines need 20 times as long to leave out some of its properties.
    const node: SceneNode = { ...box, x: 0, y: 0, group: box.is_group, expanded, inputs, outputs };
    // A frame with rows of this width fits into the row around it.
    if (expanded) return frame(node, levelOf(box.key, width - 2 * (PAD + LANE)), box.title_w);
    const isOutput = isPill(box) && kind === "output";
    const part = { w, h: box.h, ins: heights(inputs), outs: heights(outputs), isInput: kind === "input", isOutput };
    return { node, part, inner: null };
  }
}

/** Return the least position of a box in the frame of a group, or in the graph for the key "". */
export function insetOf(key: string): Point {
  return key ? [PAD, TITLE_H] : [MARGIN, MARGIN];
}

/** Move the content of a level, which belongs to this layout alone. */
function shift(level: Level, dx: number, dy: number) {
  for (const node of level.nodes) [node.x, node.y] = [node.x + dx, node.y + dy];
  for (const edge of level.edges) edge.points = edge.points.map(([x, y]): Point => [x + dx, y + dy]);
  return level;
}

function portsAt(names: readonly string[], x: number, height: number): Port[] {
  return names.map((name, at) => ({ name, x, y: roundHalfEven((height * (at + 1)) / (names.length + 1)) }));
}

/** Round as Python does. */
function roundHalfEven(value: number) {
  const floor = Math.floor(value);
  return value - floor === 0.5 ? floor + (floor % 2) : Math.round(value);
}

function heights(ports: readonly Port[]) {
  return new Map(ports.map(({ name, y }) => [name, y]));
}

/** Return an open group: a frame that fits its title and content, with ports where the content has them. */
function frame(node: SceneNode, inner: Level, titleW: number): RowItem {
  const w = Math.max(inner.w + 2 * PAD, titleW);
  const h = inner.h + TITLE_H + PAD;
  const below = (ends: ReadonlyMap<string, number>) => new Map([...ends].map(([name, y]) => [name, y + TITLE_H]));
  const [ins, outs] = [below(inner.ins), below(inner.outs)];
  shift(inner, PAD, TITLE_H);
  inner.borders.forEach(([starts, ends], at) => {
    const edge = inner.edges[at]!;
    const { points } = edge;
    const start = starts ? ([0, points[0]![1]] as const) : points[0]!;
    const end = ends ? ([w, points.at(-1)![1]] as const) : points.at(-1)!;
    edge.points = edge.curve && (starts || ends) ? bend(...start, ...end).points : [start, ...points.slice(1, -1), end];
  });
  const ports = (found: ReadonlyMap<string, number>, x: number): Port[] =>
    node.path ? [...found].map(([name, y]) => ({ name, x, y })) : [];
  Object.assign(node, { w, h, inputs: ports(ins, 0), outputs: ports(outs, w) });
  return { node, part: { w, h, ins, outs, isInput: false, isOutput: false }, inner };
}
