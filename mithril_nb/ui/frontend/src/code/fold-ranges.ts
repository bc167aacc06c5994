/**
 * The foldable parts of a stage: long signatures, runs of lines of one block, and inner computations. Pure: no DOM.
 *
 * Two parts are nested or disjoint. A part with `span` is inside one line; other parts are whole lines.
 */

import { getOrCreate, push } from "../dom/lists";
import type { Role } from "../kernel/contract";
import { type Instruction, isWithin, lineage, type StageText } from "../store/links";

export interface FoldRange {
  kind: "signature" | "block" | "computation" | "other";
  /** First and last line, counted from 1. */
  from: number;
  to: number;
  /** The hidden characters of line `from`, for a part inside one line. */
  span?: readonly [from: number, to: number];
  /** Number and noun of the hidden items, such as 42 parameters. */
  count: readonly [number, "parameter" | "result" | "line"];
  /** Path of the block, or "". */
  block: string;
  role: Role | null;
  /** Number of further blocks with shares in all lines. */
  others: number;
  /** Name of a computation. */
  name: string;
  /** Position among the runs of the same block and role, and their number. */
  part: readonly [number, number];
}

/**
 * The block of a line: its path with all outer groups, outermost first, and its role. Lines with equal places share one
 * object.
 */
interface LinePlace {
  paths: readonly string[];
  block: string;
  role: Role | null;
  others: number;
}

