/** Decoding of the kernel's binary messages. */

import type { Equation, RawInstruction, RawStage, Reply } from "./types";

export function bytesOf(buffer: DataView | ArrayBuffer | Uint8Array): Uint8Array<ArrayBuffer> {
  if (buffer instanceof ArrayBuffer) return new Uint8Array(buffer);
  // Copied, because the view may start at an offset that is not a multiple of 8, which Float64Array rejects.
  return new Uint8Array(buffer.buffer as ArrayBuffer, buffer.byteOffset, buffer.byteLength).slice();
}

/** Decode gzipped JSON. */
export async function decodeJson<T>(buffer: DataView | ArrayBuffer | Uint8Array): Promise<T> {
  const stream = new Blob([bytesOf(buffer)]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (await new Response(stream).json()) as T;
}

/** Run asynchronous work that no caller awaits; pass any error message to `fail`. */
export async function attempt(work: () => Promise<void>, fail: (why: string) => void): Promise<void> {
  try {
    await work();
  } catch (error) {
    fail(
      `The message from the kernel could not be shown: ` +
        `${error instanceof Error ? error.message : String(error)}. Run the cell again to load it.`,
    );
  }
}

/** Decode a message and pass its data to `take`; pass any error message to `fail`. */
export async function decodeTo<T>(
  buffer: DataView | undefined,
  take: (data: T) => void,
  fail: (why: string) => void,
): Promise<void> {
  if (buffer) await attempt(async () => take(await decodeJson<T>(buffer)), fail);
}

/** Return the error of a reply as one line; null without an error, as when the kernel is gone. */
export function errorOf({ error }: Reply): string | null {
  return error && `${error.summary}${error.advice ? ` Try: ${error.advice}` : ""}`;
}

const TABLED = [
  "opcode",
  "equations",
  "shares",
  "role",
  "origin",
  "transforms",
  "source",
  "library",
  "dtypes",
  "flops",
  "bytes",
  "memory",
] as const;

export interface PackedEquations {
  id: string[];
  primitive: number[];
  block: number[];
  role: number[];
  source: string[];
  tables: Record<string, any[]>;
}

/**
 * The encoded form of a stage: instructions as columns of indices into tables of distinct values; `step` is the
 * distance in lines.
 */
export interface PackedStage {
  text: string;
  columns: Record<string, number[]>;
  tables: Record<string, any[]>;
  equations: PackedEquations;
  shown?: { line: number[]; instructions: number[][] };
  help?: [string, string][];
  /** In the first stage: the kind of each block, by path. */
  kinds?: Record<string, string>;
}

/** Decode a stage's text and instruction map. */
export async function decodeStage(buffer: DataView | ArrayBuffer | Uint8Array): Promise<RawStage> {
  const packed = await decodeJson<PackedStage>(buffer);
  return { ...unpackStage(packed), equations: unpackEquations(packed.equations) };
}

/** Unpack the columns of a stage. Instructions with equal equations or blocks share one array. */
export function unpackStage({
  text,
  columns,
  tables,
  shown,
  help,
  kinds,
}: Omit<PackedStage, "equations">): Omit<RawStage, "equations"> {
  const known = TABLED.map((name) => [columns[name] ?? [], tables[name] ?? []] as const);
  let line = 0;
  const instructions = columns["step"]!.map(
    (step, i) =>
      [(line += step), columns["lines"]![i]!, ...known.map(([places, table]) => table[places[i]!])] as RawInstruction,
  );
  return {
    text,
    instructions,
    help: help ?? [],
    ...(kinds ? { kinds } : {}),
    ...(shown ? { shown: shown.line.map((line, i): [number, number[]] => [line, shown.instructions[i]!]) } : {}),
  };
}

export function unpackEquations({ id: ids, source, tables, ...columns }: PackedEquations): Record<string, Equation> {
  const found: Record<string, Equation> = Object.create(null);
  ids.forEach((id, i) => {
    const [primitive, block, role] = (["primitive", "block", "role"] as const).map(
      (name) => tables[name]![columns[name][i]!],
    );
    found[id] = { primitive, block, role, source: source[i]! };
  });
  return found;
}
