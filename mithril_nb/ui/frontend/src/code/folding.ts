/** Folded parts in a code pane. A folded part is one row with a label, so all rows keep the same height. */

import {
  type EditorState,
  type Extension,
  RangeSetBuilder,
  StateEffect,
  StateField,
  type Text,
} from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, WidgetType } from "@codemirror/view";
import { h } from "../dom/dom";
import type { FoldRange } from "./fold-ranges";
import { Folds } from "./folds";

/** Returns the text of a folded part. */
type LabelOf = (range: FoldRange) => string;

/** Replaces the folded parts, or their labels. */
export const setFolds = StateEffect.define<{ folds?: Folds; labelOf?: LabelOf }>();

class Label extends WidgetType {
  constructor(
    private readonly label: string,
    private readonly line: number,
    private readonly span: number,
  ) {
    super();
  }

  override eq(other: Label) {
    return other.label === this.label && other.line === this.line && other.span === this.span;
  }

  override toDOM(): HTMLElement {
    return h(
      "span",
      {
        class: "mnb-fold",
        title: "Click to unfold",
        "data-mnb-fold": this.line,
        "data-mnb-span": this.span < 0 ? null : this.span,
      },
      this.label,
    );
  }
}

interface Folded {
  folds: Folds;
  labelOf: LabelOf;
  decorations: DecorationSet;
}

function build(doc: Text, { folds, labelOf }: Omit<Folded, "decorations">): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  const { hidden, spans } = folds;
  let at = 0;
  const add = (range: FoldRange) => {
    const line = doc.line(range.from);
    const [from, to] = range.span
      ? [line.from + range.span[0], line.from + range.span[1]]
      : [line.from, doc.line(range.to).to];
    builder.add(from, to, Decoration.replace({ widget: new Label(labelOf(range), range.from, range.span?.[0] ?? -1) }));
  };
  for (const range of hidden) {
    while (spans[at] && spans[at]!.from < range.from) add(spans[at++]!);
    add(range);
  }
  for (; at < spans.length; at++) add(spans[at]!);
  return builder.finish();
}

const field = StateField.define<Folded>({
  create: () => ({ folds: Folds.NONE, labelOf: () => "", decorations: Decoration.none }),
  update(value, transaction) {
    let next = transaction.docChanged ? { ...value, folds: Folds.NONE } : value;
    for (const effect of transaction.effects) if (effect.is(setFolds)) next = { ...next, ...effect.value };
    return next === value ? value : { ...next, decorations: build(transaction.newDoc, next) };
  },
  provide: (self) => [
    EditorView.decorations.from(self, ({ decorations }) => decorations),
    EditorView.atomicRanges.of((view) => view.state.field(self).decorations),
  ],
});

/** Return the folded parts; none without the extension. */
export function foldsOf(state: EditorState): Folds {
  return state.field(field, false)?.folds ?? Folds.NONE;
}

export const folding: Extension = field;
