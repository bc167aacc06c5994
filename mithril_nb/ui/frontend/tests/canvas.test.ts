/** Editing the model on the canvas with the pointer: wiring, dragging, renaming, problems. */

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { FakeSession, gzip } from "../dev/fake-model";
import { stateOf } from "../dev/states";
import { previewLines } from "../src/editor/preview";
import { byFamily } from "../src/editor/canvas-parts";
import type { SceneNode } from "../src/graph/scene";
import { mountWorkbench } from "../src/workbench";
import { finderIn } from "./find";
import { sceneOf } from "./scene";
import { shortData } from "./short-data";

const data = shortData(20);
let session: FakeSession;
let el: HTMLElement;
let cleanup: () => void;
const find = finderIn(() => el);
const sent = (name: string): unknown[] =>
  session.sent.filter((command) => command.name === name).map((command) => command.args);
const nodeOf = (path: string): SceneNode =>
  sceneOf(session.snapshot).nodes.find((node) => (node.path || node.name) === path)!;
const item = (path: string): HTMLElement => find(`[data-mnb-node="${path}"]`);

/** Return the place on the screen of a point relative to a block. */
function at(path: string, dx: number, dy: number): { clientX: number; clientY: number } {
  const [x, y] = /translate\((.+)px, (.+)px\)/.exec(item(path).style.transform)!.slice(1).map(Number) as [
    number,
    number,
  ];
  const k = Number(/scale\((.+)\)/.exec(find(".mnb-scene").style.transform)![1]);
  return { clientX: k * (x + dx), clientY: k * (y + dy) };
}

function pointer(
  type: string,
  place: { clientX: number; clientY: number },
  target: Element = find(".mnb-board"),
  buttons = 0,
): void {
  target.dispatchEvent(new MouseEvent(type, { bubbles: true, cancelable: true, button: 0, buttons, ...place }));
}

/** Hover a block, press its output, and move to a place. */
function pull(from: string, to: { clientX: number; clientY: number }): void {
  const port = nodeOf(from).outputs[0]!;
  pointer("pointermove", at(from, 40, 20));
  pointer("pointerdown", at(from, port.x, port.y), find(`[data-mnb-node="${from}"] .mnb-port-output`), 1);
  pointer("pointermove", to, undefined, 1);
}

const input = (path: string): { clientX: number; clientY: number } =>
  at(path, nodeOf(path).inputs[0]!.x, nodeOf(path).inputs[0]!.y);

async function mount(state = ""): Promise<void> {
  session = new FakeSession(stateOf(data, state));
  el = document.body.appendChild(document.createElement("div"));
  cleanup = mountWorkbench({ model: session, el });
  vi.spyOn(find(".mnb-board"), "clientWidth", "get").mockReturnValue(700);
  vi.spyOn(find(".mnb-board"), "clientHeight", "get").mockReturnValue(400);
  find('[data-mnb-action="canvas.fit"]').click();
}

beforeEach(() => mount());
afterEach(() => {
  cleanup();
  el.remove();
});

test("colours blocks by family in Build, by block beside costs, and says which", () => {
  const block = (kind: string): SceneNode => ({ ...nodeOf("gelu_0"), key: kind, path: kind, kind });
  const { nodes, legend } = byFamily(["Relu", "Linear", "Relu", "net"].map(block), session.snapshot.kinds);
  expect(nodes.map(({ hue }) => hue)).toEqual([1, 0, 1, 7]);
  expect(legend.legend.map(({ text, hue }) => [text, hue])).toEqual([
    ["layers", 0],
    ["activations", 1],
    ["models", 7],
  ]);
  expect(byFamily([nodeOf("input")], {}).legend.legend, "an input has no family").toEqual([]);
  const shown = () => find(".mnb-canvas .mnb-legend").textContent;
  expect([shown(), item("gelu_0").textContent]).toEqual([
    "colour: familylayersactivationscomposites",
    expect.stringContaining("Gelu, activations"),
  ]);
  find('[data-mnb-tab="cost"]').click();
  expect(shown()).toBe("colour: block, as in the code");
  find('[data-mnb-tab="stages"]').click();
  find('[data-mnb-action="layout.lecture"]').click();
  expect(shown()).toBe("colour: block, as in the code");
  find('[data-mnb-action="layout.build"]').click();
  expect(shown()).toContain("family");
});

