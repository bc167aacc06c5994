/**
 * The map between blocks and instructions, in both directions. Pure: no DOM, no kernel.
 *
 * A block links to every instruction with a share in it or in a block inside it. An instruction links to the
 * instructions of other stages that come from one of its equations, and to the blocks it has shares in, with
 * the groups around them. Links are symmetric: B links to I exactly if I links to B, and the same for I and J.
 */

import { getOrCreate, push } from "../dom/lists";
import type { Role } from "../kernel/contract";
import type { Equation, Origin, RawStage, StageName } from "../kernel/messages";

/** Path of unattributed instructions in an anchor. */
export const UNATTRIBUTED = "(unattributed)";

export interface Instruction {
  index: number;
  line: number;
  lines: number;
  opcode: string;
  equations: string[];
  shares: [string, number][];
  role: Role | null;
  origin: Origin | null;
  transforms: string[];
  /** Lines of Python. */
  source: string[];
  /** Lines of libraries that those lines called. */
  library: string[];
  /** In the first stage: what a query can match in addition. */
  dtypes?: string[] | undefined;
  numbers?: {
    flops?: number | null | undefined;
    bytes?: number | null | undefined;
    memory?: number | null | undefined;
  };
}

/** The target of a hover or pin: a block, an instruction, or the equations of a graph node without a block. */
export type Anchor =
  | { kind: "block"; path: string }
  | { kind: "instruction"; stage: StageName; version: number; index: number }
  | { kind: "equations"; name: string; ids: readonly string[] };

export interface Links {
  blocks: Set<string>;
  /** Indices of the linked instructions of each stage. */
  lines: Map<StageName, ReadonlySet<number>>;
}

/** Indices of instructions with the same equations or blocks, such as all lines of a kernel. */
type Group = readonly number[];

/** Return a path and the paths of its outer groups: `a/b/c` → `a/b/c`, `a/b`, `a`. */
export function lineage(path: string): string[] {
  const found = [path];
  for (let at = path.lastIndexOf("/"); at > 0; at = path.lastIndexOf("/", at - 1)) found.push(path.slice(0, at));
  return found;
}

/** Return whether a path is that of a block or of a block inside it. */
export function isWithin(path: string, block: string): boolean {
  return path === block || path.startsWith(`${block}/`);
}

/** The text of a stage, with lookup tables between lines, instructions, blocks and equations. */
export class StageText {
  readonly instructions: Instruction[];
  readonly lineCount: number;
  readonly equations: Record<string, Equation>;
  /** Descriptions of operations by opcode. */
  readonly help: ReadonlyMap<string, string>;
  /** Descriptions of parts of a line, such as the layout of an array. */
  private readonly patterns: readonly [RegExp, string][];
  /** Index of the innermost instruction on each line (counted from 1), or -1. */
  readonly owner: Int32Array;
  /** For a shortened text: the line of each instruction. */
  readonly places: ReadonlyMap<number, number> | null;
  /** In the first stage of the program, which is searched: the kind of each block, by path. */
  readonly kinds: Readonly<Record<string, string>> | null;
  private readonly byBlock = new Map<string, Group[]>();
  private readonly byEquation = new Map<string, Group[]>();
  /** The paths of inner blocks by outer block; made on first use. */
  private inner: Map<string, string[]> | null = null;

