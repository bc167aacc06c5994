import { EditorView } from "@codemirror/view";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { FakeModel, FakeSession } from "../dev/fake-model";
import { stateOf } from "../dev/states";
import type { State } from "../src/kernel/contract";
import { mountCurves } from "../src/live";
import { mountWorkbench } from "../src/workbench";
import { finderIn } from "./find";
import { sceneOf } from "./scene";
import { shortData } from "./short-data";

const data = shortData(70);
/** Run updates are shown in the next frame. */
const frame = (): Promise<unknown> => new Promise((resolve) => requestAnimationFrame(resolve));
const CLICK = { bubbles: true, button: 0, pointerId: 1 };

describe("the workbench", () => {
  let session: FakeSession;
  let el: HTMLElement;
  let cleanup: () => void;
  const find = finderIn(() => el);
  const click = (selector: string): void => {
    find(selector).dispatchEvent(new MouseEvent("pointerdown", CLICK));
    find(selector).dispatchEvent(new MouseEvent("pointerup", CLICK));
    find(selector).dispatchEvent(new MouseEvent("click", CLICK));
  };
  const key = (selector: string, name: string, more: KeyboardEventInit = {}): void => {
    find(selector).focus();
    find(selector).dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...more }));
  };
  const sent = (name: string): unknown[] =>
    session.sent.filter((command) => command.name === name).map((command) => command.args);
  /** Send a run, after the replies to earlier clicks. */
  const sendRun = async (run: unknown): Promise<void> => {
    await frame();
    session.message({ type: "run", run });
    await frame();
  };
  const mount = async (state = ""): Promise<void> => {
    session = new FakeSession(stateOf(data, state));
    el = document.createElement("div");
    document.body.append(el);
    cleanup = mountWorkbench({ model: session, el });
    if (!state)
      await vi.waitFor(() => expect(el.querySelectorAll('[data-mnb-pane][data-mnb-version="1"]')).toHaveLength(3), {
        timeout: 5000,
      });
  };
  beforeEach(() => mount());
  afterEach(() => {
    cleanup();
    el.remove();
  });

  test("shows the model as a tree with one stop in the tab order", () => {
    const items = [...el.querySelectorAll('[role="tree"] [role="treeitem"]')];
    expect(items.map((item) => item.getAttribute("data-mnb-node"))).toEqual([
      "input:input",
      "linear_0",
      "gelu_0",
      "mlp_0",
      "linear_1",
      "output:output",
    ]);
    expect(items.filter((item) => item.getAttribute("tabindex") === "0")).toHaveLength(1);
    expect(find('[data-mnb-node="linear_0"]').getAttribute("aria-label")).toMatch(
      /^linear_0 Linear, layers 64 → 128 \(32, 128\) [\d.]+ % of FLOPs$/,
    );
    expect(find(".mnb-root").dataset["mnbVersion"]).toBe("1");
  });

  test("requests each stage once", () => {
    session.change({});
    expect(sent("request_stage")).toEqual([{ stage: "jaxpr" }, { stage: "stablehlo" }, { stage: "hlo" }]);
    session.change({ stages: { ...session.snapshot.stages, hlo: { ...session.snapshot.stages["hlo"]!, version: 2 } } });
    expect(sent("request_stage").slice(3)).toEqual([{ stage: "hlo" }]);
  });

  test("reports hidden stages and requests visible ones", () => {
    click('[data-mnb-action="pane.hlo"]');
    expect(sent("leave_stage")).toEqual([{ stage: "hlo" }]);
    click('[data-mnb-action="pane.hlo"]');
    expect(sent("request_stage").slice(3)).toEqual([{ stage: "hlo" }]);
    const { stages } = session.snapshot;
    for (let i = 0; i < 2; i++)
      session.change({ version: 2, stages: { ...stages, hlo: { ...stages["hlo"]!, state: "stale" } } });
    expect(sent("request_stage").slice(4)).toEqual([{ stage: "hlo" }]);
    // A stage that waits for a valid model is not requested again: the kernel computes it later.
    session.change({
      version: 3,
      stages: { ...stages, hlo: { ...stages["hlo"]!, state: "stale", message: "the model has problems" } },
    });
    expect(sent("request_stage")).toHaveLength(5);
  });
  test("explains the attributed share", () => {
    const shown = find('[data-mnb-status="attributed"]');
    expect(shown.textContent).toMatch(/^[\d.> ]+% of FLOPs attributed$/);
    expect(shown.title).toContain("Share of the analytic FLOPs traced back to a block, the loss or the optimizer");
  });
  test("shows optimize time separately from compile time", () => {
    session.change({ status: { ...session.snapshot.status, optimize_s: 0.25, compile_s: null } });
    expect(find('[data-mnb-status="optimize"]').textContent).toBe("optimize 250 ms");
    expect(find('[data-mnb-status="optimize"]').title).toBe(
      "optimize: 0.25 s for XLA's passes and memory planning, without code generation",
    );
    expect(el.querySelector('[data-mnb-status="compile"]')).toBeNull();
    session.change({ status: { ...session.snapshot.status, optimize_s: 0.25, compile_s: 0.5 } });
    expect(
      [...el.querySelectorAll(".mnb-status-figures > span")].map((figure) => figure.textContent).slice(-2),
    ).toEqual(["optimize 250 ms", "compile 500 ms"]);
  });
  test("links a clicked block to panes, table and inspector", async () => {
    click('[data-mnb-node="linear_0"]');
    expect(sent("select")).toEqual([]);
    expect(find('[data-mnb-node="linear_0"]').getAttribute("data-mnb-linked")).toBe("pinned");
    expect(find('[data-mnb-node="gelu_0"]').getAttribute("data-mnb-linked")).toBeNull();
    for (const stage of ["jaxpr", "stablehlo", "hlo"])
      expect(find(`[data-mnb-pane="${stage}"] .mnb-pane-linked`).textContent).toMatch(/^\d+ linked$/);
    expect(find('tr[data-mnb-cost="linear_0"]').dataset["mnbLinked"]).toBe("pinned");
    expect(find<HTMLInputElement>('[data-mnb-field="dimension"] input[type="text"]').value).toBe("128");
    await vi.waitFor(() => expect(sent("select")).toEqual([{ paths: ["linear_0"] }]));
    key(".mnb-board", "Escape");
    expect(el.querySelectorAll('[data-mnb-linked="pinned"]')).toHaveLength(0);
  });

  test("links without the kernel", () => {
    session.alive = false;
    click('[data-mnb-node="gelu_0"]');
    expect(find('[data-mnb-pane="hlo"] .mnb-pane-linked').textContent).toMatch(/linked/);
  });

  test("keeps typed text when a snapshot arrives", () => {
    click('[data-mnb-node="linear_0"]');
    const input = find<HTMLInputElement>('[data-mnb-field="dimension"] input[type="text"]');
    input.focus();
    input.value = "25";
    input.setSelectionRange(1, 1);
    input.dispatchEvent(new Event("input", { bubbles: true }));
    session.change({ version: 2 });
    expect(document.activeElement).toBe(input);
    expect([input.value, input.selectionStart]).toEqual(["25", 1]);
    input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    expect(sent("set_attribute")).toEqual([{ path: "linear_0", name: "dimension", value: 25 }]);
  });

  test("marks invalid numbers and sends nothing", () => {
    click('[data-mnb-node="linear_0"]');
    const input = find<HTMLInputElement>('[data-mnb-field="dimension"] input[type="text"]');
    input.value = "wide";
    input.dispatchEvent(new Event("input"));
    input.dispatchEvent(new Event("change"));
    expect(input.getAttribute("aria-invalid")).toBe("true");
    expect(sent("set_attribute")).toEqual([]);
  });

  test("renames in place and cancels on Escape", () => {
    for (const [name, end] of [
      ["x", "Escape"],
      ["first", "Enter"],
    ] as const) {
      key('[data-mnb-node="linear_0"]', "F2");
      const input = find<HTMLInputElement>(".mnb-rename");
      input.value = name;
      input.dispatchEvent(new KeyboardEvent("keydown", { key: end, bubbles: true }));
    }
    expect(sent("rename")).toEqual([{ path: "linear_0", name: "first" }]);
  });

  test("supports all graph edits by keys", () => {
    key('[data-mnb-node="gelu_0"]', "ArrowDown");
    expect((document.activeElement as HTMLElement).dataset["mnbNode"]).toBe("mlp_0");
    key('[data-mnb-node="mlp_0"]', "Enter");
    key('[data-mnb-node="mlp_0"]', "Enter");
    expect(sent("expand")).toEqual([{ path: "mlp_0" }]);
    key('[data-mnb-node="linear_0"]', "c");
    expect([...el.querySelectorAll('[role="option"] span')].map((option) => option.textContent)).toContain(
      "linear_1.input",
    );
    key('.mnb-canvas [role="listbox"]', "Enter");
    expect(sent("disconnect")).toEqual([{ source: "linear_0.output", target: "gelu_0.input" }]);
    key('[data-mnb-node="mlp_0"]', "Delete");
    expect(sent("remove")).toEqual([{ paths: ["mlp_0"] }]);
    key('[data-mnb-node="mlp_0"]', "z", { ctrlKey: true });
    key('[data-mnb-node="mlp_0"]', "Z", { ctrlKey: true, shiftKey: true });
    expect(session.names().slice(-2)).toEqual(["undo", "redo"]);
  });

  test("shows passes, and when they are stale or unavailable", async () => {
    const passes = (): HTMLElement => find(".mnb-passes");
    const hint = (): string =>
      find(".mnb-passes > .mnb-hint").hidden ? "" : find(".mnb-passes > .mnb-hint").textContent!;
    const asks = (): boolean => !find('[data-mnb-action="passes.compile"]').hidden;
    click('[data-mnb-tab="passes"]');
    expect([hint(), asks()]).toEqual([expect.stringMatching(/^XLA rewrites the program/), true]);
    click('[data-mnb-action="passes.compile"]');
    await vi.waitFor(() => expect(passes().dataset["mnbShown"]).toBe("0"));
    expect([hint(), asks(), find('[data-mnb-tab="passes"] .mnb-tab-figure').textContent]).toEqual(["", false, "2"]);
    key(".mnb-pass-list", "ArrowDown");
    await vi.waitFor(() => expect(passes().dataset["mnbShown"]).toBe("1"));
    session.change({ version: 2, passes: { state: "stale", message: "", version: 1 } });
    expect([hint(), asks(), find(".mnb-pass-body").hidden]).toEqual([
      "The model has changed since these passes were read.",
      true,
      false,
    ]);
    click('[data-mnb-action="passes.compile"]');
    await vi.waitFor(() => expect(find(".mnb-pass-text").textContent).toContain("%come 1 of 2"));
    expect([hint(), asks()]).toEqual(["", false]);
    session.change({ passes: { state: "failed", message: "the disk is full", version: 2 } });
    expect([hint(), asks(), find(".mnb-pass-body").hidden]).toEqual([
      "The passes could not be read: the disk is full",
      true,
      true,
    ]);
    session.change({ passes: { state: "unavailable", message: "the model has problems", version: 0 } });
    expect([hint(), asks(), find(".mnb-pass-body").hidden]).toEqual([
      "The passes are not available: the model has problems",
      false,
      true,
    ]);
  });

  test("keeps its keys from the notebook", () => {
    const heard = vi.fn();
    document.addEventListener("keydown", heard);
    for (const name of ["a", "d", "Enter", "z"]) key('[data-mnb-node="linear_0"]', name);
    expect(heard).not.toHaveBeenCalled();
    document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "Delete", bubbles: true }));
    expect(heard).toHaveBeenCalledTimes(1);
    expect(sent("remove")).toEqual([]);
    document.removeEventListener("keydown", heard);
  });

  test("renames and removes the selected block by keys", async () => {
    click('[data-mnb-node="gelu_0"]');
    key(".mnb-board", "F2");
    expect(find<HTMLInputElement>('[data-mnb-node="gelu_0"] .mnb-rename').value).toBe("gelu_0");
    key(".mnb-rename", "Escape");
    key(".mnb-board", "Delete");
    expect(sent("remove")).toEqual([{ paths: ["gelu_0"] }]);
    click('[data-mnb-action="inspector.remove"]');
    find('[data-mnb-action="inspector.remove"]').focus();
    await frame();
    session.change({ selection: [] });
    await vi.waitFor(() => expect(document.activeElement!.className).toContain("mnb-root"));
    key(".mnb-root", "Delete");
    expect(sent("remove")).toHaveLength(2);
  });

  test("ignores Delete on a slider, a checkbox or a menu", () => {
    click('[data-mnb-node="gelu_0"]');
    find(".mnb-root").append(Object.assign(document.createElement("input"), { type: "checkbox" }));
    for (const control of ['[data-mnb-action="train.rate"]', '[type="checkbox"]', '[data-mnb-action="train.loss"]'])
      for (const name of ["Delete", "Backspace"]) key(control, name);
    expect(sent("remove")).toEqual([]);
  });

  test("keeps the focus on a disabled undo button", () => {
    const undo = find('[data-mnb-action="undo"]');
    session.change({ can_undo: true });
    undo.focus();
    session.change({ can_undo: false });
    expect([document.activeElement, undo.getAttribute("aria-disabled")]).toEqual([undo, "true"]);
    undo.click();
    expect(sent("undo")).toEqual([]);
  });

  test("adds from the palette after the selected block", () => {
    click('[data-mnb-node="gelu_0"]');
    const input = find<HTMLInputElement>('[data-mnb-action="palette.search"]');
    input.value = "tan";
    input.dispatchEvent(new Event("input"));
    input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
    expect(sent("add_block")).toEqual([{ kind: "Tanh" }]);
    // The kernel adds after its own selection, so it must get the latest one first, also while a reply is pending.
    session.alive = false;
    for (const path of ["linear_0", "mlp_0", "linear_1"]) click(`[data-mnb-node="${path}"]`);
    for (let i = 0; i < 2; i++) {
      input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true }));
      click('[data-mnb-node="linear_1"]');
    }
    const edits = session.sent
      .filter(({ name }) => name === "select" || name === "add_block")
      .map(({ args }) => args["kind"] ?? args["paths"].join());
    expect(edits.slice(2), "after gelu_0 and Tanh").toEqual(["linear_1", "Tanh", "linear_1", "Tanh"]);
  });

  test("selects and removes an edge", () => {
    const board = find(".mnb-board");
    vi.spyOn(board, "clientWidth", "get").mockReturnValue(800);
    vi.spyOn(board, "clientHeight", "get").mockReturnValue(400);
    click('[data-mnb-action="canvas.fit"]');
    const { points } = sceneOf(session.snapshot).edges.find(({ id }) => id === "gelu_0.output -> mlp_0.input")!;
    const gelu = sceneOf(session.snapshot).nodes.find(({ path }) => path === "gelu_0")!;
    const [x, y] = /translate\((.+)px, (.+)px\)/
      .exec(find('[data-mnb-node="gelu_0"]').style.transform)!
      .slice(1)
      .map(Number) as [number, number];
    const k = Number(/scale\((.+)\)/.exec(find(".mnb-scene").style.transform)![1]);
    const [sx, sy] = [(points[0]![0] + points[1]![0]) / 2, (points[0]![1] + points[1]![1]) / 2];
    board.dispatchEvent(
      new MouseEvent("click", { bubbles: true, clientX: k * (sx - gelu.x + x), clientY: k * (sy - gelu.y + y) + 3 }),
    );
    expect(
      [...el.querySelectorAll<HTMLElement>(".mnb-edge.mnb-selected")].map((edge) => edge.dataset["mnbEdge"]),
    ).toEqual(["gelu_0.output -> mlp_0.input"]);
    key(".mnb-board", "Delete");
    expect(sent("disconnect")).toEqual([{ source: "gelu_0.output", target: "mlp_0.input" }]);
  });

  test("controls the run", async () => {
    click('[data-mnb-tab="train"]');
    expect(find('[data-mnb-panel="train"]').hidden).toBe(false);
    expect(find('[data-mnb-action="train.run"]').textContent).toBe("Resume");
    click('[data-mnb-action="train.run"]');
    expect(sent("resume")).toHaveLength(1);
    await sendRun({ ...session.snapshot.run, state: "running", step: 200, loss: 0.25 });
    expect(find('[data-mnb-figure="loss"]').textContent).toBe("0.2500");
    expect(find('[data-mnb-action="train.run"]').textContent).toBe("Pause");
    click('[data-mnb-action="train.stop"]');
    expect(sent("stop")).toHaveLength(1);
  });

  test.each(["stopped", "failed"] as const)("resumes a %s run or trains from scratch", async (state) => {
    const restart = find<HTMLButtonElement>('[data-mnb-action="train.restart"]');
    expect(restart.hidden).toBe(true);
    await sendRun({ ...session.snapshot.run, state, is_current_model: false });
    expect(find(".mnb-run-state").textContent).toMatch(
      new RegExp(`^${state}, with an earlier model or settings · epoch`),
    );
    expect([find('[data-mnb-action="train.run"]').textContent, restart.textContent]).toEqual([
      "Train this model",
      "Resume the earlier model",
    ]);
    click('[data-mnb-action="train.run"]');
    click('[data-mnb-action="train.restart"]');
    expect([sent("resume").length, sent("train").length]).toEqual([1, 1]);
    session.sent.length = 0;
    await sendRun({ ...session.snapshot.run, state, is_current_model: true });
    expect(find('[data-mnb-action="train.run"]').textContent).toBe("Resume");
    expect([restart.hidden, restart.textContent]).toEqual([false, "Train from scratch"]);
    click('[data-mnb-action="train.run"]');
    expect([sent("resume").length, sent("train").length]).toEqual([1, 0]);
    click('[data-mnb-action="train.restart"]');
    expect([sent("resume").length, sent("train").length]).toEqual([1, 1]);
    await sendRun({ ...session.snapshot.run, state: "done", is_current_model: true });
    expect(find(".mnb-run-state").textContent).not.toContain("earlier");
    expect([find('[data-mnb-action="train.run"]').textContent, restart.hidden]).toEqual(["Train again", true]);
    click('[data-mnb-action="train.run"]');
    expect(sent("train")).toHaveLength(2);
  });

  test("stops computing a stage of this model, until the user or an edit requests it", async () => {
    const ready = session.snapshot.stages["hlo"]!;
    const show = (state: State, version = 1): void =>
      session.change({ version, stages: { ...session.snapshot.stages, hlo: { ...ready, state } } });
    const stop = find('[data-mnb-action="stop.hlo"]');
    show("loading", 2);
    expect(stop.hidden).toBe(true); // not before the clock is shown
    await vi.waitFor(() => expect(stop.hidden).toBe(false));
    click('[data-mnb-action="stop.hlo"]');
    show("stale", 2);
    expect(sent("leave_stage")).toEqual([{ stage: "hlo" }]);
    expect(sent("request_stage")).toHaveLength(3);
    expect([stop.hidden, find('[data-mnb-pane="hlo"] .mnb-pane-card b').textContent]).toEqual([
      true,
      "HLO was stopped",
    ]);
    click('[data-mnb-action="again.hlo"]');
    expect(sent("request_stage")).toHaveLength(4);
    show("loading", 2);
    await vi.waitFor(() => expect(stop.hidden).toBe(false));
    click('[data-mnb-action="stop.hlo"]');
    show("stale", 3);
    expect(sent("request_stage")).toHaveLength(5);
  });

  test("shows a clock while a run starts", async () => {
    click('[data-mnb-tab="train"]');
    session.alive = false;
    click('[data-mnb-action="train.run"]');
    await vi.waitFor(() => expect(find(".mnb-run-state").textContent).toMatch(/^waiting for the kernel: \d/), {
      timeout: 3000,
    });
    session.message({ type: "reply", id: session.sent.at(-1)!.id, ok: true, error: null });
    await vi.waitFor(() => expect(find(".mnb-run-state").textContent).toMatch(/^paused/));
  });

  test("gives advice and rejects edits after the kernel is gone", () => {
    session.change({
      autosave: { offer: null, path: "digits/.mithril_nb/digits-3f.json", problem: "", edits: 7 },
      can_undo: true,
    });
    session.emit("comm:close");
    const strip = find('[data-mnb-part="connection"]');
    expect(strip.hidden).toBe(false);
    expect(find("[role=status]", strip).textContent).toBe(
      "Disconnected from the kernel. Your 7 edits are saved in .mithril_nb/digits-3f.json, beside the notebook. " +
        "Run this notebook from the top to continue. This cell then offers to restore them.",
    );
    expect(find('[data-mnb-pane="jaxpr"] .cm-content').textContent).toContain("lambda");
    expect(find('[data-mnb-action="connection.copy"]').hidden).toBe(false);
    const before = session.sent.length;
    click('[data-mnb-action="undo"]');
    click('[data-mnb-node="linear_0"]');
    expect(find("[role=alert]", strip).textContent).toBe("Not run, because no kernel is connected: undo.");
    expect(session.sent.slice(before).map((one) => one.name)).not.toContain("undo");
  });

  test("reports unsaved edits and unanswered commands", async () => {
    session.change({
      autosave: { offer: null, path: "/d/x.json", problem: "/d/x.json: Read-only file system", edits: 1 },
      can_undo: true,
    });
    session.alive = false;
    click('[data-mnb-action="undo"]');
    session.emit("comm:close");
    const strip = find('[data-mnb-part="connection"]');
    expect(strip.textContent).toContain(
      "Your 1 edit could not be saved (/d/x.json: Read-only file system). Copy the source before you run the " +
        "cell again.",
    );
    expect(find("[role=alert]", strip).textContent).toBe("Not run, because no kernel is connected: undo.");
  });

  test("ends the run with the kernel", () => {
    click('[data-mnb-tab="train"]');
    session.change({ run: { ...session.snapshot.run, state: "running", left_s: 180 } });
    session.emit("comm:close");
    expect(find(".mnb-run-state").textContent).toMatch(/^lost with the kernel/);
    expect(find('[data-mnb-figure="left"]').textContent).toBe("–");
    for (const action of ["run", "step", "stop"])
      expect(find(`[data-mnb-action="train.${action}"]`).getAttribute("aria-disabled")).toBe("true");
    expect(find(".mnb-train .mnb-inline-problem").textContent).toMatch(
      /^The run ended with the kernel at step \d+\. Unsaved parameters are lost\.$/,
    );
  });

  test.each([
    ["replaced", () => session.message({ type: "replaced" }), "Replaced by a newer widget."],
    [
      "closed",
      () => Object.assign(session, { widget_manager: { kernel: { status: "busy" } } }),
      "This widget was closed and does not follow the run any more.",
    ],
  ])("does not end a run because the widget is %s", (state, happens, message) => {
    session.change({ run: { ...session.snapshot.run, state: "running", left_s: 180 } });
    expect(find('[data-mnb-tab="train"]').textContent).toContain("running");
    happens();
    session.emit("comm:close");
    expect([find(".mnb-train").dataset["mnbRun"], find(".mnb-run-state").textContent!.split(" · ")[0]]).toEqual([
      state,
      state,
    ]);
    const notice = find(".mnb-train .mnb-inline-problem");
    expect([notice.textContent, notice.classList.contains("mnb-plain"), notice.hidden]).toEqual([message, true, false]);
    for (const action of ["run", "step", "stop"])
      expect(find(`[data-mnb-action="train.${action}"]`).getAttribute("aria-disabled")).toBe("true");
    expect(find('[data-mnb-tab="train"]').textContent).not.toContain("running");
  });

  test("shows that it was replaced and runs no commands", () => {
    session.change({ can_undo: true });
    session.message({ type: "replaced" });
    session.emit("comm:close");
    const strip = find('[data-mnb-part="connection"]');
    expect(find("[role=status]", strip).textContent).toBe(
      "Replaced: a newer run of the cell shows the current widget.",
    );
    click('[data-mnb-action="undo"]');
    expect(strip.textContent).toContain("Not run");
  });

  test("offers saved edits with their difference", () => {
    const offer = {
      edits: 7,
      saved_at: 1e9,
      labels: ["add Relu", "rename a", "add Tanh", "program", "undo <b>"],
      older: null,
      difference: "@@ -1 +1 @@\n-model += Relu()\n+model += <b>",
      can_restore: true,
    };
    expect(find('[data-mnb-part="restore"]').hidden).toBe(true);
    session.change({ autosave: { offer, path: "", problem: "", edits: 0 } });
    const part = find('[data-mnb-part="restore"]');
    expect(part.hidden).toBe(false);
    expect(part.textContent).toContain("An earlier run of this cell saved 7 edits on ");
    expect(part.textContent).toContain(": 3 more, then rename a, add Tanh, program, undo <b>.");
    expect([...part.querySelectorAll("pre > span")].map((line) => [line.className, line.textContent])).toEqual([
      ["mnb-diff-title", "@@ -1 +1 @@\n"],
      ["mnb-diff-removed", "-model += Relu()\n"],
      ["mnb-diff-added", "+model += <b>\n"],
    ]);
    expect(find('[data-mnb-action="restore.edits"]').textContent).toBe("Restore your 7 edits");
    click('[data-mnb-action="restore.edits"]');
    click('[data-mnb-action="restore.decline"]');
    expect(session.names()).toEqual(expect.arrayContaining(["restore_edits", "decline_edits"]));
    session.change({ autosave: { offer: null, path: "", problem: "", edits: 7 } });
    expect(part.hidden).toBe(true);
  });

  test("removes all elements and listeners", () => {
    cleanup();
    expect(el.childElementCount).toBe(0);
    expect(session.listening).toBe(0);
  });

  test("shows names as text", async () => {
    cleanup();
    await mount("script");
    expect(find(".mnb-model-name").textContent).toBe("<script>alert(1)</script>");
    expect(el.querySelectorAll("script, img")).toHaveLength(0);
  });

  test("shows problems on edge, block, list and notice", async () => {
    cleanup();
    await mount("problem");
    expect(find('[data-mnb-edge="mlp_0.output -> linear_1.input"]').dataset["mnbProblem"]).toBe("ShapeError");
    expect(find('[data-mnb-part="notice"]').getAttribute("role")).toBe("alert");
    expect(find('[data-mnb-part="notice"]').textContent).toContain("Try: connect 'linear_0.input' to a model input.");
    click('[data-mnb-tab="problems"]');
    click(".mnb-problem");
    expect(find('[data-mnb-node="linear_1"]').dataset["mnbLinked"]).toBe("pinned");
    click('[data-mnb-action="notice.dismiss"]');
    expect(sent("dismiss")).toHaveLength(1);
    expect(find('[data-mnb-pane="hlo"]').dataset["mnbState"]).toBe("failed");
    expect(find('[data-mnb-pane="hlo"] .mnb-pane-card').textContent).toContain("RESOURCE_EXHAUSTED");
  });

  test("offers a start when it is empty", async () => {
    cleanup();
    await mount("empty");
    expect(find(".mnb-empty").hidden).toBe(false);
    click('[data-mnb-action="empty.add"]');
    expect(document.activeElement).toBe(find('[data-mnb-action="palette.search"]'));
    click('[data-mnb-action="empty.example"]');
    expect(sent("load_example")).toHaveLength(1);
  });

  test("selects output and loss, and explains the program", () => {
    const note = find(".mnb-program-note");
    const output = find<HTMLSelectElement>('[data-mnb-action="output"]');
    expect([note.hidden, output.closest("label")!.hidden]).toEqual([true, true]);
    const losses = { loss: "cross_entropy", losses: ["cross_entropy", "mean_squared_error"] };
    session.change({
      program: "forward",
      program_note: "the model has 2 outputs",
      output: "",
      outputs: ["features", "logits"],
      ...losses,
    });
    expect([note.hidden, note.textContent]).toEqual([false, "Program forward: the model has 2 outputs."]);
    expect([...output.options].map((option) => option.text)).toEqual(["choose…", "features", "logits"]);
    output.value = "logits";
    output.dispatchEvent(new Event("change"));
    expect(sent("set_output")).toEqual([{ output: "logits" }]);
    session.change({ program: "train step", program_note: "", output: "logits" });
    expect([note.hidden, output.value, output.options.length]).toEqual([true, "logits", 2]);
    const loss = find<HTMLSelectElement>('[data-mnb-action="train.loss"]');
    loss.value = "mean_squared_error";
    loss.dispatchEvent(new Event("change"));
    expect(sent("set_loss")).toEqual([{ loss: "mean_squared_error" }]);
  });

  test("code is edited, applied and discarded, and an error stands under its line", async () => {
    click('[data-mnb-tab="source"]');
    const view = EditorView.findFromDOM(find('[data-mnb-part="source"] .cm-editor'))!;
    const { source } = session.snapshot;
    const type = (insert: string) =>
      view.dispatch({ changes: { from: view.state.doc.length, insert }, userEvent: "input.type" });
    const text = () => view.state.doc.toString();
    const status = () => find('[data-mnb-part="source"] [role="status"]').textContent;
    const isOff = (action: string) =>
      find(`[data-mnb-action="source.${action}"]`).getAttribute("aria-disabled") === "true";
    expect([text(), isOff("apply"), isOff("discard")]).toEqual([source, true, true]);
    type("model += Lineer(3)\n");
    await vi.waitFor(() => expect(isOff("apply")).toBe(false));
    // A change of the canvas neither replaces the draft nor stays unnoticed.
    session.change({ source: `${source}model += Relu()\n` });
    expect([text(), status()]).toEqual([`${source}model += Lineer(3)\n`, expect.stringContaining("has changed")]);
    const error = {
      code: "ModelFileError",
      summary: "there is no block Lineer.",
      facts: [["line", "2"]] as [string, string][],
      advice: "",
    };
    const send = vi.spyOn(session, "send");
    send.mockImplementationOnce((message: any) => {
      session.sent.push(message);
      session.message({ type: "reply", id: message.id, ok: false, error });
    });
    key('[data-mnb-part="source"] .cm-content', "Enter", { ctrlKey: true });
    await vi.waitFor(() => expect(find(".mnb-code-error").textContent).toBe("there is no block Lineer."));
    expect(find(".mnb-error-line").textContent).toBe(source.split("\n")[1]);
    expect(sent("set_source")).toEqual([{ text: `${source}model += Lineer(3)\n` }]);
    type("# more");
    expect(el.querySelector(".mnb-code-error")).toBeNull();
    click('[data-mnb-action="source.discard"]');
    await vi.waitFor(() => expect([text(), isOff("apply")]).toEqual([session.snapshot.source, true]));
  });

  test("settings of training are sent, and a finished run continues for as many epochs", async () => {
    const epochs = find<HTMLInputElement>('[data-mnb-field="epochs"] .mnb-number');
    epochs.focus();
    epochs.value = "7";
    epochs.dispatchEvent(new Event("input"));
    epochs.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
    const optimizer = find<HTMLSelectElement>('[data-mnb-field="optimizer"] select');
    optimizer.value = "sgd";
    optimizer.dispatchEvent(new Event("change"));
    expect(sent("set_training")).toEqual([
      { name: "epochs", value: 7 },
      { name: "optimizer", value: "sgd" },
    ]);
    const training = session.snapshot.training.map((field) =>
      field.name === "epochs" ? { ...field, value: 7 } : field,
    );
    session.change({ training });
    const more = find<HTMLButtonElement>('[data-mnb-action="train.continue"]');
    expect(more.hidden).toBe(true);
    await sendRun({ ...session.snapshot.run, state: "done", is_current_model: true });
    expect([more.hidden, more.textContent]).toEqual([false, "7 more epochs"]);
    click('[data-mnb-action="train.continue"]');
    expect(sent("resume")).toEqual([{ epochs: 7 }]);
  });

  test("sends symbolic sizes and shows rejected shapes", async () => {
    const field = find<HTMLInputElement>("[data-mnb-shape]");
    const type = (value: string): void => {
      field.focus();
      field.value = value;
      field.dispatchEvent(new Event("input"));
      field.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
    };
    type("batch, 29");
    expect(sent("set_shape")).toEqual([{ name: "input", shape: ["batch", 29] }]);
    await vi.waitFor(() => expect(field.value).toBe(session.snapshot.shapes["input"]!.join(", ")));
    const error = {
      code: "UnknownOptionError",
      summary: "['2*n'] is no shape.",
      facts: [["because", "'2*n' is no name"]] as [string, string][],
      advice: "",
    };
    vi.spyOn(session, "send").mockImplementationOnce((message: any) =>
      session.message({ type: "reply", id: message.id, ok: false, error }),
    );
    type("2*n");
    await vi.waitFor(() => expect(field.getAttribute("aria-invalid")).toBe("true"));
    expect([field.value, field.title]).toEqual(["2*n", "['2*n'] is no shape.\nbecause: '2*n' is no name"]);
    field.blur();
    session.change({});
    expect([field.value, field.getAttribute("aria-invalid")]).toEqual([
      session.snapshot.shapes["input"]!.join(", "),
      null,
    ]);
  });

  test("waits for a first snapshot", () => {
    cleanup();
    const model = new FakeModel({ snapshot: {} });
    cleanup = mountWorkbench({ model, el });
    expect(el.textContent).toBe("Waiting for the kernel to send the model…");
    model.set("snapshot", structuredClone(data.snapshot));
    expect(el.querySelectorAll(".mnb-workbench")).toHaveLength(1);
  });
});

describe("the live run", () => {
  test("pauses, resumes and stops, and requests missing points", async () => {
    const model = new FakeModel({ run: { ...data.snapshot.run, state: "running" } });
    const el = document.createElement("div");
    document.body.append(el);
    const cleanup = mountCurves({ model, el });
    expect(model.names()).toEqual(["request_curves"]);
    el.querySelector<HTMLElement>('[data-mnb-action="train.run"]')!.click();
    expect(el.querySelector('[data-mnb-action="train.step"]')).toBeNull();
    model.set("run", { ...data.snapshot.run, state: "done" });
    await frame();
    expect(el.querySelector('[data-mnb-action="train.run"]')!.getAttribute("aria-disabled")).toBe("true");
    expect(model.names()).toEqual(["request_curves", "pause"]);
    model.set("run", { ...data.snapshot.run, state: "stopped" });
    await frame();
    el.querySelector<HTMLElement>('[data-mnb-action="train.run"]')!.click();
    expect(el.querySelector<HTMLElement>('[data-mnb-action="train.restart"]')!.hidden).toBe(true);
    expect(model.names()).toEqual(["request_curves", "pause", "resume"]);
    cleanup();
    expect(el.childElementCount + model.listening).toBe(0);
  });
});
