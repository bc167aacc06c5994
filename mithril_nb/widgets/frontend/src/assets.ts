/** The shared asset: one hidden widget carries this bundle, and every workbench of the page uses it. */

import { mountExplorer } from "./explorer";
import { mountCurves } from "./live";
import { mountWorkbench } from "./workbench";

declare const __MNB_KEY__: string;

function initialize(): void {
  (globalThis as any)[__MNB_KEY__] ??= { mountWorkbench, mountExplorer, mountCurves };
  globalThis.dispatchEvent(new Event(__MNB_KEY__));
}

function render({ el }: { el: HTMLElement }): void {
  el.style.display = "none";
}

export default { initialize, render };
