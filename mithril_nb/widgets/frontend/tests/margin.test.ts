/** The margin of a code pane: numbers and stripes of the lines that are drawn. */

import { EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { afterEach, describe, expect, test } from "vitest";
import { barsOf, margin, setStripes } from "../src/margin";
import { INFERRED, KERNEL, PINNED, marks, setFlags } from "../src/marks";

describe("bars", () => {
  test("are one for lines below each other with the same stripe", () => {
    const names = [null, "a", "a", "b", null, "b", "b"];
    expect(barsOf((line) => names[line] ?? null, 1, 6)).toEqual([
      { name: "a", from: 1, to: 3 },
      { name: "b", from: 3, to: 4 },
      { name: "b", from: 5, to: 7 },
    ]);
    expect(barsOf((line) => names[line] ?? null, 2, 3), "only what is in sight").toEqual([{ name: "a", from: 2, to: 3 }, { name: "b", from: 3, to: 4 }]);
  });
});

describe("the margin", () => {
  let view: EditorView;
  const shown = (): string => view.dom.querySelector(".mnb-numbers")!.textContent!;
  const stripes = (): string[] => [...view.dom.querySelectorAll<HTMLElement>(".mnb-stripes > *")].map(({ className, style }) => `${className} ${style.top} ${style.height}`);
  afterEach(() => view.destroy());

  test("numbers the lines of each text, and draws its stripes anew", () => {
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

  test("draws no more than the lines in sight, however many there are", () => {
    view = new EditorView({ state: EditorState.create({ doc: Array(50_000).fill("line").join("\n"), extensions: [margin] }) });
    let asked = 0;
    view.dispatch({ effects: setStripes.of(() => (asked++, "blue")) });
    expect(asked).toBeLessThan(1000);
    expect(shown().split("\n").length).toBeLessThan(1000);
    expect(view.dom.querySelector<HTMLElement>(".mnb-margin")!.style.getPropertyValue("--digits")).toBe("5");
  });
});

test("a linked line shows whether its link is inferred, or its kernel's", () => {
  const view = new EditorView({ state: EditorState.create({ doc: "one\ntwo\nthree", extensions: [marks] }) });
  view.dispatch({ effects: setFlags.of(new Uint8Array([0, PINNED, PINNED | INFERRED, PINNED | KERNEL])) });
  const lines = [...view.contentDOM.querySelectorAll<HTMLElement>(".mnb-linked")];
  expect(lines.map((line) => line.dataset["mnbOrigin"])).toEqual([undefined, "inferred", "kernel"]);
  expect(lines.map((line) => line.classList.contains("mnb-kernel"))).toEqual([false, false, true]);
  view.destroy();
});
