import { describe, expect, test } from "vitest";
import fixture from "../fixtures/mlp.json";
import {
  type Column,
  atLeast,
  costColumns,
  linesOf,
  notesOf,
  shareOf,
  shownSources,
  sortLines,
  toCsv,
  totalLine,
  totalOf,
} from "../src/costs/figures";
import { pathOfKey, themed } from "../src/costs/picture";
import { changeOf } from "../src/costs/what-if";
import { describeCost } from "../src/editor/inspector";
import { COUNTED } from "../src/kernel/contract";
import type { CostTableData, CostTableRow, Figure, Source } from "../src/kernel/contract";
import type { Snapshot } from "../src/kernel/model";
import { ZEROS, sceneOf } from "./scene";

const cost = (fixture.snapshot as unknown as Snapshot).cost!;

describe("costs", () => {
  const empty: CostTableRow = {
    block: "a",
    label: "a",
    hue: 0,
    ...ZEROS,
    roles: {},
    unknown: {},
  };
  const of = (source: Source, rows: Partial<CostTableRow>[], total: Partial<CostTableRow> = {}): CostTableData => ({
    source,
    rows: rows.map((row) => ({ ...empty, ...row })),
    total: { ...empty, ...total },
    lines: {},
    notes: [],
    stale: false,
  });
  const named = (costs: CostTableData[], key: string, figure: Figure = "flops"): Column =>
    costColumns(costs, figure).find((column) => column.key === key)!;

  test("sort by number and by name, stably, unknown values last", () => {
    const lines = linesOf([
      of("analytic", [
        { block: "b", flops: 1 },
        { block: "a10", flops: null },
        { block: "a9", flops: 7 },
      ]),
    ]);
    const column = named([of("analytic", [])], "flops");
    expect(sortLines(lines, column, -1).map((line) => line.block)).toEqual(["a9", "b", "a10"]);
    expect(sortLines(lines, column, 1).map((line) => line.block)).toEqual(["b", "a9", "a10"]);
    expect(sortLines(lines, null, 1).map((line) => line.block)).toEqual(["a9", "a10", "b"]);
  });
  test("have all figures of one source, or one figure of several", () => {
    expect(costColumns([cost], "flops").map(({ key }) => key)).toEqual([
      ...COUNTED,
      "params",
      "share",
      "total_flops",
      "total_share",
      "forward",
      "backward",
      "update",
    ]);
    expect(costColumns([cost], "params").map(({ key }) => key)).toEqual([
      ...COUNTED,
      "params",
      "share",
      "total_params",
      "total_share",
    ]);
    expect(costColumns([cost, of("measured", [])], "time_s").map(({ key }) => key)).toEqual([
      "analytic",
      "measured",
      "share",
      "total_time_s",
      "total_share",
    ]);
    expect(costColumns([of("measured", [])], "flops").map(({ key }) => key)).toContain("time_s");
    const lines = linesOf([
      of("analytic", [{ block: "a" }]),
      of("compiled", [{ block: "c" }, { block: "a", flops: 5 }]),
    ]);
    expect(lines.map(({ block, by }) => [block, Object.keys(by), by.compiled?.flops])).toEqual([
      ["a", ["analytic", "compiled"], 5],
      ["c", ["compiled", "analytic"], 0],
    ]);
    expect(lines[1]!.by.analytic).toMatchObject({ flops: 0, params: 0, time_s: null });
  });
  test("leave out unknown parameters unless they are selected", () => {
    const open: CostTableData = {
      ...of("analytic", [{ params: null }], { params: null }),
      notes: [
        "params: none is called so",
        "unattributed params: w, because 2 blocks share it: head and tokens",
        "flops of 1 × sort",
      ],
    };
    expect(costColumns([open], "flops").map(({ key }) => key)).toEqual([...COUNTED, "share"]);
    expect(notesOf(open, "flops")).toEqual(open.notes.slice(1));
    expect(costColumns([open], "params").map(({ key }) => key)).toContain("params");
    expect(notesOf(open, "params")).toEqual(open.notes);
    const named: CostTableData = { ...open, total: { ...open.total, formulas: { params: ["B", "B"] } } };
    expect(costColumns([named], "flops").map(({ key }) => key)).toContain("params");
    expect(notesOf({ ...open, total: { ...open.total, params: 3 } }, "flops")).toEqual(open.notes);
  });
  test("have bars split by role", () => {
    const both = of("analytic", [{ flops: 10, roles: { forward: { flops: 3 }, update: { flops: 4 } } }]);
    expect(named([both], "flops").bar!(linesOf([both])[0]!)).toEqual([
      ["forward", 3],
      ["update", 4],
      ["", 3],
    ]);
    expect(named([both], "bytes_accessed").bar!(linesOf([both])[0]!)).toEqual([]);
  });
  test("add up over roles and blocks in a real program", () => {
    const total = (figure: Figure): number => cost.rows.reduce((sum, row) => sum + (row[figure] ?? 0), 0);
    for (const figure of [...COUNTED, "params"] as const) expect(total(figure)).toBe(cost.total[figure]);
    for (const row of cost.rows)
      expect(
        (["forward", "backward", "update"] as const).reduce((sum, role) => sum + (row.roles?.[role]?.flops ?? 0), 0),
      ).toBe(row.flops);
  });
  test("as CSV are exact, quoted and end with the total", () => {
    const lines = toCsv(
      [
        of("analytic", [{ block: 'a "b", c', flops: 1234567, bytes_accessed: null }, { block: "" }], {
          flops: 1234567,
        }),
      ],
      "flops",
    )
      .trim()
      .split("\n");
    expect(lines).toEqual([
      ["block", ...COUNTED, "params", "share"].join(","),
      '"a ""b"", c",1234567,,0,0,1',
      "(unattributed),0,0,0,0,0",
      "total,1234567,0,0,0,1",
    ]);
    expect(toCsv([of("lowered", []), of("compiled", [])], "bytes_accessed").split("\n")[0]).toBe(
      "block,lowered bytes_accessed,compiled bytes_accessed,share",
    );
  });
  test("are formulas for symbolic sizes", () => {
    const formulas = { flops: ["24·batch·width² + …", "24·batch·width² + 9·batch·width"] as [string, string] };
    const roles = { forward: { flops: 3 }, update: { flops: 4 } };
    const open = of(
      "analytic",
      [
        { flops: null, formulas },
        { block: "b", roles },
      ],
      { flops: null, formulas },
    );
    const [line] = linesOf([open]);
    expect(costColumns([open], "flops").map(({ key }) => key)).toEqual([...COUNTED, "params"]);
    expect([named([open], "flops").texts(line!)[0], named([open], "flops").texts(line!)[1]]).toEqual(formulas.flops);
    expect(named([open], "flops").bar!(line!)).toEqual([]);
    expect(toCsv([open], "flops").split("\n")[1]).toBe("a,24·batch·width² + 9·batch·width,0,0,0");
    expect(describeCost(open.rows[0]!, open.total, "flops")).toEqual(formulas.flops);
  });
  test("have communication columns if the program communicates", () => {
    const keys = (given: CostTableData): string[] => costColumns([given], "flops").map(({ key }) => key);
    expect(keys(of("compiled", [{ flops: 3 }]))).not.toContain("wire_bytes");
    expect(keys(of("compiled", [{ payload_bytes: 0, wire_bytes: 0 }]))).not.toContain("payload_bytes");
    expect(keys(of("compiled", [{ wire_bytes: null }]))).toContain("wire_bytes");
    const sent = of("compiled", [{ payload_bytes: 40, wire_bytes: 60, unknown: { wire_bytes: 1 } }, { block: "b" }], {
      payload_bytes: 40,
      wire_bytes: null,
    });
    expect(keys(sent)).toEqual([...COUNTED, "params", "payload_bytes", "wire_bytes", "share"]);
    const [payload, wire] = [named([sent], "payload_bytes"), named([sent], "wire_bytes")];
    expect([payload.title, wire.title]).toEqual(["Payload bytes", "Wire bytes"]);
    const [first, second] = linesOf([sent]);
    expect([first!, second!, totalLine([sent])].map((line) => [payload.texts(line)[0], wire.texts(line)[0]])).toEqual([
      ["40 B", "≥ 60 B"],
      ["0", "0"],
      ["40 B", "–"],
    ]);
    expect(
      toCsv([sent], "flops")
        .trim()
        .split("\n")
        .map((row) => row.split(",").slice(5, 7)),
    ).toEqual([
      ["payload_bytes", "wire_bytes"],
      ["40", "60"],
      ["0", "0"],
      ["40", ""],
    ]);
  });
  test("are lower bounds if some are unknown", () => {
    const row = { ...empty, unknown: { flops: 1 } };
    expect([atLeast(row, "flops", 5), atLeast(row, "flops", 0), atLeast(row, "bytes_accessed", 5)]).toEqual([
      "≥ ",
      "",
      "",
    ]);
    const total = { ...empty, flops: 100, unknown: { flops: 2 } };
    expect(shareOf({ ...empty, flops: 50 }, total, "flops")).toEqual([0.5, "≤ "]);
    expect(shareOf({ ...empty, flops: 50, unknown: { flops: 2 } }, total, "flops")).toEqual([0.5, "≥ "]);
    expect(shareOf({ ...empty, flops: 50, unknown: { flops: 1 } }, total, "flops")).toEqual([null, ""]);
    expect(shareOf({ ...empty, flops: null }, total, "flops")).toEqual([null, ""]);
    expect(shareOf(empty, total, "flops")).toEqual([0, ""]);
    expect(shareOf(empty, empty, "flops")).toEqual([0, ""]);
    expect(shareOf({ ...empty, flops: 50 }, { ...empty, flops: 200 }, "flops")).toEqual([0.25, ""]);
  });
  test("of a group are named by convention", () => {
    const group = cost.rows.find((row) => row.block === "mlp_0")!;
    const inner = cost.rows.filter((row) => row.block.startsWith("mlp_0/"));
    expect(totalOf(group).flops).toBe(inner.reduce((sum, row) => sum + row.flops!, group.flops!));
    const line = linesOf([cost]).find(({ block }) => block === "mlp_0")!;
    expect(
      costColumns([cost], "flops")
        .slice(0, 7)
        .map(({ title }) => title),
    ).toEqual([
      "own FLOPs",
      "own bytes",
      "own transcendentals",
      "own params",
      "own share of FLOPs",
      "FLOPs, with inner blocks",
      "Share of FLOPs, with inner blocks",
    ]);
    expect(named([cost], "share").value(line)).toBe(0);
    const share = sceneOf(fixture.snapshot as unknown as Snapshot).nodes.find(({ path }) => path === "mlp_0")!.share!;
    expect(named([cost], "total_share").value(line)).toBeCloseTo(share, 12);
    expect(named([cost], "total_flops").value(line)).toBe(totalOf(group).flops);
    const words = describeCost(totalOf(group), cost.total, "flops")[0];
    expect(words).toBe(
      `${named([cost], "total_flops").texts(line)[0]} · ${named([cost], "total_share").texts(line)[0]}`,
    );
    const [head, ...rows] = toCsv([cost], "flops")
      .trim()
      .split("\n")
      .map((row) => row.split(","));
    const at = head!.indexOf("share");
    expect(rows.slice(0, -1).reduce((sum, row) => sum + Number(row[at]), 0)).toBeCloseTo(1, 12);
  });
  test("show the latest selected sources that fit the view", () => {
    expect(shownSources("table", ["compiled", "analytic"])).toEqual(["analytic", "compiled"]);
    expect(shownSources("treemap", ["compiled", "analytic"])).toEqual(["analytic"]);
    expect(shownSources("beside", ["analytic"])).toEqual(["analytic", "compiled"]);
    expect(shownSources("beside", ["compiled"])).toEqual(["lowered", "compiled"]);
    expect(shownSources("beside", ["measured", "analytic", "lowered"])).toEqual(["analytic", "lowered"]);
  });
  test("change by a factor or a percentage", () => {
    expect([
      changeOf(10, 20),
      changeOf(10, 11),
      changeOf(10, 9),
      changeOf(10, 5),
      changeOf(10, 10),
      changeOf(0, 5),
      changeOf(null, 5),
    ]).toEqual(["×2", "+10.0 %", "−10.0 %", "×0.5", "same", "new", "–"]);
  });
});

describe("pictures of costs", () => {
  const css = ".a{fill:red}@media (prefers-color-scheme:dark){.a{fill:blue}[data-x] .a{fill:green}}.b{fill:white}";
  test("follow the theme of the page", () => {
    expect(themed(css, "light")).toBe(".a{fill:red}.b{fill:white}");
    expect(themed(css, "dark")).toBe(".a{fill:red}.a{fill:blue}[data-x] .a{fill:green}.b{fill:white}");
    expect(themed("@media (prefers-color-scheme: dark) {.a{}", "light")).toBe("");
  });
  test("decode block names", () =>
    expect([pathOfKey("a%20b/c"), pathOfKey("100%"), pathOfKey("(loss)"), pathOfKey("%E0")]).toEqual([
      "a b/c",
      "100%",
      "(loss)",
      "%E0",
    ]));
});
