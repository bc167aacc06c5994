/** The Transforms tab: the jaxpr before and after each transform side by side, with marks on the equations. */

import { useSignal } from "@preact/signals";
import { RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView } from "@codemirror/view";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { colouredAs } from "../code/languages";
import { margin } from "../code/margin";
import { codeView, scrollToLine, setText } from "../code/read-only";
import { Problem } from "../controls/diagnostic";
import { StepList } from "../controls/step-list";
import { Button, Holder, useElapsed, useStart } from "../dom/view";
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
const NO_ROWS: readonly MarkedLine[] = [];

/** The marked lines, and the highlighted ones. */
interface ShownStep {
  rows: readonly MarkedLine[];
  linked: readonly number[];
}

const show = StateEffect.define<Partial<ShownStep>>();
const shown = StateField.define<ShownStep & { decorations: DecorationSet }>({
  create: () => ({ rows: [], linked: [], decorations: Decoration.none }),
  update(value, { effects, newDoc }) {
    for (const effect of effects) {
      if (!effect.is(show)) continue;
      const now = { ...value, ...effect.value };
      const builder = new RangeSetBuilder<Decoration>();
      for (const [line, , mark] of now.rows) {
        if (line > newDoc.lines) continue;
        const { from } = newDoc.line(line);
        const [sign, words] = MARKS[mark]!;
        builder.add(
          from,
          from,
          Decoration.line({
            class: `mnb-mark mnb-mark-${mark}${now.linked.includes(line) ? " mnb-pinned" : ""}`,
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

interface SideProps {
  title: "before" | "after";
  side: TransformSide | null;
  /** Shown if the step has no such side. */
  message: string;
  /** The line with the caret, if it is in this side. */
  pointed: MarkedLine | undefined;
  /** Ids of the highlighted equations; the first one is scrolled into view if the caret is in the other side. */
  linked: readonly string[];
  point: (row: MarkedLine | undefined) => void;
}

function Side({ title, side, message, pointed, linked, point }: SideProps) {
  const rows = side?.marks ?? NO_ROWS;
  const moved = useRef((_line: number) => {});
  moved.current = (line) => point(rows.find(([at]) => at === line));
  const view = useMemo(
    () =>
      codeView(
        `jaxpr ${title}, read only. Move the caret to highlight related lines.`,
        colouredAs("jaxpr"),
        margin,
        shown,
        EditorView.updateListener.of(({ selectionSet, docChanged, state }) => {
          if (selectionSet && !docChanged) moved.current(state.doc.lineAt(state.selection.main.head).number);
        }),
      ),
    [],
  );
  useStart(() => () => view.destroy());
  useLayoutEffect(() => {
    setText(view, side?.text ?? "", [show.of({ rows, linked: [] })]);
    view.scrollDOM.scrollTop = 0;
  }, [side]);
  useLayoutEffect(() => {
    const lines = rows.filter(([, id]) => linked.includes(id)).map(([line]) => line);
    view.dispatch({ effects: show.of({ linked: lines }) });
    if (!pointed && lines.length) scrollToLine(view, lines[0]!, true);
  }, [side, linked]);
  let summary = side ? countsOf(rows) : "";
  if (pointed) {
    const [, , mark, others, note, isInferred] = pointed;
    const related =
      others.length > 0 &&
      `${title === "before" ? "to" : "from"} ${others.length === 1 ? "equation" : "equations"} ${others.join(", ")}`;
    summary = [MARKS[mark]![1], note, related, isInferred && "inferred"].filter(Boolean).join(" · ");
  }
  return (
    <div class="mnb-pane" data-mnb-side={title} role="region" aria-label={`jaxpr ${title}`}>
      <div class="mnb-pane-head">
        <b>{title}</b>
        <span class="mnb-pane-figures" aria-live="polite">
          {summary}
        </span>
      </div>
      <Holder class="mnb-pane-text" hidden={!side} nodes={[view.dom]} />
      <p class="mnb-hint" hidden={side !== null}>
        {message}
      </p>
    </div>
  );
}

export function TransformsTab({ store }: { store: Store }) {
  const { kernel } = store;
  const { state, message, compared } = store.snapshot.transforms!;
  const steps = useSignal<TransformStepData[]>([]);
  const leftOut = useSignal<string[]>([]);
  /** The reason the latest steps cannot be shown. */
  const failure = useSignal<string | null>(null);
  const at = useSignal(-1);
  /** The equation at the caret, and its side. */
  const pointed = useSignal<{ side: 0 | 1; row: MarkedLine } | null>(null);
  const select = (number: number) => {
    [pointed.value, at.value] = [null, number];
  };
  useStart(() =>
    kernel.receive(
      "transforms",
      ({ left_out }, list) => {
        [steps.value, leftOut.value, failure.value] = [list, left_out, null];
        if (at.value < 0) select(Math.min(1, list.length - 1));
      },
      (why) => void (failure.value = why),
    ),
  );
  const isRunning = state === "loading" && !kernel.isGone;
  const elapsed = useElapsed(isRunning);
  /** Return the result of comparing both sides of a step: short, in full, and its mark. */
  const agreement = (number: number): [short: string, full: string, mark?: string] => {
    const [agrees, words] = compared[number] ?? [null, ""];
    if (!words) return ["", ""];
    if (agrees === null) return ["not compared", words, "kept"];
    return agrees ? ["✓ agrees", `✓ ${words}`, "new"] : ["✗ differs", `✗ ${words}`, "gone"];
  };
  const isShown = steps.value.length > 0 && failure.value === null;
  const step = steps.value[at.value];
  const isLast = at.value === steps.value.length - 1;
  const left = isLast && leftOut.value.length ? ` Not reached: ${leftOut.value.join(", ")}.` : "";
  const [, words, mark] = agreement(at.value);
  const numbers = {
    loading: elapsed && `Running both sides: ${elapsed}`,
    failed: `The values could not be compared: ${message}`,
    ready: words,
  }[state as string];
  const side = (number: 0 | 1, title: "before" | "after", message: string) => {
    const { side, row } = pointed.value ?? {};
    const own = side === number ? row : undefined;
    return (
      <Side
        title={title}
        side={step?.[title] ?? null}
        message={message}
        pointed={own}
        linked={useMemo(() => (own ? [own[1]] : (row?.[3] ?? [])), [pointed.value])}
        point={(row) => void (pointed.value = row ? { side: number, row } : null)}
      />
    );
  };
  return (
    <div
      class="mnb-passes"
      data-mnb-part="transforms"
      data-mnb-state={failure.value !== null ? "failed" : isShown ? "ready" : "loading"}
      data-mnb-step={at.value < 0 ? undefined : at.value}
    >
      <p class="mnb-hint" hidden={isShown}>
        {failure.value !== null
          ? `The steps could not be shown. ${failure.value}`
          : kernel.isGone
            ? "Not connected to the kernel, so the steps cannot be loaded."
            : "Loading the steps…"}
      </p>
      <div class="mnb-pass-body" hidden={!isShown}>
        <StepList
          label="Transforms, the innermost first"
          steps={steps.value.map(({ name, problem, after, explanation }, number) => ({
            name,
            columns: [problem ? "failed" : agreement(number)[0], number ? countsOf(after?.marks ?? []) : ""],
            title: explanation,
            share: 0,
          }))}
          at={at.value}
          select={select}
        />
        <div class="mnb-pass-diff">
          <p class="mnb-pass-history" role="status">
            {step && `${step.name} ${step.explanation}${left}`}
          </p>
          <div class="mnb-row">
            <Button
              action="transforms.compare"
              title="Run both sides of each step on the same inputs"
              hidden={state === "ready" || state === "loading"}
              onClick={() => void store.command("compare_transforms")}
            >
              {"Compare values"}
            </Button>
            <p class="mnb-pass-history mnb-compared" role="status" data-mnb-mark={mark}>
              {numbers ?? "Both sides run only when you press the button."}
            </p>
          </div>
          <div class="mnb-notice mnb-step-problem" hidden={!step?.problem}>
            {step?.problem && <Problem problem={step.problem} />}
          </div>
          <div class="mnb-panes-row">
            {side(0, "before", "This is the first step; the input is Python.")}
            {side(1, "after", "JAX rejects this step, so it has no result.")}
          </div>
        </div>
      </div>
    </div>
  );
}

/** Format the number of equations with each mark, as in "+3 ~1". */
function countsOf(rows: readonly MarkedLine[]) {
  return COUNTED.map((mark) => [MARKS[mark]![0], rows.filter((row) => row[2] === mark).length] as const)
    .filter(([, count]) => count > 0)
    .map(([sign, count]) => `${sign}${count}`)
    .join(" ");
}
