/** Tracks of wires in the gaps between parts. */

import type { Point } from "../drawing/lines";
import { Heap } from "./heap";

/** Distance between wires in px. */
export const TRACK = 8;

/** The tracks of one lane or channel; nets whose intervals do not overlap share a track. */
export class Tracks {
  private readonly intervals = new Map<number, Point>();
  readonly places = new Map<number, number>();
  count = 0;

  add(net: number, one: number, other: number): void {
    const known = this.intervals.get(net);
    const [low, high] = [Math.min(one, other), Math.max(one, other)];
    this.intervals.set(net, known ? [Math.min(low, known[0]), Math.max(high, known[1])] : [low, high]);
  }

  /** Assign a track to each net; return the number of tracks. */
  settle(): number {
    const busy = new Heap<Point>((a, b) => a[0] < b[0] || (a[0] === b[0] && a[1] < b[1]));
    const free = new Heap<number>((a, b) => a < b);
    const sorted = [...this.intervals].sort(([, a], [, b]) => a[0] - b[0] || a[1] - b[1]);
    for (const [net, [low, high]] of sorted) {
      while (busy.size && busy.least![0] < low) free.push(busy.pop()![1]);
      if (free.size === 0) free.push(this.count++);
      const track = free.pop()!;
      this.places.set(net, track);
      busy.push([high, track]);
    }
    return this.count;
  }
}
