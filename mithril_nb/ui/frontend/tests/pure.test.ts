// @vitest-environment node
import { describe, expect, test } from "vitest";
import fixture from "../fixtures/mlp.json";
import { numberOf, readInts } from "../src/controls/fields";
import { exact, figure, fromSlider, percent, seconds, short, si, toSlider } from "../src/dom/format";
import { ARRANGEMENTS, snapped } from "../src/editor/arrange";
import { type PortRef, portsOf, connectionProblem, draggedBy, targetsOf, withInnerProblems } from "../src/editor/graph";
import { SceneIndex, component } from "../src/graph/scene";
import { readShape } from "../src/shell/header";
import { RULES, tokens } from "../src/code/tokens";
import { NO_GRAPH } from "../src/layout/data";
import { columnsOf } from "../dev/fake-model";
import { decodeJson, unpackStage } from "../src/kernel/messages";
import { Curves } from "../src/train/curves";
import { nameOf, searchPalette } from "../src/editor/palette";
import { smooth, thin } from "../src/train/plot";
import type { Snapshot } from "../src/kernel/model";
import { gzip } from "../dev/fake-model";
import { sceneOf } from "./scene";

const snapshot = fixture.snapshot as unknown as Snapshot;
const graph = new SceneIndex(sceneOf(snapshot));

describe("numbers", () => {
  test.each([
    [84_200_000, "FLOP", "84.2 MFLOP"],
    [0, "FLOP", "0 FLOP"],
    [null, "B", "–"],
    [999_600, "B", "1.00 MB"],
    [999, "B", "999 B"],
    [1000, "", "1.00 k"],
    [-1500, "B", "-1.50 kB"],
    [NaN, "", "–"],
  ] as const)("%s %s is %s", (value, unit, expected) => expect(si(value, unit)).toBe(expected));
  test.each([
    [0.009, "9.00 ms"],
    [0.31, "310 ms"],
    [2.5, "2.50 s"],
    [75, "1 min 15 s"],
    [3700, "1 h 1 min"],
    [0, "0 s"],
    [null, "–"],
    [2e-6, "2.00 µs"],
    [3e-9, "3.00 ns"],
  ] as const)("%s s is %s", (value, expected) => expect(seconds(value)).toBe(expected));
  test("shares", () =>
    expect([percent(0.431), percent(0), percent(0.0002), percent(null)]).toEqual(["43.1 %", "0 %", "< 0.1 %", "–"]));
  test("shares without decimals are neither 0 nor 100 % unless exact", () =>
    expect([0.996, 0.004, 0.994, 0.01, 1].map((one) => percent(one, 0))).toEqual([
      "> 99 %",
      "< 1 %",
      "99 %",
      "1 %",
      "100 %",
    ]));
  test("exact values have their unit, and unknown is not 0", () =>
    expect([exact(1234567, "FLOP"), exact(null)]).toEqual(["1,234,567 FLOP", "unknown"]));
  test("losses", () =>
    expect([figure(0.41234), figure(1e-5), figure(null), figure(Infinity)]).toEqual(["0.4123", "1.00e-5", "–", "∞"]));
  test("learning rates can be parsed again", () => {
    for (const rate of [1e-3, 3.2e-5, 0.5, 1, 1e-6]) expect(Number(short(rate))).toBe(rate);
  });
  test("a logarithmic slider returns the value it was set to", () => {
    for (const value of [1, 2, 7, 64, 128, 1000, 4096])
      expect(Math.abs(fromSlider(toSlider(value, 1, 4096), 1, 4096, true) - value)).toBeLessThanOrEqual(value * 0.01);
    expect([fromSlider(0, 1, 4096, true), fromSlider(1000, 1, 4096, true), fromSlider(0, 0, 1, false)]).toEqual([
      1, 4096, 0,
    ]);
    expect([toSlider(-3, 0, 1), toSlider(0, 0, 1)]).toEqual([0, 0]);
  });
});

