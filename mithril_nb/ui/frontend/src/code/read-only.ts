/** The read-only editor of a code pane. */

import { EditorState, type Extension } from "@codemirror/state";
import { type EditorView, ViewPlugin } from "@codemirror/view";

/**
 * Makes code read-only. CodeMirror adds its styles to the document unless it finds another root when a view is created. In
 * a shadow root, as in marimo, setRoot() adds them there; without them, the text appears outside the pane.
 */
export const readOnly: Extension = [
  EditorState.readOnly.of(true),
  ViewPlugin.define((view: EditorView) => {
    const frame = requestAnimationFrame(() => {
      const root = view.dom.getRootNode();
      if (root instanceof ShadowRoot) view.setRoot(root);
    });
    return { destroy: () => cancelAnimationFrame(frame) };
  }),
];
