/** The selection of a page without a kernel: the anchors of the hovered and of the pinned parts. */

import { hasModifier } from "../dom/events";
import type { Found } from "../search/found";
import { type Anchor, type Links, type StageText, linksOf, noLinks, sameAnchors, withAnchors } from "../store/links";

/** The CSS class of hovered and of pinned parts, and of matches of the search. */
export type Look = "on" | "pin" | "found";

/** One anchor, several of a part that represents several blocks, or none. */
type Anchors = Anchor | readonly Anchor[] | null;

export class Selection {
  readonly anchors: Record<Look, readonly Anchor[]> = { on: [], pin: [], found: [] };
  readonly links: Record<Look, Links> = { on: noLinks(), pin: noLinks(), found: noLinks() };
  found: Found | null = null;

  constructor(
    readonly stages: ReadonlyMap<string, StageText>,
    private readonly paint: (look: Look) => void,
  ) {}

  hover(anchors: Anchors) {
    this.set("on", listed(anchors));
  }

  /** Pin a part; pinning it again, or null, releases it. `add` adds it to the pinned parts, or removes it. */
  pin(anchors: Anchors, add = false) {
    const found = listed(anchors);
    const { pin } = this.anchors;
    this.set("pin", add ? withAnchors(pin, found) : sameAnchors(found, pin) ? [] : found);
  }

  /** Mark the matches of a search; null ends it. */
  find(found: Found | null) {
    this.found = found;
    this.links.found = found ? { blocks: new Set(), lines: found.lines } : noLinks();
    this.paint("found");
  }

  /** Link again, because a stage was added. */
  refresh() {
    for (const look of ["on", "pin"] as const) this.set(look, this.anchors[look]);
  }

  private set(look: Look, anchors: readonly Anchor[]) {
    this.anchors[look] = anchors;
    this.links[look] = linksOf(this.stages, anchors);
    this.paint(look);
  }

  /** Return the equations of the anchors. */
  equations(look: Look): readonly string[] {
    return this.anchors[look].flatMap((anchor) => {
      if (anchor.kind === "equations") return anchor.ids;
      return anchor.kind === "instruction"
        ? (this.stages.get(anchor.stage)?.instructions[anchor.index]?.equations ?? [])
        : [];
    });
  }
}

function listed(anchors: Anchors): readonly Anchor[] {
  return Array.isArray(anchors) ? anchors : anchors ? [anchors as Anchor] : [];
}

/** A pane that the keys move through; lines count from 1, and `here` is 0 before the first key. */
interface Walked {
  readonly here: number;
  readonly lineCount: number;
  go: (line: number) => void;
  pinHere: () => void;
  release: () => void;
  isPinned: (line: number) => boolean;
  /** Whether a line is in a closed fold, so that keys skip it. */
  isFolded?: (line: number) => boolean;
}

/**
 * Move by ↑ and ↓, pin by Enter, release by Escape, and move to the next or previous pinned line by ] and [. Return the
 * function that moves to a pinned line.
 */
export function walkByKeys(element: HTMLElement, pane: Walked): (step: 1 | -1) => void {
  const next = (step: 1 | -1, isWanted: (line: number) => boolean = () => true) => {
    let line = pane.here + step;
    while (line >= 1 && line <= pane.lineCount && (pane.isFolded?.(line) || !isWanted(line))) line += step;
    if (line >= 1 && line <= pane.lineCount) pane.go(line);
  };
  const walk = (step: 1 | -1) => next(step, (line) => pane.isPinned(line));
  element.addEventListener("keydown", (event) => {
    if (hasModifier(event)) return;
    if (event.target !== element && event.key === "Enter") return; // a fold opens
    if (event.key === "ArrowDown") next(1);
    else if (event.key === "ArrowUp") next(-1);
    else if (event.key === "Enter" && pane.here > 0) pane.pinHere();
    else if (event.key === "Escape") pane.release();
    else if (event.key === "]") walk(1);
    else if (event.key === "[") walk(-1);
    else return;
    event.preventDefault();
  });
  return walk;
}

/** Call `act` when Enter or Space is pressed on an element that has no click of its own, such as a box of a picture. */
export function pressByKeys(event: KeyboardEvent, act: () => void): void {
  if (event.key !== "Enter" && event.key !== " ") return;
  event.preventDefault();
  act();
}

/** Return whether the user has selected text, so that the end of a drag is not taken for a click. */
export function hasSelectedText(): boolean {
  return String(document.getSelection()) !== "";
}
