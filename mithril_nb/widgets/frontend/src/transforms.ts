/** The Transforms tab: one transform at a time, the jaxpr before and after it beside each other, each equation marked. */

import { EditorState, RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView } from "@codemirror/view";
import { Clock } from "./clock";
import { attr, h, text } from "./dom";
import { languageOf } from "./languages";
import { fill } from "./lists";
import { margin } from "./margin";
import { decodeJson, tried } from "./messages";
import { StepList } from "./step-list";
import type { Store } from "./store";
import { readOnly } from "./styles";
import type { MarkedLine, TransformSide, TransformStep } from "./types";

/** Sign and words of each mark: colour is never all that tells them apart. */
const MARKS: Record<string, [sign: string, words: string]> = { kept: ["·", "unchanged"], new: ["+", "new"], changed: ["~", "changed"], gone: ["−", "removed"] };
const COUNTED = ["new", "changed", "gone", "kept"] as const;

/** Marks by line, and the lines that are pointed at or came from what is pointed at. */
interface Shown {
  marks: Map<number, MarkedLine>;
  linked: ReadonlySet<number>;
}

const show = StateEffect.define<Partial<Shown>>();
const shown = StateField.define<Shown & { decorations: DecorationSet }>({
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
        builder.add(from, from, Decoration.line({ class: `mnb-mark mnb-mark-${mark}${now.linked.has(line) ? " mnb-pinned" : ""}`, attributes: { "data-mnb-sign": sign, "data-mnb-mark": mark, title: words } }));
      }
      value = { ...now, decorations: builder.finish() };
    }
    return value;
  },
  provide: (field) => EditorView.decorations.from(field, ({ decorations }) => decorations),
});

class Side {
  readonly root: HTMLElement;
  readonly view: EditorView;
  private rows: MarkedLine[] = [];
  private readonly said = h("span", { class: "mnb-pane-figures", "aria-live": "polite" });
  private readonly nothing = h("p", { class: "mnb-hint" });

  constructor(
    private readonly title: "before" | "after",
    private readonly pointed: (row: MarkedLine | undefined) => void,
  ) {
    this.view = new EditorView({
      state: EditorState.create({
        extensions: [
          readOnly, languageOf("jaxpr"), margin, shown,
          EditorView.updateListener.of(({ selectionSet, docChanged, state }) => {
            if (selectionSet && !docChanged) this.point(state.doc.lineAt(state.selection.main.head).number);
          }),
          EditorView.contentAttributes.of({ "aria-label": `jaxpr ${title}, read only. The line of the caret highlights related lines.`, "aria-readonly": "true", tabindex: "0", spellcheck: "false" }),
        ],
      }),
    });
    this.root = h("div", { class: "mnb-pane", "data-mnb-side": title, role: "region", "aria-label": `jaxpr ${title}` }, h("div", { class: "mnb-pane-head" }, h("b", {}, title), this.said), h("div", { class: "mnb-pane-text" }, this.view.dom), this.nothing);
  }

  fill(side: TransformSide | null, nothing: string): void {
    this.rows = side?.marks ?? [];
    this.nothing.hidden = side !== null;
    this.view.dom.parentElement!.hidden = side === null;
    text(this.nothing, nothing);
    const marks = new Map(this.rows.map((row) => [row[0], row]));
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: side?.text ?? "" }, selection: { anchor: 0 }, effects: show.of({ marks, linked: new Set() }) });
    this.view.scrollDOM.scrollTop = 0;
    text(this.said, side ? countsOf(this.rows) : "");
  }

  /** Light up equations by their ids; the first of them comes into sight. */
  link(ids: readonly string[], scroll: boolean): void {
    const lines = this.rows.filter(([, id]) => ids.includes(id)).map(([line]) => line);
    this.view.dispatch({ effects: show.of({ linked: new Set(lines) }) });
    if (scroll && lines.length) {
      const { scrollDOM } = this.view;
      const { top, bottom } = this.view.lineBlockAt(this.view.state.doc.line(lines[0]!).from);
      if (top < scrollDOM.scrollTop || bottom > scrollDOM.scrollTop + scrollDOM.clientHeight) scrollDOM.scrollTop = top - scrollDOM.clientHeight / 3;
    }
  }

  /** Show the change of a line. */
  private point(line: number): void {
    const row = this.rows.find(([at]) => at === line);
    if (row) {
      const [, , mark, others, note, isInferred] = row;
      const made = others.length ? `${this.title === "before" ? "to" : "from"} ${others.join(", ")}` : "";
      text(this.said, [MARKS[mark]![1], note, made, isInferred ? "inferred" : ""].filter(Boolean).join(" · "));
    } else text(this.said, countsOf(this.rows));
    this.pointed(row);
  }
}

export class TransformsTab {
  readonly root: HTMLElement;
  private readonly list = new StepList("Transforms, the innermost first", (number) => this.show(number));
  private readonly hint = h("p", { class: "mnb-hint" });
  private readonly said = h("p", { class: "mnb-pass-history", role: "status" });
  private readonly numbers = h("p", { class: "mnb-pass-history mnb-compared", role: "status" });
  private readonly problem = h("div", { class: "mnb-notice mnb-step-problem" });
  private readonly compare: HTMLButtonElement;
  private readonly body: HTMLElement;
  private readonly sides: [before: Side, after: Side];
  private readonly clock: Clock;
  private steps: TransformStep[] = [];
  private leftOut: string[] = [];
  /** Why the steps that came last cannot be shown. */
  private refused: string | null = null;
  private readonly leave: (() => void)[];