test("connects an output to the input where it is dropped", () => {
  pull("linear_0", input("linear_1"));
  expect(find(".mnb-tip").textContent).toBe("linear_0.output → linear_1.input");
  pointer("pointerup", input("linear_1"));
  expect(sent("connect")).toEqual([{ source: "linear_0.output", target: "linear_1.input" }]);
  expect([find(".mnb-tip").hidden, sent("select")]).toEqual([true, []]);
});

test("an output dropped on an output of the model becomes its source", () => {
  const { x, y } = nodeOf("output").inputs[0]!;
  pull("linear_0", at("output:output", x, y));
  pointer("pointerup", at("output:output", x, y));
  expect(sent("connect")).toEqual([{ source: "linear_0.output", target: "output" }]);
  expect(sent("expose")).toEqual([]);
});

test("a drag of a wire at its output port begins a new wire, farther along it moves the end", () => {
  const edge = sceneOf(session.snapshot).edges.find(({ source }) => source === "linear_0.output")!;
  const { x, y } = nodeOf("linear_0").outputs[0]!;
  const k = at("linear_0", 1, 0).clientX - at("linear_0", 0, 0).clientX || 1;
  const drag = (beside: number, end: { clientX: number; clientY: number }) => {
    pointer("pointermove", at("linear_0", x + beside / k, y));
    pointer("pointerdown", at("linear_0", x + beside / k, y), undefined, 1);
    pointer("pointermove", end, undefined, 1);
    pointer("pointerup", end);
  };
  drag(6, input("linear_1"));
  expect(sent("connect")).toEqual([{ source: edge.source, target: "linear_1.input" }]);
  drag(6, at("linear_0", x + 7 / k, y));
  expect(el.querySelector('[data-mnb-action="blocks.search"]')).toBeNull();
  expect(sent("disconnect")).toEqual([]);
  drag(14, { clientX: 690, clientY: 390 });
  expect(sent("disconnect")).toEqual([{ source: edge.source, target: edge.target }]);
});

test("rejects a cycle with its reason, and connects nothing", () => {
  pull("linear_1", input("linear_0"));
  expect(find(".mnb-tip").textContent).toBe("This creates a cycle: linear_0 → gelu_0 → mlp_0 → linear_1 → linear_0.");
  pointer("pointerup", input("linear_0"));
  expect(sent("connect")).toEqual([]);
});

test("a dragged block snaps to others, not with Ctrl; the drop stores what was shown, and selects nothing", () => {
  const [block, other] = [nodeOf("gelu_0"), nodeOf("linear_1")];
  const k = Number(/scale\((.+)\)/.exec(find(".mnb-scene").style.transform)![1]);
  const start = at("gelu_0", 20, 20);
  const drag = (x: number, y: number, ctrlKey: boolean): { x: number; y: number } => {
    const end = { clientX: start.clientX + (x - block.x) * k, clientY: start.clientY + (y - block.y) * k, ctrlKey };
    pointer("pointerdown", at("gelu_0", 20, 20), undefined, 1);
    pointer("pointermove", end, undefined, 1);
    const shown = at("gelu_0", 0, 0);
    pointer("pointerup", start); // the drop does not look at the place again
    pointer("click", start);
    expect(at("gelu_0", 0, 0)).toEqual(shown);
    const { places } = sent("move").at(-1) as { places: [string, number, number][] };
    session.change({ graph: { ...session.snapshot.graph, moved: {} } });
    return { x: places[0]![1], y: places[0]![2] };
  };
  const far = other.y + other.h + 40;
  expect(drag(other.x + 5 / k, far, false)).toEqual({ x: other.x, y: Math.round(far) });
  expect(drag(other.x + 5 / k, far, true)).toEqual({ x: Math.round(other.x + 5 / k), y: Math.round(far) });
  expect(drag(other.x + 20 / k, far, false)).toEqual({ x: Math.round(other.x + 20 / k), y: Math.round(far) });
  expect(drag(-300, -300, true), "no block is above or left of the graph").toEqual({ x: 12, y: 12 });
  expect(sent("select")).toEqual([]);
});

