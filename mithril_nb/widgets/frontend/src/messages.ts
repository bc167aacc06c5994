/** Turning the kernel's binary messages into data. */

import type { RawStage } from "./types";

function bytesOf(buffer: DataView | ArrayBuffer | Uint8Array): Uint8Array<ArrayBuffer> {
  if (buffer instanceof ArrayBuffer) return new Uint8Array(buffer);
  // A copy: the view may lie at an odd offset of the whole websocket message, where a Float64Array cannot start.
  return new Uint8Array(buffer.buffer as ArrayBuffer, buffer.byteOffset, buffer.byteLength).slice();
}

/** A stage's text and instruction map: JSON, gzipped. */
export async function decodeStage(buffer: DataView | ArrayBuffer | Uint8Array): Promise<RawStage> {
  const stream = new Blob([bytesOf(buffer)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).json()) as RawStage;
}

/** Columns of float64, one after the other. */
export function decodeColumns(buffer: DataView | ArrayBuffer | Uint8Array, count: number): Float64Array[] {
  const bytes = bytesOf(buffer);
  const all = new Float64Array(bytes.buffer, 0, Math.floor(bytes.byteLength / 8));
  const rows = count > 0 ? Math.floor(all.length / count) : 0;
  return Array.from({ length: count }, (_, i) => all.subarray(i * rows, (i + 1) * rows));
}

/** The points of a run so far, column by column; null where there is no value. */
export class Curves {
  readonly columns = new Map<string, (number | null)[]>();
  private readonly listeners = new Set<() => void>();

  get rows(): number {
    return this.columns.get("step")?.length ?? 0;
  }

  on(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Take rows `from`, `from + 1`, ...; what was there from `from` on is replaced. Returns false if rows are missing before it. */
  take(from: number, names: readonly string[], buffer: DataView | ArrayBuffer | Uint8Array): boolean {
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
