import { EditorView } from "@codemirror/view";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Fixture, FakeSession, type Sent, gzip } from "../dev/fake-model";
import { mountExplorer } from "../src/explorer";
import type { MarkedLine, TransformStepData } from "../src/kernel/contract";
import type { PackedGraph } from "../src/kernel/contract";
import { finderIn } from "./find";
import { shortData } from "./short-data";

const data = shortData(70);
const { version, name, backend, blocks, cost, problems, notice, stages, stage_kinds, selection, status } =
  data.snapshot;
data.snapshot = {
  version,
  name,
  backend,
  blocks,
  cost,
  problems,
  notice,
  stages,
  stage_kinds,
  selection,
  status,
  graph_stage: "jaxpr",
  graph_stages: ["jaxpr", "hlo"],
  passes: { state: "empty", message: "", version: 0 },
} as unknown as Fixture["snapshot"];

const BOXES = ["linear_0", "mlp_0", "mlp_0/inner", "linear_1"];
const GRAPH: PackedGraph = {
  title: "jaxpr",
  is_model: false,
  roles: ["forward"],
  shapes: [],
  idle: [],
  boxes: {
    key: BOXES,
    name: BOXES,
    kind: ["block", "block", "block", "block"],
    w: [112, 112, 112, 112],
    h: [64, 64, 64, 64],
    parent: [-1, -1, 1, -1],
    is_group: [false, true, false, false],
    path: BOXES,
  },
  flows: { source: [0, 2], target: [2, 3], roles: [[0], [0]], shapes: [[], []] },
};
class FakeExplorer extends FakeSession {
  async graph(): Promise<void> {
    this.message({ type: "graph", stage: "jaxpr" }, [await gzip(JSON.stringify({ ...GRAPH, opened: [] }))]);
    this.message({ type: "graph_shares", stage: "jaxpr" }, [await gzip(JSON.stringify([0.25, 0.5, null, 0.25]))]);
  }
  protected override answer(command: Sent): void {
    if (command.name === "hello") void this.graph();
    super.answer(command);
  }
}