describe("parsed input", () => {
  test("shapes", () => {
    expect(readShape("(32, 64)")).toEqual([32, 64]);
    expect(readShape("batch 64")).toEqual(["batch", 64]);
    expect(readShape("2*n, -1")).toEqual(["2*n", "-1"]);
    expect(readShape(" ")).toEqual([]);
  });
  test("lists of numbers", () => {
    expect(readInts("[256, 64]")).toEqual([256, 64]);
    for (const bad of ["", "a", "1.5"]) expect(readInts(bad)).toBeNull();
  });
});

describe("the graph", () => {
  const ref = (endpoint: string, side: "input" | "output"): PortRef =>
    portsOf(graph.scene, side).find((port) => port.endpoint === endpoint)!;
  test("rejects a cycle and names it", () => {
    expect(connectionProblem(graph, ref("linear_1.output", "output"), ref("linear_0.input", "input"))).toBe(
      "This creates a cycle: linear_0 → gelu_0 → mlp_0 → linear_1 → linear_0.",
    );
  });
  test("rejects self-connections, duplicates and outputs", () => {
    expect(connectionProblem(graph, ref("gelu_0.output", "output"), ref("gelu_0.input", "input"))).toContain(
      "cannot feed itself",
    );
    expect(connectionProblem(graph, ref("linear_0.output", "output"), ref("gelu_0.input", "input"))).toBe(
      "Already connected.",
    );
    expect(connectionProblem(graph, ref("gelu_0.input", "input"), ref("linear_0.output", "output"))).toBe(
      "Connect an output to an input.",
    );
  });
  test("allows connections without a cycle", () =>
    expect(connectionProblem(graph, ref("linear_0.output", "output"), ref("linear_1.input", "input"))).toBeNull());
  test("offers the targets that have no problem, and those that are connected", () => {
    for (const source of portsOf(graph.scene, "output")) {
      const found = new Map(targetsOf(graph, source).map(({ target, connected }) => [target.endpoint, connected]));
      for (const target of portsOf(graph.scene, "input")) {
        const problem = connectionProblem(graph, source, target);
        expect(found.get(target.endpoint)).toBe(
          problem === null ? false : problem === "Already connected." ? true : undefined,
        );
      }
    }
  });
  test("escapes names in endpoints as the kernel does", () =>
    expect([component("a/b.c"), component("x (1)"), component("%")]).toEqual(["a%2Fb%2Ec", "x %281%29", "%25"]));
  test("shows a problem inside a closed group on the group and its edge", () => {
    const problem = {
      code: "ShapeError",
      summary: "",
      facts: [],
      advice: "",
      block: "mlp_0/linear_0",
      port: "",
      edge: ["gelu_0.output", "mlp_0/linear_0.input"] as [string, string],
    };
    const marked = withInnerProblems(graph, [problem]);
    expect(marked.nodes.filter((node) => node.problem === 0).map((node) => node.path)).toEqual(["mlp_0"]);
    expect(marked.edges.filter((edge) => edge.problem === 0).map((edge) => edge.id)).toEqual([
      "gelu_0.output -> mlp_0.input",
    ]);
  });
  test("a dragged block moves, and its edges become curves", () => {
    const node = graph.node("gelu_0")!;
    const { nodes, lines } = draggedBy(graph, new Set([node.key]), 10, -5);
    expect([...nodes]).toEqual([["gelu_0", { x: node.x + 10, y: node.y - 5, w: node.w, h: node.h }]]);
    expect([...lines.keys()]).toEqual(["linear_0.output -> gelu_0.input", "gelu_0.output -> mlp_0.input"]);
    expect([...lines.values()].map((line) => [line.curve, line.points.length])).toEqual([
      [true, 4],
      [true, 4],
    ]);
  });
  test("a dragged group takes its repeated parts along, and edges end at closed ones", () => {
    const names = ["g", "repeat:g/a", "g/a", "repeat:g/b", "x"];
    const boxes = {
      key: names,
      name: names,
      kind: names,
      path: ["g", "", "g/a", "", "x"],
      parent: [-1, 0, 1, 0, -1],
      is_group: [true, true, false, true, false],
      w: names.map(() => 90),
      h: names.map(() => 40),
      inputs: [["i"], [], ["i"], [], ["i"]],
      outputs: [["o"], [], ["o"], [], ["o"]],
    };
    const flows = { source: [2, 0, 3], target: [3, 2, 0], out: ["o", "i", ""], into: ["", "i", "o"] };
    const index = new SceneIndex(
      sceneOf({ graph: { ...NO_GRAPH, boxes, flows, opened: ["g", "repeat:g/a"] } } as unknown as Snapshot),
    );
    const node = index.node("g")!;
    const { nodes } = draggedBy(index, new Set([node.key]), 10, 0);
    expect([...nodes.keys()]).toEqual(["g", "repeat:g/a", "g/a", "repeat:g/b"]);
    const ids = [...draggedBy(index, new Set(["g/a"]), 0, 0).lines.keys()];
    expect(ids).toContainEqual(expect.stringMatching(/^g\/a\.o -> repeat:g\/b in /));
  });
});

