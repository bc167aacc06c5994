/** Foldable parts of a stage, and the rows that remain. */

import { describe, expect, test } from "vitest";
import { type FoldRange, foldRanges, isFoldedAtFirst, outlineOf, rangesOutside } from "../src/code/fold-ranges";
import { Folds, foldLabel } from "../src/code/folds";
import { costTexts, foldFigure } from "../src/stages/fold-costs";
import type { CostTableData, CostTableRow, Role } from "../src/kernel/contract";
import { ZEROS } from "./scene";
import type { RawInstruction } from "../src/kernel/messages";
import { StageText } from "../src/store/links";

type Line = [content: string, opcode?: string, shares?: [string, number][], role?: Role | null];

function textOf(lines: readonly Line[], stage = "jaxpr"): StageText {
  const instructions = lines.flatMap(([, opcode, shares = [], role = "forward"], i): RawInstruction[] =>
    opcode ? [[i + 1, 1, opcode, [], shares, role, null]] : [],
  );
  return new StageText(stage, 1, lines.map(([content]) => content).join("\n"), { instructions, equations: {} });
}

const of = (block: string, role: Role | null = "forward"): Line => [`  x = add`, "add", [[block, 1]], role];
const parameter = (block = ""): Line => ["  a:f32[3]", "parameter", block ? [[block, 1]] : [], null];
const many = (count: number, line: Line): Line[] => Array<Line>(count).fill(line);
const shown = (ranges: readonly FoldRange[]): string[] =>
  ranges.map(({ kind, from, to, block }) => `${kind} ${from}-${to} ${block}`.trimEnd());
const NO_COST = (): string => "";

/** Return a generator of numbers 0..1 that repeats for a seed. */
function random(seed: number): () => number {
  return () => (seed = (seed * 16807) % 2147483647) / 2147483647;
}

