/** The points of a training run, as the kernel sends them. */

import type { Kernel } from "../kernel/kernel";
import { bytesOf } from "../kernel/messages";

/** Decode consecutive columns of float64. */
function decodeColumns(buffer: DataView | ArrayBuffer | Uint8Array, count: number): Float64Array[] {
  const bytes = bytesOf(buffer);
  const all = new Float64Array(bytes.buffer, 0, Math.floor(bytes.byteLength / 8));
  const rows = count > 0 ? Math.floor(all.length / count) : 0;
  return Array.from({ length: count }, (_, i) => all.subarray(i * rows, (i + 1) * rows));
}

/** The points of a run so far, by column; null where a value is missing. */
export class Curves {
  readonly columns = new Map<string, (number | null)[]>();
  private readonly listeners = new Set<() => void>();

  get rows() {
    return this.columns.get("step")?.length ?? 0;
  }

  on(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Store rows `from`, `from + 1`, ..., replacing existing ones. Returns false if earlier rows are missing. */
  take(from: number, names: readonly string[], buffer: DataView | ArrayBuffer | Uint8Array) {
    if (from > this.rows) return false;
    const fresh = decodeColumns(buffer, names.length);
    names.forEach((name, i) => {
      const column = this.columns.get(name) ?? [];
      column.length = Math.min(column.length, from);
      while (column.length < from) column.push(null);
      for (const value of fresh[i]!) column.push(Number.isFinite(value) ? value : null);
      this.columns.set(name, column);
    });
    for (const listener of this.listeners) listener();
    return true;
  }
}

/** Collect the curve points sent by the kernel, and request all of them if rows are missing. */
export function feedCurves(
  kernel: Kernel,
  points: () => number,
): { curves: Curves; check: () => void; stop: () => void } {
  const curves = new Curves();
  const stop = kernel.on("curves", (message, buffers) => {
    const buffer = buffers[0];
    if (buffer && !curves.take(message.from, message.columns, buffer)) void kernel.send("request_curves", {});
  });
  let isRequested = false;
  return {
    curves,
    stop,
    /** Request all points if none arrived: after a page reload, the kernel has points that the page lacks. */
    check: () => {
      if (isRequested || curves.rows > 0 || points() === 0) return;
      isRequested = true;
      void kernel.send("request_curves", {});
    },
  };
}