describe("tokens", () => {
  const named = (language: string, line: string): string[] =>
    tokens(RULES[language]!, line).map((token) => `${token.name}:${line.slice(token.from, token.to)}`);
  test("of a jaxpr", () => {
    expect(named("jaxpr", "    ac:f32[32,128] = dot_general[preferred=float32] a b  # note")).toEqual([
      "value:ac",
      "type:f32[32,128]",
      "punctuation:=",
      "op:dot_general",
      "name:preferred",
      "punctuation:=",
      "op:float32",
      "value:a",
      "value:b",
      "comment:# note",
    ]);
  });
  test("of StableHLO", () => {
    const line = "%0 = stablehlo.add %arg0, %cst : tensor<32x128xf32>";
    expect(named("mlir", line)).toEqual([
      "value:%0",
      "punctuation:=",
      "op:stablehlo.add",
      "value:%arg0",
      "value:%cst",
      "punctuation::",
      "type:tensor<32x128xf32>",
    ]);
  });
  test("of HLO", () => {
    expect(named("hlo", "  ROOT %dot.3 = f32[32,10]{1,0} dot(%a, %b), lhs_contracting_dims={1}")).toEqual([
      "meta:ROOT",
      "value:%dot.3",
      "punctuation:=",
      "type:f32[32,10]{1,0}",
      "op:dot",
      "value:%a",
      "value:%b",
      "name:lhs_contracting_dims",
      "punctuation:=",
      "punctuation:{",
      "number:1",
      "punctuation:}",
    ]);
  });
  test("never overlap and always advance", () => {
    for (const language of Object.keys(RULES)) {
      for (const line of ['"open', "%%%", "", "   ", "é ☃ <script>", "x".repeat(9000)]) {
        let at = 0;
        for (const token of tokens(RULES[language]!, line)) {
          expect(token.from).toBeGreaterThanOrEqual(at);
          expect(token.to).toBeGreaterThan(token.from);
          at = token.to;
        }
      }
    }
  });
});