  constructor(private readonly store: Store) {
    const link = (own: 0 | 1) => (row: MarkedLine | undefined): void => {
      this.sides[own].link(row ? [row[1]] : [], false);
      this.sides[1 - own]!.link(row?.[3] ?? [], true);
    };
    this.sides = [new Side("before", link(0)), new Side("after", link(1))];
    this.compare = h("button", { type: "button", class: "mnb-button", "data-mnb-action": "transforms.compare", title: "Runs both sides of each step on the same numbers", onclick: () => store.command("compare_transforms") }, "Compare the numbers");
    this.body = h(
      "div",
      { class: "mnb-pass-body" },
      this.list.root,
      h("div", { class: "mnb-pass-diff" }, this.said, h("div", { class: "mnb-row" }, this.compare, this.numbers), this.problem, h("div", { class: "mnb-panes-row" }, ...this.sides.map(({ root }) => root))),
    );
    this.root = h("div", { class: "mnb-passes", "data-mnb-part": "transforms" }, this.hint, this.body);
    this.clock = new Clock((elapsed) => elapsed && text(this.numbers, `Running both sides: ${elapsed}`));
    this.leave = [
      store.on("snapshot", () => this.update()),
      store.kernel.watch(() => this.update()),
      store.kernel.on("transforms", (message: { left_out: string[] }, buffers) => void tried(() => this.receive(message.left_out, buffers[0]), (why) => this.refuse(why))),
    ];
    this.update();
  }

  destroy(): void {
    for (const leave of this.leave) leave();
    this.clock.stop();
    for (const { view } of this.sides) view.destroy();
  }

  private async receive(leftOut: string[], buffer: DataView | undefined): Promise<void> {
    if (!buffer) return;
    const steps = await decodeJson<TransformStep[]>(buffer);
    [this.steps, this.leftOut, this.refused] = [steps, leftOut, null];
    this.update();
    if (this.list.at < 0) this.list.select(Math.min(1, this.steps.length - 1));
  }

  private refuse(why: string): void {
    this.refused = why;
    this.update();
  }

  private update(): void {
    const { isGone } = this.store.kernel;
    const isShown = this.steps.length > 0 && this.refused === null;
    this.body.hidden = !isShown;
    this.hint.hidden = isShown;
    attr(this.root, "data-mnb-state", this.refused !== null ? "failed" : isShown ? "ready" : "loading");
    text(this.hint, this.refused !== null ? `The steps could not be shown. ${this.refused}` : isGone ? "Not connected to the kernel, so the steps cannot be loaded." : "Fetching the steps.");
    const { state } = this.store.snapshot.transforms!;
    this.compare.hidden = state === "ready" || state === "loading";
    this.clock.run(state === "loading" && !isGone);
    this.list.fill(this.steps.map((step, number) => ({ name: step.name, more: [step.problem ? "cannot be done" : this.agreement(number)[0], number ? countsOf(step.after?.marks ?? []) : ""], title: step.explanation, share: 0 })));
    this.paintNumbers();
  }

  /** Whether both sides of a step agree, in a word with a sign, and in full. */
  private agreement(number: number): [word: string, words: string, mark: string] {
    const [agrees, words] = this.store.snapshot.transforms!.compared[number] ?? [null, ""];
    if (!words) return ["", "", ""];
    return agrees === null ? ["not compared", words, "kept"] : agrees ? ["✓ agrees", `✓ ${words}`, "new"] : ["✗ differs", `✗ ${words}`, "gone"];
  }

  private paintNumbers(): void {
    const { state, message } = this.store.snapshot.transforms!;
    const [, words, mark] = this.agreement(this.list.at);
    attr(this.numbers, "data-mnb-mark", mark || null);
    if (state !== "loading") text(this.numbers, state === "failed" ? `The numbers could not be compared: ${message}` : state === "ready" ? words : "Nothing is run until you ask for it.");
  }

  private show(number: number): void {
    const step = this.steps[number]!;
    const left = number === this.steps.length - 1 && this.leftOut.length ? ` Not reached: ${this.leftOut.join(", ")}.` : "";
    text(this.said, `${step.name} ${step.explanation}${left}`);
    this.problem.hidden = step.problem === null;
    if (step.problem) fill(this.problem, step.problem);
    this.sides[0].fill(step.before, "Python: this is the first step.");
    this.sides[1].fill(step.after, "JAX refuses this step: there is no jaxpr after it.");
    this.paintNumbers();
    attr(this.root, "data-mnb-step", number);
  }
}

/** How many equations have which mark, each with its sign. */
function countsOf(rows: readonly MarkedLine[]): string {
  return COUNTED.map((mark) => [MARKS[mark]![0], rows.filter((row) => row[2] === mark).length] as const).filter(([, count]) => count > 0).map(([sign, count]) => `${sign}${count}`).join(" ");
}