test("a block that is removed while it is dragged is dropped nowhere", () => {
  const [start, { clientX, clientY }] = [at("gelu_0", 20, 20), at("gelu_0", 60, 60)];
  pointer("pointerdown", start, undefined, 1);
  pointer("pointermove", { clientX, clientY }, undefined, 1);
  const { boxes } = session.snapshot.graph;
  const key = boxes.key!.map((name) => (name === "gelu_0" ? "other" : name));
  const path = boxes.path!.map((name) => (name === "gelu_0" ? "other" : name));
  session.change({ graph: { ...session.snapshot.graph, boxes: { ...boxes, key, path }, flows: {} } });
  const errors: string[] = [];
  const hear = (event: ErrorEvent): void => void errors.push(event.message);
  window.addEventListener("error", hear);
  pointer("pointermove", { clientX: clientX + 40, clientY }, undefined, 1);
  pointer("pointerup", { clientX: clientX + 40, clientY });
  window.removeEventListener("error", hear);
  expect([errors, sent("move"), sent("insert")]).toEqual([[], [], []]);
});

test("renames by double-click, opens a group by its chevron, and leaves no text field behind", async () => {
  pointer("dblclick", at("gelu_0", 20, 20));
  const field = find<HTMLInputElement>('[data-mnb-node="gelu_0"] .mnb-rename');
  field.value = "act";
  field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
  await vi.waitFor(() => expect(el.querySelectorAll(".mnb-rename-slot")).toHaveLength(0));
  expect(sent("rename")).toEqual([{ path: "gelu_0", name: "act" }]);
  pointer("pointermove", at("mlp_0", 40, 20));
  find('[data-mnb-node="mlp_0"] .mnb-node-chevron').click();
  expect(sent("expand")).toEqual([{ path: "mlp_0" }]);
  pointer("dblclick", at("mlp_0", 40, 60)); // inside of the open group
  expect(sent("collapse")).toEqual([]);
  pointer("dblclick", at("mlp_0", 40, 10));
  expect([sent("collapse"), sent("rename").length]).toEqual([[{ path: "mlp_0" }], 1]);
});

test("a field stays open, with its text, if an earlier rename of its block arrives meanwhile", async () => {
  const press = (key: string, target: Element) =>
    target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
  item("gelu_0").focus();
  press("F2", item("gelu_0"));
  const field = find<HTMLInputElement>(".mnb-rename");
  field.value = "ac";
  session.change(JSON.parse(JSON.stringify(session.snapshot).replaceAll("gelu_0", "act")));
  await vi.waitFor(() => expect(item("act").contains(field)).toBe(true));
  expect([field.value, document.activeElement]).toEqual(["ac", field]);
  field.value = "gelu_0"; // back to its first name
  press("Enter", field);
  expect(sent("rename")).toEqual([{ path: "act", name: "gelu_0" }]);
  await vi.waitFor(() => expect(document.activeElement).toBe(item("act")));
});

test("names problems on blocks and edges, and shows them in the list", async () => {
  cleanup();
  el.remove();
  await mount("problem");
  expect(item("linear_1").getAttribute("aria-label")).toContain(", problem: cannot connect");
  expect(find("[data-mnb-problem]").title).toBe(""); // a second tooltip beside that of the graph
  pointer("pointermove", at("linear_1", 40, 20));
  find('[data-mnb-node="linear_1"] .mnb-node-flag').click();
  expect(find('[data-mnb-panel="problems"]').hidden).toBe(false);
  find("[data-mnb-problem]").dispatchEvent(new MouseEvent("click", { bubbles: true }));
  expect(find("[data-mnb-problem]").classList.contains("mnb-selected")).toBe(true);
});

