/**
 * Place parts in rows, read like text, and route nets through the lanes and channels between them.
 *
 * Channels are the vertical gaps between the columns of a row; lanes are the horizontal gaps between rows. A wire
 * leaves its part into the channel on its right and reaches its target from the channel on the left. It never crosses a
 * part. It mirrors `viz/diagrams/layout.py`; a test compares the two.
 */

import type { Point } from "../drawing/lines";
import { Pins, TRACK, Tracks } from "./tracks";

const ROW_GAP = 18;
const CHANNEL = 36;
const LANE = 22;
/** Size of a level that can be seen at once. */
const SCREEN = { w: 820, h: 480 };
const FEW_LOOSE = 3;

/** A box to place: its size, and the heights of its ports. A port without an entry is in the middle of its side. */
export interface Part {
  w: number;
  h: number;
  ins: ReadonlyMap<string, number>;
  outs: ReadonlyMap<string, number>;
  isInput: boolean;
}

/** The output `source` of the part `tail`, and the input ports that read it; `""` is the border around all parts. */
export interface Net {
  tail: string;
  source: string;
  heads: { part: string; port: string }[];
}

/** Top left corners of the parts in reading order, the routes by net and head, and the pins by source and by port. */
export interface Placed {
  w: number;
  h: number;
  corners: Map<string, Point>;
  routes: Point[][][];
  ins: Map<string, number>;
  outs: Map<string, number>;
}

/**
 * Place parts and route nets. A net from the border without heads is an input that nothing reads; `idle` are ports of
 * the border that nothing feeds.
 */
export function arrangeLines(parts: ReadonlyMap<string, Part>, nets: readonly Net[], idle: readonly string[]): Placed {
  if (parts.size === 0) return { w: 0, h: 0, corners: new Map(), routes: [], ins: new Map(), outs: new Map() };
  return new Lines(parts, nets, idle).placed();
}

type Line = string[][];

class Lines {
  private readonly lines: Line[];
  private readonly spot = new Map<string, Point>();
  private readonly lanes: Tracks[];
  private readonly channels: Tracks[][];
  private readonly margin = new Tracks();
  private readonly lineH: number[];
  private laneH: number[] = [];
  private tops: number[] = [];
  private readonly yOf = new Map<string, number>();
  private readonly ins = new Map<string, number>();
  private readonly outs = new Map<string, number>();
  private readonly lefts: number[][] = [];
  private readonly channelX: number[][] = [];
  private readonly channelW: number[][] = [];
  private width = 0;
  /** Lanes of each wire, by net and head. */
  private ways: number[][][] = [];
  private ends: Point[][] = [];

  constructor(
    private readonly parts: ReadonlyMap<string, Part>,
    private readonly nets: readonly Net[],
    private readonly idle: readonly string[],
  ) {
    this.lines = wrapped(columnsOf(parts, nets), parts);
    this.lines.forEach((line, row) =>
      line.forEach((column, at) => column.forEach((key) => this.spot.set(key, [row, at]))),
    );
    this.lanes = Array.from({ length: this.lines.length + 1 }, () => new Tracks());
    this.channels = this.lines.map((line) => Array.from({ length: line.length + 1 }, () => new Tracks()));
    this.lineH = this.lines.map((line) => Math.max(...line.map((column) => stackHeight(column, parts))));
    // Pins stay within the heights of the first and last row: below them they would overlap other parts.
    const last = this.lines.length - 1;
    const entering = new Set(nets.filter((net) => !net.tail).map((net) => net.source));
    const leaving = new Set([
      ...idle,
      ...nets.flatMap((net) => net.heads.filter((head) => !head.part).map((head) => head.port)),
    ]);
    for (const [row, pins] of [
      [0, entering],
      [last, leaving],
    ] as const)
      this.lineH[row] = Math.max(this.lineH[row]!, (pins.size + 1) * TRACK);
  }

  placed(): Placed {
    this.ways = this.nets.map((net) => net.heads.map((head) => this.wayOf(net, head.part)));
    this.planLanes();
    this.placeRows();
    this.placePins();
    this.planChannels();
    this.placeColumns();
    const corners = new Map<string, Point>();
    this.lines.forEach((line, row) =>
      line.forEach((column, at) => {
        const room = Math.max(...column.map((key) => this.part(key).w));
        for (const key of column)
          corners.set(key, [this.lefts[row]![at]! + Math.floor((room - this.part(key).w) / 2), this.yOf.get(key)!]);
      }),
    );
    const routes = this.nets.map((net, n) => net.heads.map((head, i) => this.route(n, i, head.part, corners)));
    return {
      w: this.width,
      h: this.tops.at(-1)! + this.laneH.at(-1)!,
      corners,
      routes,
      ins: this.ins,
      outs: this.outs,
    };
  }

  private part(key: string): Part {
    return this.parts.get(key)!;
  }

  /** Return the row and channel where a wire leaves or reaches a part. */
  private end(key: string, isTail: boolean): Point {
    if (key) {
      const [row, at] = this.spot.get(key)!;
      return isTail ? [row, at + 1] : [row, at];
    }
    const last = this.lines.length - 1;
    return isTail ? [0, 0] : [last, this.lines[last]!.length];
  }

