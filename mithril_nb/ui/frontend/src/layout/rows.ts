/**
 * Place parts in rows, read like text, and route nets through the lanes and channels between them.
 *
 * Channels are the vertical gaps between the columns of a row; lanes are the horizontal gaps between rows. A wire
 * leaves its part into the channel on its right and reaches its target from the channel on the left. It never crosses a
 * part. It mirrors `viz/diagrams/layout.py`; a test compares the two.
 */

import { firstWhere } from "../dom/lists";
import type { Point } from "../drawing/lines";

/** Distance between wires in px. */
const TRACK = 8;

const ROW_GAP = 18;
const CHANNEL = 28;
export const LANE = 24;
/** Width of the rows of pictures in Python: that of the output of a notebook. */
export const WIDTH = 820;
const FEW_LOOSE = 3;

/** A box to place: its size, and the heights of its ports. A port without an entry is in the middle of its side. */
export interface Part {
  w: number;
  h: number;
  ins: ReadonlyMap<string, number>;
  outs: ReadonlyMap<string, number>;
  isInput: boolean;
  isOutput: boolean;
}

/** The output `source` of the part `tail`, and the input ports that read it; `""` is the border around all parts. */
export interface Net {
  tail: string;
  source: string;
  heads: { part: string; port: string }[];
}

/** Top left corners of the parts in reading order, the routes by net and head, and the pins by source and by port. */
interface Placed {
  w: number;
  h: number;
  corners: Map<string, Point>;
  routes: (Point[] | null)[][];
  ins: Map<string, number>;
  outs: Map<string, number>;
}

/**
 * Place parts in rows of a width, and route nets. Parts that are `apart`, not all of them, need no room, and their nets
 * have no route. A net from the border without heads is an input that nothing reads; `idle` are ports of the border
 * that nothing feeds. `rows` are the rows of the parts that stay in theirs; the rows of all parts are added.
 */