test("opens a group at once, also without a kernel, and closes it if the kernel refuses", async () => {
  const toggle = (): void => {
    pointer("pointermove", at("mlp_0", 40, 10));
    find('[data-mnb-node="mlp_0"] .mnb-node-chevron').click();
  };
  const inner = '[data-mnb-node="mlp_0/linear_0"]';
  session.alive = false;
  toggle();
  expect([el.querySelectorAll(inner).length, session.snapshot.graph.opened]).toEqual([1, []]);
  session.emit("comm:close");
  await Promise.resolve();
  expect(el.querySelectorAll(inner)).toHaveLength(1);
  toggle();
  expect(el.querySelectorAll(inner)).toHaveLength(0);
});

test("a block that the kernel does not move goes back", async () => {
  session.alive = false;
  const start = at("gelu_0", 20, 20);
  const end = { clientX: start.clientX + 60, clientY: start.clientY + 30 };
  pointer("pointerdown", start, undefined, 1);
  pointer("pointermove", end, undefined, 1);
  pointer("pointerup", end);
  expect(at("gelu_0", 20, 20).clientX).toBeCloseTo(end.clientX, 0);
  const { id } = session.sent.findLast(({ name }) => name === "move")!;
  session.message({ type: "reply", id, ok: false, error: { code: "", summary: "no", facts: [], advice: "" } });
  await vi.waitFor(() => expect(at("gelu_0", 20, 20).clientX).toBeCloseTo(start.clientX, 0));
});

test("keys move the focused block, and send its place once they are released", () => {
  const board = find(".mnb-board");
  item("gelu_0").focus();
  const before = nodeOf("gelu_0");
  const press = (type: string, key: string): void =>
    void item("gelu_0").dispatchEvent(
      new KeyboardEvent(type, { key, altKey: true, shiftKey: true, bubbles: true, cancelable: true }),
    );
  const start = at("gelu_0", 0, 0);
  for (const key of ["ArrowRight", "ArrowRight", "ArrowDown"]) press("keydown", key);
  expect(sent("move")).toEqual([]);
  expect(at("gelu_0", 0, 0).clientX).toBeGreaterThan(start.clientX);
  press("keyup", "ArrowDown");
  press("keyup", "Shift");
  expect(sent("move")).toEqual([{ places: [["gelu_0", before.x + 32, before.y + 16]] }]);
  for (let step = 0; step < 9; step++) press("keydown", "ArrowUp");
  press("keyup", "ArrowUp");
  expect(sent("move")[1]).toEqual({ places: [["gelu_0", before.x + 32, 12]] });
  expect(board.contains(document.activeElement)).toBe(true);
});

test("two quick changes of the view outlive the snapshot with the first", async () => {
  session.alive = false;
  const places = (): number[] => ["gelu_0", "linear_1"].map((path) => at(path, 0, 0).clientX);
  const before = places();
  for (const path of ["gelu_0", "linear_1"]) {
    const start = at(path, 20, 20);
    const end = { clientX: start.clientX + 40, clientY: start.clientY };
    pointer("pointerdown", start, undefined, 1);
    pointer("pointermove", end, undefined, 1);
    pointer("pointerup", end);
  }
  const [first] = session.sent.filter(({ name }) => name === "move");
  session.change({ graph: { ...session.snapshot.graph, moved: { gelu_0: first!.args["places"][0].slice(1) } } });
  session.message({ type: "reply", id: first!.id, ok: true, error: null });
  places().forEach((place, i) => expect(place).toBeCloseTo(before[i]! + 40, 0));
});