describe("the foldable parts", () => {
  test("are signatures and nested blocks", () => {
    const text = textOf([
      ["{ lambda"],
      ...many(9, parameter("enc/0")),
      ["  let"],
      ...many(3, of("enc/0/attn")),
      ...many(4, of("enc/0/mlp")),
      ...many(2, of("enc/1")),
      of("head"),
      ["  in () }"],
    ]);
    expect(shown(foldRanges(text))).toEqual([
      "signature 2-10",
      "block 12-20 enc",
      "block 12-18 enc/0",
      "block 12-14 enc/0/attn",
      "block 15-18 enc/0/mlp",
    ]);
    expect(
      foldRanges(text)
        .filter(isFoldedAtFirst)
        .map((range) => foldLabel(range, NO_COST)),
    ).toEqual(["9 parameters"]);
  });

  test("are named by the only block inside, and end where the role changes", () => {
    const text = textOf([
      ...many(3, of("net/body/linear")),
      ...many(3, of("net/body/linear", "backward")),
      ...many(2, of("head")),
      ...many(3, of("net/body/linear")),
    ]);
    expect(foldRanges(text).map((range) => foldLabel(range, NO_COST))).toEqual([
      "net/body/linear, part 1 of 2: 3 lines",
      "net/body/linear · backward: 3 lines",
      "net/body/linear, part 2 of 2: 3 lines",
    ]);
  });

  test("have no role if no line has one, else that of the lines around", () => {
    expect(
      foldRanges(textOf([of("a", null), of("a", "backward"), of("a", null), of("a", "backward")])).map(
        ({ from, to, role }) => [from, to, role],
      ),
    ).toEqual([[1, 4, "backward"]]);
    expect(foldRanges(textOf(many(3, of("a", null)))).map(({ role }) => role)).toEqual([null]);
  });

  test("include shared constants in the lines around them", () => {
    const shared: Line = [
      "  c = constant",
      "constant",
      [
        ["a", 0.34],
        ["b", 0.33],
        ["c", 0.33],
      ],
    ];
    expect(shown(foldRanges(textOf([...many(2, of("b")), shared, of("b")])))).toEqual(["block 1-4 b"]);
    const alone = foldRanges(textOf(many(3, shared)));
    expect(alone.map((range) => foldLabel(range, () => "never shown"))).toEqual(["a and 2 more: 3 lines"]);
  });

  test("are whole computations, and argument lists in one line", () => {
    const args = Array.from({ length: 30 }, (_, i) => `p${i}: (f32[1,2], s32[])`).join(", ");
    const text = textOf(
      [
        ["HloModule m"],
        [`ENTRY %main (${args}) -> (f32[], f32[]) {`],
        ...many(3, of("a")),
        ["}"],
        [""],
        ["%fused (p: f32[2]) -> f32[2] {"],
        ...many(4, of("b", "update")),
        ["}"],
      ],
      "hlo",
    );
    const ranges = foldRanges(text);
    expect(ranges.map((range) => foldLabel(range, NO_COST))).toEqual([
      "30 parameters",
      "a: 3 lines",
      "fused: 6 lines, b · update",
      "b · update: 4 lines",
    ]);
    expect(text.text.split("\n")[1]!.slice(...ranges[0]!.span!)).toBe(args);
    const main =
      `  func.func public @main(%arg0: tensor<4xf32> {loc = "a, (b"}, %arg1: tensor<8x8xf32>, %arg2: ` +
      `tensor<8x8xf32>) -> (tensor<4xf32> {jax.result_info = "result[0]"}, tensor<f32> {jax.result_info = ` +
      `"result[1]"}) {`;
    expect(
      foldRanges(textOf([[main], ...many(2, of("a")), ["  }"]], "stablehlo")).map((range) => foldLabel(range, NO_COST)),
    ).toEqual(["3 parameters", "2 results"]);
    expect(
      foldRanges(textOf([[`def f (${args}):`], ...many(5, of("a"))], "python")),
      "lines of Python belong to several blocks",
    ).toEqual([]);
  });

  test("nest, are long enough, and have one block, for random programs", () => {
    for (let seed = 1; seed <= 25; seed++) {
      const next = random(seed * 7919);
      const paths = ["", "a", "a/x", "a/x/q", "a/y", "b", "b/x"];
      const lines: Line[] = [];
      while (lines.length < 90) {
        const kind = next();
        const block = paths[Math.floor(next() * paths.length)]!;
        const role = ([null, "forward", "backward", "update"] as const)[Math.floor(next() * 4)]!;
        const count = 1 + Math.floor(next() * 6);
        if (kind < 0.1) lines.push([""]);
        else if (kind < 0.2) lines.push(...many(count, parameter(block)));
        else if (kind < 0.3)
          lines.push([`%c${lines.length} (a: f32[]) -> f32[] {`], ...many(count, of(block, role)), ["}"]);
        else if (kind < 0.4)
          lines.push(
            ...many(count, [
              "  c",
              "constant",
              [
                ["a/x", 0.4],
                ["b", 0.35],
                ["a", 0.25],
              ],
              role,
            ]),
          );
        else lines.push(...many(count, block ? of(block, role) : ["  free", "add"]));
      }
      const text = textOf(lines, "hlo");
      const ranges = foldRanges(text);
      for (const [i, one] of ranges.entries()) {
        expect(one.to - one.from, `seed ${seed}`).toBeGreaterThan(0);
        expect(one.from >= 1 && one.to <= text.lineCount).toBe(true);
        for (const other of ranges.slice(i + 1)) {
          expect(other.from >= one.from, `sorted, seed ${seed}`).toBe(true);
          expect(other.from > one.to || other.to <= one.to, `nested or disjoint, seed ${seed}`).toBe(true);
        }
        if (one.kind !== "block" || one.others) continue;
        for (let line = one.from; line <= one.to; line++) {
          const blocks = text.at(line)!.shares.map(([block]) => block);
          expect(
            blocks.some((block) => block === one.block || block.startsWith(`${one.block}/`)),
            `seed ${seed}, line ${line} of ${one.block}`,
          ).toBe(true);
          const { role } = text.at(line)!;
          if (blocks.length === 1 && role) expect(role).toBe(one.role);
        }
      }
      checkRows(new Folds(ranges, new Set(ranges.filter(() => next() < 0.5))), text.lineCount);
      const only = rangesOutside(text, ["a/x"]);
      checkRows(new Folds(only, new Set(only)), text.lineCount);
    }
  });
});

/** Each line is in one row, rows are in order, and a row starts at the line that it names. */
function checkRows(folds: Folds, lineCount: number): void {
  let row = 0;
  for (let line = 1; line <= lineCount; line++) {
    const hidden = folds.hiddenAt(line);
    if (!hidden || hidden.from === line) row++;
    expect(folds.rowOf(line)).toBe(row);
    if (!hidden || hidden.from === line) expect(folds.lineOf(row)).toBe(line);
    expect(folds.show(line).hiddenAt(line)).toBe(null);
  }
  expect(folds.rowCount(lineCount)).toBe(row);
}

