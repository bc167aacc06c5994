/** The read-only editor of a code pane. */

import { EditorState, type Extension } from "@codemirror/state";
import { EditorView, ViewPlugin } from "@codemirror/view";

/**
 * Makes code read-only. CodeMirror adds its styles to the document unless it finds another root when a view is created.
 * In a shadow root, as in marimo, setRoot() adds them there; without them, the text appears outside the pane.
 */
export const readOnly: Extension = [
  EditorState.readOnly.of(true),
  EditorView.domEventHandlers({
    keydown: (event, view) => {
      if (event.key.toLowerCase() !== "a" || !(event.ctrlKey || event.metaKey) || event.altKey) return false;
      // The browser has only the lines in view.
      view.dispatch({ selection: { anchor: 0, head: view.state.doc.length } });
      return true;
    },
  }),
  ViewPlugin.define((view: EditorView) => {
    const frame = requestAnimationFrame(() => {
      const root = view.dom.getRootNode();
      if (root instanceof ShadowRoot) view.setRoot(root);
    });
    return { destroy: () => cancelAnimationFrame(frame) };
  }),
];
