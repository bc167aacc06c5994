/** Read-only editors of code. */

import { EditorState, type Extension, type StateEffect } from "@codemirror/state";
import { EditorView, ViewPlugin } from "@codemirror/view";

/**
 * CodeMirror adds its styles to the document unless it finds another root when a view is created. In a shadow root, as
 * in marimo, setRoot() adds them there; without them, the text appears outside the pane.
 */
export const stylesInShadowRoot: Extension = ViewPlugin.define((view: EditorView) => {
  const frame = requestAnimationFrame(() => {
    const root = view.dom.getRootNode();
    if (root instanceof ShadowRoot) view.setRoot(root);
  });
  return { destroy: () => cancelAnimationFrame(frame) };
});

/** Ctrl+A selects the whole text: the browser has only the lines in view. */
export const selectsAll: Extension = EditorView.domEventHandlers({
  keydown: (event, view) => {
    if (event.key.toLowerCase() !== "a" || !(event.ctrlKey || event.metaKey) || event.altKey) return false;
    view.dispatch({ selection: { anchor: 0, head: view.state.doc.length } });
    return true;
  },
});

const readOnly: Extension = [stylesInShadowRoot, EditorState.readOnly.of(true), selectsAll];

/** Create an editor; `label` is its accessible name. */
export function codeView(label: string, ...extensions: Extension[]): EditorView {
  const attributes = { "aria-label": label, "aria-readonly": "true", tabindex: "0", spellcheck: "false" };
  return new EditorView({
    state: EditorState.create({ extensions: [readOnly, ...extensions, EditorView.contentAttributes.of(attributes)] }),
  });
}

/** Replace the text of an editor; the caret moves to its start. */
export function setText(view: EditorView, insert: string, effects: readonly StateEffect<unknown>[] = []): void {
  view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert }, selection: { anchor: 0 }, effects });
}

/** Scroll a line to the end of the upper third; with `mayStay`, only if it is not visible. */
export function scrollToLine(view: EditorView, line: number, mayStay = false): void {
  const { scrollDOM, state } = view;
  // EditorView.scrollIntoView would also scroll the notebook.
  const { top, bottom } = view.lineBlockAt(state.doc.line(line).from);
  const isVisible = top >= scrollDOM.scrollTop && bottom <= scrollDOM.scrollTop + scrollDOM.clientHeight;
  if (!mayStay || !isVisible) scrollDOM.scrollTop = top - scrollDOM.clientHeight / 3;
}
