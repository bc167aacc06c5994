/** The margin of a code pane: line numbers, stripes and costs. */

import { EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { afterEach, describe, expect, test } from "vitest";
import { StageText } from "../src/store/links";
import { barsOf, margin, setHeat, setStripes } from "../src/code/margin";
import { INFERRED, KERNEL, PINNED, marks, setFlags } from "../src/code/marks";
import { figureOfLines, heatOf } from "../src/costs/line-costs";
import type { CostTableData } from "../src/kernel/contract";

describe("bars", () => {
  test("merge adjacent lines with the same stripe", () => {
    const names = [null, "a", "a", "b", null, "b", "b"];
    expect(barsOf((line) => names[line] ?? null, 1, 6)).toEqual([
      { name: "a", from: 1, to: 3 },
      { name: "b", from: 3, to: 4 },
      { name: "b", from: 5, to: 7 },
    ]);
    expect(
      barsOf((line) => names[line] ?? null, 2, 3),
      "only what is in sight",
    ).toEqual([
      { name: "a", from: 2, to: 3 },
      { name: "b", from: 3, to: 4 },
    ]);
  });
});

describe("the margin", () => {
  let view: EditorView;
  const shown = (): string => view.dom.querySelector(".mnb-numbers")!.textContent!;
  const stripes = (): string[] =>
    [...view.dom.querySelectorAll<HTMLElement>(".mnb-stripes > *")].map(
      ({ className, style }) => `${className} ${style.top} ${style.height}`,
    );
  afterEach(() => view.destroy());

  test("numbers the lines and redraws the stripes", () => {
    view = new EditorView({ state: EditorState.create({ doc: "one", extensions: [margin] }) });
    expect(shown()).toBe("1\n");
    view.dispatch({ changes: { from: 3, insert: "\ntwo\nthree" } });
    expect(shown()).toBe("1\n2\n3\n");
    const { defaultLineHeight: height } = view;
    view.dispatch({ effects: setStripes.of((line) => (line > 1 ? "blue" : null)) });
    expect(stripes()).toEqual([`blue ${height}px ${2 * height}px`]);
    view.dispatch({ effects: setStripes.of(() => null) });
    expect(stripes()).toEqual([]);
  });

  test("draws line costs beside the stripes", () => {
    view = new EditorView({ state: EditorState.create({ doc: "one\ntwo\nthree", extensions: [margin] }) });
    const heats = (): string[] =>
      [...view.dom.querySelectorAll<HTMLElement>(".mnb-heats > .mnb-heat")].map(
        ({ style, textContent }) => `${textContent} ${style.getPropertyValue("--level")} ${style.top}`,
      );
    const isWide = (): boolean => view.dom.querySelector(".mnb-margin")!.classList.contains("mnb-with-heat");
    expect([heats(), isWide()]).toEqual([[], false]);
    const { defaultLineHeight: height } = view;
    view.dispatch({
      effects: setHeat.of(
        (line) => [null, { level: 1, text: "8 FLOP" }, null, { level: 0.25, text: "?" }][line] ?? null,
      ),
    });
    expect([heats(), isWide()]).toEqual([["8 FLOP 100% 0px", `? 25% ${2 * height}px`], true]);
    view.dispatch({ effects: setHeat.of(() => null) });
    expect([heats(), isWide()]).toEqual([[], false]);
  });

  test("draws only the visible lines", () => {
    view = new EditorView({
      state: EditorState.create({ doc: Array(50_000).fill("line").join("\n"), extensions: [margin] }),
    });
    let calls = 0;
    view.dispatch({ effects: setStripes.of(() => (calls++, "blue")) });
    expect(calls).toBeLessThan(1000);
    expect(shown().split("\n").length).toBeLessThan(1000);
    expect(view.dom.querySelector<HTMLElement>(".mnb-margin")!.style.getPropertyValue("--digits")).toBe("5");
  });
});

test("a linked line shows inferred and kernel-level links", () => {
  const view = new EditorView({ state: EditorState.create({ doc: "one\ntwo\nthree", extensions: [marks] }) });
  view.dispatch({ effects: setFlags.of(new Uint8Array([0, PINNED, PINNED | INFERRED, PINNED | KERNEL])) });
  const lines = [...view.contentDOM.querySelectorAll<HTMLElement>(".mnb-linked")];
  expect(lines.map((line) => line.dataset["mnbOrigin"])).toEqual([undefined, "inferred", "kernel"]);
  expect(lines.map((line) => line.classList.contains("mnb-kernel"))).toEqual([false, false, true]);
  view.destroy();
});

describe("the heat of lines of Python", () => {
  const text = new StageText("python", 1, "# net.py:1\ndef net(x):\n    h = f(\n        x)\n    return h + 1", {
    instructions: [
      [3, 2, "line", ["0"], [], null, null, [], ["net.py:2"]],
      [5, 1, "line", ["1"], [], null, null, [], ["net.py:4"]],
    ],
    equations: {},
    help: [],
  });
  const cost = (lines: CostTableData["lines"], source: CostTableData["source"] = "analytic"): CostTableData => ({
    source,
    lines,
    rows: [],
    total: {} as CostTableData["total"],
    notes: [],
    stale: false,
  });
  const heats = (of: CostTableData | null, figure: Parameters<typeof heatOf>[2] = "flops"): (number | null)[] =>
    [1, 2, 3, 4, 5].map((line) => heatOf(text, of, figure)(line)?.level ?? null);

  test("is relative to the most expensive line", () => {
    expect(heats(cost({ "net.py:2": { flops: 100 }, "net.py:4": { flops: 25 } }))).toEqual([null, null, 1, 1, 0.5]);
  });
  test("has a number on the first line of an expression, and marks unknown costs", () => {
    const lines = cost({ "net.py:2": { flops: 1500, unknown: { flops: 1 } }, "net.py:4": { unknown: { flops: 2 } } });
    expect([3, 4, 5].map((line) => heatOf(text, lines, "flops")(line))).toEqual([
      { level: 1, text: "≥ 1.50 kFLOP" },
      { level: 1, text: "" },
      { level: 0, text: "?" },
    ]);
  });
  test("is null without costs", () => {
    expect(heats(null)).toEqual([null, null, null, null, null]);
    expect(heats(cost({ "net.py:2": {}, "net.py:9": { flops: 3 } }))).toEqual([null, null, null, null, null]);
  });
  test("uses the shown figure, or one that lines have", () => {
    const measured = cost({ "net.py:2": { time_s: 0.1, flops: 1 }, "net.py:4": { flops: 4 } }, "measured");
    expect(heats(measured, "time_s")).toEqual([null, null, 1, 1, null]);
    expect(heats(measured)).toEqual([null, null, 0.5, 0.5, 1]);
    expect([figureOfLines(measured, "params"), figureOfLines(cost({ a: { flops: 1 } }), "time_s")]).toEqual([
      "time_s",
      "flops",
    ]);
  });
});