describe("the explorer", () => {
  let session: FakeExplorer;
  let el: HTMLElement;
  let cleanup: () => void;
  const find = finderIn(() => el);
  const key = (target: Element, name: string, more: KeyboardEventInit = {}): void =>
    void target.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...more }));
  const at = (node: string): HTMLElement => find(`.mnb-stage-graph [data-mnb-node="${node}"]`);
  const sent = (name: string): unknown[] =>
    session.sent.filter((command) => command.name === name).map((command) => command.args);
  beforeEach(async () => {
    session = new FakeExplorer(data);
    el = document.createElement("div");
    document.body.append(el);
    cleanup = mountExplorer({ model: session, el });
    await vi.waitFor(() => expect(el.querySelectorAll('[data-mnb-pane][data-mnb-version="1"]')).toHaveLength(2), {
      timeout: 5000,
    });
    await vi.waitFor(() => expect(find(".mnb-stage-graph").dataset["mnbNodes"]).toBe("3"));
  });
  afterEach(() => {
    cleanup();
    el.remove();
  });

  test("shows the cost as a formula for symbolic sizes", async () => {
    const total = {
      ...cost!.total,
      flops: null,
      formulas: { flops: ["24·batch·width² + …", "24·batch·width² + 9·batch·width"] },
    };
    session.change({ cost: { ...cost!, total }, status: { ...status, flops: null } } as never);
    await vi.waitFor(() => expect(find('[data-mnb-status="FLOPs"] span').textContent).toBe("24·batch·width² + …"));
    expect(find('[data-mnb-status="FLOPs"]').title).toBe("24·batch·width² + 9·batch·width");
  });
  test("offers no source to copy after the kernel is gone", () => {
    session.emit("comm:close");
    expect(find('[data-mnb-part="connection"]').hidden).toBe(false);
    expect(find('[data-mnb-action="connection.copy"]').hidden).toBe(true);
  });
  test("shows optimize time separately from compile time", () => {
    session.change({ status: { ...status, optimize_s: 0.25, compile_s: null } });
    expect(find('[data-mnb-status="optimize"]').textContent).toBe("optimize250 ms");
    expect(find('[data-mnb-status="optimize"]').title).toBe(
      "Time for XLA's passes and memory planning. Machine code is generated on demand.",
    );
    expect(find('[data-mnb-status="compile"]').textContent).toBe("compile–");
    session.change({ status: { ...status, optimize_s: 0.25, compile_s: 0.5 } });
    expect(find('[data-mnb-status="compile"]').textContent).toBe("compile500 ms");
  });
  test("the kernel makes files on request, and reports why it cannot", async () => {
    const open = (): HTMLElement[] => {
      find('[data-mnb-action="graph.export"]').click();
      return [...el.querySelectorAll<HTMLElement>(".mnb-action")];
    };
    expect(open().map((action) => action.textContent)).toEqual([
      "PNG, twice the size",
      "SVG",
      "HTML: page of all stages",
      "JSON: all stages",
    ]);
    const files: Blob[] = [];
    globalThis.URL.createObjectURL = (blob) => `blob:${files.push(blob as Blob)}`;
    globalThis.URL.revokeObjectURL = () => {};
    vi.spyOn(HTMLAnchorElement.prototype, "click").mockImplementation(() => {});
    expect(sent("request_export")).toEqual([]);
    session.message({ type: "export", format: "html", problem: "" }, [await gzip('"for another page"')]);
    open()[2]!.click();
    expect(sent("request_export")).toEqual([{ format: "html" }]);
    expect(find('[data-mnb-action="graph.export"]').textContent).toBe("Making HTML …");
    session.message({ type: "export", format: "html", problem: "" }, [await gzip(JSON.stringify("<p>"))]);
    await vi.waitFor(() => expect(files).toHaveLength(1));
    expect([await files[0]!.text(), find('[data-mnb-action="graph.export"]').textContent]).toEqual(["<p>", "Export"]);
    open()[3]!.click();
    session.message({ type: "export", format: "json", problem: "cannot trace <b>" }, []);
    await vi.waitFor(() => expect(find(".mnb-legend").textContent).toBe("cannot trace <b>"));
    open()[2]!.click();
    session.emit("comm:close");
    await vi.waitFor(() =>
      expect(find(".mnb-legend").textContent).toBe("Not connected to the kernel, so the file cannot be made."),
    );
    vi.restoreAllMocks();
  });
  test("the export menu works by keyboard", () => {
    const button = find('[data-mnb-action="graph.export"]');
    const [menu, focused] = [find(".mnb-actions"), () => (document.activeElement as HTMLElement).textContent];
    button.focus();
    key(button, "ArrowDown");
    expect([menu.hidden, button.getAttribute("aria-expanded"), focused()]).toEqual([
      false,
      "true",
      "PNG, twice the size",
    ]);
    key(document.activeElement!, "ArrowUp");
    expect(focused()).toBe("JSON: all stages");
    key(document.activeElement!, "Home");
    key(document.activeElement!, "ArrowDown");
    expect(focused()).toBe("SVG");
    key(document.activeElement!, "Escape");
    expect([menu.hidden, document.activeElement]).toEqual([true, button]);
    key(button, "ArrowDown");
    find(".mnb-stage-graph [role=treeitem]").focus();
    expect(menu.hidden).toBe(true);
  });
  test("t moves from a node to its row in the table of costs", async () => {
    at("linear_0").focus();
    key(at("linear_0"), "t");
    await vi.waitFor(() => expect((document.activeElement as HTMLElement).dataset["mnbCost"]).toBe("linear_0"));
  });
  test("a tour starts the lecture; its keys come before those of graph and code", async () => {
    cleanup();
    const moment = { stages: ["jaxpr", "stablehlo"], block: "linear_0", equations: [], caption: "", is_hidden: false };
    const tour = [
      { ...moment, caption: "<b>" },
      { ...moment, stages: ["jaxpr"], block: "" },
    ];
    session = new FakeExplorer({ ...data, snapshot: { ...data.snapshot, tour } as unknown as Fixture["snapshot"] });
    cleanup = mountExplorer({ model: session, el });
    await vi.waitFor(() => expect(find('[data-mnb-pane="jaxpr"] .mnb-pane-linked').textContent).toMatch(/linked/));
    const root = find(".mnb-explorer");
    expect([root.dataset["mnbLayout"], find(".mnb-caption").textContent]).toEqual(["lecture", "1 / 2 · <b>"]);
    const code = find('[data-mnb-pane="jaxpr"] .cm-content');
    code.focus();
    key(code, "s");
    expect(root.hasAttribute("data-mnb-spot")).toBe(true);
    key(code, "Escape");
    expect(root.hasAttribute("data-mnb-spot"), "nothing is selected").toBe(false);
    key(code, "PageUp");
    key(code, "h");
    key(code, "PageDown");
    expect(find(".mnb-caption").textContent, "what is hidden is revealed first").toBe("1 / 2 · <b>");
    key(code, "PageDown");
    expect([...el.querySelectorAll<HTMLElement>(".mnb-pane")].map((pane) => pane.dataset["mnbPane"])).toEqual([
      "jaxpr",
    ]);
    key(code, "PageDown");
    expect(find(".mnb-caption").textContent).toBe("2 / 2");
    key(code, "s", { ctrlKey: true });
    expect(root.hasAttribute("data-mnb-spot"), "the host saves").toBe(false);
    key(code, "5");
    expect([root.dataset["mnbLayout"], root.hasAttribute("data-mnb-hide")]).toEqual([undefined, false]);
    key(code, "s");
    expect(root.hasAttribute("data-mnb-spot"), "keys act in a lecture only").toBe(false);
  });
  test("first shows the graph and two linked stages", async () => {
    expect(sent("request_stage")).toEqual([{ stage: "jaxpr" }, { stage: "stablehlo" }]);
    expect(el.querySelectorAll('[data-mnb-pane="jaxpr"] .mnb-stripe').length).toBeGreaterThan(2);
    await vi.waitFor(() =>
      expect(at("mlp_0").getAttribute("aria-label")).toBe("block mlp_0, 50.0 % of FLOPs, with inner blocks"),
    );
    key(at("linear_0"), "Enter");
    for (const stage of ["jaxpr", "stablehlo"])
      expect(find(`[data-mnb-pane="${stage}"] .mnb-pane-linked`).textContent).toMatch(/^\d+ linked$/);
    expect(at("linear_0").getAttribute("data-mnb-linked")).toBe("pinned");
    expect(at("linear_1").getAttribute("data-mnb-linked")).toBeNull();
  });

  test("opens and closes the costs and passes", () => {
    const cost = find<HTMLButtonElement>('[data-mnb-tab="cost"]');
    const open = (): string[] =>
      [...el.querySelectorAll<HTMLElement>("[data-mnb-panel]")]
        .filter((one) => !one.hidden)
        .map((one) => one.dataset["mnbPanel"]!);
    expect(open()).toEqual([]);
    expect([cost.tabIndex, cost.title]).toEqual([0, "Open Cost"]);
    cost.click();
    expect(open()).toEqual(["cost"]);
    find('[data-mnb-tab="passes"]').click();
    expect(open()).toEqual(["passes"]);
    find('[data-mnb-tab="passes"]').click();
    expect(open()).toEqual([]);
    expect(cost.tabIndex).toBe(0);
  });

  test("builds a long table of costs only once its tab is open", () => {
    const rows = (): number => el.querySelectorAll(".mnb-cost-table tbody tr").length;
    cleanup();
    const many = Array.from({ length: 300 }, (_, i) => ({ ...cost!.rows[0]!, block: `block_${i}` }));
    cleanup = mountExplorer({
      model: new FakeExplorer({ ...data, snapshot: { ...data.snapshot, cost: { ...cost!, rows: many } } }),
      el,
    });
    expect(rows()).toBe(0);
    find('[data-mnb-tab="cost"]').click();
    expect(rows()).toBe(300);
  });
  test.each([
    [["passes"], ["passes"]],
    [["cost", "cost"], []],
  ])("restores the tab after clicks on %j", (clicks, restored) => {
    const remount = (more: Partial<Fixture["snapshot"]>): string[] => {
      cleanup();
      cleanup = mountExplorer({ model: new FakeExplorer({ ...data, snapshot: { ...data.snapshot, ...more } }), el });
      return [...el.querySelectorAll<HTMLElement>("[data-mnb-panel]:not([hidden])")].map(
        (one) => one.dataset["mnbPanel"]!,
      );
    };
    const transforms = { transforms: { state: "empty", message: "", compared: [] } } as Partial<Fixture["snapshot"]>;
    expect(remount(transforms)).toEqual(["transforms"]);
    for (const tab of clicks) find(`[data-mnb-tab="${tab}"]`).click();
    expect([remount({}), remount(transforms)]).toEqual([restored, restored]);
    find('[data-mnb-tab="transforms"]').click();
    expect(remount({}), "a program without this tab").toEqual([]);
  });

  test("opens graph nodes by keys and keeps the focus", async () => {
    expect([...el.querySelectorAll(".mnb-stage-graph [role=treeitem][tabindex='0']")]).toEqual([at("linear_0")]);
    at("linear_0").focus();
    key(at("linear_0"), "ArrowDown");
    expect(document.activeElement).toBe(at("mlp_0"));
    key(at("mlp_0"), "ArrowRight");
    expect(sent("open_node")).toEqual([{ key: "mlp_0" }]);
    await vi.waitFor(() => expect(find(".mnb-stage-graph").dataset["mnbNodes"]).toBe("4"));
    expect(document.activeElement).toBe(at("mlp_0"));
    key(at("mlp_0"), "Enter");
    expect(at("mlp_0").getAttribute("data-mnb-linked")).toBe("pinned");
    key(at("mlp_0"), "ArrowLeft");
    expect(sent("close_node")).toEqual([{ key: "mlp_0" }]);
    key(at("mlp_0"), "Escape");
    expect(at("mlp_0").getAttribute("data-mnb-linked")).toBeNull();
  });

  test("shows only the first stage of an HLO program", async () => {
    cleanup();
    const given = structuredClone(data);
    const why = "this program was given as HLO text: it has no jaxpr";
    Object.assign(given.snapshot, {
      graph_stage: "hlo",
      costs: { sources: { analytic: { state: "unavailable", message: why, version: 0 } }, what_if: {} },
    });
    session = new FakeExplorer(given);
    cleanup = mountExplorer({ model: session, el });
    await vi.waitFor(() => expect(sent("request_stage")).toEqual([{ stage: "hlo" }]));
    expect([...el.querySelectorAll<HTMLElement>("[data-mnb-pane]")].map((pane) => pane.dataset["mnbPane"])).toEqual([
      "hlo",
    ]);
  });
  test("steps through passes and shows instruction history", async () => {
    find('[data-mnb-tab="passes"]').click();
    find('[data-mnb-action="passes.compile"]').click();
    await vi.waitFor(() => expect(find(".mnb-passes").dataset["mnbShown"]).toBe("0"));
    expect(find('[data-mnb-tab="passes"] .mnb-tab-figure').textContent).toBe("2");
    expect(find(".mnb-pass-diff .mnb-pane-figures").textContent).toMatch(/ · 3 lines$/);
    key(find(".mnb-pass-list"), "ArrowDown");
    await vi.waitFor(() => expect(find(".mnb-passes").dataset["mnbShown"]).toBe("1"));
    expect(find(".mnb-pass-diff .mnb-pane-figures").textContent).toMatch(
      / · the first 3 lines; full diff in inspection\.passes\[1\]\.diff$/,
    );
    expect([...el.querySelectorAll(".mnb-diff-added, .mnb-diff-removed")].map((line) => line.textContent)).toEqual([
      "-  %gone",
      "+  %come 1 of 1",
    ]);
    find('[data-mnb-action="pane.hlo"]').click();
    await vi.waitFor(() => expect(find('[data-mnb-pane="hlo"]').dataset["mnbVersion"]).toBe("1"), { timeout: 5000 });
    key(find('[data-mnb-pane="hlo"] .cm-content'), "End", { ctrlKey: true });
    key(find('[data-mnb-pane="hlo"] .cm-content'), "Enter");
    await vi.waitFor(() => expect(find(".mnb-pass-history").textContent).toMatch(/in HLO appeared in 2\. fusion$/));
  });

  test("shows short HLO and ignores outdated replies", async () => {
    find('[data-mnb-action="pane.hlo"]').click();
    await vi.waitFor(() => expect(find('[data-mnb-pane="hlo"]').dataset["mnbVersion"]).toBe("1"), { timeout: 5000 });
    find('[data-mnb-action="short.hlo"]').click();
    expect(sent("request_stage").at(-1)).toEqual({ stage: "hlo", short: true });
    expect(find('[data-mnb-action="short.hlo"]').getAttribute("aria-pressed")).toBe("true");
  });

  test("removes all elements and listeners", () => {
    cleanup();
    expect([el.childElementCount, session.listening]).toEqual([0, 0]);
  });
});

