/** Regression tests for problems that new users found. */

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { FakeSession, type Sent } from "../dev/fake-model";
import type { ProblemData } from "../src/kernel/contract";
import { render } from "preact";
import { FieldRow } from "../src/controls/fields";
import { createOverflowRow, withoutRoom } from "../src/controls/overflow-row";
import { shareRange } from "../src/train/plot";
import { mountWorkbench } from "../src/workbench";
import { finderIn } from "./find";
import { shortData } from "./short-data";

const data = shortData(20);
const CLICK = { bubbles: true, button: 0, pointerId: 1 };
const REFUSAL: ProblemData = {
  code: "UnknownOptionError",
  summary: "targets have 3 classes, and the model 2.",
  facts: [["targets", "0 to 2"]],
  advice: "Linear(3)",
  block: "",
  port: "",
  edge: null,
};

/** Rejects the commands in `rejects`. */
class Refusing extends FakeSession {
  rejects: string[] = [];
  protected override answer(command: Sent): void {
    if (this.rejects.includes(command.name)) this.message({ type: "reply", id: command.id, ok: false, error: REFUSAL });
    else super.answer(command);
  }
}

describe("a newcomer", () => {
  let session: Refusing;
  let el: HTMLElement;
  let cleanup: () => void;
  const find = finderIn(() => el);
  const click = (selector: string): void => {
    for (const type of ["pointerdown", "pointerup", "click"]) find(selector).dispatchEvent(new MouseEvent(type, CLICK));
  };
  const key = (place: string | Element, name: string, more: KeyboardEventInit = {}): KeyboardEvent => {
    const event = new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...more });
    const element = typeof place === "string" ? find(place) : (place as HTMLElement);
    element.focus();
    element.dispatchEvent(event);
    return event;
  };
  const type = (input: HTMLInputElement, value: string): void => {
    input.focus();
    input.value = value;
    input.dispatchEvent(new Event("input", { bubbles: true }));
  };
  const sent = (name: string): unknown[] =>
    session.sent.filter((command) => command.name === name).map((command) => command.args);
  beforeEach(async () => {
    session = new Refusing(structuredClone(data));
    el = document.body.appendChild(document.createElement("div"));
    cleanup = mountWorkbench({ model: session, el });
    await vi.waitFor(() => expect(el.querySelectorAll('[data-mnb-pane][data-mnb-version="1"]')).toHaveLength(3), {
      timeout: 5000,
    });
  });
  afterEach(() => {
    cleanup();
    el.remove();
  });

  test("shows a rejected run beside the Train button", async () => {
    session.change({ run: { ...session.snapshot.run, state: "done" } });
    session.rejects = ["train", "rename"];
    click('[data-mnb-action="train.run"]');
    const error = find(".mnb-train .mnb-command-error");
    await vi.waitFor(() => expect(error.hidden).toBe(false));
    expect(find('[data-mnb-action="train.run"]').textContent).toBe("Train again");
    expect(error.textContent).toBe("targets have 3 classes, and the model 2.\ntargets: 0 to 2\nTry: Linear(3)");
    expect(error.previousElementSibling!.contains(find('[data-mnb-action="train.run"]'))).toBe(true);
    click('[data-mnb-node="gelu_0"]'); // a selection does not clear the error
    await Promise.resolve();
    expect(error.hidden).toBe(false);
    session.rejects = [];
    click('[data-mnb-action="train.run"]');
    await vi.waitFor(() => expect(error.hidden).toBe(true));
    session.rejects = ["rename"];
    key('[data-mnb-node="linear_0"]', "F2");
    find<HTMLInputElement>(".mnb-rename").value = "x";
    key(".mnb-rename", "Enter");
    await vi.waitFor(() => expect(sent("rename")).toHaveLength(1));
    expect(error.hidden, "errors of other parts are not shown here").toBe(true);
  });

  test("adds block after block from the palette", () => {
    const input = find<HTMLInputElement>(".mnb-palette-search");
    for (const name of ["Linear", "Relu", "Linear"]) {
      type(input, input.value + name);
      key(input, "Enter");
      expect([input.value, document.activeElement]).toEqual(["", input]);
    }
    key(input, "Enter");
    expect(sent("add_block").map((args: any) => args.kind)).toEqual(["Linear", "Relu", "Linear", "Linear"]);
    expect(find('.mnb-palette-item[aria-selected="true"]').dataset["mnbPalette"]).toBe("Linear");
  });

  test("keeps the order of the palette until the pointer and the focus have left it", async () => {
    const [input, palette] = [find(".mnb-palette-search"), find(".mnb-palette")];
    const kinds = () =>
      [...el.querySelectorAll<HTMLElement>(".mnb-palette-item")].map((item) => item.dataset["mnbPalette"]!);
    const [before, added] = [kinds(), kinds().slice(-2)];
    palette.dispatchEvent(new Event("pointerenter"));
    input.focus();
    for (const kind of added)
      for (const type of ["pointerdown", "pointerup"])
        find(`[data-mnb-palette="${kind}"]`).dispatchEvent(new MouseEvent(type, { bubbles: true, cancelable: true }));
    expect(sent("add_block").map((args: any) => args.kind)).toEqual(added);
    session.change({ can_undo: true });
    const settled = () => new Promise((resolve) => setTimeout(resolve, 50));
    await settled();
    expect(kinds()).toEqual(before);
    input.blur();
    await settled();
    expect(kinds()).toEqual(before);
    palette.dispatchEvent(new Event("pointerleave"));
    await vi.waitFor(() => expect(kinds().slice(0, 2)).toEqual([...added].reverse()));
  });

  test("renames by the button, and Enter does not click again", async () => {
    click('[data-mnb-node="gelu_0"]');
    click('[data-mnb-action="inspector.rename"]');
    find<HTMLInputElement>(".mnb-inspector .mnb-rename").value = "act";
    expect(
      key(".mnb-inspector .mnb-rename", "Enter").defaultPrevented,
      "else the browser clicks the button that has the focus now",
    ).toBe(true);
    await vi.waitFor(() => expect(document.activeElement).toBe(find('[data-mnb-action="inspector.rename"]')));
    expect(sent("rename")).toEqual([{ path: "gelu_0", name: "act" }]);
  });

  test.each([
    '[data-mnb-pane="jaxpr"] .cm-content',
    ".mnb-panes",
    ".mnb-tabs",
    '[data-mnb-tab="cost"]',
    'tr[data-mnb-cost="gelu_0"]',
    '[data-mnb-action="undo"]',
    '[data-mnb-action="inspector.rename"]',
    ".mnb-root",
  ])("removes no block by a key pressed at %s", (place) => {
    click('[data-mnb-node="gelu_0"]');
    for (const name of ["Delete", "Backspace"]) key(place, name);
    expect(sent("remove")).toEqual([]);
  });

  test.each([
    '[data-mnb-part="source"] .cm-content',
    '[data-mnb-action="inspector.rename"]',
    ".mnb-root",
    '[data-mnb-tab="cost"]',
    ".mnb-palette-search",
  ])("has no shortcuts of one key at %s", (place) => {
    click('[data-mnb-node="gelu_0"]');
    const before = [find(".mnb-root").getAttributeNames().join(), session.sent.length];
    for (const name of [
      ..."abdefinopqtxz?/[] ",
      ...(place.includes("tab") ? "" : "12345"),
      "F2",
      ...(place.includes("source") ? [] : ["Delete", "Backspace"]), // in the editor, they delete its text
    ])
      expect(key(place, name).defaultPrevented, name).toBe(false);
    expect([find(".mnb-root").getAttributeNames().join(), session.sent.length]).toEqual(before);
    expect([find(".mnb-help").hidden, find(".mnb-inspector").hidden, document.querySelector(".mnb-rename")]).toEqual([
      true,
      false,
      null,
    ]);
  });

  test("selects all blocks by Ctrl A, and never the page", () => {
    for (const place of [".mnb-root", ".mnb-board", '[data-mnb-tab="cost"]']) {
      expect(key(place, "a", { ctrlKey: true }).defaultPrevented).toBe(true);
      expect(find(".mnb-board").querySelectorAll('[aria-selected="true"]').length).toBeGreaterThan(2);
      key(place, "Escape");
    }
    expect(key('[data-mnb-part="source"] .cm-content', "a", { ctrlKey: true }).defaultPrevented).toBe(true);
    expect(key(".mnb-palette-search", "a", { ctrlKey: true }).defaultPrevented, "a field selects its text").toBe(false);
    expect(find(".mnb-board").querySelectorAll('[aria-selected="true"]')).toHaveLength(0);
  });

  test("has a menu of its own at the right button", () => {
    const node = find('[data-mnb-node="gelu_0"]');
    const press = new MouseEvent("contextmenu", { bubbles: true, cancelable: true });
    const host = vi.fn();
    document.addEventListener("contextmenu", host);
    node.dispatchEvent(press);
    expect([press.defaultPrevented, host.mock.calls.length]).toEqual([true, 0]);
    const items = [...el.querySelectorAll<HTMLElement>(".mnb-popup > [role=menuitem]")];
    expect(items.map((item) => item.textContent)).toEqual([
      "RenameF2",
      "Connect to…C",
      "Replace…R",
      "Read a new input…",
      "Make its output one of the model",
      "CopyCtrl C",
      "CutCtrl X",
      "DuplicateCtrl D",
      "Group…Ctrl G",
      "Repeat…",
      "Save to My blocks…",
      "AncestorsA",
      "DescendantsD",
      "RemoveDelete",
      "Zoom to the selectionZ",
      "Show the whole graph0",
    ]);
    expect(document.activeElement).toBe(items[0]);
    items.find((one) => one.textContent!.startsWith("Remove"))!.click();
    expect(sent("remove")).toEqual([{ paths: ["gelu_0"] }]);
    expect(el.querySelector(".mnb-popup")).toBeNull();
    find(".mnb-status").dispatchEvent(new MouseEvent("contextmenu", { bubbles: true }));
    expect(host).not.toHaveBeenCalled();
    document.removeEventListener("contextmenu", host);
  });

  test("keeps a refused name in its open field, with the reason", async () => {
    session.rejects = ["rename"];
    key('[data-mnb-node="gelu_0"]', "F2");
    const input = find<HTMLInputElement>(".mnb-rename");
    input.value = "linear_0";
    key(".mnb-rename", "Enter");
    await vi.waitFor(() => expect(find(".mnb-rename-slot [role=alert]").hidden).toBe(false));
    expect([input.isConnected, input.value, sent("rename").length]).toEqual([true, "linear_0", 1]);
    input.value = " x";
    key(".mnb-rename", "Enter");
    expect(find(".mnb-rename-slot [role=alert]").textContent).toBe(
      "Names have no spaces at their ends, and no invisible characters.",
    );
    expect(sent("rename")).toHaveLength(1);
    session.rejects = [];
    input.value = "a/b";
    key(".mnb-rename", "Enter");
    await vi.waitFor(() => expect(el.querySelector(".mnb-rename")).toBeNull());
    expect(sent("rename").at(-1)).toEqual({ path: "gelu_0", name: "a/b" });
  });

  test.each([".mnb-board", '[data-mnb-action="canvas.fit"]'])(
    "removes the selected block by Delete at %s, and reports it",
    async (place) => {
      const line = find('.mnb-status [role="status"]');
      click('[data-mnb-node="gelu_0"]');
      key(place, "Delete");
      expect(sent("remove")).toEqual([{ paths: ["gelu_0"] }]);
      await vi.waitFor(() => expect(line.textContent).toBe("Removed gelu_0. Undo: Ctrl+Z"));
      session.change({ can_undo: true });
      click('[data-mnb-action="undo"]');
      expect(line.textContent).toBe("");
    },
  );

  test("does not report a rejected or undone removal", async () => {
    session.rejects = ["remove"];
    click('[data-mnb-node="gelu_0"]');
    click('[data-mnb-action="inspector.remove"]');
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(sent("remove")).toHaveLength(1);
    session.rejects = [];
    session.change({ can_undo: true });
    expect(find('.mnb-status [role="status"]').textContent).toBe("");
    click('[data-mnb-action="inspector.remove"]');
    click('[data-mnb-action="undo"]');
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(find('.mnb-status [role="status"]').textContent).toBe("");
  });

  test("offers an older version, and where declined edits are", async () => {
    const offer = { edits: 1, saved_at: 1e9, labels: ["add Relu"], source: "", difference: "", can_restore: true };
    const autosave = { offer: { ...offer, older: 4 }, path: "/d/.mithril_nb/d-3f.json", problem: "", edits: 0 };
    session.change({ autosave });
    expect(find(".mnb-restore").textContent).toContain(
      "add Relu. An older version with 4 edits is available after “Start from the code”.",
    );
    session.change({ autosave: { ...autosave, offer: { ...offer, older: null } } });
    expect(find(".mnb-restore").textContent).not.toContain("older");
    click('[data-mnb-action="restore.decline"]');
    await vi.waitFor(() =>
      expect(find('.mnb-status [role="status"]').textContent).toBe(
        "The saved 1 edit stays in .mithril_nb/d-3f.json, beside the notebook.",
      ),
    );
  });

  test.each([
    ["done", "The trained parameters are lost with the kernel unless you saved them."],
    ["stopped", "The trained parameters are lost with the kernel unless you saved them."],
    ["failed", ""],
    ["idle", ""],
  ] as const)("a run that is %s, after its kernel ended: %s", (state, words) => {
    const message = find(".mnb-train .mnb-inline-problem");
    session.change({ run: { ...session.snapshot.run, state, message: "" } });
    expect(message.hidden).toBe(true);
    session.emit("comm:close");
    expect([message.textContent, message.hidden]).toEqual([words, words === ""]);
    expect(find(".mnb-train").dataset["mnbRun"]).toBe(state);
  });

  test("opens a fourth stage, and the status line names the one that closed", async () => {
    const shown = (): string[] =>
      [...el.querySelectorAll<HTMLElement>("[data-mnb-pane]")].map((pane) => pane.dataset["mnbPane"]!);
    const line = find('.mnb-status [role="status"]');
    click('[data-mnb-action="pane.python"]');
    expect(shown()).toEqual(["python", "stablehlo", "hlo"]);
    await new Promise((resolve) => setTimeout(resolve, 5)); // the replies of the kernel
    expect(line.textContent).toBe("jaxpr is closed: at most three stages are open.");
    click('[data-mnb-action="pane.python"]');
    expect([shown(), line.textContent]).toEqual([["stablehlo", "hlo"], ""]);
    click('[data-mnb-action="pane.jaxpr"]');
    expect([shown(), line.textContent]).toEqual([["jaxpr", "stablehlo", "hlo"], ""]);
  });

  test("finds the stages without room in a list", () => {
    const [widths, flags] = [
      [60, 50, 40, 80, 90],
      [false, false, true, true, false],
    ];
    expect([...withoutRoom(widths, flags, 320, 50)]).toEqual([]);
    expect([...withoutRoom(widths, flags, 319, 50)]).toEqual([4]);
    expect([...withoutRoom(widths, flags, 200, 50)]).toEqual([4, 1, 0]);
    expect([...withoutRoom(widths, flags, 100, 50)]).toEqual([4, 1, 0, 3]);
    const row = find(".mnb-overflow-row");
    const [buttons, more, list] = [
      row.firstElementChild!,
      find<HTMLButtonElement>('[data-mnb-action="panes.more"]'),
      find(".mnb-overflow"),
    ];
    const count = buttons.childElementCount;
    vi.spyOn(row, "clientWidth", "get").mockReturnValue(210);
    const width = vi.spyOn(HTMLElement.prototype, "offsetWidth", "get").mockReturnValue(50);
    click('[data-mnb-action="pane.python"]');
    expect([more.parentElement!.hidden, list.hidden, buttons.childElementCount, list.childElementCount]).toEqual([
      false,
      true,
      3,
      count - 3,
    ]);
    expect([...buttons.children].every((one) => one.getAttribute("aria-pressed") === "true")).toBe(true);
    more.click();
    expect([list.hidden, more.getAttribute("aria-expanded")]).toEqual([false, "true"]);
    key(more, "Escape");
    expect([list.hidden, document.activeElement, sent("select")]).toEqual([true, more, []]);
    more.click();
    click('[data-mnb-action="pane.jaxpr"]');
    expect([list.hidden, document.activeElement, buttons.contains(document.activeElement)]).toEqual([
      true,
      find('[data-mnb-action="pane.jaxpr"]'),
      true,
    ]);
    click('[data-mnb-action="pane.jaxpr"]');
    expect(document.activeElement).toBe(more); // the button went into the list
    width.mockRestore();
  });

  test("keeps the focus in the list of stages at a resize, and closes the list at a press outside", () => {
    let fit = (): void => undefined;
    vi.stubGlobal(
      "ResizeObserver",
      class {
        constructor(resized: () => void) {
          fit = resized;
        }
        observe(): void {}
        disconnect(): void {}
      },
    );
    const row = createOverflowRow("Stages shown", "more");
    vi.unstubAllGlobals();
    const outside = el.appendChild(document.createElement("p"));
    el.append(row.root);
    const width = vi.spyOn(HTMLElement.prototype, "offsetWidth", "get").mockReturnValue(50);
    const resize = (px: number): void => {
      vi.spyOn(row.root, "clientWidth", "get").mockReturnValue(px);
      fit();
    };
    const buttons = [..."abcd"].map(
      (name) => document.createElement("button").appendChild(document.createTextNode(name)).parentElement!,
    );
    resize(160); // room for two buttons
    row.set(buttons);
    const [more, list] = [
      row.root.querySelector<HTMLElement>('[data-mnb-action="more"]')!,
      row.root.querySelector<HTMLElement>(".mnb-overflow")!,
    ];
    const state = (): unknown[] => [document.activeElement, list.hidden];
    const press = (at: Element): unknown => at.dispatchEvent(new MouseEvent("pointerdown", CLICK));
    more.click();
    buttons[3]!.focus();
    resize(165);
    expect(state()).toEqual([buttons[3], false]);
    press(buttons[2]!);
    expect(list.hidden).toBe(false);
    press(outside);
    expect([list.hidden, more.getAttribute("aria-expanded")]).toEqual([true, "false"]);
    more.click();
    buttons[2]!.focus();
    resize(210); // room for the third
    expect(state(), "the button left the list").toEqual([buttons[2], true]);
    resize(160);
    expect(state(), "the button is in the closed list").toEqual([more, true]);
    more.click();
    row.destroy();
    expect(list.hidden).toBe(true);
    width.mockRestore();
  });

  test("adds a block by the key n, which the card of keys lists", () => {
    key(".mnb-board", "n");
    expect(document.activeElement).toBe(find(".mnb-palette-search"));
    expect(find(".mnb-help").textContent).toContain("nnew block: its kind; Enter adds it after the selected block");
  });

  test(
    "shows a flag that follows the program as auto, and a plain label with the field's own name in the " + "tooltip",
    () => {
      const changed = vi.fn();
      const root = document.createElement("div");
      const field = {
        name: "training",
        label: "train",
        type: "bool",
        value: null,
        optional: true,
        doc: "If true, drop.",
      };
      render(<FieldRow field={field} send={changed} />, root);
      const [label, menu] = [root.querySelector("label")!, root.querySelector("select")!];
      expect([label.textContent, label.title, menu.selectedOptions[0]!.text]).toEqual([
        "train",
        "If true, drop.",
        "auto",
      ]);
      for (const [value, sent] of [
        ["true", true],
        ["false", false],
        ["", null],
      ] as const) {
        menu.value = value;
        menu.dispatchEvent(new Event("change"));
        expect(changed).toHaveBeenLastCalledWith(sent);
      }
      render(<FieldRow field={{ ...field, value: false }} send={changed} />, root);
      expect(menu.selectedOptions[0]!.text).toBe("off");
    },
  );

  test("explains which figures of training are means", () => {
    const labels = [...find(".mnb-run-figures").querySelectorAll("dt")].map((label) => label.textContent);
    expect(labels).toEqual([
      "epoch mean loss",
      "epoch mean accuracy",
      "steps/s",
      "validation loss",
      "validation accuracy",
      "time left",
    ]);
    expect(find(".mnb-run-figures > div").title).toBe(
      "Mean over the batches of the current epoch. The curve shows each batch.",
    );
    expect(shareRange(null, 0.2, 0.99)).toEqual([expect.closeTo(0.137, 3), 1]);
    expect([shareRange(null, null, null), shareRange(null, 0, 1), shareRange(null, 0.5, 0.5)]).toEqual([
      [0, 1],
      [0, 1],
      [0.49, 0.51],
    ]);
  });

  test("changes the learning rate before the first run", async () => {
    session.change({ run: { ...session.snapshot.run, state: "none", learning_rate: 0.001 } });
    const rate = find<HTMLInputElement>('.mnb-train-control input[aria-label="Learning rate"]');
    expect([rate.value, rate.disabled]).toEqual(["0.001", false]);
    type(rate, "0.25");
    rate.dispatchEvent(new Event("change"));
    await vi.waitFor(() => expect(sent("set_learning_rate")).toEqual([{ value: 0.25 }]));
  });

  test("explains why an empty shape is invalid", () => {
    const input = find<HTMLInputElement>("[data-mnb-shape]");
    type(input, "");
    key(input, "Enter");
    const words = find(".mnb-header .mnb-field-problem");
    expect([words.textContent, words.hidden, input.getAttribute("aria-invalid")]).toEqual([
      "Enter at least one size, such as 32, 64.",
      false,
      "true",
    ]);
    expect(sent("set_shape")).toEqual([]);
    input.blur();
    session.change({});
    expect(words.hidden).toBe(true);
  });

  test("points from an empty pane to the problems", () => {
    const problem = { ...REFUSAL, code: "UnconnectedPortError", summary: "'linear_0.input' is connected to nothing." };
    const stages = Object.fromEntries(
      Object.entries(session.snapshot.stages).map(([name, info]) => [
        name,
        { ...info, state: "empty" as const, message: "the model has problems" },
      ]),
    );
    const card = (): string => find('[data-mnb-pane="hlo"] .mnb-pane-card p').textContent!;
    session.change({ stages, problems: [problem] });
    expect(card()).toBe("'linear_0.input' is connected to nothing. See the Problems tab.");
    session.change({ problems: [problem, REFUSAL] });
    expect(card()).toBe("'linear_0.input' is connected to nothing. The Problems tab lists all 2.");
    session.change({
      problems: [],
      stages: Object.fromEntries(
        Object.entries(stages).map(([name, info]) => [name, { ...info, message: "there is no block yet" }]),
      ),
    });
    expect(card()).toBe("there is no block yet");
  });
});