describe("a selection of several blocks", () => {
  const chosen = (): string[] =>
    [...el.querySelectorAll<HTMLElement>('[data-mnb-node][aria-selected="true"]')].map(
      (one) => one.dataset["mnbNode"]!,
    );
  const key = (name: string, target: Element = find(".mnb-board")): void =>
    void target.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true }));

  /** Draw a marquee around blocks, beginning on the background. */
  function around(paths: string[], shiftKey = false): void {
    const nodes = paths.map(nodeOf);
    const [x, y] = [Math.min(...nodes.map((one) => one.x)) - 4, Math.min(...nodes.map((one) => one.y)) - 4];
    const right = Math.max(...nodes.map((one) => one.x + one.w));
    const bottom = Math.max(...nodes.map((one) => one.y + one.h));
    const first = nodeOf(paths[0]!);
    const [start, end] = [
      at(paths[0]!, x - first.x, y - first.y),
      at(paths[0]!, right - first.x - 2, bottom - first.y - 2),
    ];
    const event = (type: string, place: typeof start, buttons: number) =>
      find(".mnb-board").dispatchEvent(
        new MouseEvent(type, { bubbles: true, cancelable: true, buttons, shiftKey, ...place }),
      );
    event("pointerdown", start, 1);
    event("pointermove", end, 1);
    event("pointerup", end, 0);
    event("click", end, 0);
  }

  test("is made by a marquee, extended by Shift, inverted by a key and cleared by Escape", () => {
    around(["linear_0"]);
    expect(chosen()).toEqual(["linear_0"]);
    expect(el.querySelector(".mnb-marquee")).toBeNull();
    around(["gelu_0"], true);
    expect(chosen()).toEqual(["linear_0", "gelu_0"]);
    around(["gelu_0"]);
    expect(chosen()).toEqual(["gelu_0"]);
    key("v");
    expect(chosen()).toEqual(["linear_0", "mlp_0", "linear_1"]);
    key("Escape");
    expect(chosen()).toEqual([]);
  });

  test("moves together, by mouse and by keys, as one step", () => {
    around(["linear_0"]);
    around(["gelu_0"], true);
    const [one, two] = ["linear_0", "gelu_0"].map(nodeOf);
    const k = Number(/scale\((.+)\)/.exec(find(".mnb-scene").style.transform)![1]);
    const start = at("gelu_0", 20, 20);
    const end = { clientX: start.clientX + 40 * k, clientY: start.clientY + 30 * k };
    pointer("pointerdown", start, undefined, 1);
    pointer("pointermove", end, undefined, 1);
    pointer("pointerup", end);
    const moved = [one!, two!].map(({ path, x, y }) => [path, Math.round(x + 40), Math.round(y + 30)]);
    expect(sent("move")).toEqual([{ places: moved }]);
  });

  test("is aligned and distributed as one step", () => {
    around(["linear_0"]);
    around(["gelu_0"], true);
    pointer("contextmenu", at("gelu_0", 20, 20), item("gelu_0"));
    const menuItem = (name: string) =>
      [...el.querySelectorAll<HTMLElement>("[role=menuitem]")].find((one) => one.textContent!.startsWith(name))!;
    menuItem("Align, distribute").click();
    expect(menuItem("Distribute")).toBeUndefined(); // two blocks have one gap
    menuItem("Align left").click();
    const x = Math.min(...["linear_0", "gelu_0"].map((path) => nodeOf(path).x));
    expect(sent("move")).toEqual([
      { places: ["linear_0", "gelu_0"].map((path) => [path, x, nodeOf(path).y]), label: "align left" },
    ]);
  });

  test("the held Space pans, and its release without a drag selects the focused block", async () => {
    item("gelu_0").focus();
    const before = at("gelu_0", 0, 0);
    key(" ");
    around(["linear_0"]);
    find(".mnb-board").dispatchEvent(new KeyboardEvent("keyup", { key: " ", bubbles: true }));
    await vi.waitFor(() => expect(at("gelu_0", 0, 0)).not.toEqual(before));
    expect(chosen()).toEqual([]);
    key(" ");
    find(".mnb-board").dispatchEvent(new KeyboardEvent("keyup", { key: " ", bubbles: true }));
    expect(chosen()).toEqual(["gelu_0"]);
  });
});

