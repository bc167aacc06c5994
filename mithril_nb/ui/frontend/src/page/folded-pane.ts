/**
 * Folds the lines of a saved page's pane: by a click, by keys, by block, and everything outside of the pinned block.
 */

import { type OutlineItem, blockAt, foldRanges, outlineOf, rangesOutside } from "../code/fold-ranges";
import { type CostText, Folds, foldLabel, nameOf } from "../code/folds";
import { attr, h } from "../dom/dom";
import type { StageText } from "../store/links";

export class FoldedPane {
  now: Folds;
  /** The controls for the pane's header; null if nothing can be folded. */
  readonly root: HTMLElement | null;
  private readonly menu: HTMLSelectElement;
  private readonly only: HTMLButtonElement;
  private items: OutlineItem[] | null = null;
  /** The folds while all blocks are shown, if only some are. */
  private all: Folds | null = null;

  /** `changed` draws the pane, `go` moves to a line, and `pinned` returns the pinned block. */
  constructor(
    private readonly text: StageText,
    title: string,
    private readonly costOf: CostText,
    private readonly changed: () => void,
    go: (line: number) => void,
    private readonly pinned: () => string | null,
  ) {
    const ranges = foldRanges(text);
    this.now = Folds.NONE.carriedTo(ranges);
    this.menu = h("select", {
      "aria-label": `Blocks of ${title}`,
      title: "The block of the first visible line. Choose a block to go to it",
    });
    // A page of many blocks would be slow with all options of all panes.
    for (const type of ["pointerdown", "focus"]) this.menu.addEventListener(type, () => this.fill());
    this.menu.addEventListener("change", () => {
      const item = this.items?.[Number(this.menu.value)];
      if (!item) return;
      this.set(this.now.show(item.line));
      go(item.line);
    });
    const button = (label: string, act: () => void): HTMLButtonElement =>
      h("button", { type: "button", onclick: act }, label);
    this.only = button("only this block", () => this.toggleOnly());
    attr(this.only, "aria-pressed", "false");
    this.only.title = "Hide the lines of other blocks than the pinned one (b)";
    this.root = ranges.length
      ? h(
          "span",
          { class: "folds" },
          this.menu,
          this.only,
          button("fold", () => this.set(this.now.foldAll())),
          button("unfold", () => this.set(this.now.unfoldAll())),
        )
      : null;
  }

  /** Handle a key at a line; returns whether it did. */
  key(key: string, line: number): boolean {
    if (key === "Z") this.set(this.now.isAllFolded ? this.now.unfoldAll() : this.now.foldAll());
    else if (key === "b") this.toggleOnly();
    else if (key === "z") {
      const range = this.now.hiddenAt(line) ?? this.now.around(line).find((one) => !this.now.folded.has(one));
      if (!range) return false;
      this.set(this.now.toggle(range));
    } else return false;
    return true;
  }

  /**
   * Fold or unfold the part that starts at a line, or the part of the line at a character. Returns whether there is
   * one.
   */
  toggle(line: number, character?: string): boolean {
    const range =
      character === undefined
        ? this.now.startsAt(line)
        : this.now.spans.find(({ from, span }) => from === line && String(span![0]) === character);
    if (range) this.set(this.now.toggle(range));
    return range != null;
  }

  signOf(line: number): string {
    const range = this.now.startsAt(line);
    return range ? (this.now.folded.has(range) ? "▸" : "▾") : "";
  }

  /** Return the label of a folded row, or null. */
  labelOf(line: number): string | null {
    const hidden = this.now.hiddenAt(line);
    return hidden && foldLabel(hidden, this.costOf);
  }

  /** Return the pieces of a line with folded arguments; null without any. */
  piecesOf(line: number, whole: string): (string | HTMLElement)[] | null {
    const spans = this.now.spans.filter(({ from }) => from === line);
    if (!spans.length) return null;
    const found: (string | HTMLElement)[] = [];
    let at = 0;
    for (const range of spans) {
      found.push(
        whole.slice(at, range.span![0]),
        h("span", { class: "fold", "data-span": range.span![0] }, foldLabel(range, this.costOf)),
      );
      at = range.span![1];
    }
    return [...found, whole.slice(at)];
  }

  /** Name the block of the first visible line. */
  follow(line: number): void {
    const found = blockAt(this.text, line);
    const cost = found && this.costOf(found.block, found.role);
    const label = found ? `${nameOf(found)}${cost ? `: ${cost}` : ""}` : "Blocks";
    if (this.menu.options[0]?.value !== "") this.menu.prepend(h("option", { value: "" }));
    const [first] = this.menu.options;
    if (first!.textContent !== label) first!.textContent = label;
    this.menu.value = "";
  }

  private fill(): void {
    if (this.items) return;
    this.items = outlineOf(this.text);
    this.menu.append(
      ...this.items.map(({ path, depth }, i) =>
        h("option", { value: i }, `${"\u00a0\u00a0".repeat(depth)}${path.slice(path.lastIndexOf("/") + 1)}`),
      ),
    );
  }

  private toggleOnly(): void {
    const block = this.pinned();
    if (this.all) [this.now, this.all] = [this.all, null];
    else if (block) {
      const ranges = rangesOutside(this.text, [block]);
      [this.all, this.now] = [this.now, new Folds(ranges, new Set(ranges))];
    }
    attr(this.only, "aria-pressed", String(this.all !== null));
    this.changed();
  }

  private set(folds: Folds): void {
    this.now = folds;
    this.changed();
  }
}
