/** Which parts of a text are folded, and the rows that remain. Immutable, and used with and without an editor. */

import { counted } from "../dom/format";
import { firstWhere } from "../dom/lists";
import type { Role } from "../kernel/contract";
import { type FoldRange, isFoldedAtFirst, keyOf } from "./fold-ranges";

export class Folds {
  static readonly NONE = new Folds([], new Set());
  /** The folded parts of whole lines that are not inside another folded one, in order. */
  readonly hidden: readonly FoldRange[];
  /** The folded parts inside a visible line. */
  readonly spans: readonly FoldRange[];
  /** Number of rows hidden before each of `hidden`, and after the last one. */
  private readonly saved: number[] = [0];
  private readonly parents: Int32Array;

  /** `ranges` are nested or disjoint, sorted by first line, outer ones first. */
  constructor(
    readonly ranges: readonly FoldRange[],
    readonly folded: ReadonlySet<FoldRange>,
  ) {
    const hidden: FoldRange[] = [];
    const spans: FoldRange[] = [];
    const open: number[] = [];
    let last = 0;
    this.parents = new Int32Array(ranges.length);
    ranges.forEach((range, i) => {
      while (open.length && ranges[open.at(-1)!]!.to < range.from) open.pop();
      this.parents[i] = open.at(-1) ?? -1;
      if (!range.span) open.push(i);
      if (range.from <= last || !folded.has(range)) return;
      if (range.span) spans.push(range);
      else {
        hidden.push(range);
        this.saved.push(this.saved.at(-1)! + range.to - range.from);
        last = range.to;
      }
    });
    [this.hidden, this.spans] = [hidden, spans];
  }

  /** Return the parts of a new text, folded as the same parts of this one; new parts are folded as at first. */
  carriedTo(ranges: readonly FoldRange[]) {
    const before = new Map(this.ranges.map((range) => [keyOf(range), this.folded.has(range)]));
    return new Folds(ranges, new Set(ranges.filter((range) => before.get(keyOf(range)) ?? isFoldedAtFirst(range))));
  }

  with(change: (folded: Set<FoldRange>) => void) {
    const folded = new Set(this.folded);
    change(folded);
    return new Folds(this.ranges, folded);
  }

  foldAll() {
    return new Folds(this.ranges, new Set(this.ranges));
  }

  unfoldAll() {
    return new Folds(this.ranges, new Set());
  }

  /** Fold or unfold a part. Parts inside the same line are folded together. */
  toggle(range: FoldRange) {
    const wasFolded = this.folded.has(range);
    const both = range.span ? this.ranges.filter(({ from, span }) => span && from === range.from) : [range];
    return this.with((folded) => both.forEach((one) => (wasFolded ? folded.delete(one) : folded.add(one))));
  }

  /** Return whether every part of whole lines that is not inside another one is folded. */
  get isAllFolded() {
    return this.ranges.every((range, i) => this.parents[i]! >= 0 || range.span || this.folded.has(range));
  }

  /** Unfold all parts that hide a line. */
  show(line: number) {
    return this.hiddenAt(line)
      ? this.with((folded) => this.around(line).forEach((range) => folded.delete(range)))
      : this;
  }

  /** Return the folded part that hides a line, or null. Its row is the row of its first line. */
  hiddenAt(line: number) {
    const range = this.hidden[lastFrom(this.hidden, line)];
    return range && range.to >= line ? range : null;
  }

  /** Return the parts of whole lines around a line, innermost first. */
  around(line: number) {
    const found: FoldRange[] = [];
    for (let i = lastFrom(this.ranges, line); i >= 0; i = this.parents[i]!) {
      const range = this.ranges[i]!;
      if (!range.span && range.to >= line) found.push(range);
    }
    return found;
  }

  /**
   * Return the part that a sign beside a line opens or closes: the folded part, or the outermost part that starts
   * there.
   */
  startsAt(line: number) {
    const hidden = this.hiddenAt(line);
    if (hidden) return hidden.from === line ? hidden : null;
    let i = lastFrom(this.ranges, line);
    let found: FoldRange | null = null;
    for (; i >= 0 && this.ranges[i]!.from === line; i--) found = this.ranges[i]!;
    return found;
  }

  /** Return the part that starts at a line, or the part inside the line that starts at a character. */
  partAt(line: number, character: string | undefined) {
    if (character === undefined) return this.startsAt(line);
    return this.spans.find(({ from, span }) => from === line && String(span![0]) === character) ?? null;
  }

  /** Return the sign beside a line: whether a click folds or unfolds lines; "" if it does neither. */
  signAt(line: number): string {
    const range = this.startsAt(line);
    return range ? (this.folded.has(range) ? "▸" : "▾") : "";
  }

  /** Return the row of a line, both counted from 1. */
  rowOf(line: number) {
    const i = lastFrom(this.hidden, line);
    if (i < 0) return line;
    const { from, to } = this.hidden[i]!;
    return line <= to ? from - this.saved[i]! : line - this.saved[i + 1]!;
  }

  /** Return the first line of a row. */
  lineOf(row: number) {
    return row + this.saved[firstWhere(this.hidden.length, (at) => this.hidden[at]!.from - this.saved[at]! >= row)]!;
  }

  rowCount(lines: number) {
    return lines - this.saved.at(-1)!;
  }
}

/** Return the index of the last part that starts at or before a line, or -1. */
function lastFrom(ranges: readonly FoldRange[], line: number) {
  return firstWhere(ranges.length, (at) => ranges[at]!.from > line) - 1;
}

/** Returns the cost of a block in a role and its share, such as "12.3 MFLOP, 14 %"; "" if the program has no costs. */
export type CostText = (block: string, role: Role | null) => string;

/** Return the name of a block and its role; the forward pass is not named. */
export function nameOf({ block, role, others = 0 }: Pick<FoldRange, "block" | "role"> & { others?: number }): string {
  return `${block}${others ? ` and ${others} more` : ""}${role && role !== "forward" ? ` · ${role}` : ""}`;
}

/** Return the label of a folded part: the hidden lines or parameters, and the cost of its block. */
export function foldLabel(range: FoldRange, costOf: CostText): string {
  const {
    kind,
    count,
    name,
    block,
    role,
    others,
    part: [number, parts],
  } = range;
  if (kind === "signature") return counted(...count);
  if (kind === "other") return `${counted(...count)} of other blocks`;
  if (kind === "computation") return `${name}: ${counted(...count)}${block ? `, ${nameOf(range)}` : ""}`;
  // The cost belongs to all runs of a block.
  const cost = others ? "" : costOf(block, role);
  const run = parts > 1 ? `, part ${number} of ${parts}` : "";
  return `${nameOf(range)}${run}: ${counted(...count)}${cost && `${parts > 1 ? "; whole block " : ", "}${cost}`}`;
}
