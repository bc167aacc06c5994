/** The search: matches in graph and stages, the list to step through, and the questions about a node. */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { PackedGraph } from "../src/kernel/contract";
import type { RawInstruction } from "../src/kernel/messages";
import { type PaintState, PLAIN } from "../src/graph/painter";
import { createGraphView, type GraphView } from "../src/graph/view";
import { NestedGraph } from "../src/layout/data";
import { layout } from "../src/layout/layout";
import { find as findIn } from "../src/search/found";
import { createQuestions, type Questions } from "../src/search/questions";
import { reachFrom } from "../src/search/reach";
import { Search } from "../src/search/search";
import { StageText } from "../src/store/links";
import { FakeContext } from "./fake-context";

const HOSTILE = "<img src=x onerror=alert(1)>";
const instruction = (
  line: number,
  opcode: string,
  block: string,
  flops: number | null,
  role: "forward" | "backward" = "forward",
): RawInstruction => [
  line,
  1,
  opcode,
  [String(line - 1)],
  block ? [[block, 1]] : [],
  role,
  "tagged",
  [],
  ["train.py:3"],
  [],
  ["float32"],
  flops,
  8,
  16,
];
const JAXPR = new StageText("jaxpr", 1, "a = dot_general\nb = tanh\nc = dot_general\nd = add\nweights", {
  instructions: [
    instruction(1, "dot_general", "net/one", 2e6),
    instruction(2, "tanh", "net/one", 0),
    instruction(3, "dot_general", "net/two", 3e6, "backward"),
    instruction(4, "add", HOSTILE, null),
  ],
  equations: {},
  kinds: { net: "Model", "net/one": "Linear", "net/two": "Linear" },
});
const HLO = new StageText("hlo", 1, "fusion\ndot one", {
  instructions: [
    [1, 1, "fusion", ["0", "1"], [["net/one", 1]], "forward", "tagged"],
    [2, 1, "dot", ["2"], [["net/two", 1]], null, "inferred"],
  ],
  equations: {},
});
const STAGES = new Map([
  ["jaxpr", JAXPR],
  ["hlo", HLO],
]);
const KEYS = ["net", "net/one", "net/two", "x", "net/one/dot"];
const GRAPH: PackedGraph = {
  title: "jaxpr",
  is_model: false,
  roles: ["forward"],
  shapes: [],
  idle: [],
  boxes: {
    key: KEYS,
    name: KEYS,
    kind: ["block", "block", "block", "instruction", "instruction"],
    w: KEYS.map(() => 112),
    h: KEYS.map(() => 64),
    parent: [-1, 0, 0, -1, 1],
    is_group: [true, true, false, false, false],
    path: ["net", "net/one", "net/two", "", "net/one"],
    equations: [[], [], [], ["3"], ["0"]],
  },
  flows: { source: [3, 4], target: [4, 2], roles: [[0], [0]], shapes: [[], []] },
};

describe("matches", () => {
  test("are linked to lines of every stage and counted on nodes", () => {
    const found = findIn("kind:dot flops>1M", STAGES);
    expect(found.hits.map((hit) => hit.kind === "instruction" && hit.instruction.line)).toEqual([1, 3]);
    expect([...found.lines].map(([stage, lines]) => [stage, [...lines]])).toEqual([
      ["jaxpr", [0, 2]],
      ["hlo", [0, 1]],
    ]);
    const scene = layout(new NestedGraph(GRAPH), new Set(["net"]));
    expect([...found.countsIn(scene)]).toEqual([
      ["net", 2],
      ["net/one", 1],
      ["net/two", 1],
    ]);
  });

  test("of costs that no instruction has are an error, also negated", () => {
    const text = new StageText("stablehlo", 1, "a", {
      instructions: [instruction(1, "dot", "net", null)],
      equations: {},
      kinds: {},
    });
    for (const query of ["flops>1", "-flops>1", "dot flops:0"])
      expect(() => findIn(query, new Map([["stablehlo", text]]))).toThrow(
        "Stage stablehlo has no flops to search for.",
      );
    expect(findIn("bytes=8 memory>1", new Map([["stablehlo", text]])).hits).toHaveLength(1);
  });

  test("include blocks if the query has only names", () => {
    expect(findIn("two", STAGES).hits.map((hit) => (hit.kind === "block" ? hit.path : hit.instruction.line))).toEqual([
      "net/two",
      3,
    ]);
    expect(findIn("two role:backward", STAGES).hits).toHaveLength(1);
    expect(findIn("kind:relu", new Map(), { r: "Relu", l: "Linear" }).hits).toEqual([{ kind: "block", path: "r" }]);
  });
});

