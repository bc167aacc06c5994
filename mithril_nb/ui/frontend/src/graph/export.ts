/** The menu that exports a graph: its picture, with the legend of its overlay, and what else the page has. */

import { createMenuButton, type MenuAction } from "../controls/menu";
import { h } from "../dom/dom";
import type { GraphView } from "./view";

/** Offer a file for download. */
function download(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

export interface ExportChoice {
  title: string;
  hint?: string;
  /** Suffix of the file; "" if the choice saves no file. */
  suffix: string;
  /** Return the text of the file, if there is one. */
  make: () => Promise<Blob | string | void> | string | void;
  /** What the button shows for a moment afterwards. */
  done?: string;
}

const DONE_MS = 1500;
const TYPES: Readonly<Record<string, string>> = { svg: "image/svg+xml", html: "text/html", json: "application/json" };

/** The menu that exports a graph. `fail` shows an error; `more` are further formats. */
export function exportMenu(
  view: GraphView,
  name: () => string,
  fail: (why: string) => void,
  more: readonly ExportChoice[] = [],
): HTMLElement {
  const file = (suffix: string) =>
    `${
      name()
        .replace(/[^\p{L}\p{N}._-]+/gu, "_")
        .slice(0, 80) || "graph"
    }.${suffix}`;
  const choices: readonly ExportChoice[] = [
    { title: "PNG, twice the size", suffix: "png", make: () => view.toPng(2) },
    { title: "SVG", suffix: "svg", make: () => view.toSvg(name()) },
    ...more,
  ];
  const save = async ({ title, suffix, make, done = "" }: ExportChoice) => {
    if (suffix) menu.report(`Making ${title.split(/[,:]/)[0]} …`);
    try {
      const made = await make();
      if (made)
        download(
          typeof made === "string" ? new Blob([made], { type: TYPES[suffix] ?? "text/plain" }) : made,
          file(suffix),
        );
    } catch (error) {
      fail(error instanceof Error ? error.message : String(error));
      done = "";
    }
    menu.report(done);
    if (done) setTimeout(() => menu.report(""), DONE_MS);
  };
  const menu = createMenuButton(
    "Export",
    "Save the graph or the program as a file",
    "graph.export",
    choices.map((choice): MenuAction => ({
      title: choice.title,
      ...(choice.hint ? { hint: choice.hint } : {}),
      act: () => void save(choice),
    })),
  );
  return menu.root;
}
