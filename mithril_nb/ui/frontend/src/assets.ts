/** The shared bundle: one hidden widget loads it, and all widgets of the page use it. */

import { mountExplorer } from "./explorer";
import { mountCurves } from "./live";
import { mountWorkbench } from "./workbench";

declare const __MNB_KEY__: string;

function initialize() {
  (globalThis as any)[__MNB_KEY__] ??= { mountWorkbench, mountExplorer, mountCurves };
  globalThis.dispatchEvent(new Event(__MNB_KEY__));
}

function render({ el }: { el: HTMLElement }) {
  el.style.display = "none";
}

export default { initialize, render };