describe("the search field", () => {
  let search: Search;
  const calls = { show: vi.fn(), go: vi.fn(), goToLine: vi.fn() };
  const type = (value: string): void => {
    search.input.value = value;
    search.input.dispatchEvent(new Event("input"));
  };
  const press = (key: string, more: KeyboardEventInit = {}): void =>
    void search.input.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
  const status = (): string => search.root.querySelector('[role="status"]')!.textContent!;
  beforeEach(() => {
    for (const call of Object.values(calls)) call.mockClear();
    search = new Search({
      stages: () => STAGES,
      blocks: () => ({}),
      titleOf: (stage) => stage.toUpperCase(),
      ...calls,
    });
    document.body.append(search.root);
  });
  afterEach(() => search.root.remove());

  test("steps through the matches by Enter and Shift Enter, and Escape ends it", () => {
    type("kind:dot role:forward");
    expect(status()).toBe("1 match");
    type("-kind:tanh flops>=0");
    expect(status()).toBe("2 matches");
    press("Enter");
    expect(status()).toBe("1 of 2");
    press("Enter");
    expect(status()).toBe("2 of 2");
    press("Enter");
    expect(status()).toBe("1 of 2");
    press("Enter", { shiftKey: true });
    expect(status()).toBe("2 of 2");
    expect(calls.go.mock.calls.map(([hit]) => hit.instruction.line)).toEqual([1, 3, 1, 3]);
    expect(search.root.querySelector('[aria-selected="true"]')!.id).toBe(
      search.input.getAttribute("aria-activedescendant"),
    );
    press("Escape");
    expect([search.input.value, calls.show.mock.lastCall]).toEqual(["", [null]]);
    expect(search.input.getAttribute("aria-expanded")).toBe("false");
  });

  test("explains a bad query, and marks nothing", () => {
    type("flops>many");
    expect(status()).toBe("flops needs a number in a query. Try: flops>1e6");
    expect(search.input.getAttribute("aria-invalid")).toBe("true");
    expect(calls.show.mock.lastCall).toEqual([null]);
    type("flops>1");
    expect(search.input.getAttribute("aria-invalid")).toBeNull();
  });

  test("lists lines of text for words, and says when nothing is found", () => {
    type("weights");
    expect(status()).toBe("1 match");
    press("Enter");
    expect(calls.goToLine.mock.calls).toEqual([["jaxpr", 5]]);
    type("nothing like this");
    expect(status()).toContain("Nothing found.");
    type("kind:nothing");
    expect(status()).toContain("kind:dot");
  });

  test("shows names as text", () => {
    type("img");
    expect(search.root.querySelector("img")).toBeNull();
    expect(search.root.querySelector(".mnb-option > span")!.textContent).toContain(HOSTILE);
  });

  test("draws a part of many results", () => {
    const many = new StageText("jaxpr", 1, "x\n".repeat(5000), {
      instructions: Array.from({ length: 5000 }, (_, i) => instruction(i + 1, "add", "", 1)),
      equations: {},
      kinds: {},
    });
    search.root.remove();
    search = new Search({
      stages: () => new Map([["jaxpr", many]]),
      blocks: () => ({}),
      titleOf: (stage) => stage,
      ...calls,
    });
    type("kind:add");
    press("Enter", { shiftKey: true });
    expect(status()).toBe("5,000 of 5,000");
    expect(search.root.querySelectorAll("[role=option]").length).toBeLessThan(100);
    expect(search.root.querySelector('[aria-selected="true"]')!.getAttribute("aria-posinset")).toBe("5000");
  });
});

