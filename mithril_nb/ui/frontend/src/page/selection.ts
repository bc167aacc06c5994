/** What the pointer and the keys select on a page without a kernel: one hovered and one pinned anchor. */

import { type Anchor, type Links, type StageText, linksOf, noLinks, sameAnchor } from "../store/links";

/** The CSS class of hovered and of pinned parts. */
export type Look = "on" | "pin";

export class Selection {
  readonly anchors: Record<Look, Anchor | null> = { on: null, pin: null };
  readonly links: Record<Look, Links> = { on: noLinks(), pin: noLinks() };

  constructor(
    readonly stages: ReadonlyMap<string, StageText>,
    private readonly paint: (look: Look) => void,
  ) {}

  hover(anchor: Anchor | null): void {
    this.set("on", anchor);
  }

  /** Pin an anchor; pinning it again, or null, releases it. */
  pin(anchor: Anchor | null): void {
    const { pin } = this.anchors;
    this.set("pin", anchor && pin && sameAnchor(anchor, pin) ? null : anchor);
  }

  /** Link again, because a stage was added. */
  refresh(): void {
    for (const look of ["on", "pin"] as const) this.set(look, this.anchors[look]);
  }

  private set(look: Look, anchor: Anchor | null): void {
    this.anchors[look] = anchor;
    this.links[look] = linksOf(this.stages, anchor ? [anchor] : []);
    this.paint(look);
  }

  /** Return the equations of an anchor. */
  equations(look: Look): readonly string[] {
    const anchor = this.anchors[look];
    if (anchor?.kind === "equations") return anchor.ids;
    return anchor?.kind === "instruction" ? (this.stages.get(anchor.stage)?.instructions[anchor.index]?.equations ?? []) : [];
  }
}

/** A pane that the keys move through; lines count from 1, and `here` is 0 before the first key. */
export interface Walked {
  readonly here: number;
  readonly lineCount: number;
  go: (line: number) => void;
  pinHere: () => void;
  release: () => void;
  isPinned: (line: number) => boolean;
  /** Whether a line is in a closed fold, so that keys skip it. */
  isFolded?: (line: number) => boolean;
}

/** Move by ↑ and ↓, pin by Enter, release by Escape, and move to the next or previous pinned line by ] and [. */
export function walkByKeys(element: HTMLElement, pane: Walked): void {
  const next = (step: 1 | -1, isWanted: (line: number) => boolean = () => true): void => {
    let line = pane.here + step;
    while (line >= 1 && line <= pane.lineCount && (pane.isFolded?.(line) || !isWanted(line))) line += step;
    if (line >= 1 && line <= pane.lineCount) pane.go(line);
  };
  const pinned = (line: number): boolean => pane.isPinned(line);
  element.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target !== element && event.key === "Enter") return; // a fold opens
    if (event.key === "ArrowDown") next(1);
    else if (event.key === "ArrowUp") next(-1);
    else if (event.key === "Enter" && pane.here > 0) pane.pinHere();
    else if (event.key === "Escape") pane.release();
    else if (event.key === "]") next(1, pinned);
    else if (event.key === "[") next(-1, pinned);
    else return;
    event.preventDefault();
  });
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
