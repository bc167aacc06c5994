// @vitest-environment node
import { describe, expect, test, vi } from "vitest";
import fixture from "../fixtures/mlp.json";
import {
  type Anchor,
  StageText,
  UNATTRIBUTED,
  anchorId,
  blocksOf,
  lineage,
  linksOf,
  selectionOf,
  withAnchors,
} from "../src/store/links";
import type { RawStage } from "../src/kernel/messages";

const stages = new Map(
  Object.entries(fixture.stages as unknown as Record<string, RawStage>).map(([name, raw]) => [
    name,
    new StageText(name, 7, raw.text, raw),
  ]),
);

function small(instructions: unknown[], text = "a\nb\nc\nd\ne"): StageText {
  return new StageText("jaxpr", 1, text, { instructions: instructions as RawStage["instructions"], equations: {} });
}

describe("lineage", () => {
  test("names the groups around a block, innermost first", () => {
    expect(lineage("a/b/c")).toEqual(["a/b/c", "a/b", "a"]);
    expect(lineage("a")).toEqual(["a"]);
  });
});

describe("the instruction on a line", () => {
  const text = small([
    [2, 3, "while", ["0"], [["a", 1]], null, "tagged"],
    [3, 1, "add", ["0.0"], [["b", 1]], null, "tagged"],
  ]);
  test("is the innermost", () => expect(text.at(3)?.opcode).toBe("add"));
  test("is the outer one around it", () => {
    expect(text.at(2)?.opcode).toBe("while");
    expect(text.at(4)?.opcode).toBe("while");
  });
  test("is null elsewhere and past both ends", () => {
    for (const line of [0, 1, 5, 99, -1]) expect(text.at(line)).toBeNull();
  });
  test("has help for parts of its line", () => {
    const layouts = new StageText("hlo", 1, "%a\n%b = f32[8]{0:T(8,128)S(1)} copy(%a), T(8,128)", {
      instructions: [[2, 1, "copy", [], [], null, null]],
      equations: {},
      patterns: [
        ["T\\((\\d+),(\\d+)\\)", "tiles of $1 × $2"],
        ["S\\(1\\)", "in VMEM"],
        ["S\\(5\\)", "in the memory of the host"],
      ],
    });
    expect(layouts.lineHelp(0)).toEqual(["tiles of 8 × 128", "in VMEM"]);
    expect(text.lineHelp(0)).toEqual([]);
  });
  test("has the block with the largest share as main block", () => {
    const shared = small([
      [
        1,
        1,
        "fusion",
        [],
        [
          ["a", 0.3],
          ["b", 0.7],
        ],
        null,
        "inferred",
      ],
    ]);
    expect(shared.mainBlock(shared.at(1)!)).toBe("b");
  });
});

describe("many anchors", () => {
  const paths = Array.from({ length: 2000 }, (_, i) => `block_${i}`);
  const text = small(paths.map((path, i) => [i + 1, 1, "add", [String(i)], [[`${path}/inner`, 1]], null, "tagged"]));
  const anchors = paths.map((path): Anchor => ({ kind: "block", path }));

  test("are linked without a comparison of each with all", () => {
    const compare = vi.spyOn(String.prototype, "startsWith");
    const found = linksOf(new Map([["jaxpr", text]]), anchors);
    const count = compare.mock.calls.length;
    compare.mockRestore();
    expect(count).toBeLessThan(10 * paths.length);
    expect([...found.blocks].sort()).toEqual([...paths, ...paths.map((path) => `${path}/inner`)].sort());
  });
  test("are added, and removed if all are pinned", () => {
    const some = anchors.slice(0, 3);
    expect(withAnchors(some.slice(0, 2), some)).toEqual(some);
    expect(withAnchors(some, some.slice(1))).toEqual([some[0]]);
    const others: Anchor[] = [
      { kind: "equations", name: "a", ids: [] },
      { kind: "instruction", stage: "a", version: 1, index: 2 },
      { kind: "block", path: "a" },
    ];
    expect(new Set(others.map(anchorId)).size).toBe(3);
  });
});