describe("messages", () => {
  const columns = (rows: number[][]): DataView => {
    // At an odd offset, as in a websocket message.
    const bytes = new Uint8Array(1 + rows.flat().length * 8);
    bytes.set(new Uint8Array(Float64Array.from(rows.flat()).buffer), 1);
    return new DataView(bytes.buffer, 1);
  };
  test("a stage is decoded", async () =>
    expect(
      unpackStage(
        await decodeJson(await gzip(JSON.stringify(columnsOf({ text: "é", instructions: [], equations: {} })))),
      ).text,
    ).toBe("é"));
  test("curves are appended and replaced, and reject a gap", () => {
    const curves = new Curves();
    expect(
      curves.take(
        0,
        ["step", "loss"],
        columns([
          [1, 2],
          [0.5, NaN],
        ]),
      ),
    ).toBe(true);
    expect(curves.take(2, ["step", "loss"], columns([[3], [0.3]]))).toBe(true);
    expect(curves.columns.get("loss")).toEqual([0.5, null, 0.3]);
    expect(curves.take(5, ["step", "loss"], columns([[9], [9]]))).toBe(false);
    expect(curves.rows).toBe(3);
    curves.take(0, ["step", "loss"], columns([[1], [7]]));
    expect(curves.columns.get("loss")).toEqual([7]);
  });
  test("smoothing keeps gaps and constants", () => {
    expect(smooth([1, null, 1], 0.9)).toEqual([1, null, 1]);
    expect(smooth([0, 1], 0)).toEqual([0, 1]);
    expect(smooth([0, 1], 0.5)[1]).toBeCloseTo(2 / 3);
  });
  test("a plot keeps every peak with few rows", () => {
    const train = Array.from({ length: 10_000 }, (_, i) => Math.sin(i * 1.7));
    train[4321] = 9;
    train[4322] = -9;
    const validation = train.map((_, i) => (i % 400 === 399 ? i : null));
    const kept = thin([train, validation], 0, train.length, 300);
    expect(kept.length).toBeLessThanOrEqual(300 * 4);
    expect(kept).toEqual([...new Set(kept)].sort((a, b) => a - b));
    for (const row of [4321, 4322, 399, 9999]) expect(kept).toContain(row);
    // Later rows move no earlier points while the run length stays the same.
    const longer = thin(
      [
        [...train, 0, 0],
        [...validation, null, null],
      ],
      0,
      train.length + 2,
      300,
    );
    expect(longer.filter((row) => row < 9_984)).toEqual(kept.filter((row) => row < 9_984));
  });
  test("a plot keeps all rows that fit, and those of a zoom", () => {
    expect(thin([[3, 1, 2]], 0, 3, 300)).toEqual([0, 1, 2]);
    expect(thin([], 0, 0, 300)).toEqual([]);
    expect(thin([Array.from({ length: 10_000 }, (_, i) => i)], 500, 700, 300)).toEqual(
      Array.from({ length: 200 }, (_, i) => 500 + i),
    );
  });
});

test("the palette matches kinds first, then summaries", () => {
  const found = searchPalette(snapshot.palette, "linear").map((item) => item.kind);
  expect(found[0]).toBe("Linear");
  expect(searchPalette(snapshot.palette, "")).toHaveLength(snapshot.palette.length);
  expect(searchPalette(snapshot.palette, "no such thing")).toEqual([]);
});

test("the palette finds a file of My blocks by its name", () => {
  const own = { ...snapshot.palette[0]!, kind: "my_blocks/encoder.json", category: "My blocks", words: "" };
  expect(searchPalette([...snapshot.palette, own], "encod").map(nameOf)).toContain("encoder");
});

test("the palette finds synonyms first, and no parts of words in summaries", () => {
  const entries = [
    { kind: "Softmax", category: "Common", summary: "Converts scores to probabilities.", formula: "", words: "" },
    { kind: "Conv2d", category: "Common", summary: "Convolution over images.", formula: "", words: "conv convolution" },
    { kind: "Linear", category: "Common", summary: "y = x W + b", formula: "", words: "dense fullyconnected fc" },
    {
      kind: "BatchNorm2d",
      category: "Common",
      summary: "Normalizes a batch.",
      formula: "",
      words: "batchnormalization",
    },
    { kind: "Add", category: "Arithmetic", summary: "Sum of two arrays.", formula: "", words: "skip residual" },
  ];
  const items = entries.map((entry) => ({ ...entry, hue: 0, is_common: true }));
  const kinds = (query: string): string[] => searchPalette(items, query).map((item) => item.kind);
  expect(kinds("conv")).toEqual(["Conv2d"]);
  expect(
    ["dense", "fully connected", "FC", "batch norm", "skip", "residual", "sum"].map((query) => kinds(query)[0]),
  ).toEqual(["Linear", "Linear", "Linear", "BatchNorm2d", "Add", "Add", "Add"]);
});

test("a decimal comma is understood where it is unambiguous", () => {
  expect(["0,01", "-0,5", "0.01", "1e-3"].map(numberOf)).toEqual([0.01, -0.5, 0.01, 0.001]);
  expect(["1,000", "1,5", "a"].map(numberOf)).toEqual([NaN, NaN, NaN]);
});