export function arrangeLines(
  parts: ReadonlyMap<string, Part>,
  nets: readonly Net[],
  idle: readonly string[],
  limit: number,
  apart: ReadonlySet<string>,
  rows: Map<string, number>,
): Placed {
  const partOf = (key: string) => parts.get(key)!;
  const columns = columnsOf(parts, nets).map((column) => column.filter((key) => !apart.has(key)));
  const lines = linesOf(
    columns.filter((column) => column.length > 0),
    parts,
    limit,
    rows,
  );
  const last = lines.length - 1;
  const spot = new Map<string, Point>();
  lines.forEach((line, row) => line.forEach((column, at) => column.forEach((key) => spot.set(key, [row, at]))));
  const marginTracks = new Tracks();
  const laneTracks = Array.from({ length: lines.length + 1 }, () => new Tracks());
  const channels = lines.map((line) => Array.from({ length: line.length + 1 }, () => new Tracks()));

  /** The lanes of each wire, by net and head. */
  const ways = nets.map((net) =>
    net.heads.map((head) => (apart.has(net.tail) || apart.has(head.part) ? null : wayOf(net, head.part))),
  );
  eachWay((net, n, head, lanes) => {
    const [[, at], [, toAt]] = [endOf(net.tail, true), endOf(head.part, false)];
    if (lanes.length === 1) laneTracks[lanes[0]!]!.add(n, at, toAt);
    else if (lanes.length) {
      laneTracks[lanes[0]!]!.add(n, at, -1);
      laneTracks[lanes[1]!]!.add(n, -1, toAt);
      marginTracks.add(n, lanes[0]!, lanes[1]!);
    }
  });
  const laneH = laneTracks.map((lane, at) => {
    const count = lane.settle();
    return Math.max(at === 0 || at === lines.length ? 6 : LANE, count ? (count + 1) * TRACK : 0);
  });

  const lineH = lines.map((line) => Math.max(...line.map((column) => stackHeight(column, parts))));
  // Pins stay within the heights of the first and last row: below them they would overlap other parts.
  const entering = nets.filter((net) => !net.tail).map((net) => net.source);
  const leaving = nets.flatMap((net) => net.heads.filter((head) => !head.part).map((head) => head.port));
  for (const [row, pins] of [
    [0, entering],
    [last, [...idle, ...leaving]],
  ] as const)
    lineH[row] = Math.max(lineH[row]!, (new Set(pins).size + 1) * TRACK);
  /** The top of each row, and the bottom of the last. */
  const tops: number[] = [];
  const yOf = new Map<string, number>();
  let bottom = 0;
  lines.forEach((line, row) => {
    tops.push((bottom += laneH[row]!));
    for (const column of line) {
      let top = bottom + Math.floor((lineH[row]! - stackHeight(column, parts)) / 2);
      for (const key of column) {
        yOf.set(key, top);
        top += partOf(key).h + ROW_GAP;
      }
    }
    bottom += lineH[row]!;
  });
  tops.push(bottom);

  const [inPins, outPins] = [new Map<string, number>(), new Map<string, number>()];
  const [ins, outs] = [new Pins(inPins, tops[0]! + lineH[0]!), new Pins(outPins, bottom)];
  const isAt = (part: string, row: number, column: number) =>
    spot.get(part)?.[0] === row && spot.get(part)?.[1] === column;
  for (const net of nets) {
    if (net.tail === "") {
      const near = net.heads.find((head) => isAt(head.part, 0, 0));
      ins.add(net.source, near ? portY(near.part, "ins", near.port) : middle(lines[0]!));
    }
    for (const { part, port } of net.heads) {
      if (part) continue;
      const isLast = isAt(net.tail, last, lines[last]!.length - 1);
      outs.add(port, isLast ? portY(net.tail, "outs", net.source) : middle(lines[last]!));
    }
  }
  for (const port of idle) outs.add(port, middle(lines[last]!));

  const ends = nets.map((net) => net.heads.map((): Point => [0, 0]));
  eachWay((net, n, head, lanes, i) => {
    const [[row, at], [toRow, toAt]] = [endOf(net.tail, true), endOf(head.part, false)];
    const start = net.tail ? portY(net.tail, "outs", net.source) : inPins.get(net.source)!;
    const end = head.part ? portY(head.part, "ins", head.port) : outPins.get(head.port)!;
    ends[n]![i] = [start, end];
    if (lanes.length === 0) {
      if (start !== end) channels[row]![at]!.add(n, start, end);
      return;
    }
    channels[row]![at]!.add(n, start, laneY(lanes[0]!, n));
    channels[toRow]![toAt]!.add(n, laneY(lanes.at(-1)!, n), end);
  });

  const corners = new Map<string, Point>();
  const margin = marginTracks.settle();
  let width = 0;
  lines.forEach((line, row) => {
    let x = margin ? (margin + 1) * TRACK : 0;
    channels[row]!.forEach((channel, at) => {
      const count = channel.settle();
      const least = at === 0 ? LANE : at < line.length ? CHANNEL : 6;
      const room = Math.max(least, count ? (count + 2) * TRACK : 0);
      channel.start = x + (room - TRACK * (count - 1)) / 2;
      x += room;
      const column = line[at] ?? [];
      const wide = Math.max(0, ...column.map((key) => partOf(key).w));
      for (const key of column) corners.set(key, [x + Math.floor((wide - partOf(key).w) / 2), yOf.get(key)!]);
      x += wide;
    });
    width = Math.max(width, x);
  });
  const routes = nets.map((net, n) => net.heads.map((head, i) => route(n, i, head.part)));
  return { w: width, h: bottom + laneH.at(-1)!, corners, routes, ins: inPins, outs: outPins };

  /** Return the row and channel where a wire leaves or reaches a part. */
  function endOf(key: string, isTail: boolean): Point {
    if (!key) return isTail ? [0, 0] : [last, lines[last]!.length];
    const [row, at] = spot.get(key)!;
    return isTail ? [row, at + 1] : [row, at];
  }

  /** Return the lanes that a wire uses: none, one, or two connected through the margin. */
  function wayOf(net: Net, head: string): number[] {
    const [[row, at], [toRow, toAt]] = [endOf(net.tail, true), endOf(head, false)];
    if (row === toRow && at === toAt) return [];
    if (row === toRow) return at < toAt ? [row] : [row + 1];
    const [first, last] = toRow > row ? [row + 1, toRow] : [row, toRow + 1];
    return first === last ? [first] : [first, last];
  }

  function eachWay(visit: (net: Net, n: number, head: Net["heads"][0], lanes: number[], i: number) => void) {
    nets.forEach((net, n) =>
      net.heads.forEach((head, i) => {
        const lanes = ways[n]![i];
        if (lanes) visit(net, n, head, lanes, i);
      }),
    );
  }

  function middle(line: Line) {
    const column = line[0]!;
    const below = column.at(-1)!;
    return (yOf.get(column[0]!)! + yOf.get(below)! + partOf(below).h) / 2;
  }

  function portY(key: string, side: "ins" | "outs", port: string) {
    const part = partOf(key);
    return yOf.get(key)! + (part[side].get(port) ?? part.h / 2);
  }

  function laneY(lane: number, net: number) {
    const above = lane < lines.length ? tops[lane]! - laneH[lane]! : bottom;
    return above + TRACK * (laneTracks[lane]!.places.get(net)! + 1);
  }

  function route(n: number, i: number, head: string): Point[] | null {
    const { tail } = nets[n]!;
    const lanes = ways[n]![i];
    if (!lanes) return null;
    const [startY, endY] = ends[n]![i]!;
    const start: Point = [tail ? corners.get(tail)![0] + partOf(tail).w : 0, startY];
    const end: Point = [head ? corners.get(head)![0] : width, endY];
    if (lanes.length === 0 && startY === endY) return [start, end];
    const [x0, x1] = [endOf(tail, true), endOf(head, false)].map(([row, at]) => {
      const { start, places } = channels[row]![at]!;
      return start + TRACK * places.get(n)!;
    }) as [number, number];
    if (lanes.length === 0) return [start, [x0, startY], [x0, endY], end];
    const [first, last] = [laneY(lanes[0]!, n), laneY(lanes.at(-1)!, n)];
    if (lanes.length === 1) return [start, [x0, startY], [x0, first], [x1, first], [x1, endY], end];
    const xm = TRACK * (marginTracks.places.get(n)! + 1);
    return [start, [x0, startY], [x0, first], [xm, first], [xm, last], [x1, last], [x1, endY], end];
  }
}