  /** Return the lanes that a wire uses: none, one, or two connected through the margin. */
  private wayOf(net: Net, head: string): number[] {
    const [[row, at], [toRow, toAt]] = [this.end(net.tail, true), this.end(head, false)];
    if (row === toRow && at === toAt) return [];
    if (row === toRow) return at < toAt ? [row] : [row + 1];
    if (toRow === row + 1) return [toRow];
    return toRow > row ? [row + 1, toRow] : [row, toRow + 1];
  }

  private eachWay(
    visit: (net: Net, n: number, head: { part: string; port: string }, i: number, lanes: number[]) => void,
  ): void {
    this.nets.forEach((net, n) => net.heads.forEach((head, i) => visit(net, n, head, i, this.ways[n]![i]!)));
  }

  private planLanes(): void {
    this.eachWay((net, n, head, _, lanes) => {
      const [[, at], [, toAt]] = [this.end(net.tail, true), this.end(head.part, false)];
      if (lanes.length === 1) this.lanes[lanes[0]!]!.add(n, at, toAt);
      else if (lanes.length) {
        this.lanes[lanes[0]!]!.add(n, at, -1);
        this.lanes[lanes[1]!]!.add(n, -1, toAt);
        this.margin.add(n, lanes[0]!, lanes[1]!);
      }
    });
    this.laneH = this.lanes.map((lane, at) => {
      const count = lane.settle();
      const isEdge = at === 0 || at === this.lanes.length - 1;
      return count ? (count + 1) * TRACK : isEdge ? 6 : LANE;
    });
  }

  /** Set the top of each row, the bottom of the last, and the tops of the parts. */
  private placeRows(): void {
    let y = 0;
    this.lineH.forEach((height, row) => {
      y += this.laneH[row]!;
      this.tops.push(y);
      y += height;
    });
    this.tops.push(y);
    this.lines.forEach((line, row) => {
      for (const column of line) {
        let top = this.tops[row]! + Math.floor((this.lineH[row]! - stackHeight(column, this.parts)) / 2);
        for (const key of column) {
          this.yOf.set(key, top);
          top += this.part(key).h + ROW_GAP;
        }
      }
    });
  }

  private placePins(): void {
    const [first, last] = [this.lines[0]!, this.lines.at(-1)!];
    const [ins, outs] = [new Pins(this.ins, this.tops[0]! + this.lineH[0]!), new Pins(this.outs, this.tops.at(-1)!)];
    const isAt = (part: string, row: number, column: number): boolean =>
      this.spot.get(part)?.[0] === row && this.spot.get(part)?.[1] === column;
    for (const net of this.nets) {
      if (net.tail === "") {
        const near = net.heads.find((head) => isAt(head.part, 0, 0));
        ins.add(net.source, near ? this.inPort(near.part, near.port) : this.middle(first));
      }
      for (const { part, port } of net.heads) {
        if (part) continue;
        const isLast = isAt(net.tail, this.lines.length - 1, last.length - 1);
        outs.add(port, isLast ? this.outPort(net.tail, net.source) : this.middle(last));
      }
    }
    for (const port of this.idle) outs.add(port, this.middle(last));
  }

  private middle(line: Line): number {
    const column = line[0]!;
    return (this.yOf.get(column[0]!)! + this.yOf.get(column.at(-1)!)! + this.part(column.at(-1)!).h) / 2;
  }

  private inPort(key: string, port: string): number {
    const part = this.part(key);
    return this.yOf.get(key)! + (part.ins.get(port) ?? part.h / 2);
  }

  private outPort(key: string, source: string): number {
    const part = this.part(key);
    return this.yOf.get(key)! + (part.outs.get(source) ?? part.h / 2);
  }

  private planChannels(): void {
    this.ends = this.nets.map((net) => net.heads.map((): Point => [0, 0]));
    this.eachWay((net, n, head, i, lanes) => {
      const [[row, at], [toRow, toAt]] = [this.end(net.tail, true), this.end(head.part, false)];
      const start = net.tail ? this.outPort(net.tail, net.source) : this.ins.get(net.source)!;
      const end = head.part ? this.inPort(head.part, head.port) : this.outs.get(head.port)!;
      this.ends[n]![i] = [start, end];
      if (lanes.length === 0) {
        if (start !== end) this.channels[row]![at]!.add(n, start, end);
        return;
      }
      this.channels[row]![at]!.add(n, start, this.laneY(lanes[0]!, n));
      this.channels[toRow]![toAt]!.add(n, this.laneY(lanes.at(-1)!, n), end);
    });
  }

  private laneY(lane: number, net: number): number {
    const above = lane < this.lines.length ? this.tops[lane]! - this.laneH[lane]! : this.tops.at(-1)!;
    return above + TRACK * (this.lanes[lane]!.places.get(net)! + 1);
  }

