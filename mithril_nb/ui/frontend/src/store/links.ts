/**
 * The map between blocks and instructions, in both directions. Pure: no DOM, no kernel.
 *
 * A block links to every instruction with a share in it or in a block inside it. An instruction links to the
 * instructions of other stages that come from one of its equations, and to the blocks it has shares in, with
 * the groups around them. Links are symmetric: B links to I exactly if I links to B, and the same for I and J.
 */

import type { Equation, Origin, RawStage, Role, StageName } from "../kernel/types";

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
}

/** The target of a hover or pin: a block, an instruction, or the equations of a graph node without a block. */
export type Anchor = { kind: "block"; path: string } | { kind: "instruction"; stage: StageName; version: number; index: number } | { kind: "equations"; name: string; ids: readonly string[] };

export interface Links {
  blocks: Set<string>;
  /** Indices of the linked instructions of each stage. */
  lines: Map<StageName, Set<number>>;
}

/** Return a path and the paths of its outer groups: `a/b/c` → `a/b/c`, `a/b`, `a`. */
export function lineage(path: string): string[] {
  const found = [path];
  for (let at = path.lastIndexOf("/"); at > 0; at = path.lastIndexOf("/", at - 1)) found.push(path.slice(0, at));
  return found;
}

/** The text of a stage, with lookup tables between lines, instructions, blocks and equations. */
export class StageText {
  readonly instructions: Instruction[];
  readonly lineCount: number;
  readonly equations: Record<string, Equation>;
  /** Descriptions of operations by opcode. */
  readonly help: ReadonlyMap<string, string>;
  /** Index of the innermost instruction on each line (counted from 1), or -1. */
  readonly owner: Int32Array;
  /** For a shortened text: the line of each instruction. */
  readonly places: ReadonlyMap<number, number> | null;
  private readonly byBlock = new Map<string, number[]>();
  private readonly byEquation = new Map<string, number[]>();

  constructor(
    readonly stage: StageName,
    readonly version: number,
    readonly text: string,
    raw: Pick<RawStage, "instructions" | "equations" | "shown" | "help">,
  ) {
    this.equations = raw.equations ?? {};
    this.help = new Map(raw.help ?? []);
    this.lineCount = text === "" ? 0 : text.split("\n").length;
    this.instructions = raw.instructions.map(([line, lines, opcode, equations, shares, role, origin, transforms = [], source = [], library = []], index) => ({
      index, line, lines, opcode, equations, shares, role, origin, transforms, source, library,
    }));
    this.owner = new Int32Array(this.lineCount + 2).fill(-1);
    this.places = raw.shown ? new Map(raw.shown.flatMap(([line, indices]) => indices.map((index): [number, number] => [index, line]))) : null;
    if (raw.shown) for (const [line, indices] of raw.shown) this.owner[line] = indices[0]!;
    // Outer instructions first, so that inner ones overwrite their own lines.
    else for (const { index, line, lines } of [...this.instructions].sort((a, b) => b.lines - a.lines || a.index - b.index)) {
      this.owner.fill(index, line, Math.min(line + lines, this.lineCount + 1));
    }
    // Thousands of instructions share one array of shares, so compute their blocks once.
    const blocksOfShares = new Map<unknown, string[]>();
    for (const instruction of this.instructions) {
      const { index, shares, equations } = instruction;
      let blocks = blocksOfShares.get(shares);
      if (!blocks) blocksOfShares.set(shares, (blocks = blocksOf(instruction)));
      for (const block of blocks) push(this.byBlock, block, index);
      for (const equation of equations.length > 1 ? new Set(equations) : equations) push(this.byEquation, equation, index);
    }
  }

  /** Return the first and last line of an instruction, or null if it is not shown. */
  linesOf(index: number): [number, number] | null {
    const instruction = this.instructions[index];
    if (!instruction) return null;
    if (!this.places) return [instruction.line, Math.min(instruction.line + instruction.lines - 1, this.lineCount)];
    const line = this.places.get(index);
    return line === undefined ? null : [line, line];
  }

  /** Return the innermost instruction on a line, or null. */
  at(line: number): Instruction | null {
    const index = this.owner[line] ?? -1;
    return index < 0 ? null : (this.instructions[index] ?? null);
  }

  ofBlock(path: string): readonly number[] {
    return this.byBlock.get(path) ?? [];
  }

  /** Return the paths of inner blocks with instructions in this stage. */
  inside(path: string): string[] {
    return [...this.byBlock.keys()].filter((block) => block.startsWith(`${path}/`));
  }

  ofEquation(id: string): readonly number[] {
    return this.byEquation.get(id) ?? [];
  }

  /** Return the block with the largest share in an instruction, or null. */
  mainBlock(instruction: Instruction): string | null {
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

function push(map: Map<string, number[]>, key: string, value: number): void {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}

export function noLinks(): Links {
  return { blocks: new Set(), lines: new Map() };
}

function addLines(links: Links, stage: StageName, indices: Iterable<number>): void {
  let set = links.lines.get(stage);
  if (!set) links.lines.set(stage, (set = new Set()));
  for (const index of indices) set.add(index);
}

/** Return the paths of the blocks an instruction has shares in, and of their outer groups. */
export function blocksOf(instruction: Instruction): string[] {
  const found = new Set(instruction.shares.flatMap(([block]) => (block ? lineage(block) : [])));
  return found.size ? [...found] : [UNATTRIBUTED];
}

/** Return the blocks and instructions linked to the anchors. */
export function linksOf(stages: ReadonlyMap<StageName, StageText>, anchors: readonly Anchor[]): Links {
  const links = noLinks();
  for (const anchor of anchors) {
    if (anchor.kind === "block") {
      links.blocks.add(anchor.path);
      for (const stage of stages.values()) {
        addLines(links, stage.stage, stage.ofBlock(anchor.path));
        for (const inner of stage.inside(anchor.path)) links.blocks.add(inner);
      }
      continue;
    }
    if (anchor.kind === "equations") {
      for (const stage of stages.values()) {
        const indices = anchor.ids.flatMap((id) => stage.ofEquation(id));
        addLines(links, stage.stage, indices);
        if (stage.stage === "jaxpr") for (const index of indices) for (const block of blocksOf(stage.instructions[index]!)) links.blocks.add(block);
      }
      continue;
    }
    const here = stages.get(anchor.stage);
    const instruction = here?.version === anchor.version ? here.instructions[anchor.index] : undefined;
    if (!instruction) continue;
    addLines(links, anchor.stage, [anchor.index]);
    for (const block of blocksOf(instruction)) links.blocks.add(block);
    for (const stage of stages.values()) {
      if (stage.stage === anchor.stage) continue;
      for (const equation of instruction.equations) addLines(links, stage.stage, stage.ofEquation(equation));
    }
  }
  return links;
}

export function sameAnchor(a: Anchor, b: Anchor): boolean {
  if (a.kind === "block" || b.kind === "block") return a.kind === b.kind && (a as { path: string }).path === (b as { path: string }).path;
  if (a.kind === "equations" || b.kind === "equations") return a.kind === b.kind && (a as { name: string }).name === (b as { name: string }).name;
  return a.stage === b.stage && a.index === b.index && a.version === b.version;
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