type Line = string[][];

/** Return the parts by rank: each part right of its producers, and sources close to their consumers. */
function columnsOf(parts: ReadonlyMap<string, Part>, nets: readonly Net[]) {
  const keys = [...parts.keys()];
  const place = new Map(keys.map((key, at) => [key, at]));
  const before = new Map(keys.map((key) => [key, new Set<string>()]));
  const after = new Map(keys.map((key) => [key, new Set<string>()]));
  const entered = new Set<string>();
  for (const net of nets) {
    for (const { part } of net.heads) {
      if (!net.tail) entered.add(part);
      else if (part && place.get(net.tail)! < place.get(part)!) {
        before.get(part)!.add(net.tail);
        after.get(net.tail)!.add(part);
      }
    }
  }
  const rank = new Map<string, number>();
  let last = 0;
  for (const key of keys) {
    let own = 0;
    for (const one of before.get(key)!) own = Math.max(own, rank.get(one)! + 1);
    rank.set(key, own);
    last = Math.max(last, own);
  }
  const isInput = (key: string) => parts.get(key)!.isInput;
  for (const key of [...keys].reverse()) {
    if (before.get(key)!.size || entered.has(key) || (isInput(key) && !after.get(key)!.size)) continue;
    let nearest = Infinity;
    for (const one of after.get(key)!) nearest = Math.min(nearest, rank.get(one)! - 1);
    rank.set(key, Math.max(0, nearest === Infinity ? last : nearest));
  }
  const loose = keys.filter(
    (key) => !before.get(key)!.size && !after.get(key)!.size && !entered.has(key) && !isInput(key),
  );
  // Unconnected parts are placed in reading order.
  if (loose.length > FEW_LOOSE) for (const key of loose) rank.set(key, ++last);
  const columns: string[][] = Array.from({ length: last + 1 }, () => []);
  for (const key of keys) columns[rank.get(key)!]!.push(key);
  const height = new Map<string, number>();
  for (const column of columns) {
    const goal = new Map(
      column.map((key) => {
        const sources = [...before.get(key)!];
        return [
          key,
          sources.length ? sources.reduce((sum, one) => sum + height.get(one)!, 0) / sources.length : Infinity,
        ];
      }),
    );
    const order = (a: number, b: number): number => (a === b ? 0 : a < b ? -1 : 1);
    column.sort(
      (a, b) =>
        Number(isInput(a)) - Number(isInput(b)) || order(goal.get(a)!, goal.get(b)!) || place.get(a)! - place.get(b)!,
    );
    column.forEach((key, at) => height.set(key, at));
  }
  return columns;
}

/**
 * Cut the columns into rows. Parts with a known row stay in it; others follow what is before them. Without known rows,
 * these are as few as the width allows, of lengths as equal as possible; an output is beside the column before it if both
 * fit.
 */
function linesOf(columns: string[][], parts: ReadonlyMap<string, Part>, limit: number, rows: Map<string, number>) {
  const lengths = columns.map((column) => Math.max(...column.map((key) => parts.get(key)!.w)) + CHANNEL);
  const areOutputs = columns.map((column) => column.every((key) => parts.get(key)!.isOutput));
  const known = columns.map((column, at) =>
    areOutputs[at] ? -1 : Math.max(...column.map((key) => rows.get(key) ?? -1)),
  );
  const isTied = areOutputs.map((are, at) => are && at > 0 && lengths[at - 1]! + lengths[at]! <= limit);
  const starts = known.some((row) => row >= 0) ? keptStarts(lengths, limit, known) : evenStarts(lengths, isTied, limit);
  const lines = starts.map((start, row) => columns.slice(start, starts[row + 1]));
  lines.forEach((line, row) => line.forEach((column) => column.forEach((key) => rows.set(key, row))));
  return lines;
}

