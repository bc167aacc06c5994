/** An editor of code, with its own undo, completion, and an error under its line. */

import { EditorState, type Extension, Prec, StateEffect, StateField, type Text, Transaction } from "@codemirror/state";
import {
  Decoration,
  type DecorationSet,
  EditorView,
  ViewPlugin,
  type ViewUpdate,
  WidgetType,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { h, uid, zoomOf } from "../dom/dom";
import { selectsAll, stylesInShadowRoot } from "./read-only";

export interface CodeError {
  /** Number of the line, from 1; null for an error of the whole text. */
  line: number | null;
  text: string;
}

export interface Completion {
  label: string;
  detail: string;
  /** The text that replaces the word. */
  insert: string;
}

/** Completions of the word from a position to the caret. */
interface Completions {
  from: number;
  options: Completion[];
  at: number;
}

const MOST_OPTIONS = 8;
const ONE_STEP_MS = 500;
/** Room for an error of three lines below its line. */
const ERROR_PX = 64;
const setError = StateEffect.define<CodeError>();
const setCompletions = StateEffect.define<Completions | null>();

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
  /** Return all completions of a word, given the text before it. */
  complete: (before: string) => Completion[];
}

/** Undo and redo of the text. The packages of CodeMirror for it would add a tenth to the code of the page. */
class Steps {
  private readonly undone: Text[] = [];
  private readonly done: Text[] = [];
  private at = 0;

  /** Record the text before a change; changes within half a second are one step. */
  add(before: Text, now: number) {
    if (now - this.at > ONE_STEP_MS) this.done.push(before);
    this.undone.length = 0;
    this.at = now;
  }

  clear() {
    this.done.length = this.undone.length = this.at = 0;
  }

  move(view: EditorView, isRedo: boolean) {
    const [from, to] = isRedo ? [this.undone, this.done] : [this.done, this.undone];
    const text = from.pop();
    if (!text) return false;
    to.push(view.state.doc);
    this.at = 0;
    replaceText(view, text.toString(), "undo");
    return true;
  }
}

const STEPS = new WeakMap<EditorView, Steps>();

function completing(complete: Handlers["complete"]): Extension {
  const list = uid("completions");
  const field = StateField.define<Completions | null>({
    create: () => null,
    update(shown, transaction) {
      for (const effect of transaction.effects) if (effect.is(setCompletions)) return effect.value;
      if (!transaction.docChanged) return transaction.selection ? null : shown;
      return transaction.isUserEvent("input.type") || transaction.isUserEvent("delete")
        ? completionsAt(transaction.state, complete, false)
        : null;
    },
  });
  const show = (view: EditorView, value: Completions | null) => (
    view.dispatch({ effects: setCompletions.of(value) }),
    true
  );
  const accept = (view: EditorView, { from, options }: Completions, at: number) => {
    const { insert } = options[at]!;
    const changes = { from, to: view.state.selection.main.head, insert };
    view.dispatch({ changes, selection: { anchor: from + insert.length }, userEvent: "input.complete" });
    return true;
  };
  const menu = (view: EditorView, shown: Completions) =>
    h(
      "ul",
      { class: "mnb-completions", role: "listbox", id: list, "aria-label": "Completions" },
      ...shown.options.map(({ label, detail }, at) =>
        h(
          "li",
          {
            role: "option",
            id: `${list}-${at}`,
            "aria-selected": String(at === shown.at),
            onmousedown: (event: Event) => event.preventDefault(), // the editor keeps the focus
            onclick: () => accept(view, shown, at),
          },
          h("b", {}, label),
          h("span", {}, detail),
        ),
      ),
    );
  // The tooltips of CodeMirror would add 8 kB to the code of the page.
  const popup = ViewPlugin.define(
    (view) => {
      let list: HTMLElement | null = null;
      const layOut = () =>
        view.requestMeasure({
          key: popup,
          read: () => list && view.coordsAtPos(view.state.field(field)!.from),
          write(caret) {
            if (!list) return;
            const area = view.scrollDOM.getBoundingClientRect();
            const isInView =
              caret &&
              caret.bottom > area.top &&
              caret.top < area.bottom &&
              caret.left >= area.left &&
              caret.left < area.right;
            list.style.visibility = isInView ? "" : "hidden";
            if (!caret) return;
            list.style.translate = "";
            const { left, top, width, height } = list.getBoundingClientRect();
            const isBelow = caret.bottom + height < innerHeight || caret.top < height;
            const across = Math.max(0, Math.min(caret.left, document.documentElement.clientWidth - width)) - left;
            const down = (isBelow ? caret.bottom : caret.top - height) - top;
            const zoom = zoomOf(view.dom);
            list.style.translate = `${across / zoom}px ${down / zoom}px`;
          },
        });
      return {
        layOut,
        update({ state, startState, geometryChanged }: ViewUpdate) {
          const shown = state.field(field);
          if (shown !== startState.field(field)) {
            list?.remove();
            list = shown && menu(view, shown);
            if (list) view.dom.append(list);
          } else if (!geometryChanged) return;
          layOut();
        },
      };
    },
    {
      eventObservers: {
        scroll() {
          this.layOut(); // CodeMirror also reports when an element around the editor scrolls
        },
        blur: (_, view) => void (view.state.field(field) && setTimeout(() => show(view, null))),
      },
    },
  );
  const whileShown = (act: (view: EditorView, shown: Completions) => boolean) => (view: EditorView) => {
    const shown = view.state.field(field);
    return shown !== null && act(view, shown);
  };
  const step = (by: number) =>
    whileShown((view, shown) => {
      const count = shown.options.length;
      return show(view, { ...shown, at: (shown.at + by + count) % count });
    });
  return [
    field,
    popup,
    Prec.high(
      keymap.of([
        { key: "ArrowDown", run: step(1) },
        { key: "ArrowUp", run: step(-1) },
        { key: "Enter", run: whileShown((view, shown) => accept(view, shown, shown.at)) },
        { key: "Escape", run: whileShown((view) => show(view, null)) },
        { key: "Ctrl-Space", run: (view) => show(view, completionsAt(view.state, complete, true)) },
      ]),
    ),
    EditorView.contentAttributes.of((view): Record<string, string> => {
      const shown = view.state.field(field, false);
      return shown
        ? { "aria-controls": list, "aria-activedescendant": `${list}-${shown.at}` }
        : ({} as Record<string, string>);
    }),
  ];
}

