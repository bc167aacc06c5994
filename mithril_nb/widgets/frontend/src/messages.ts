/** Turning the kernel's binary messages into data. */

import type { Equation, RawInstruction, RawStage, Reply } from "./types";

function bytesOf(buffer: DataView | ArrayBuffer | Uint8Array): Uint8Array<ArrayBuffer> {
  if (buffer instanceof ArrayBuffer) return new Uint8Array(buffer);
  // A copy: the view may lie at an odd offset of the whole websocket message, where a Float64Array cannot start.
  return new Uint8Array(buffer.buffer as ArrayBuffer, buffer.byteOffset, buffer.byteLength).slice();
}

/** Compressed JSON. */
export async function decodeJson<T>(buffer: DataView | ArrayBuffer | Uint8Array): Promise<T> {
  const stream = new Blob([bytesOf(buffer)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).json()) as T;
}

/** Do what nobody waits for: what goes wrong there is said where the result would stand. */
export async function tried(work: () => Promise<void>, refuse: (why: string) => void): Promise<void> {
  try {
    await work();
  } catch (error) {
    refuse(`What came from the kernel could not be shown: ${error instanceof Error ? error.message : String(error)}. Run the cell again to load it.`);
  }
}

/** Hand the data of a message to a panel; what cannot be read is said where the data would stand. */
export async function unpacked<T>(buffer: DataView | undefined, take: (data: T) => void, refuse: (why: string) => void): Promise<void> {
  if (buffer) await tried(async () => take(await decodeJson<T>(buffer)), refuse);
}

/** What a reply says went wrong, in a line; null if nobody knows what, as when the kernel is gone. */
export function refusalOf({ error }: Reply): string | null {
  return error && `${error.summary}${error.advice ? ` Try: ${error.advice}` : ""}`;
}

const TABLED = ["opcode", "equations", "shares", "role", "origin", "transforms", "source", "library"] as const;

/** A stage as it travels: instructions as columns, what many of them share once, in a table. */
export interface PackedStage {
  text: string;
  columns: Record<string, number[]>;
  tables: Record<string, any[]>;
  equations: { id: string[]; primitive: number[]; block: number[]; role: number[]; source: string[]; tables: Record<string, any[]> };
  shown?: { line: number[]; instructions: number[][] };
  help?: [string, string][];
}

/** A stage's text and instruction map. Instructions that share their equations or blocks share one array of them. */
export async function decodeStage(buffer: DataView | ArrayBuffer | Uint8Array): Promise<RawStage> {
  const { text, columns, tables, equations: known, shown, help } = await decodeJson<PackedStage>(buffer);
  const [opcode, equations, shares, role, origin, transforms, source, library] = TABLED.map((name) => [columns[name] ?? [], tables[name] ?? []] as const);
  const value = (pair: readonly [number[], any[]] | undefined, i: number): any => pair![1][pair![0][i]!];
  const instructions = columns["line"]!.map((line, i): RawInstruction => [
    line, columns["lines"]![i]!, value(opcode, i), value(equations, i), value(shares, i), value(role, i), value(origin, i), value(transforms, i), value(source, i), value(library, i),
  ]);
  const { primitive, block, role: roles } = known.tables;
  const found: Record<string, Equation> = Object.create(null);
  known.id.forEach((id, i) => (found[id] = { primitive: primitive![known.primitive[i]!], block: block![known.block[i]!], role: roles![known.role[i]!], source: known.source[i]! }));
  return { text, instructions, equations: found, help: help ?? [], ...(shown ? { shown: shown.line.map((line, i): [number, number[]] => [line, shown.instructions[i]!]) } : {}) };
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