describe("arranged nodes", () => {
  const random = (seed: number) => () => (seed = (seed * 16807) % 2147483647) / 2147483647;

  test("align on one line or have equal gaps, in the space that they had", () => {
    const next = random(7);
    for (let round = 0; round < 50; round++) {
      const nodes = Array.from({ length: 3 + Math.floor(4 * next()) }, () => ({
        x: 500 * next(),
        y: 500 * next(),
        w: 20 + 90 * next(),
        h: 20 + 60 * next(),
      }));
      for (const { axis, arrange, least: fewest } of ARRANGEMENTS) {
        const length = axis === "x" ? "w" : "h";
        const at = arrange(nodes);
        const moved = nodes.map((node, i) => ({ ...node, [axis]: at[i]! }));
        const order = nodes.map((_, i) => i).sort((a, b) => nodes[a]![axis] - nodes[b]![axis]);
        const sorted = order.map((i) => moved[i]!);
        if (fewest === 2) arrange(moved).forEach((place, i) => expect(place).toBeCloseTo(at[i]!, 6));
        else {
          const gaps = sorted.slice(1).map((node, i) => node[axis] - sorted[i]![axis] - sorted[i]![length]);
          for (const gap of gaps) expect(gap).toBeCloseTo(gaps[0]!, 6);
          for (const i of [order[0]!, order.at(-1)!]) expect(at[i]!).toBeCloseTo(nodes[i]![axis], 6);
        }
      }
    }
  });

  test("snap to the nearest edges and centres, and guides show them", () => {
    const next = random(11);
    const whole = (most: number) => Math.floor(most * next());
    const node = () => ({ x: whole(400), y: whole(400), w: 20 + whole(90), h: 20 + whole(60) });
    const counts = { snapped: 0, free: 0 };
    for (let round = 0; round < 300; round++) {
      const [dragged, others, reach] = [node(), Array.from({ length: whole(6) }, node), 2 + whole(10)];
      const aim = { x: 200 * next() - 100, y: 200 * next() - 100 };
      const free = { x: -Infinity, y: -Infinity };
      const { guides, ...shifts } = snapped(dragged, aim, free, others, reach);
      const moved = { ...dragged, x: dragged.x + shifts.x, y: dragged.y + shifts.y };
      const least = { x: shifts.x + whole(3), y: -Infinity };
      expect(snapped(dragged, aim, least, others, reach)).toMatchObject({ x: least.x, y: shifts.y });
      for (const axis of ["x", "y"] as const) {
        const [along, length] = axis === "x" ? ([0, "w"] as const) : ([1, "h"] as const);
        const edges = (rect: typeof moved) => [rect[axis], rect[axis] + rect[length]];
        const centre = (rect: typeof moved) => rect[axis] + rect[length] / 2;
        const gaps = (rect: typeof moved) =>
          others.flatMap((other) => [
            ...edges(other).flatMap((at) => edges(rect).map((own) => Math.abs(at - own))),
            Math.abs(centre(other) - centre(rect)),
          ]);
        const shift = moved[axis] - dragged[axis];
        const nearest = Math.min(...gaps({ ...dragged, [axis]: dragged[axis] + aim[axis] }));
        const own = guides.filter(({ points: [from, to] }) => from![along] === to![along]);
        expect(Number.isInteger(shift)).toBe(true); // a whole position is stored
        if (nearest <= reach) {
          counts.snapped++;
          expect(Math.abs(shift - aim[axis])).toBeLessThanOrEqual(nearest + 0.5 + 1e-9);
          expect(Math.min(...gaps(moved))).toBeLessThanOrEqual(0.5);
          expect(own.length).toBeGreaterThan(0);
        } else {
          counts.free++;
          expect(Math.abs(shift - aim[axis])).toBeLessThanOrEqual(0.5);
          expect(own).toEqual([]);
        }
        const across = axis === "x" ? (["y", "h", 1] as const) : (["x", "w", 0] as const);
        for (const { points } of own) {
          const at = points[0]![along];
          const touched = [moved, ...others].filter((rect) =>
            [...edges(rect), centre(rect)].some((place) => Math.abs(place - at) <= 0.5),
          );
          const [from, to] = points.map((point) => point[across[2]]);
          expect(touched[0]).toBe(moved);
          expect(from).toBeLessThanOrEqual(moved[across[0]]);
          expect(to).toBeGreaterThanOrEqual(moved[across[0]] + moved[across[1]]);
          expect(touched.length).toBeGreaterThan(1);
        }
      }
    }
    expect(Math.min(...Object.values(counts))).toBeGreaterThan(50);
  });
});