describe("questions about a graph", () => {
  let view: GraphView;
  let questions: Questions;
  let opened: Set<string>;
  /** What the view was told to paint. */
  let state: PaintState;
  const graph = new NestedGraph(GRAPH);
  const painted = (): { dimmed: string[]; matches: [string, number][] } => {
    return { dimmed: [...state.dimmed].filter((key) => view.index.node(key)), matches: [...state.matches] };
  };
  const answer = (): string => questions.root.querySelector('[role="status"]')!.textContent!;
  const press = (key: string): boolean => questions.key(new KeyboardEvent("keydown", { key }));
  beforeEach(() => {
    vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockImplementation(
      (() => new FakeContext().context) as unknown as typeof HTMLCanvasElement.prototype.getContext,
    );
    view = createGraphView({ label: "Nodes", describe: ({ name }) => ({ name, tip: [] }), select: () => undefined });
    state = PLAIN;
    const { paint } = view;
    vi.spyOn(view, "paint").mockImplementation((change) => {
      state = { ...state, ...change };
      paint(change);
    });
    opened = new Set(["net"]);
    vi.spyOn(view.board, "clientWidth", "get").mockReturnValue(900);
    vi.spyOn(view.board, "clientHeight", "get").mockReturnValue(520);
    const open = (keys: readonly string[]): void => {
      for (const key of keys) opened.add(key);
      view.show(layout(graph, opened));
    };
    questions = createQuestions(view, { graph: () => graph, open });
    document.body.append(view.root);
    open([]);
    questions.paint({ selected: new Set() });
  });
  afterEach(() => {
    view.root.remove();
    view.destroy();
    vi.restoreAllMocks();
  });

  test("a search dims other nodes, and shows a match in a closed group by opening it", () => {
    const found = findIn("kind:dot role:forward", STAGES);
    questions.search(found);
    expect(painted()).toEqual({
      dimmed: expect.arrayContaining(["x", "net/two"]),
      matches: [
        ["net", 1],
        ["net/one", 1],
      ],
    });
    questions.reveal(found.hits[0]!);
    expect([...opened]).toEqual(["net", "net/one"]);
    expect(view.active).toBe("net/one/dot");
    questions.search(null);
    expect(painted()).toEqual({ dimmed: [], matches: [] });
  });

  test("a search without matches dims nothing", () => {
    questions.search(findIn("kind:nothing", STAGES));
    expect(painted()).toEqual({ dimmed: [], matches: [] });
  });

  test("keys show ancestors, descendants and paths; Escape ends it", () => {
    view.focus("net/two");
    expect(press("a")).toBe(true);
    expect(answer()).toBe("2 ancestors of net/two");
    expect(painted().dimmed).toEqual([]);
    view.focus("x");
    press("a");
    expect(answer()).toBe("0 ancestors of x");
    expect(painted().dimmed).toEqual(expect.arrayContaining(["net", "net/one", "net/two"]));
    press("d");
    expect(answer()).toBe("2 descendants of x");
    questions.paint({ selected: new Set(["net/two"]) });
    press("p");
    expect(answer()).toBe("Path from x to net/two: 1 node between");
    expect(press("Escape")).toBe(true);
    expect([answer(), painted().dimmed]).toEqual(["", []]);
    expect(press("Escape")).toBe(false);
    questions.paint({ selected: new Set(["x", "net/two"]) });
    expect(
      [...questions.root.querySelectorAll("button:not([hidden])")].map(
        (button) => button.textContent || button.getAttribute("aria-label"),
      ),
    ).toContain("Path");
  });
});

describe("answers follow the graph", () => {
  test("ask again after an edit, and end with their node or stage", () => {
    let graph = new NestedGraph(GRAPH);
    const show = (next: PackedGraph): void => {
      graph = new NestedGraph(next);
      view.show(layout(graph, new Set(["net"])));
      questions.paint({});
    };
    const view = createGraphView({
      label: "Nodes",
      describe: ({ name }) => ({ name, tip: [] }),
      select: () => undefined,
    });
    const questions = createQuestions(view, { graph: () => graph, open: () => undefined });
    const answer = (): string => questions.root.querySelector('[role="status"]')!.textContent!;
    show(GRAPH);
    view.focus("net/two");
    questions.key(new KeyboardEvent("keydown", { key: "a" }));
    expect(answer()).toBe("2 ancestors of net/two");
    show({ ...GRAPH, flows: { source: [4], target: [2], roles: [[0]], shapes: [[]] } });
    expect(answer()).toBe("1 ancestor of net/two");
    show({ ...GRAPH, title: "hlo" });
    expect(answer()).toBe("");
    questions.key(new KeyboardEvent("keydown", { key: "a" }));
    show({ ...GRAPH, boxes: { ...GRAPH.boxes, key: ["net", "net/one", "net/other", "x", "net/one/dot"] } });
    expect(answer()).toBe("");
    view.destroy();
  });
});

interface ReachCase {
  graph: PackedGraph;
  answers: Record<string, [ancestors: string[], descendants: string[]]>;
}
// Written by tests/viz/test_reach_parity.py: the answers of `StageGraph`.
const REACH = JSON.parse(
  readFileSync(resolve(import.meta.dirname, "../../../../tests/viz/golden/reach.json"), "utf8"),
) as ReachCase[];

test.each(REACH.map((one, at) => [at, one] as const))(
  "ancestors and descendants are those of Python, also in loops and repeats: %i",
  (_, one) => {
    const graph = new NestedGraph(one.graph);
    const answers = Object.entries(one.answers);
    expect(answers.length).toBeGreaterThan(4);
    const found = answers.map(([key]): [string, string[][]] => {
      const reach = reachFrom(graph, key);
      return [key, [[...reach.ancestors(key)].sort(), [...reach.descendants(key)].sort()]];
    });
    expect(Object.fromEntries(found)).toEqual(one.answers);
  },
);
