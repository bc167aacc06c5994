/** Decoding of the kernel's binary messages. */

import type { PackedEquations, PackedStage, ReplyHead, Role } from "./contract";

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

/** Return the error of a reply as one line; null without an error, as when the kernel is gone. */
export function errorOf({ error }: ReplyHead): string | null {
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

export type Origin = "tagged" | "inferred" | "kernel";
export type StageName = string;

/**
 * [line, lines, opcode, equation ids, [block, share][], role, origin, transforms, lines of Python, lines of libraries],
 * lines counted from 1. In the first stage also dtypes, FLOPs, accessed bytes and bytes of the results.
 */
export type RawInstruction = [
  number,
  number,
  string,
  string[],
  [string, number][],
  Role | null,
  Origin | null,
  string[]?,
  string[]?,
  string[]?,
  string[]?,
  (number | null)?,
  (number | null)?,
  (number | null)?,
];

export interface Equation {
  primitive: string;
  block: string;
  role: Role | null;
  source: string;
}

/** A stage with its instructions and equations one by one. */
export interface RawStage extends Pick<PackedStage, "text" | "help" | "patterns" | "kinds"> {
  instructions: RawInstruction[];
  equations: Record<string, Equation>;
  shown?: [line: number, instructions: number[]][];
}

/** Unpack the columns of a stage. Instructions with equal equations or blocks share one array. */
export function unpackStage({
  text,
  columns,
  tables,
  shown,
  help,
  patterns,
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
    ...(patterns ? { patterns } : {}),
    ...(kinds ? { kinds } : {}),
    ...(shown ? { shown: shown.line.map((line, i) => [line, shown.instructions[i]!]) } : {}),
  };
}

export function unpackEquations({ id: ids, source, tables, ...columns }: PackedEquations): Record<string, Equation> {
  const found: Record<string, Equation> = Object.create(null);
  ids.forEach((id, i) => {
    const [primitive, block, role] = (["primitive", "block", "role"] as const).map(
      (name) => tables[name]![columns[name][i]!],
    );
    found[id] = { primitive, block, role, source: source[i]! } as Equation;
  });
  return found;
}
