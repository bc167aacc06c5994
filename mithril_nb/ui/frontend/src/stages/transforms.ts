/** The Transforms tab: the jaxpr before and after each transform side by side, with marks on the equations. */

import { EditorState, RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView } from "@codemirror/view";
import { colouredAs } from "../code/languages";
import { margin } from "../code/margin";
import { readOnly } from "../code/read-only";
import { createElement, render } from "preact";
import { Problem } from "../controls/diagnostic";
import { StepList } from "../controls/step-list";
import { together } from "../dom/calls";
import { Clock } from "../dom/clock";
import { attr, h, text } from "../dom/dom";
import type { MarkedLine, TransformSide, TransformStepData } from "../kernel/contract";
import type { Store } from "../store/store";

/** Sign and description of each mark, so that marks do not differ by colour alone. */
const MARKS: Record<string, [sign: string, words: string]> = {
  kept: ["·", "unchanged"],
  new: ["+", "new"],
  changed: ["~", "changed"],
  gone: ["−", "removed"],
};
const COUNTED = ["new", "changed", "gone", "kept"] as const;

/** Marks by line, and the highlighted lines. */
interface ShownStep {
  marks: Map<number, MarkedLine>;
  linked: ReadonlySet<number>;
}

const show = StateEffect.define<Partial<ShownStep>>();
const shown = StateField.define<ShownStep & { decorations: DecorationSet }>({
  create: () => ({ marks: new Map(), linked: new Set(), decorations: Decoration.none }),
  update(value, transaction) {
    for (const effect of transaction.effects) {
      if (!effect.is(show)) continue;
      const now = { ...value, ...effect.value };
      const builder = new RangeSetBuilder<Decoration>();
      for (const [line, [, , mark]] of now.marks) {
        if (line > transaction.newDoc.lines) continue;
        const { from } = transaction.newDoc.line(line);
        const [sign, words] = MARKS[mark]!;
        builder.add(
          from,
          from,
          Decoration.line({
            class: `mnb-mark mnb-mark-${mark}${now.linked.has(line) ? " mnb-pinned" : ""}`,
            attributes: { "data-mnb-sign": sign, "data-mnb-mark": mark, title: words },
          }),
        );
      }
      value = { ...now, decorations: builder.finish() };
    }
    return value;
  },
  provide: (field) => EditorView.decorations.from(field, ({ decorations }) => decorations),
});

class StepSide {
  readonly root: HTMLElement;
  readonly view: EditorView;
  private rows: MarkedLine[] = [];
  private readonly summary = h("span", { class: "mnb-pane-figures", "aria-live": "polite" });
  private readonly placeholder = h("p", { class: "mnb-hint" });

  constructor(
    private readonly title: "before" | "after",
    private readonly onPoint: (row: MarkedLine | undefined) => void,
  ) {
    this.view = new EditorView({
      state: EditorState.create({
        extensions: [
          readOnly,
          colouredAs("jaxpr"),
          margin,
          shown,
          EditorView.updateListener.of(({ selectionSet, docChanged, state }) => {
            if (selectionSet && !docChanged) this.point(state.doc.lineAt(state.selection.main.head).number);
          }),
          EditorView.contentAttributes.of({
            "aria-label": `jaxpr ${title}, read only. Move the caret to highlight related lines.`,
            "aria-readonly": "true",
            tabindex: "0",
            spellcheck: "false",
          }),
        ],
      }),
    });
    this.root = h(
      "div",
      { class: "mnb-pane", "data-mnb-side": title, role: "region", "aria-label": `jaxpr ${title}` },
      h("div", { class: "mnb-pane-head" }, h("b", {}, title), this.summary),
      h("div", { class: "mnb-pane-text" }, this.view.dom),
      this.placeholder,
    );
  }

  fill(side: TransformSide | null, message: string): void {
    this.rows = side?.marks ?? [];
    this.placeholder.hidden = side !== null;
    this.view.dom.parentElement!.hidden = side === null;
    text(this.placeholder, message);
    const marks = new Map(this.rows.map((row) => [row[0], row]));
    this.view.dispatch({
      changes: { from: 0, to: this.view.state.doc.length, insert: side?.text ?? "" },
      selection: { anchor: 0 },
      effects: show.of({ marks, linked: new Set() }),
    });
    this.view.scrollDOM.scrollTop = 0;
    text(this.summary, side ? countsOf(this.rows) : "");
  }

  /** Highlight equations by id; if `scroll` is true, scroll the first one into view. */
  link(ids: readonly string[], scroll: boolean): void {
    const lines = this.rows.filter(([, id]) => ids.includes(id)).map(([line]) => line);
    this.view.dispatch({ effects: show.of({ linked: new Set(lines) }) });
    if (scroll && lines.length) {
      const { scrollDOM } = this.view;
      const { top, bottom } = this.view.lineBlockAt(this.view.state.doc.line(lines[0]!).from);
      if (top < scrollDOM.scrollTop || bottom > scrollDOM.scrollTop + scrollDOM.clientHeight)
        scrollDOM.scrollTop = top - scrollDOM.clientHeight / 3;
    }
  }

  /** Show the change of an equation, and highlight the related ones. */
  private point(line: number): void {
    const row = this.rows.find(([at]) => at === line);
    if (row) {
      const [, , mark, others, note, isInferred] = row;
      const related = others.length
        ? `${this.title === "before" ? "to" : "from"} ${others.length === 1 ? "equation" : "equations"} ` +
          `${others.join(", ")}`
        : "";
      text(this.summary, [MARKS[mark]![1], note, related, isInferred ? "inferred" : ""].filter(Boolean).join(" · "));
    } else text(this.summary, countsOf(this.rows));
    this.onPoint(row);
  }
}