const mark = (
  line: number,
  id: string,
  is: MarkedLine[2],
  others: string[],
  note = "",
  isInferred = false,
): MarkedLine => [line, id, is, others, note, isInferred];
const STEPS: TransformStepData[] = [
  {
    name: "trace",
    explanation: "runs it once.",
    problem: null,
    before: null,
    after: { text: "{ lambda\n  b = sin a\n}\n", marks: [] },
  },
  {
    name: "grad",
    explanation: "adds one.",
    problem: null,
    before: { text: "{ lambda\n  b = sin a\n}\n", marks: [mark(2, "0", "changed", ["0", "1"])] },
    after: {
      text: "{ lambda\n  b = sin a\n  c = cos a\n}\n",
      marks: [mark(2, "0", "changed", ["0"], "adds a batch axis of 2"), mark(3, "1", "new", ["0"], "", true)],
    },
  },
  {
    name: "vmap",
    explanation: "",
    problem: {
      code: "StageUnavailableError",
      summary: "step 2, 'vmap', cannot be applied.",
      facts: [],
      advice: "through=()",
      block: "",
      port: "",
      edge: null,
    },
    before: { text: "b = sin a", marks: [] },
    after: null,
  },
];

class FakeStepping extends FakeExplorer {
  protected override answer(command: Sent): void {
    if (command.name === "hello")
      void gzip(JSON.stringify(STEPS)).then((steps) =>
        this.message({ type: "transforms", left_out: ["jit"] }, [steps]),
      );
    super.answer(command);
  }
}