  /** Set the left edges of the columns and the channels of each row, and the total width. */
  private placeColumns(): void {
    const margin = this.margin.settle();
    const marginW = margin ? (margin + 1) * TRACK : 0;
    this.lines.forEach((line, row) => {
      const [lefts, xs, ws]: number[][] = [[], [], []];
      let x = marginW;
      for (let at = 0; at <= line.length; at++) {
        const count = this.channels[row]![at]!.settle();
        const isEdge = at === 0 || at === line.length;
        const least = isEdge ? (count ? 2 * TRACK : 6) : CHANNEL;
        const room = Math.max(least, (count + 2) * TRACK);
        xs!.push(x);
        ws!.push(room);
        x += room;
        if (at < line.length) {
          lefts!.push(x);
          x += Math.max(...line[at]!.map((key) => this.part(key).w));
        }
      }
      this.lefts.push(lefts!);
      this.channelX.push(xs!);
      this.channelW.push(ws!);
      this.width = Math.max(this.width, x);
    });
  }

  private trackX(row: number, at: number, net: number): number {
    const tracks = this.channels[row]![at]!;
    const spare = this.channelW[row]![at]! - TRACK * (tracks.count - 1);
    return this.channelX[row]![at]! + spare / 2 + TRACK * tracks.places.get(net)!;
  }

  private route(n: number, i: number, head: string, corners: ReadonlyMap<string, Point>): Point[] {
    const { tail } = this.nets[n]!;
    const lanes = this.ways[n]![i]!;
    const [startY, endY] = this.ends[n]![i]!;
    const start: Point = [tail ? corners.get(tail)![0] + this.part(tail).w : 0, startY];
    const end: Point = [head ? corners.get(head)![0] : this.width, endY];
    const [[row, at], [toRow, toAt]] = [this.end(tail, true), this.end(head, false)];
    if (lanes.length === 0 && startY === endY) return [start, end];
    const x0 = this.trackX(row, at, n);
    if (lanes.length === 0) return [start, [x0, startY], [x0, endY], end];
    const x1 = this.trackX(toRow, toAt, n);
    const [first, last] = [this.laneY(lanes[0]!, n), this.laneY(lanes.at(-1)!, n)];
    if (lanes.length === 1) return [start, [x0, startY], [x0, first], [x1, first], [x1, endY], end];
    const xm = TRACK * (this.margin.places.get(n)! + 1);
    return [start, [x0, startY], [x0, first], [xm, first], [xm, last], [x1, last], [x1, endY], end];
  }
}

/** Return the parts by rank: each part right of its producers, and sources close to their consumers. */
function columnsOf(parts: ReadonlyMap<string, Part>, nets: readonly Net[]): string[][] {
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
  const isInput = (key: string): boolean => parts.get(key)!.isInput;
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
  return columns.filter((column) => column.length > 0);
}

/** Cut the columns into rows: as few as fit on a screen, or else in the proportions of a screen. */
function wrapped(columns: string[][], parts: ReadonlyMap<string, Part>): Line[] {
  const widths = columns.map((column) => Math.max(...column.map((key) => parts.get(key)!.w)) + CHANNEL);
  const heights = columns.map((column) => stackHeight(column, parts));
  /** Return the size of rows of at most this width, and the rows. */
  const cut = (limit: number): { whole: number; high: number; lines: Line[] } => {
    const lines: Line[] = [];
    let [whole, high, rowW, rowH] = [0, 0, 0, 0];
    columns.forEach((column, at) => {
      if (lines.length === 0 || rowW + widths[at]! > limit) {
        if (lines.length) high += rowH + LANE;
        lines.push([]);
        [rowW, rowH] = [0, 0];
      }
      lines.at(-1)!.push(column);
      rowW += widths[at]!;
      rowH = Math.max(rowH, heights[at]!);
      whole = Math.max(whole, rowW);
    });
    return { whole, high: high + rowH + LANE, lines };
  };
  let sum = 0;
  const widest = widths.reduce((most, width) => Math.max(most, width), 0);
  const limits = [...new Set([...widths.map((width) => (sum += width)), widest])].sort((a, b) => a - b);
  const onScreen = limits.filter((limit) => limit <= SCREEN.w).at(-1);
  if (onScreen !== undefined) {
    const { high, lines } = cut(onScreen);
    if (high <= SCREEN.h) return lines;
  }
  const ratio = (limit: number): number => {
    const { whole, high } = cut(limit);
    return ((whole / high) * SCREEN.h) / SCREEN.w;
  };
  // A larger limit gives a wider picture, so the best limit is where the ratio reaches 1.
  let [low, high] = [0, limits.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ratio(limits[middle]!) < 1) low = middle + 1;
    else high = middle;
  }
  const distance = (limit: number): number => Math.max(ratio(limit), 1 / ratio(limit));
  const best = limits
    .slice(Math.max(0, low - 1), low + 1)
    .reduce((one, other) => (distance(other) < distance(one) ? other : one));
  return cut(best).lines;
}

function stackHeight(column: readonly string[], parts: ReadonlyMap<string, Part>): number {
  return column.reduce((sum, key) => sum + parts.get(key)!.h, 0) + ROW_GAP * (column.length - 1);
}
