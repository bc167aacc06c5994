/**
 * Highlights linked lines in static outputs: reports, listings, and steps of transforms. The links are in the markup:
 * `data-e` holds the equations of a line or box, `data-of` the blocks of a line, `data-block` the block of a box or
 * row.
 */

import type { RawInstruction } from "../kernel/messages";
import { type Anchor, StageText } from "../store/links";
import { Selection, hasSelectedText, type Look, pressByKeys, walkByKeys } from "./selection";

const LINKED = "[data-e],[data-block]";

function words(element: Element, name: string) {
  return (element.getAttribute(name) ?? "").split(" ").filter(Boolean);
}

/** Link the parts of an output. */
export function linkOutput(root: HTMLElement): void {
  /** The hovered or pinned element. */
  let selected: Element | null = null;
  root.setAttribute("data-live", "");
  const panes = [...root.querySelectorAll<HTMLElement>(".code")].map((code, at) =>
    createOutputPane(code, String(at), hover, pin),
  );
  /** The boxes and rows outside of the panes. */
  const parts = [...root.querySelectorAll(LINKED)].filter((part) => !part.closest(".code"));
  const selection = new Selection(new Map(panes.map(({ text }) => [text.stage, text])), paint);
  const linked = (event: Event) => (event.target instanceof Element ? event.target.closest(LINKED) : null);
  root.addEventListener("mouseover", (event) => hover(linked(event)));
  root.addEventListener("mouseleave", () => hover(null));
  root.addEventListener("click", (event) => {
    const element = linked(event);
    if (!element || hasSelectedText()) return;
    event.preventDefault();
    pin(element);
  });
  root.addEventListener("keydown", (event) => {
    if (event.key === "Escape") pin(null);
  });
  for (const anchor of root.querySelectorAll("a.n")) anchor.setAttribute("tabindex", "-1");
  for (const part of root.querySelectorAll<HTMLElement | SVGElement>("[data-block][tabindex]"))
    part.addEventListener("keydown", (event) => pressByKeys(event as KeyboardEvent, () => pin(part)));

  function hover(element: Element | null) {
    selected = element;
    selection.hover(element && anchorOf(element));
  }

  function pin(element: Element | null) {
    selected = element;
    selection.pin(element && anchorOf(element));
  }

  function anchorOf(element: Element): Anchor {
    if (!element.hasAttribute("data-e")) return { kind: "block", path: element.getAttribute("data-block")! };
    const pane = panes.findIndex(({ rows }) => rows.includes(element));
    const name = `${pane} ${(panes[pane]?.rows ?? parts).indexOf(element)}`;
    return { kind: "equations", name, ids: words(element, "data-e") };
  }

  function paint(look: Look) {
    const [anchor] = selection.anchors[look];
    const part = anchor ? selected : null;
    const blocks = anchor?.kind === "block" ? [anchor.path] : part ? words(part, "data-of") : [];
    const ids = selection.equations(look);
    for (const one of parts) {
      const isLinked =
        blocks.includes(one.getAttribute("data-block") ?? "") || words(one, "data-e").some((id) => ids.includes(id));
      one.classList.toggle(look, one === part || isLinked);
    }
    for (const { code, text, rows } of panes) {
      const lines = selection.links[look].lines.get(text.stage);
      rows.forEach((row, at) => row.classList.toggle(look, row === part || lines?.has(at) === true));
      const first = rows.find((row) => row.classList.contains(look) && !isFolded(row));
      if (look === "pin" && first && !(part && code.contains(part))) scrollTo(code, first);
    }
  }
}

/** The lines of a pane, read as a stage with one instruction for each line. */
function createOutputPane(
  code: HTMLElement,
  name: string,
  hover: (row: Element) => void,
  pin: (row: Element | null) => void,
) {
  const rows = [...code.querySelectorAll(".l")];
  const instructions = rows.map((row, at): RawInstruction => [
    at + 1,
    1,
    "",
    words(row, "data-e"),
    words(row, "data-of").map((block) => [block, 1]),
    null,
    null,
  ]);
  const text = new StageText(name, 0, rows.map(() => " ").join("\n"), { instructions, equations: {} });
  const walked = {
    here: 0,
    lineCount: rows.length,
    go(line: number) {
      const row = rows[line - 1];
      if (!row) return;
      rows[walked.here - 1]?.classList.remove("here");
      walked.here = line;
      row.classList.add("here");
      row.scrollIntoView({ block: "nearest" });
      hover(row);
    },
    pinHere() {
      const row = rows[walked.here - 1]!;
      if (row.hasAttribute("data-e")) pin(row);
    },
    release: () => pin(null),
    isPinned: (line: number) => rows[line - 1]!.classList.contains("pin"),
    isFolded: (line: number) => isFolded(rows[line - 1]!),
  };
  walkByKeys(code, walked);
  return { code, rows, text };
}

/** Return whether a line is in a closed fold. */
function isFolded(row: Element) {
  return row.closest("details:not([open])") !== null;
}

/** Scroll a pane to a line that is not visible. */
function scrollTo(code: HTMLElement, row: Element) {
  const top = row.getBoundingClientRect().top - code.getBoundingClientRect().top;
  if (top < 0 || top > code.clientHeight - 20) code.scrollTop += top - code.clientHeight / 4;
}