/** Return where the rows start if the columns of a known row, not -1, stay in it. */
function keptStarts(lengths: readonly number[], limit: number, known: readonly number[]) {
  const starts: number[] = [];
  const nextRows = [...known, Infinity];
  for (let at = known.length - 1; at >= 0; at--) if (known[at]! < 0) nextRows[at] = nextRows[at + 1]!;
  let [length, row] = [0, -1];
  lengths.forEach((own, at) => {
    const next = nextRows[at]!;
    const isFull = length + own > limit && next > row;
    if (at === 0 || known[at]! > row || isFull) {
      starts.push(at);
      length = 0;
      row = Math.max(row, known[at]! < 0 && next < Infinity ? next : known[at]!);
    }
    length += own;
  });
  return starts;
}

/** Return where the rows start if they are few and even. */
function evenStarts(lengths: readonly number[], isTied: readonly boolean[], limit: number) {
  /** For the first columns, by their number: the rows, the sum of their squared lengths, the start of the last row. */
  const best: [count: number, squares: number, start: number][] = [[0, 0, 0]];
  for (let stop = 1; stop <= lengths.length; stop++) {
    let [length, chosen] = [0, null as (typeof best)[0] | null];
    for (let start = stop - 1; start >= 0; start--) {
      length += lengths[start]!;
      if (length > limit && chosen) break;
      if (isTied[start]) continue;
      const [count, squares] = [best[start]![0] + 1, best[start]![1] + length ** 2];
      if (!chosen || count < chosen[0] || (count === chosen[0] && squares < chosen[1]))
        chosen = [count, squares, start];
    }
    best.push(chosen!);
  }
  const starts: number[] = [];
  for (let stop = lengths.length; stop; stop = best[stop]![2]) starts.unshift(best[stop]![2]);
  return starts;
}

function stackHeight(column: readonly string[], parts: ReadonlyMap<string, Part>) {
  return column.reduce((sum, key) => sum + parts.get(key)!.h, 0) + ROW_GAP * (column.length - 1);
}

/** The tracks of one lane or channel; nets whose intervals do not overlap share a track. */
class Tracks {
  private readonly intervals = new Map<number, Point>();
  readonly places = new Map<number, number>();
  /** The place of the first track in a channel. */
  start = 0;

  add(net: number, one: number, other: number) {
    const [low, high] = this.intervals.get(net) ?? [Infinity, -Infinity];
    this.intervals.set(net, [Math.min(one, other, low), Math.max(one, other, high)]);
  }

  /** Assign the first free track to each net; return the number of tracks. */
  settle() {
    const ends: number[] = [];
    for (const [net, [low, high]] of [...this.intervals].sort(([, a], [, b]) => a[0] - b[0] || a[1] - b[1])) {
      const free = ends.findIndex((end) => end < low);
      const track = free < 0 ? ends.length : free;
      this.places.set(net, track);
      ends[track] = high;
    }
    return ends.length;
  }
}

/**
 * The heights of the pins of one side, at least `TRACK` apart.
 *
 * No pin fits between two whose distance is below two tracks. `runs` are the lowest and highest pin of each such run.
 */
class Pins {
  private readonly runs: [low: number, high: number][] = [];

  constructor(
    private readonly heights: Map<string, number>,
    private readonly end: number,
  ) {}

  /** Place a pin at the free height nearest below the wanted one, or above it if the row ends. */
  add(name: string, wanted: number) {
    const run = this.runs[this.firstAbove(wanted - TRACK)];
    if (run && run[0] < wanted + TRACK) wanted = run[1] + TRACK < this.end ? run[1] + TRACK : run[0] - TRACK;
    this.heights.set(name, wanted);
    const start = this.firstAbove(wanted - 2 * TRACK);
    let [stop, low, high] = [start, wanted, wanted];
    for (; stop < this.runs.length && this.runs[stop]![0] < wanted + 2 * TRACK; stop++) {
      [low, high] = [Math.min(low, this.runs[stop]![0]), Math.max(high, this.runs[stop]![1])];
    }
    this.runs.splice(start, stop - start, [low, high]);
  }

  /** Return the index of the first run that reaches above a height. */
  private firstAbove(height: number) {
    return firstWhere(this.runs.length, (at) => this.runs[at]![1] > height);
  }
}