/** Least number of lines to fold. A folded part takes one row, so folding fewer lines would save little. */
const LEAST_LINES = 3;
const LEAST_PARAMETERS = 2;
/** Argument lists in one line can be folded if they have more characters. */
const LEAST_CHARACTERS = 60;
/** Signatures with more parameters are folded at first. */
const MOST_PARAMETERS = 8;
const MOST_CHARACTERS = 160;
const HEADER = /^(?:ENTRY )?%?[\w.-]+ \(|^\s*func\.func (?:public |private )?@[^(]+\(/;
const COMPUTATION = /^(\s*)(?:func\.func private @([^(]+)\(|%?([\w.-]+) [({]).*\{$/;

/** Return whether a part is folded when its text is first shown. */
export function isFoldedAtFirst({ kind, span, count }: FoldRange): boolean {
  return kind === "signature" && (span ? span[1] - span[0] > MOST_CHARACTERS : count[0] > MOST_PARAMETERS);
}

/** Return a key that finds a part again in the next version of its text. */
export function keyOf({ kind, block, role, part, name, count, span }: FoldRange): string {
  return [kind, block, role, part[0], name, span ? count[1] : ""].join("\n");
}

/** Return the foldable parts of a stage, in the order of their first lines; outer ones first. */
export function foldRanges(text: StageText): FoldRange[] {
  // Lines of Python belong to several blocks, and a diff has no instructions.
  if (text.stage === "python" || text.instructions.length === 0) return [];
  const lines = text.text.split("\n");
  const found: FoldRange[] = [];
  const places = [...placesOf(text)];
  for (const range of signatures(text, lines)) {
    found.push(range);
    if (!range.span) places.fill(null, range.from, range.to + 1);
  }
  let start = 1;
  for (const range of computations(lines, places)) {
    blockRuns(places, start, range.from - 1, 0, found);
    blockRuns(places, range.from + 1, range.to - 1, 0, found);
    found.push(range);
    start = range.to + 1;
  }
  blockRuns(places, start, text.lineCount, 0, found);
  // A signature in one line is on the first line of its computation, and inside of the part of the computation.
  found.sort(
    (a, b) =>
      a.from - b.from || Number(!!a.span) - Number(!!b.span) || b.to - a.to || (a.span?.[0] ?? 0) - (b.span?.[0] ?? 0),
  );
  // The position of each run among those of its block and role.
  const runs = new Map<string, FoldRange[]>();
  for (const range of found) push(runs, keyOf(range), range);
  for (const list of runs.values()) list.forEach((range, i) => (range.part = [i + 1, list.length]));
  return found;
}

function part(kind: FoldRange["kind"], from: number, to: number, more: Partial<FoldRange> = {}): FoldRange {
  return {
    kind,
    from,
    to,
    count: [to - from + 1, "line"],
    block: "",
    role: null,
    others: 0,
    name: "",
    part: [1, 1],
    ...more,
  };
}

/** Return runs of parameters, and argument lists inside a line. */
function signatures(text: StageText, lines: readonly string[]) {
  const found: FoldRange[] = [];
  let run = 0;
  for (let line = 1; line <= text.lineCount + 1; line++) {
    if (text.at(line)?.opcode === "parameter") {
      run++;
      continue;
    }
    if (run >= LEAST_PARAMETERS) found.push(part("signature", line - run, line - 1, { count: [run, "parameter"] }));
    run = 0;
    const content = lines[line - 1];
    if (content !== undefined && content.length > LEAST_CHARACTERS && HEADER.test(content))
      found.push(...argumentLists(line, content));
  }
  return found;
}

/** Return the parameters of a header in one line, and its results. */
function argumentLists(line: number, content: string) {
  const found: FoldRange[] = [];
  let at = content.indexOf("(");
  for (const noun of ["parameter", "result"] as const) {
    const end = at < 0 ? -1 : walk(content, at + 1, () => undefined);
    if (end < 0) break;
    if (end - at - 1 > LEAST_CHARACTERS) {
      found.push(part("signature", line, line, { span: [at + 1, end], count: [itemsIn(content, at + 1, end), noun] }));
    }
    const arrow = /^ -> \(/.exec(content.slice(end + 1, end + 6));
    at = arrow ? end + arrow[0].length : -1;
  }
  return found;
}

const OPENING = "([{<";
const CLOSING = ")]}>";

/**
 * Call `each` with the characters of a list outside of strings and inner brackets, and return the position of its end.
 */
function walk(content: string, from: number, each: (character: string) => void) {
  let depth = 0;
  let quoted = false;
  for (let at = from; at < content.length; at++) {
    const one = content[at]!;
    if (quoted) {
      if (one === "\\") at++;
      else if (one === '"') quoted = false;
    } else if (one === '"') quoted = true;
    else if (OPENING.includes(one)) depth++;
    // The arrow of a type is not a bracket.
    else if (CLOSING.includes(one) && !(one === ">" && content[at - 1] === "-")) {
      if (depth-- === 0) return at;
    } else if (depth === 0) each(one);
  }
  return -1;
}

function itemsIn(content: string, from: number, to: number) {
  let commas = 0;
  walk(`${content.slice(from, to)})`, 0, (one) => (commas += Number(one === ",")));
  return commas + 1;
}

/** Return the inner computations: fused ones of HLO, private functions of StableHLO. They are not nested. */
function computations(lines: readonly string[], places: readonly (LinePlace | null)[]) {
  const found: FoldRange[] = [];
  for (let at = 0; at < lines.length; at++) {
    const header = lines[at]!.endsWith("{") ? COMPUTATION.exec(lines[at]!) : null;
    if (!header) continue;
    const indent = header[1]!;
    let end = at + 1;
    while (end < lines.length && !lines[end]!.startsWith(`${indent}}`)) end++;
    if (end >= lines.length) break;
    if (end - at + 1 >= LEAST_LINES) {
      const main = mostFrequent(places, at + 2, end);
      found.push(
        part("computation", at + 1, end + 1, {
          name: header[2] ?? header[3]!,
          block: main?.block ?? "",
          role: main?.role ?? null,
          others: main?.others ?? 0,
        }),
      );
    }
    at = end;
  }
  return found;
}

function mostFrequent(places: readonly (LinePlace | null)[], from: number, to: number) {
  const counts = new Map<LinePlace, number>();
  let best: LinePlace | null = null;
  for (let line = from; line <= to; line++) {
    const place = places[line];
    if (!place) continue;
    const count = (counts.get(place) ?? 0) + 1;
    counts.set(place, count);
    if (!best || count > counts.get(best)!) best = place;
  }
  return best;
}

const PLACES = new WeakMap<StageText, readonly (LinePlace | null)[]>();

/** Return the place of each line, counted from 1; null for lines without a block. Computed once for each text. */
function placesOf(text: StageText) {
  return getOrCreate(PLACES, text, () => findPlaces(text));
}

function findPlaces(text: StageText) {
  const known = new Map<string, LinePlace>();
  const places: (LinePlace | null)[] = new Array(text.lineCount + 2).fill(null);
  const place = (paths: readonly string[], block: string, role: Role | null, others: number): LinePlace =>
    getOrCreate(known, `${paths.at(-1)}\n${role}`, () => ({ paths, block, role, others }));
  const alone = new Map<string, readonly string[]>();
  for (let line = 1; line <= text.lineCount; line++) {
    const instruction = text.at(line);
    if (!instruction) continue;
    const before = places[line - 1];
    const block = text.mainBlock(instruction);
    if (block === null) continue;
    // A line without a role has the role of the previous line of the same block.
    const role = instruction.role ?? (before?.block === block ? before.role : null);
    if (isShared(instruction)) {
      // A constant of several blocks belongs to the lines around it.
      if (before && instruction.shares.some(([one]) => one === before.block)) places[line] = before;
      else
        places[line] = place(
          [instruction.shares.map(([one]) => one).join("\n")],
          block,
          role,
          instruction.shares.length - 1,
        );
      continue;
    }
    const paths = getOrCreate(alone, block, () => lineage(block).reverse());
    places[line] = place(paths, block, role, 0);
  }
  for (let line = text.lineCount - 1; line >= 1; line--) {
    const [one, next] = [places[line], places[line + 1]];
    if (one && next && one.role === null && one.block === next.block && !one.others && !next.others)
      places[line] = next;
  }
  return places;
}

function isShared({ shares }: Instruction) {
  return shares.length > 1 && shares.every(([, share]) => share < 0.5);
}

/** Add the runs of lines with the same block and role, and those of the blocks inside it. */
function blockRuns(places: readonly (LinePlace | null)[], from: number, to: number, depth: number, found: FoldRange[]) {
  for (let start = from; start <= to; start++) {
    const first = places[start];
    const path = first?.paths[depth];
    if (!first || path === undefined) continue;
    let end = start;
    // The depth of the innermost block around all lines. The run is named after this block.
    let common = first.paths.length;
    for (; end <= to; end++) {
      const place = places[end];
      if (!place || place.role !== first.role || place.paths[depth] !== path) break;
      if (place === first) continue;
      let same = depth + 1;
      while (same < common && place.paths[same] === first.paths[same]) same++;
      common = Math.min(common, same);
    }
    end--;
    if (end - start + 1 >= LEAST_LINES) {
      found.push(
        part("block", start, end, {
          block: first.others ? first.block : first.paths[common - 1]!,
          role: first.role,
          others: first.others,
        }),
      );
      blockRuns(places, start, end, common, found);
    }
    start = end;
  }
}

/** Return the runs of at least two lines that have no share in the given blocks. */
export function rangesOutside(text: StageText, blocks: readonly string[]): FoldRange[] {
  const wanted = (path: string) => blocks.some((block) => isWithin(path, block));
  const kept = new Map<unknown, boolean>();
  const found: FoldRange[] = [];
  let start = 1;
  for (let line = 1; line <= text.lineCount + 1; line++) {
    const instruction = text.at(line);
    let isKept = line > text.lineCount;
    if (instruction) {
      const known = kept.get(instruction.shares);
      isKept = known ?? instruction.shares.some(([block]) => wanted(block));
      if (known === undefined) kept.set(instruction.shares, isKept);
    }
    if (!isKept) continue;
    if (line - start > 1) found.push(part("other", start, line - 1));
    start = line + 1;
  }
  return found;
}

/** A block in the outline of a stage. */
export interface OutlineItem {
  path: string;
  depth: number;
  /** First line of the block, and the number of its lines. */
  line: number;
  lines: number;
}

/** Return the blocks of a stage in the order of their first lines, each below the block around it. */
export function outlineOf(text: StageText): OutlineItem[] {
  if (text.stage === "python") return [];
  const items = new Map<string, OutlineItem & { inside: OutlineItem[] }>();
  const top: OutlineItem[] = [];
  placesOf(text).forEach((place, line) => {
    if (!place || place.others || text.at(line)?.opcode === "parameter") return;
    place.paths.forEach((path, depth) => {
      const item = getOrCreate(items, path, () => {
        const first = { path, depth, line, lines: 0, inside: [] };
        (depth ? items.get(place.paths[depth - 1]!)!.inside : top).push(first);
        return first;
      });
      item.lines++;
    });
  });
  const flat = (list: readonly OutlineItem[]): OutlineItem[] =>
    list.flatMap((item) => [item, ...flat((item as OutlineItem & { inside: OutlineItem[] }).inside)]);
  return flat(top);
}

/** Return the path and role of the block of a line, or null. */
export function blockAt(text: StageText, line: number): { block: string; role: Role | null } | null {
  const instruction = text.at(line);
  const block = instruction && text.mainBlock(instruction);
  return block ? { block, role: instruction.role } : null;
}