describe("commands of the canvas", () => {
  const press = (name: string, target: Element, modifiers: KeyboardEventInit = {}): void =>
    void target.dispatchEvent(
      new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...modifiers }),
    );
  const menu = (): string[] => [...el.querySelectorAll(".mnb-popup > [role=menuitem]")].map((one) => one.textContent!);

  test("copy, cut and paste act on the selected blocks, and never in a text field", async () => {
    pointer("click", at("gelu_0", 20, 20), item("gelu_0"));
    const event = (type: string, target: Element): Event => {
      const made = Object.assign(new Event(type, { bubbles: true, cancelable: true }), {
        clipboardData: { getData: () => "Linear(3)" },
      });
      target.dispatchEvent(made);
      return made;
    };
    expect(event("copy", find('[data-mnb-action="palette.search"]')).defaultPrevented).toBe(false);
    expect(event("copy", item("gelu_0")).defaultPrevented).toBe(true);
    expect(sent("request_export")).toEqual([{ format: "python", paths: ["gelu_0"] }]);
    event("paste", item("gelu_0"));
    expect(sent("paste")).toEqual([{ text: "Linear(3)", path: "" }]);
  });

  test("keys duplicate, group with a name, ungroup and replace", async () => {
    pointer("click", at("gelu_0", 20, 20), item("gelu_0"));
    press("d", item("gelu_0"), { ctrlKey: true });
    expect(sent("duplicate")).toEqual([{ paths: ["gelu_0"] }]);
    press("g", item("gelu_0"), { ctrlKey: true });
    const field = find<HTMLInputElement>(".mnb-rename");
    const caption = find(".mnb-field-caption");
    expect([field.value, field.getAttribute("aria-label")]).toEqual(["group_0", "Name of the group"]);
    expect([caption.textContent, caption.hidden]).toEqual(["Name of the group", false]);
    press("Enter", field);
    expect(sent("group")).toEqual([{ paths: ["gelu_0"], name: "group_0" }]);
    await vi.waitFor(() => expect(el.querySelector(".mnb-rename")).toBeNull());
    press("g", item("gelu_0"), { ctrlKey: true, shiftKey: true });
    expect(sent("ungroup")).toEqual([{ path: "gelu_0" }]);
    press("r", item("gelu_0"));
    const search = find<HTMLInputElement>('[data-mnb-action="blocks.search"]');
    expect(document.activeElement).toBe(search);
    search.value = "relu";
    search.dispatchEvent(new Event("input", { bubbles: true }));
    await vi.waitFor(() => expect(find(".mnb-block-search [aria-selected=true]").textContent).toContain("Relu"));
    press("Enter", search);
    expect(sent("replace_block")).toEqual([{ path: "gelu_0", kind: "Relu" }]);
    expect(document.activeElement).toBe(item("gelu_0"));
  });

  test("a wire dropped on the background asks for a block there, which reads it", async () => {
    const end = { clientX: 690, clientY: 390 };
    pull("linear_0", end);
    pointer("pointerup", end);
    const search = find<HTMLInputElement>('[data-mnb-action="blocks.search"]');
    press("Enter", search);
    const [{ kind, source }] = sent("place_block") as [{ kind: string; source: string }];
    expect([kind, source]).toEqual([session.snapshot.palette[0]!.kind, "linear_0.output"]);
  });

  test("an input gives up its wire on the background, or to another input", () => {
    const grab = (): void => {
      pointer("pointermove", at("linear_1", 40, 20));
      pointer("pointerdown", input("linear_1"), find('[data-mnb-node="linear_1"] .mnb-port-input'), 1);
    };
    const [edge] = sceneOf(session.snapshot).edges.filter(({ target }) => target === "linear_1.input");
    for (const end of [input("linear_1"), { clientX: 690, clientY: 390 }, input("gelu_0")]) {
      grab();
      pointer("pointermove", { clientX: end.clientX + 1, clientY: end.clientY + 9 }, undefined, 1);
      pointer("pointermove", end, undefined, 1);
      pointer("pointerup", end);
    }
    expect(sent("disconnect")).toEqual([{ source: edge!.source, target: "linear_1.input" }]);
    expect(el.querySelector('[data-mnb-action="blocks.search"]')).toBeNull();
  });

  test("Shift+F10 opens the menu of the focused block, and letters move in it", () => {
    item("gelu_0").focus();
    press("F10", item("gelu_0"), { shiftKey: true });
    expect(menu()).toContain("DuplicateCtrl D");
    press("r", document.activeElement!);
    expect(document.activeElement!.textContent).toBe("Replace…R");
    press("Escape", document.activeElement!);
    expect(document.activeElement).toBe(item("gelu_0"));
  });

  test("inputs and outputs are renamed as nodes", async () => {
    const pill = nodeOf("input");
    item(pill.key).focus();
    press("F2", item(pill.key));
    expect(find(".mnb-field-caption").hidden, "it stands at the old name").toBe(true);
    find<HTMLInputElement>(".mnb-rename").value = "image";
    press("Enter", find(".mnb-rename"));
    expect(sent("rename_input")).toEqual([{ input: "input", name: "image" }]);
  });
});