  constructor(
    readonly stage: StageName,
    readonly version: number,
    readonly text: string,
    raw: Pick<RawStage, "instructions" | "equations" | "shown" | "help" | "patterns" | "kinds">,
  ) {
    this.equations = raw.equations ?? {};
    this.help = new Map(raw.help ?? []);
    this.patterns = (raw.patterns ?? []).map(([pattern, help]) => [new RegExp(pattern, "g"), help]);
    this.lineCount = text === "" ? 0 : text.split("\n").length;
    this.instructions = raw.instructions.map(
      (
        [
          line,
          lines,
          opcode,
          equations,
          shares,
          role,
          origin,
          transforms = [],
          source = [],
          library = [],
          dtypes,
          flops,
          bytes,
          memory,
        ],
        index,
      ) => ({
        index,
        line,
        lines,
        opcode,
        equations,
        shares,
        role,
        origin,
        transforms,
        source,
        library,
        ...(dtypes ? { dtypes, numbers: { flops, bytes, memory } } : {}),
      }),
    );
    this.kinds = raw.kinds ?? null;
    this.owner = new Int32Array(this.lineCount + 2).fill(-1);
    this.places = raw.shown
      ? new Map(raw.shown.flatMap(([line, indices]) => indices.map((index) => [index, line])))
      : null;
    if (raw.shown) for (const [line, indices] of raw.shown) this.owner[line] = indices[0]!;
    // Outer instructions first, so that inner ones overwrite their own lines.
    else
      for (const { index, line, lines } of [...this.instructions].sort(
        (a, b) => b.lines - a.lines || a.index - b.index,
      )) {
        this.owner.fill(index, line, Math.min(line + lines, this.lineCount + 1));
      }
    // The lines of a kernel share one array of shares and one of equations. Each may have thousands of elements, so an
    // index of every line by every element would not fit into memory.
    this.group(this.byBlock, "shares", blocksOf);
    this.group(this.byEquation, "equations", ({ equations }) => new Set(equations));
  }

  private group(
    byKey: Map<string, Group[]>,
    name: "shares" | "equations",
    keysOf: (instruction: Instruction) => Iterable<string>,
  ) {
    const groups = new Map<unknown, number[]>();
    for (const instruction of this.instructions)
      getOrCreate(groups, instruction[name], () => {
        const group: number[] = [];
        for (const key of keysOf(instruction)) push(byKey, key, group);
        return group;
      }).push(instruction.index);
  }

  /** Return the first and last line of an instruction, or null if it is not shown. */
  linesOf(index: number): [number, number] | null {
    const instruction = this.instructions[index];
    if (!instruction) return null;
    if (!this.places) return [instruction.line, Math.min(instruction.line + instruction.lines - 1, this.lineCount)];
    const line = this.places.get(index);
    return line === undefined ? null : [line, line];
  }

  /** Describe parts of the first line of an instruction, such as the layout of an array. */
  lineHelp(index: number): string[] {
    const line = this.patterns.length ? this.linesOf(index)?.[0] : undefined;
    if (line === undefined) return [];
    const text = this.text.split("\n", line)[line - 1] ?? "";
    const texts = this.patterns.flatMap(([pattern, help]) =>
      [...text.matchAll(pattern)].map((match) => help.replace(/\$(\d)/g, (_, group) => match[Number(group)] ?? "")),
    );
    return [...new Set(texts)];
  }

  /** Return the innermost instruction on a line, or null. */
  at(line: number) {
    const index = this.owner[line] ?? -1;
    return index < 0 ? null : (this.instructions[index] ?? null);
  }

  /** Return the instructions with a share in a block or in a block inside it. */
  ofBlock(path: string): readonly number[] {
    return this.groupsOfBlock(path)
      .flat()
      .sort((a, b) => a - b);
  }

  groupsOfBlock(path: string): readonly Group[] {
    return this.byBlock.get(path) ?? [];
  }

  /** Return the paths of inner blocks with instructions in this stage. */
  inside(path: string): readonly string[] {
    if (!this.inner) {
      this.inner = new Map();
      for (const block of this.byBlock.keys())
        for (const outer of lineage(block).slice(1)) push(this.inner, outer, block);
    }
    return this.inner.get(path) ?? [];
  }

  groupsOfEquation(id: string): readonly Group[] {
    return this.byEquation.get(id) ?? [];
  }

  /** Return the block with the largest share in an instruction, or null. */
  mainBlock(instruction: Instruction) {
    let best: string | null = null;
    let most = 0;
    for (const [block, share] of instruction.shares) {
      if (block && share > most) {
        best = block;
        most = share;
      }
    }
    return best;
  }
}

export function noLinks(): Links {
  return { blocks: new Set(), lines: new Map() };
}

/** The set of each large group, so that a hover over a line of a large kernel copies nothing. */
const setsOfGroups = new WeakMap<Group, ReadonlySet<number>>();

