/** The files that a saved page offers: the page itself, and its data. */

import type { ExportChoice } from "../graph/export";
import { textOf } from "./packed-text";
import { decodeSaved } from "./saved";

/** Return the choices of the export menu. Called before the page is changed; `packed` has its data. */
export function pageFiles(page: HTMLElement, packed: HTMLElement): ExportChoice[] {
  const first = page.cloneNode(true);
  return [
    { title: "HTML: this page", suffix: "html", hint: "The page as it was saved", make: () => pageText(first) },
    {
      title: "JSON: all stages",
      suffix: "json",
      hint: "The data of the page: texts, links, costs, and the graph",
      make: () => dataText(packed),
    },
  ];
}

/** Return the text of the file: the document with the page as it was before scripts changed it. */
function pageText(first: Node) {
  const root = document.documentElement.cloneNode(true) as HTMLElement;
  root.querySelector("main")!.replaceWith(first.cloneNode(true));
  return `<!DOCTYPE html>\n${root.outerHTML}\n`;
}

/**
 * Return the data as JSON, with plain texts. Instructions stay columns of indices into tables: all lines of a kernel
 * have the same thousands of blocks.
 */
async function dataText(packed: HTMLElement) {
  const { rows: _, ...data } = await decodeSaved(packed.textContent);
  const stages = data.stages.map((stage) => {
    if ("text" in stage) return stage;
    const { templates: _1, lines: _2, addresses: _3, numbers: _4, ...rest } = stage;
    return { ...rest, text: textOf(stage) };
  });
  return JSON.stringify({ format: "mithril_nb.page", version: 1, name: document.title, ...data, stages });
}