describe("links", () => {
  test("a block links to its own and inner instructions", () => {
    const text = small([
      [1, 1, "x", [], [["mlp", 1]], null, "tagged"],
      [2, 1, "x", [], [["mlp/linear", 1]], null, "tagged"],
      [3, 1, "x", [], [["mlp_0", 1]], null, "tagged"],
      [
        4,
        1,
        "x",
        [],
        [
          ["linear", 0.5],
          ["mlp/linear", 0.5],
        ],
        null,
        "tagged",
      ],
    ]);
    const lit = (path: string): number[] => [
      ...(linksOf(new Map([["jaxpr", text]]), [{ kind: "block", path }]).lines.get("jaxpr") ?? []),
    ];
    expect(lit("mlp")).toEqual([0, 1, 3]);
    expect(lit("mlp/linear")).toEqual([1, 3]);
    expect(lit("nothing")).toEqual([]);
  });

  test("an instruction links to other stages by its equations", () => {
    const jaxpr = stages.get("jaxpr")!;
    const dot = jaxpr.instructions.find((instruction) => instruction.opcode === "dot_general")!;
    const links = linksOf(stages, [{ kind: "instruction", stage: "jaxpr", version: 7, index: dot.index }]);
    expect([...links.lines.get("jaxpr")!]).toEqual([dot.index]);
    const stablehlo = stages.get("stablehlo")!;
    const lit = [...links.lines.get("stablehlo")!].map((index) => stablehlo.instructions[index]!);
    expect(lit.length).toBeGreaterThan(0);
    expect(lit.every((instruction) => instruction.equations.some((id) => dot.equations.includes(id)))).toBe(true);
    expect(lit.some((instruction) => instruction.opcode.includes("dot_general"))).toBe(true);
    expect(links.blocks.has("linear_0")).toBe(true);
  });

  test("are symmetric between blocks and instructions", () => {
    const paths = new Set([...stages.values()].flatMap((text) => text.instructions.flatMap(blocksOf)));
    expect(paths.size).toBeGreaterThan(6);
    for (const path of paths) {
      const fromBlock = linksOf(stages, [{ kind: "block", path }]);
      for (const [name, text] of stages) {
        const lit = fromBlock.lines.get(name)!;
        for (const instruction of text.instructions)
          expect(lit.has(instruction.index)).toBe(blocksOf(instruction).includes(path));
      }
    }
  });

  test("are symmetric between instructions of two stages", () => {
    const anchor = (stage: string, index: number): Anchor => ({ kind: "instruction", stage, version: 7, index });
    let pairs = 0;
    for (const [from, to] of [
      ["jaxpr", "stablehlo"],
      ["stablehlo", "hlo"],
      ["hlo", "jaxpr"],
    ] as const) {
      for (const { index } of stages.get(from)!.instructions) {
        for (const other of linksOf(stages, [anchor(from, index)]).lines.get(to) ?? []) {
          pairs += 1;
          expect(
            linksOf(stages, [anchor(to, other)])
              .lines.get(from)!
              .has(index),
          ).toBe(true);
        }
      }
    }
    expect(pairs).toBeGreaterThan(500);
  });

  test("of unattributed instructions include no block", () => {
    const links = linksOf(stages, [{ kind: "block", path: UNATTRIBUTED }]);
    for (const [name, lit] of links.lines)
      for (const index of lit) expect(stages.get(name)!.instructions[index]!.shares).toEqual([]);
    expect(selectionOf(stages, [{ kind: "block", path: UNATTRIBUTED }])).toEqual([UNATTRIBUTED]);
  });

  test("of an instruction of an older version are empty", () => {
    const links = linksOf(stages, [{ kind: "instruction", stage: "jaxpr", version: 6, index: 0 }]);
    expect(links.lines.size).toBe(0);
    expect(links.blocks.size).toBe(0);
  });
});