function completionsAt(state: EditorState, complete: Handlers["complete"], isAsked: boolean): Completions | null {
  const { head } = state.selection.main;
  const before = state.sliceDoc(Math.max(0, head - 500), head);
  const word = /\w*$/.exec(before)![0];
  if (!word && !isAsked) return null;
  const sought = word.toLowerCase();
  const options = complete(before.slice(0, before.length - word.length)).filter(
    ({ label, insert }) => label.toLowerCase().includes(sought) && insert !== word,
  );
  const starts = ({ label }: Completion) => Number(!label.toLowerCase().startsWith(sought));
  options.sort((a, b) => starts(a) - starts(b)); // a stable sort: the order of the source is kept
  return options.length ? { from: head - word.length, options: options.slice(0, MOST_OPTIONS), at: 0 } : null;
}

/** Create an editor; `label` is its accessible name. Tab leaves it, Ctrl+Enter applies the text. */
export function codeEditor(
  label: string,
  { change, apply, complete }: Handlers,
  ...extensions: Extension[]
): EditorView {
  const steps = new Steps();
  const attributes = { "aria-label": label, "aria-multiline": "true", spellcheck: "false", autocapitalize: "off" };
  const newline = (view: EditorView) => {
    const { state } = view;
    const indent = /^\s*/.exec(state.doc.lineAt(state.selection.main.head).text)![0];
    view.dispatch(state.replaceSelection(`\n${indent}`), { scrollIntoView: true, userEvent: "input" });
    return true;
  };
  // The browser would remove only the selected lines in view.
  const removeSelection = (view: EditorView) => {
    if (view.state.selection.main.empty) return false;
    view.dispatch(view.state.replaceSelection(""), { scrollIntoView: true, userEvent: "delete" });
    return true;
  };
  const view = new EditorView({
    state: EditorState.create({
      extensions: [
        stylesInShadowRoot,
        selectsAll,
        lineNumbers(),
        errors,
        completing(complete),
        keymap.of([
          { key: "Mod-Enter", run: () => (apply(), true) },
          { key: "Enter", run: newline },
          { key: "Backspace", run: removeSelection },
          { key: "Delete", run: removeSelection },
          { key: "Mod-z", run: (view) => steps.move(view, false) },
          { key: "Mod-y", run: (view) => steps.move(view, true) },
          { key: "Mod-Shift-z", run: (view) => steps.move(view, true) },
        ]),
        EditorView.updateListener.of(({ docChanged, startState, transactions }) => {
          const events = transactions.map((transaction) => transaction.annotation(Transaction.userEvent));
          if (!docChanged || !events.some(Boolean)) return; // `follow` has no user event
          if (!events.includes("undo")) steps.add(startState.doc, performance.now());
          change();
        }),
        EditorView.contentAttributes.of(attributes),
        ...extensions,
      ],
    }),
  });
  STEPS.set(view, steps);
  // A key that the editor handles, such as Escape for its completions, must not act on the workbench.
  view.dom.addEventListener("keydown", (event) => event.defaultPrevented && event.stopPropagation());
  return view;
}

/** Replace the part of a text that differs, which keeps the caret outside of it. */
function replaceText(view: EditorView, text: string, userEvent?: string) {
  const before = view.state.doc.toString();
  const most = Math.min(before.length, text.length);
  let from = 0;
  while (from < most && before[from] === text[from]) from++;
  let end = 0;
  while (end < most - from && before[before.length - 1 - end] === text[text.length - 1 - end]) end++;
  const changes = { from, to: before.length - end, insert: text.slice(from, text.length - end) };
  if (before !== text) view.dispatch({ changes, ...(userEvent && { userEvent }) });
}

/** Show another text, from which undo starts again. */
export function follow(view: EditorView, text: string): void {
  replaceText(view, text);
  STEPS.get(view)!.clear();
}

/** Show an error under its line until the text changes; an open bracket, for example, may be far above the caret. */
export function showError(view: EditorView, error: CodeError): void {
  const { doc } = view.state;
  const { to } = doc.line(Math.min(error.line ?? doc.lines, doc.lines));
  const intoView = EditorView.scrollIntoView(to, { yMargin: ERROR_PX });
  view.dispatch({ effects: [setError.of(error), intoView] });
}
