/** An editor of code, with its own undo, completion, and an error under its line. */

import { type CompletionSource, autocompletion } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { EditorState, type Extension, StateEffect, StateField, Transaction } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, WidgetType, keymap, lineNumbers } from "@codemirror/view";
import { h } from "../dom/dom";
import { stylesInShadowRoot } from "./read-only";

export interface CodeError {
  /** Number of the line, from 1; null for an error of the whole text. */
  line: number | null;
  text: string;
}

const setError = StateEffect.define<CodeError>();

class Message extends WidgetType {
  constructor(private readonly text: string) {
    super();
  }
  override eq(other: Message) {
    return other.text === this.text;
  }
  toDOM() {
    return h("div", { class: "mnb-code-error", role: "alert" }, this.text);
  }
}

const errors = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(marks, transaction) {
    if (transaction.docChanged) marks = Decoration.none; // the error is that of an earlier text
    for (const effect of transaction.effects) {
      if (!effect.is(setError)) continue;
      const { doc } = transaction.state;
      const line = doc.line(Math.min(effect.value.line ?? doc.lines, doc.lines));
      const message = Decoration.widget({ widget: new Message(effect.value.text), block: true, side: 1 });
      marks = Decoration.set([
        ...(effect.value.line === null ? [] : [Decoration.line({ class: "mnb-error-line" }).range(line.from)]),
        message.range(line.to),
      ]);
    }
    return marks;
  },
  provide: (field) => EditorView.decorations.from(field),
});

interface Handlers {
  /** Called after the user has changed the text. */
  change: () => void;
  apply: () => void;
  complete: CompletionSource;
}

/** Create an editor; `label` is its accessible name. Tab leaves it, Ctrl+Enter applies the text. */
export function codeEditor(
  label: string,
  { change, apply, complete }: Handlers,
  ...extensions: Extension[]
): EditorView {
  const applies = { key: "Mod-Enter", run: () => (apply(), true) };
  const attributes = { "aria-label": label, spellcheck: "false", autocapitalize: "off" };
  const view = new EditorView({
    state: EditorState.create({
      extensions: [
        stylesInShadowRoot,
        lineNumbers(),
        history(),
        errors,
        autocompletion({ override: [complete], icons: false }),
        keymap.of([applies, ...historyKeymap, ...defaultKeymap]),
        EditorView.updateListener.of(({ docChanged, transactions }) => {
          // `follow` has no user event.
          if (docChanged && transactions.some((transaction) => transaction.annotation(Transaction.userEvent))) change();
        }),
        EditorView.contentAttributes.of(attributes),
        ...extensions,
      ],
    }),
  });
  // A key that the editor handles, such as Escape for its completions, must not act on the workbench.
  view.dom.addEventListener("keydown", (event) => event.defaultPrevented && event.stopPropagation());
  return view;
}

/** Replace the part of the text that differs, which keeps the caret, and is no step of the editor's undo. */
export function follow(view: EditorView, text: string): void {
  const before = view.state.doc.toString();
  if (before === text) return;
  let from = 0;
  while (from < Math.min(before.length, text.length) && before[from] === text[from]) from++;
  let end = 0;
  const most = Math.min(before.length, text.length) - from;
  while (end < most && before[before.length - 1 - end] === text[text.length - 1 - end]) end++;
  view.dispatch({
    changes: { from, to: before.length - end, insert: text.slice(from, text.length - end) },
    annotations: Transaction.addToHistory.of(false),
  });
}

/** Show an error under its line until the text changes. */
export function showError(view: EditorView, error: CodeError): void {
  view.dispatch({ effects: setError.of(error) });
}
