/** Tracks of wires in the gaps between parts, and pins of wires on the border. */

import { firstWhere } from "../dom/lists";
import type { Point } from "../drawing/lines";

/** Distance between wires in px. */
export const TRACK = 8;

/** The tracks of one lane or channel; nets whose intervals do not overlap share a track. */
export class Tracks {
  private readonly intervals = new Map<number, Point>();
  readonly places = new Map<number, number>();
  /** The place of the first track in a channel. */
  start = 0;

  add(net: number, one: number, other: number): void {
    const [low, high] = this.intervals.get(net) ?? [Infinity, -Infinity];
    this.intervals.set(net, [Math.min(one, other, low), Math.max(one, other, high)]);
  }

  /** Assign the first free track to each net; return the number of tracks. */
  settle(): number {
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
export class Pins {
  private readonly runs: [low: number, high: number][] = [];

  constructor(
    private readonly heights: Map<string, number>,
    private readonly end: number,
  ) {}

  /** Place a pin at the free height nearest below the wanted one, or above it if the row ends. */
  add(name: string, wanted: number): void {
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
