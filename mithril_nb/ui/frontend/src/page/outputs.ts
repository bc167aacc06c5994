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

/** The lines of a pane, read as a stage with one instruction for each line. */
class OutputPane {
  readonly rows: Element[];
  readonly text: StageText;
  here = 0;

  constructor(
    readonly code: HTMLElement,
    private readonly output: Output,
    name: string,
  ) {
    this.rows = [...code.querySelectorAll(".l")];
    const instructions = this.rows.map((row, at): RawInstruction => [
      at + 1,
      1,
      "",
      words(row, "data-e"),
      words(row, "data-of").map((block) => [block, 1]),
      null,
      null,
    ]);
    this.text = new StageText(name, 0, this.rows.map(() => " ").join("\n"), { instructions, equations: {} });
    walkByKeys(code, this);
  }

  get lineCount(): number {
    return this.rows.length;
  }

  go(line: number): void {
    const row = this.rows[line - 1];
    if (!row) return;
    this.rows[this.here - 1]?.classList.remove("here");
    this.here = line;
    row.classList.add("here");
    row.scrollIntoView({ block: "nearest" });
    this.output.hover(row);
  }

  pinHere(): void {
    const row = this.rows[this.here - 1]!;
    if (row.hasAttribute("data-e")) this.output.pin(row);
  }

  release(): void {
    this.output.pin(null);
  }

  isPinned(line: number): boolean {
    return this.rows[line - 1]!.classList.contains("pin");
  }

  isFolded(line: number): boolean {
    return isFolded(this.rows[line - 1]!);
  }

  /** Highlight the linked lines and `selected`, and return the first highlighted line. */
  paint(look: Look, linked: ReadonlySet<number> | undefined, selected: Element | null): Element | undefined {
    this.rows.forEach((row, at) => row.classList.toggle(look, row === selected || linked?.has(at) === true));
    return this.rows.find((row) => row.classList.contains(look) && !isFolded(row));
  }
}

export class Output {
  private readonly panes: OutputPane[];
  /** The boxes and rows outside of the panes. */
  private readonly parts: Element[];
  private readonly selection: Selection;
  private selected: Element | null = null;

  constructor(root: HTMLElement) {
    root.setAttribute("data-live", "");
    this.panes = [...root.querySelectorAll<HTMLElement>(".code")].map(
      (code, at) => new OutputPane(code, this, String(at)),
    );
    this.parts = [...root.querySelectorAll(LINKED)].filter((part) => !part.closest(".code"));
    this.selection = new Selection(new Map(this.panes.map(({ text }) => [text.stage, text])), (look) =>
      this.paint(look),
    );
    const linked = (event: Event) => (event.target instanceof Element ? event.target.closest(LINKED) : null);
    root.addEventListener("mouseover", (event) => this.hover(linked(event)));
    root.addEventListener("mouseleave", () => this.hover(null));
    root.addEventListener("click", (event) => {
      const element = linked(event);
      if (!element || hasSelectedText()) return;
      event.preventDefault();
      this.pin(element);
    });
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") this.pin(null);
    });
    for (const anchor of root.querySelectorAll("a.n")) anchor.setAttribute("tabindex", "-1");
    for (const part of root.querySelectorAll<HTMLElement | SVGElement>("[data-block][tabindex]"))
      part.addEventListener("keydown", (event) => pressByKeys(event as KeyboardEvent, () => this.pin(part)));
  }

  hover(element: Element | null): void {
    this.selected = element;
    this.selection.hover(element && this.anchorOf(element));
  }

  pin(element: Element | null): void {
    this.selected = element;
    this.selection.pin(element && this.anchorOf(element));
  }

  private anchorOf(element: Element): Anchor {
    if (!element.hasAttribute("data-e")) return { kind: "block", path: element.getAttribute("data-block")! };
    const pane = this.panes.findIndex(({ rows }) => rows.includes(element));
    const name = `${pane} ${(this.panes[pane]?.rows ?? this.parts).indexOf(element)}`;
    return { kind: "equations", name, ids: words(element, "data-e") };
  }

  private paint(look: Look) {
    const [anchor] = this.selection.anchors[look];
    const selected = anchor ? this.selected : null;
    const blocks = anchor?.kind === "block" ? [anchor.path] : selected ? words(selected, "data-of") : [];
    const ids = this.selection.equations(look);
    for (const part of this.parts) {
      const isLinked =
        blocks.includes(part.getAttribute("data-block") ?? "") || words(part, "data-e").some((id) => ids.includes(id));
      part.classList.toggle(look, part === selected || isLinked);
    }
    for (const pane of this.panes) {
      const first = pane.paint(look, this.selection.links[look].lines.get(pane.text.stage), selected);
      if (look === "pin" && first && !(selected && pane.code.contains(selected))) scrollTo(pane.code, first);
    }
  }
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
