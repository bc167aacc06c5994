/** Folding in the panes, and the tools of the passes, in a widget. */

import { EditorView } from "@codemirror/view";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Fixture, FakeSession, type Sent, gzip } from "../dev/fake-model";
import { mountExplorer } from "../src/explorer";
import { finderIn } from "./find";
import { shortData } from "./short-data";

const data = shortData(70);
data.snapshot = {
  ...data.snapshot,
  graph_stage: "jaxpr",
  graph_stages: ["jaxpr"],
  passes: { state: "empty", message: "", version: 0 },
} as Fixture["snapshot"];

class Session extends FakeSession {
  matches: [number, number[]][] = [];
  protected override answer(command: Sent): void {
    const { name, args } = command;
    if (name === "search_passes")
      void gzip(JSON.stringify(this.matches)).then((data) =>
        this.message(
          {
            type: "pass_matches",
            version: this.snapshot.passes!.version,
            text: args["text"],
            total: this.matches.flatMap(([, lines]) => lines).length,
          },
          [data],
        ),
      );
    super.answer(command);
  }
}

describe("a pane", () => {
  let session: Session;
  let el: HTMLElement;
  let cleanup: () => void;
  const find = finderIn(() => el);
  const pane = (selector: string): HTMLElement => find(`[data-mnb-pane="jaxpr"] ${selector}`);
  const labels = (): string[] =>
    [...el.querySelectorAll('[data-mnb-pane="jaxpr"] .mnb-fold')].map((label) => label.textContent!);
  const numbers = (): number[] => pane(".mnb-numbers").textContent!.trim().split("\n").map(Number);
  const key = (name: string, more: KeyboardEventInit = {}, target: Element = pane(".cm-content")): void =>
    void target.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...more }));
  const view = (): EditorView => EditorView.findFromDOM(pane(".cm-editor"))!;
  const caretTo = (line: number): void => view().dispatch({ selection: { anchor: view().state.doc.line(line).from } });

  beforeEach(async () => {
    session = new Session(structuredClone(data));
    el = document.createElement("div");
    document.body.append(el);
    cleanup = mountExplorer({ model: session, el });
    await vi.waitFor(() => expect(el.querySelectorAll('[data-mnb-pane][data-mnb-version="1"]')).toHaveLength(2), {
      timeout: 5000,
    });
  });
  afterEach(() => {
    cleanup();
    el.remove();
  });

  test("opens on the first equation, and unfolds by click and by key", () => {
    const [signature] = labels();
    expect(signature).toMatch(/^\d+ parameters$/);
    const hidden = Number.parseInt(signature!, 10);
    expect(numbers().slice(0, 4)).toEqual([1, 2, 2 + hidden, 3 + hidden]);
    pane(".mnb-fold").click();
    expect([labels(), numbers()[2]]).toEqual([[], 3]);
    caretTo(4);
    key("z");
    expect(labels()).toEqual([signature]);
    expect(view().state.selection.main.head, "the caret stays on a visible row").toBe(view().state.doc.line(2).from);
    key("Enter");
    expect(labels()).toEqual([]);
    key("Z", { shiftKey: true });
    expect(labels()[0]).toBe(signature);
    expect(labels()[1]).toMatch(/^linear_0: \d+ lines, 528 kFLOP, 4\.5 %$/);
    key("Z", { shiftKey: true });
    expect(labels()).toEqual([]);
  });

  test("shows only the selected block, and follows another selection", () => {
    const only = pane('[data-mnb-action="only.jaxpr"]');
    expect(only.getAttribute("aria-disabled")).toBe("true");
    session.change({ selection: ["linear_0"] });
    expect(only.getAttribute("aria-disabled")).toBe(null);
    key("b");
    expect(only.getAttribute("aria-pressed")).toBe("true");
    expect(labels().every((label) => label.endsWith(" lines of other blocks"))).toBe(true);
    const shown = numbers();
    session.change({ selection: ["gelu_0"] });
    expect(numbers()).not.toEqual(shown);
    key("b");
    expect([only.getAttribute("aria-pressed"), labels()[0]]).toEqual(["false", expect.stringMatching(/parameters$/)]);
  });

  test("lists its blocks, and goes to one", () => {
    key("o");
    const input = pane(".mnb-outline input") as HTMLInputElement;
    expect([document.activeElement, pane(".mnb-pane-crumb").getAttribute("aria-expanded")]).toEqual([input, "true"]);
    const all = el.querySelectorAll(".mnb-outline:not([hidden]) [role=option]").length;
    input.value = "gelu";
    input.dispatchEvent(new Event("input"));
    const options = [...el.querySelectorAll(".mnb-outline:not([hidden]) [role=option]")];
    expect([options.length < all, options[0]!.querySelector("span")!.textContent]).toEqual([true, "gelu_0"]);
    key("Enter", {}, input);
    expect(pane(".mnb-outline").hidden).toBe(true);
    const line = view().state.doc.lineAt(view().state.selection.main.head);
    expect(session.fixture.stages["jaxpr"]!.instructions.find(([at]) => at === line.number)![4][0]![0]).toBe("gelu_0");
    key("o");
    key("Escape", {}, pane(".mnb-outline input"));
    expect([pane(".mnb-outline").hidden, document.activeElement]).toEqual([true, pane(".cm-content")]);
  });

  test("explains the line of the caret by key and by button; Esc closes it", async () => {
    const line = session.fixture.stages["jaxpr"]!.instructions.at(-1)![0];
    const card = pane(".mnb-explanation");
    expect(card.hidden).toBe(true);
    view().focus();
    caretTo(line);
    key("x");
    await vi.waitFor(() => expect(card.hidden).toBe(false));
    expect(document.activeElement === card).toBe(true);
    expect([...card.querySelectorAll("dt, dd")].map((row) => row.textContent)).toEqual([
      "What it computes",
      "Hyperbolic tangent of each element.",
      "What it costs",
      "12 calls of exp, log, sqrt or the like.",
    ]);
    key("Escape", {}, card);
    expect([card.hidden, document.activeElement === pane(".cm-content")]).toEqual([true, true]);
    pane('[data-mnb-action="explain.jaxpr"]').click();
    await vi.waitFor(() => expect(card.hidden).toBe(false));
    pane('[data-mnb-action="explanation.close"]').click();
    expect(card.hidden).toBe(true);
  });

  test("keeps the folds for the next version of its text", async () => {
    pane(".mnb-fold").click();
    session.change({
      stages: { ...session.snapshot.stages, jaxpr: { ...session.snapshot.stages["jaxpr"]!, version: 2 } },
    });
    await vi.waitFor(() => expect(find('[data-mnb-pane="jaxpr"]').dataset["mnbVersion"]).toBe("2"));
    expect(labels()).toEqual([]);
  });

  test("searches all passes, steps through the matches, and shows diffs side by side", async () => {
    session.matches = [[1, [2, 3]]];
    find('[data-mnb-tab="passes"]').click();
    find('[data-mnb-action="passes.compile"]').click();
    await vi.waitFor(() => expect(find(".mnb-passes").dataset["mnbShown"]).toBe("0"));
    find('[data-mnb-action="diff.beside"]').click();
    const halves = (): string[] =>
      [...el.querySelectorAll(".mnb-diff-half .cm-content")].map((half) => half.textContent!);
    expect(halves()[0]).toContain("%gone");
    expect(halves()[1]).not.toContain("%gone");
    const input = find<HTMLInputElement>('[data-mnb-action="passes.search"]');
    input.value = "%";
    key("Enter", {}, input);
    await vi.waitFor(() => expect(find(".mnb-pass-found").textContent).toBe("2 matches in 1 pass"));
    const shown = (): number[] =>
      [...el.querySelectorAll<HTMLElement>(".mnb-pass:not([hidden])")].map((row) => Number(row.dataset["mnbPass"]));
    expect(shown()).toEqual([1]);
    key("Enter", {}, input);
    await vi.waitFor(() => expect(find(".mnb-passes").dataset["mnbShown"]).toBe("1"));
    expect(find(".mnb-pass-found").textContent).toBe("1 of 2 matches in 1 pass");
    expect(el.querySelectorAll(".mnb-found-line").length).toBeGreaterThan(0);
    key("Enter", { shiftKey: true }, input);
    expect(find(".mnb-pass-found").textContent).toBe("2 of 2 matches in 1 pass");
    key("Escape", {}, input);
    expect([input.value, find(".mnb-pass-found").textContent, shown()]).toEqual(["", "", [0, 1]]);
    session.alive = false;
    input.value = "x";
    key("Enter", {}, input);
    const { id } = session.sent.findLast(({ name }) => name === "search_passes")!;
    session.message({
      type: "reply",
      id,
      ok: false,
      error: { code: "", summary: "no passes.", facts: [], advice: "" },
    });
    await vi.waitFor(() => expect(find(".mnb-pass-found").textContent).toBe("no passes."));
  });
});