function union(groups: ReadonlySet<Group>) {
  const [first] = groups;
  if (groups.size !== 1 || !first) return new Set([...groups].flat());
  return getOrCreate(setsOfGroups, first, () => new Set(first));
}

/** Return the paths of the blocks an instruction has shares in, and of their outer groups. */
export function blocksOf(instruction: Instruction): string[] {
  const found = new Set(instruction.shares.flatMap(([block]) => (block ? lineage(block) : [])));
  return found.size ? [...found] : [UNATTRIBUTED];
}

/** Return the blocks and instructions linked to the anchors. */
export function linksOf(stages: ReadonlyMap<StageName, StageText>, anchors: readonly Anchor[]): Links {
  const { blocks, lines } = noLinks();
  const found = new Map<StageName, Set<Group>>();
  const add = (stage: StageName, groups: readonly Group[]) => {
    const set = getOrCreate(found, stage, () => new Set());
    for (const group of groups) set.add(group);
  };
  for (const anchor of anchors) {
    if (anchor.kind === "block") {
      blocks.add(anchor.path);
      for (const stage of stages.values()) {
        add(stage.stage, stage.groupsOfBlock(anchor.path));
        for (const inner of stage.inside(anchor.path)) blocks.add(inner);
      }
      continue;
    }
    const here = anchor.kind === "instruction" ? stages.get(anchor.stage) : undefined;
    const instruction =
      anchor.kind === "instruction" && here?.version === anchor.version ? here.instructions[anchor.index] : undefined;
    if (instruction) {
      add(here!.stage, [[instruction.index]]);
      for (const block of blocksOf(instruction)) blocks.add(block);
    }
    const equations = anchor.kind === "equations" ? anchor.ids : (instruction?.equations ?? []);
    for (const stage of stages.values()) {
      if (stage === here) continue;
      const groups = new Set(equations.flatMap((id) => stage.groupsOfEquation(id)));
      if (equations.length || anchor.kind === "equations") add(stage.stage, [...groups]);
      if (anchor.kind === "equations" && stage.stage === "jaxpr")
        for (const index of union(groups)) for (const block of blocksOf(stage.instructions[index]!)) blocks.add(block);
    }
  }
  for (const [stage, groups] of found) lines.set(stage, union(groups));
  return { blocks, lines };
}

export function blockAnchors(paths: readonly string[]): Anchor[] {
  return paths.map((path) => ({ kind: "block", path }));
}

/** Return a text that is equal for equal anchors. */
export function anchorId(anchor: Anchor): string {
  if (anchor.kind === "block") return `block ${anchor.path}`;
  return anchor.kind === "equations"
    ? `equations ${anchor.name}`
    : `instruction ${anchor.index} ${anchor.version} ${anchor.stage}`;
}

/** Return pins with `anchors` added, or removed if all of them are pinned already. */
export function withAnchors(pins: readonly Anchor[], anchors: readonly Anchor[]): Anchor[] {
  const [known, given] = [new Set(pins.map(anchorId)), new Set(anchors.map(anchorId))];
  const fresh = anchors.filter((anchor) => !known.has(anchorId(anchor)));
  return fresh.length ? [...pins, ...fresh] : pins.filter((pin) => !given.has(anchorId(pin)));
}

export function sameAnchor(a: Anchor, b: Anchor): boolean {
  return anchorId(a) === anchorId(b);
}

export function sameAnchors(a: readonly Anchor[], b: readonly Anchor[]): boolean {
  return a.length === b.length && a.every((anchor, i) => sameAnchor(anchor, b[i]!));
}

/** Return the blocks to select for these anchors: those with direct shares, without outer groups. */
export function selectionOf(stages: ReadonlyMap<StageName, StageText>, anchors: readonly Anchor[]): string[] {
  const paths = new Set<string>();
  for (const anchor of anchors) {
    if (anchor.kind === "block") paths.add(anchor.path);
    else if (anchor.kind === "instruction") {
      const instruction = stages.get(anchor.stage)?.instructions[anchor.index];
      for (const [block] of instruction?.shares ?? []) if (block) paths.add(block);
    }
  }
  return [...paths];
}