export class TransformsTab {
  readonly root: HTMLElement;
  private readonly list = new StepList("Transforms, the innermost first", (number) => this.show(number));
  private readonly hint = h("p", { class: "mnb-hint" });
  private readonly explanation = h("p", { class: "mnb-pass-history", role: "status" });
  private readonly numbers = h("p", { class: "mnb-pass-history mnb-compared", role: "status" });
  private readonly problem = h("div", { class: "mnb-notice mnb-step-problem" });
  private readonly compare: HTMLButtonElement;
  private readonly body: HTMLElement;
  private readonly sides: [before: StepSide, after: StepSide];
  private readonly clock: Clock;
  private steps: TransformStepData[] = [];
  private leftOut: string[] = [];
  /** The reason the latest steps cannot be shown. */
  private failure: string | null = null;
  readonly destroy: () => void;

  constructor(private readonly store: Store) {
    const link =
      (side: 0 | 1) =>
      (row: MarkedLine | undefined): void => {
        this.sides[side].link(row ? [row[1]] : [], false);
        this.sides[1 - side]!.link(row?.[3] ?? [], true);
      };
    this.sides = [new StepSide("before", link(0)), new StepSide("after", link(1))];
    this.compare = h(
      "button",
      {
        type: "button",
        class: "mnb-button",
        "data-mnb-action": "transforms.compare",
        title: "Run both sides of each step on the same inputs",
        onclick: () => store.command("compare_transforms"),
      },
      "Compare values",
    );
    this.body = h(
      "div",
      { class: "mnb-pass-body" },
      this.list.root,
      h(
        "div",
        { class: "mnb-pass-diff" },
        this.explanation,
        h("div", { class: "mnb-row" }, this.compare, this.numbers),
        this.problem,
        h("div", { class: "mnb-panes-row" }, ...this.sides.map(({ root }) => root)),
      ),
    );
    this.root = h("div", { class: "mnb-passes", "data-mnb-part": "transforms" }, this.hint, this.body);
    this.clock = new Clock((elapsed) => elapsed && text(this.numbers, `Running both sides: ${elapsed}`));
    this.destroy = together(
      store.on("snapshot", () => this.update()),
      store.kernel.watch(() => this.update()),
      store.kernel.receive(
        "transforms",
        (head, steps) => this.take(head.left_out, steps),
        (why) => this.fail(why),
      ),
      () => this.clock.stop(),
      () => {
        for (const { view } of this.sides) view.destroy();
      },
    );
    this.update();
  }

  private take(leftOut: string[], steps: TransformStepData[]): void {
    [this.steps, this.leftOut, this.failure] = [steps, leftOut, null];
    this.update();
    if (this.list.at < 0) this.list.select(Math.min(1, this.steps.length - 1));
  }

  private fail(why: string): void {
    this.failure = why;
    this.update();
  }

  private update(): void {
    const { isGone } = this.store.kernel;
    const isShown = this.steps.length > 0 && this.failure === null;
    this.body.hidden = !isShown;
    this.hint.hidden = isShown;
    attr(this.root, "data-mnb-state", this.failure !== null ? "failed" : isShown ? "ready" : "loading");
    text(
      this.hint,
      this.failure !== null
        ? `The steps could not be shown. ${this.failure}`
        : isGone
          ? "Not connected to the kernel, so the steps cannot be loaded."
          : "Loading the steps…",
    );
    const { state } = this.store.snapshot.transforms!;
    this.compare.hidden = state === "ready" || state === "loading";
    this.clock.run(state === "loading" && !isGone);
    this.list.fill(
      this.steps.map((step, number) => ({
        name: step.name,
        columns: [step.problem ? "failed" : this.agreement(number)[0], number ? countsOf(step.after?.marks ?? []) : ""],
        title: step.explanation,
        share: 0,
      })),
    );
    this.paintNumbers();
  }

  /** Return the result of comparing both sides of a step: short, in full, and its mark. */
  private agreement(number: number): [short: string, full: string, mark: string] {
    const [agrees, words] = this.store.snapshot.transforms!.compared[number] ?? [null, ""];
    if (!words) return ["", "", ""];
    return agrees === null
      ? ["not compared", words, "kept"]
      : agrees
        ? ["✓ agrees", `✓ ${words}`, "new"]
        : ["✗ differs", `✗ ${words}`, "gone"];
  }

  private paintNumbers(): void {
    const { state, message } = this.store.snapshot.transforms!;
    const [, words, mark] = this.agreement(this.list.at);
    attr(this.numbers, "data-mnb-mark", mark || null);
    if (state !== "loading")
      text(
        this.numbers,
        state === "failed"
          ? `The values could not be compared: ${message}`
          : state === "ready"
            ? words
            : "Both sides run only when you press the button.",
      );
  }

  private show(number: number): void {
    const step = this.steps[number]!;
    const left =
      number === this.steps.length - 1 && this.leftOut.length ? ` Not reached: ${this.leftOut.join(", ")}.` : "";
    text(this.explanation, `${step.name} ${step.explanation}${left}`);
    this.problem.hidden = step.problem === null;
    if (step.problem) render(createElement(Problem, { problem: step.problem }), this.problem);
    this.sides[0].fill(step.before, "This is the first step; the input is Python.");
    this.sides[1].fill(step.after, "JAX rejects this step, so it has no result.");
    this.paintNumbers();
    attr(this.root, "data-mnb-step", number);
  }
}

/** Format the number of equations with each mark, as in "+3 ~1". */
function countsOf(rows: readonly MarkedLine[]): string {
  return COUNTED.map((mark) => [MARKS[mark]![0], rows.filter((row) => row[2] === mark).length] as const)
    .filter(([, count]) => count > 0)
    .map(([sign, count]) => `${sign}${count}`)
    .join(" ");
}