test("writes a preview, with unknown as unknown, and a problem in words", () => {
  const preview = { shape: "(8, 64)", problem: "", params: 704, flops: -2.4e6, peak_bytes: null, is_counted: true };
  expect(previewLines(preview)).toEqual(["→ (8, 64)", "+ 704 parameters", "− 2.40 MFLOP", "memory: unknown"]);
  expect(previewLines({ ...preview, params: 18800, flops: 0, peak_bytes: 320e3 })).toEqual([
    "→ (8, 64)",
    "+ 18.8 k parameters",
    "± 0 FLOP",
    "+ 320 kB at the peak",
  ]);
  expect(previewLines({ ...preview, shape: "", params: null, is_counted: false })).toEqual([
    "→ shape unknown",
    "parameters: unknown",
    "counting FLOPs and memory…",
  ]);
  expect(previewLines({ ...preview, shape: null })[0], "no block is added").toBe("+ 704 parameters");
  expect(previewLines({ ...preview, problem: "cannot connect." })).toEqual(["cannot connect."]);
});

test("previews the drop of a palette item, and drops it into the wire under the pointer", async () => {
  const relu = find('[data-mnb-palette="Relu"]');
  const [source, target] = [nodeOf("linear_0"), nodeOf("gelu_0")];
  const [out, into] = [source.outputs[0]!, target.inputs[0]!];
  const [x, y] = [source.x + out.x, source.y + out.y];
  const wire = at("linear_0", (target.x + into.x + x) / 2 - source.x, (target.y + into.y + y) / 2 - source.y);
  vi.spyOn(find(".mnb-board"), "getBoundingClientRect").mockReturnValue(new DOMRect(0, 0, 5000, 5000));
  pointer("pointerdown", { clientX: 9, clientY: 9 }, relu, 1);
  pointer("pointermove", wire, relu, 1);
  const args = { kind: "Relu", source: "linear_0.output", target: "gelu_0.input" };
  await vi.waitFor(() => expect(sent("request_preview").at(-1)).toMatchObject({ edit: "place_block", args }));
  const { key } = sent("request_preview").at(-1) as { key: string };
  const preview = { shape: "(1, 2)", problem: "", params: 0, flops: null, peak_bytes: null, is_counted: false };
  for (const asked of ["of an earlier place", key])
    session.message({ type: "preview", key: asked }, [await gzip(JSON.stringify(preview))]);
  await vi.waitFor(() => expect(find(".mnb-ghost").textContent).toContain("Relu→ (1, 2)± 0 parameters"));
  pointer("pointerup", wire, relu);
  expect(sent("place_block"), "without a stored place").toEqual([args]);
  expect(el.querySelector(".mnb-ghost")).toBeNull();
});
