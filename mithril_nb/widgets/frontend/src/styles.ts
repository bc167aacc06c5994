/** The style sheet, put once into each document or shadow root that a workbench lives in. */

import { EditorState, type Extension } from "@codemirror/state";
import { type EditorView, ViewPlugin } from "@codemirror/view";
import uplotCss from "uplot/dist/uPlot.min.css";
import base from "../styles/base.css";
import canvas from "../styles/canvas.css";
import costs from "../styles/costs.css";
import explorer from "../styles/explorer.css";
import panes from "../styles/panes.css";
import parts from "../styles/parts.css";
import tabs from "../styles/tabs.css";
import tokens from "../styles/tokens.css";

declare const __MNB_KEY__: string;

export function addStyles(root: Document | ShadowRoot): void {
  const place = root instanceof Document ? root.head : root;
  if (place.querySelector(`style[data-mnb-styles="${__MNB_KEY__}"]`)) return;
  const style = document.createElement("style");
  style.dataset["mnbStyles"] = __MNB_KEY__;
  style.textContent = [uplotCss, tokens, base, canvas, panes, parts, tabs, costs, explorer].join("\n");
  place.append(style);
}

/** An element may be mounted before it is attached: its shadow root, if any, is known a moment later. */
export function styleFor(element: HTMLElement): void {
  addStyles(document);
  requestAnimationFrame(() => {
    const root = element.getRootNode();
    if (root instanceof ShadowRoot) addStyles(root);
  });
}

/**
 * Code that cannot be edited. CodeMirror styles the document unless it finds another root when a view is created: in a shadow
 * root, as in marimo, it needs setRoot(), or its style sheet is missing there and the text is outside of the pane.
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
