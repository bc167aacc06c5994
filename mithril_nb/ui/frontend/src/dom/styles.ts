/** The style sheet, added once to each document or shadow root with a widget. */

import uplotCss from "uplot/dist/uPlot.min.css";
import base from "../../styles/base.css";
import canvas from "../../styles/canvas.css";
import costs from "../../styles/costs.css";
import explorer from "../../styles/explorer.css";
import layout from "../../styles/layout.css";
import panes from "../../styles/panes.css";
import parts from "../../styles/parts.css";
import tabs from "../../styles/tabs.css";
import tokens from "../../styles/tokens.css";

declare const __MNB_KEY__: string;

function addStyles(root: Document | ShadowRoot) {
  const place = root instanceof Document ? root.head : root;
  if (place.querySelector(`style[data-mnb-styles="${__MNB_KEY__}"]`)) return;
  const style = document.createElement("style");
  style.dataset["mnbStyles"] = __MNB_KEY__;
  style.textContent = [uplotCss, tokens, base, layout, canvas, panes, parts, tabs, costs, explorer].join("\n");
  place.append(style);
}

/** Add the styles for an element. It may not be attached yet, so its shadow root is looked up in the next frame. */
export function styleFor(element: HTMLElement): void {
  addStyles(document);
  requestAnimationFrame(() => {
    const root = element.getRootNode();
    if (root instanceof ShadowRoot) addStyles(root);
  });
}