test("transforms show marks, links and comparisons", async () => {
  const session = new FakeStepping({
    ...data,
    snapshot: { ...data.snapshot, transforms: { state: "empty", message: "", compared: [] } },
  });
  const el = document.createElement("div");
  document.body.append(el);
  const cleanup = mountExplorer({ model: session, el });
  const find = finderIn(() => el);
  const marks = (side: string): (string | undefined)[][] =>
    [...el.querySelectorAll<HTMLElement>(`[data-mnb-side="${side}"] .mnb-mark`)].map((line) => [
      line.textContent!.trim(),
      line.dataset["mnbSign"],
      line.title,
    ]);
  const press = (key: string): void =>
    void find(".mnb-pass-list").dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  const part = (): HTMLElement => find('[data-mnb-part="transforms"]');
  expect(find('[data-mnb-tab="transforms"]').getAttribute("aria-selected")).toBe("true");
  await vi.waitFor(() => expect(part().dataset["mnbStep"]).toBe("1"));
  expect(marks("before")).toEqual([["b = sin a", "~", "changed"]]);
  expect(marks("after")).toEqual([
    ["b = sin a", "~", "changed"],
    ["c = cos a", "+", "new"],
  ]);
  expect(find('[data-mnb-side="after"] .mnb-pane-figures').textContent).toBe("+1 ~1");
  const view = EditorView.findFromDOM(find('[data-mnb-side="after"]'))!;
  view.dispatch({ selection: { anchor: view.state.doc.line(3).from } });
  expect(find('[data-mnb-side="after"] .mnb-pane-figures').textContent).toBe("new · from equation 0 · inferred");
  expect([...el.querySelectorAll("[data-mnb-side] .mnb-pinned")].map((line) => line.textContent!.trim())).toEqual([
    "b = sin a",
    "c = cos a",
  ]);
  press("ArrowUp");
  expect(find('[data-mnb-side="before"] .mnb-hint').textContent).toBe("This is the first step; the input is Python.");
  press("End");
  expect(find(".mnb-step-problem").textContent).toContain("step 2, 'vmap', cannot be applied.");
  expect(find(".mnb-pass-history").textContent).toBe("vmap  Not reached: jit.");
  expect(find('[data-mnb-side="after"] .mnb-hint').textContent).toContain("JAX rejects this step");
  // Values are compared on request.
  find('[data-mnb-action="transforms.compare"]').click();
  expect(session.names()).toContain("compare_transforms");
  session.change({
    transforms: {
      state: "ready",
      message: "",
      compared: [
        [true, "agrees with Python: off by 0"],
        [false, "DIFFERS from a jvp"],
        [null, "not compared: why"],
      ],
    },
  });
  expect([...el.querySelectorAll(".mnb-pass-pipeline")].map((one) => one.textContent)).toEqual([
    "✓ agrees",
    "✗ differs",
    "failed",
  ]);
  press("Home");
  expect(find(".mnb-compared").textContent).toBe("✓ agrees with Python: off by 0");
  expect(find('[data-mnb-action="transforms.compare"]').hidden).toBe(true);
  session.change({ transforms: { state: "failed", message: "no memory", compared: [] } });
  expect([find(".mnb-compared").textContent, find('[data-mnb-action="transforms.compare"]').hidden]).toEqual([
    "The values could not be compared: no memory",
    false,
  ]);
  cleanup();
  expect([el.childElementCount, session.listening]).toEqual([0, 0]);
  el.remove();
});
