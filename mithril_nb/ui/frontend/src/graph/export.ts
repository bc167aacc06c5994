/** Export of a graph's picture, with the legend of its overlay: PNG at twice its size, and SVG. */

import { h } from "../dom/dom";
import type { GraphView } from "./view";

/** Offer a file for download. */
export function download(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export type ExportChoice = readonly [title: string, act: () => Promise<void> | void];

/** The menu that exports a graph. `fail` shows an error; `more` are further formats. */
export function exportMenu(view: GraphView, name: () => string, fail: (why: string) => void, more: readonly ExportChoice[] = []): HTMLElement {
  const file = (suffix: string): string => `${name().replace(/[^\p{L}\p{N}._-]+/gu, "_").slice(0, 80) || "graph"}.${suffix}`;
  const choices: readonly ExportChoice[] = [
    ["PNG, twice the size", async () => download(await view.toPng(2), file("png"))],
    ["SVG", () => download(new Blob([view.toSvg(name())], { type: "image/svg+xml" }), file("svg"))],
    ...more,
  ];
  const menu = h("select", { class: "mnb-select", "aria-label": "Export the graph", title: "Save the graph as a file", "data-mnb-action": "graph.export" },
    h("option", { value: "" }, "Export"), ...choices.map(([title], at) => h("option", { value: at }, title)),
  ) as HTMLSelectElement;
  menu.addEventListener("change", () => {
    const chosen = choices[Number(menu.value)];
    menu.value = "";
    void (async () => chosen?.[1]())().catch((error: unknown) => fail(error instanceof Error ? error.message : String(error)));
  });
  return menu;
}