describe("folding", () => {
  const text = textOf([
    ["{ lambda"],
    ...many(12, parameter()),
    ["  let"],
    ...many(3, of("a/x")),
    ...many(3, of("a/y")),
    ...many(3, of("b")),
  ]);
  const [signature, a, x] = foldRanges(text) as [FoldRange, FoldRange, FoldRange];

  test("starts with long signatures, and keeps the user's choice for the next text", () => {
    const first = Folds.NONE.carriedTo(foldRanges(text));
    expect(first.hidden).toEqual([signature]);
    const chosen = first.toggle(first.ranges[0]!).toggle(first.ranges[1]!);
    const longer = textOf([
      ["{ lambda"],
      ...many(13, parameter()),
      ["  let"],
      of("new"),
      ...many(4, of("a/x")),
      ...many(3, of("a/y")),
    ]);
    expect(shown(chosen.carriedTo(foldRanges(longer)).hidden)).toEqual(["block 17-23 a"]);
  });

  test("folds and unfolds from the inside out", () => {
    const none = new Folds(foldRanges(text), new Set());
    expect(none.around(15).map(({ block }) => block)).toEqual(["a/x", "a"]);
    expect([none.startsAt(15)!.block, none.startsAt(16)]).toEqual(["a", null]);
    const all = none.foldAll();
    expect([all.isAllFolded, all.rowCount(text.lineCount), none.isAllFolded]).toEqual([true, 5, false]);
    expect(shown(all.toggle(all.hiddenAt(16)!).hidden), "the blocks inside stay folded").toEqual([
      "signature 2-13",
      "block 15-17 a/x",
      "block 18-20 a/y",
      "block 21-23 b",
    ]);
    expect(all.unfoldAll().hidden).toEqual([]);
    expect([a.block, x.block]).toEqual(["a", "a/x"]);
  });

  test("shows only the lines of a block", () => {
    expect(rangesOutside(text, ["a/x"]).map((range) => foldLabel(range, NO_COST))).toEqual([
      "14 lines of other blocks",
      "6 lines of other blocks",
    ]);
    expect(shown(rangesOutside(text, ["a"]))).toEqual(["other 1-14", "other 21-23"]);
  });
});

test("the outline lists each block once, below its group", () => {
  const text = textOf([...many(2, parameter("z")), of("a/x"), of("b"), ...many(2, of("a/y")), of("a")]);
  expect(outlineOf(text).map(({ path, depth, line, lines }) => [path, depth, line, lines])).toEqual([
    ["a", 0, 3, 4],
    ["a/x", 1, 3, 1],
    ["a/y", 1, 5, 2],
    ["b", 0, 4, 1],
  ]);
});

describe("the cost of a folded block", () => {
  const row = (block: string, flops: number | null, more: Partial<CostTableRow> = {}): CostTableRow => ({
    block,
    label: block,
    hue: 0,
    ...ZEROS,
    flops,
    params: null,
    ...more,
  });
  const cost = (rows: CostTableRow[], total: CostTableRow): CostTableData => ({
    source: "analytic",
    rows,
    total,
    lines: {},
    notes: [],
    stale: false,
  });
  const rows = [
    row("a", 2e6, { roles: { forward: { flops: 2e6 } } }),
    row("a/x", 12e6, { roles: { forward: { flops: 4e6 }, backward: { flops: 8e6 } } }),
    row("ab", 86e6),
  ];
  const known = costTexts(cost(rows, row("", 100e6)), "flops");

  test("includes inner blocks, in one role or all", () => {
    expect([
      known("a", "forward"),
      known("a", "backward"),
      known("a", null),
      known("a/x", "update"),
      known("ab", "forward"),
    ]).toEqual(["6.00 MFLOP, 6.0 %", "8.00 MFLOP, 8.0 %", "14.0 MFLOP, 14.0 %", "0 FLOP, 0 %", "86.0 MFLOP, 86.0 %"]);
  });
  test("stays unknown where it is unknown", () => {
    const some = costTexts(
      cost(
        [row("a", null, { unknown: { flops: 2 } }), row("b", 50, { unknown: { flops: 1 } })],
        row("", 100, { unknown: { flops: 3 } }),
      ),
      "flops",
    );
    expect([some("a", null), some("b", null), some("c", null), costTexts(null, "flops")("a", null)]).toEqual([
      "cost unknown",
      "≥ 50 FLOP",
      "",
      "",
    ]);
    const formula = costTexts(
      cost(
        [row("a", null, { formulas: { flops: ["2·B", "2*B"] } })],
        row("", null, { formulas: { flops: ["3·B", "3*B"] } }),
      ),
      "flops",
    );
    expect(formula("a", "forward")).toBe("2·B FLOP");
  });
  test("uses the figure of the Cost tab if it has parts by role", () => {
    const measured = cost([], row("", null, { time_s: 1 }));
    expect([
      foldFigure(cost(rows, row("", 1)), "bytes_accessed"),
      foldFigure(cost(rows, row("", 1)), "params"),
      foldFigure(cost(rows, row("", 1)), "time_s"),
      foldFigure(measured, "flops"),
      foldFigure(null, "flops"),
    ]).toEqual(["bytes_accessed", "flops", "flops", "time_s", "flops"]);
  });
});
