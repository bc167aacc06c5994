import { describe, expect, test } from "vitest";
import { FakeModel } from "../dev/fake-model";
import { Connection, type Work, adviceFor } from "../src/shell/connection";
import { mount } from "../src/dom/view";
import { Kernel } from "../src/kernel/kernel";

const saved = (path: string): Work => ({
  source: "x",
  autosave: { offer: null, path, problem: "", edits: 2 },
  can_undo: true,
});

describe("advice after the kernel has ended", () => {
  test.each([
    [
      "edits are not saved",
      { source: "x", autosave: null, can_undo: true },
      "Your edits are not saved. Copy the source before you run the cell again.",
    ],
    [
      "there are no edits",
      { source: "x", autosave: null, can_undo: false },
      "Run this notebook from the top to continue.",
    ],
    [
      "edits are saved beside the notebook",
      saved("C:\\digits\\.mithril_nb\\digits-3f.json"),
      "Your 2 edits are saved in .mithril_nb/digits-3f.json, beside the notebook. Run this notebook from the " +
        "top to continue. This cell then offers to restore them.",
    ],
    [
      "edits are saved elsewhere",
      saved("/designs/july/digits.json"),
      "Your 2 edits are saved in /designs/july/digits.json. Run this notebook from the top to continue. This " +
        "cell then offers to restore them.",
    ],
    [
      "one edit is saved",
      { source: "x", autosave: { offer: null, path: "/a.json", problem: "", edits: 1 }, can_undo: true },
      "Your 1 edit is saved in /a.json. Run this notebook from the top to continue. This cell then offers to " +
        "restore it.",
    ],
  ] as [string, Work, string][])("%s", (_, work, advice) => {
    expect(adviceFor(work)).toBe(advice);
  });
});

describe("the banner of a disconnected widget", () => {
  const shown = (work: Work, status?: string): HTMLElement => {
    const model = Object.assign(new FakeModel({}), status && { widget_manager: { kernel: { status } } });
    const strip = mount(<Connection kernel={new Kernel(model)} work={() => work} />).root;
    model.emit("comm:close");
    return strip;
  };

  test.each([
    [undefined, "Disconnected from the kernel. "],
    ["unknown", "Disconnected from the kernel. "],
    ["idle", "This widget was closed. "],
  ])("states what ended if the kernel is %s", (status, what) => {
    expect(shown({}, status).querySelector("[role=status]")!.textContent).toBe(
      `${what}Run this notebook from the top to continue.`,
    );
  });

  test("offers to copy the source only if there is one", () => {
    expect(
      [{}, { source: "" }, { source: "x" }].map(
        (work) => shown(work).querySelector<HTMLElement>('[data-mnb-action="connection.copy"]')!.hidden,
      ),
    ).toEqual([true, true, false]);
  });
});
