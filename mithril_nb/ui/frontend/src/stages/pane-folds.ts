/** Folds and unfolds the parts of a code pane, or everything outside of the selected blocks. */

import type { StateEffect } from "@codemirror/state";
import type { EditorView } from "@codemirror/view";
import { type FoldRange, foldRanges, rangesOutside } from "../code/fold-ranges";
import { setFolds } from "../code/folding";
import { Folds } from "../code/folds";
import { followFields } from "../dom/view";
import { type StageText, isWithin } from "../store/links";

export class PaneFolds {
  /** The blocks shown alone; empty to show all. */
  only: readonly string[] = [];
  /** The folded parts that the pane shows. */
  now = Folds.NONE;
  private text: StageText | null = null;
  /** The folded parts while all blocks are shown. */
  private all = Folds.NONE;

  constructor(
    private readonly view: EditorView,
    private readonly changed: () => void,
  ) {
    followFields(this, "only", "now");
  }

  /** Take a new text, and return the effect that folds it. */
  take(text: StageText): StateEffect<unknown> {
    this.text = text;
    this.only = this.only.filter((block) => text.ofBlock(block).length > 0);
    this.all = this.all.carriedTo(foldRanges(text));
    this.now = this.shown();
    return setFolds.of({ folds: this.now });
  }

  toggle(range: FoldRange) {
    this.apply(this.now.toggle(range));
  }

  /** Fold or unfold the part that starts at a line, or the part of the line at a character. */
  toggleFrom(line: number, character?: string) {
    const range = this.now.partAt(line, character);
    if (range) this.toggle(range);
  }

  /** Fold the innermost unfolded part around a line, or unfold the folded one. */
  toggleAt(line: number) {
    const { now } = this;
    const range = now.hiddenAt(line) ?? now.around(line).find((one) => !now.folded.has(one)) ?? now.startsAt(line);
    if (range) this.toggle(range);
  }

  foldAll() {
    this.apply(this.now.foldAll());
  }

  unfoldAll() {
    this.apply(this.now.unfoldAll());
  }

  /** Unfold everything if all parts are folded; else fold all. */
  toggleAll() {
    if (this.now.isAllFolded) this.unfoldAll();
    else this.foldAll();
  }

  /** Unfold the parts that hide a line. */
  reveal(line: number) {
    const { now } = this;
    const shown = now.show(line);
    if (shown !== now) this.apply(shown);
  }

  /** If only some blocks are shown, show others instead, unless they are inside of those. */
  follow(blocks: readonly string[]) {
    const isInside = (block: string) => this.only.some((one) => isWithin(block, one));
    if (this.only.length && !blocks.every(isInside)) this.showOnly(blocks);
  }

  /** Show only the lines of some blocks; all lines without blocks. */
  showOnly(blocks: readonly string[]) {
    if (blocks.join("\n") === this.only.join("\n")) return;
    this.only = blocks;
    this.set(this.shown());
  }

  private shown() {
    if (!this.only.length || !this.text) return this.all;
    const spans = this.all.ranges.filter(({ span }) => span);
    const ranges = [...rangesOutside(this.text, this.only), ...spans].sort(
      (a, b) => a.from - b.from || Number(!!a.span) - Number(!!b.span),
    );
    return new Folds(ranges, new Set(ranges));
  }

  private apply(folds: Folds) {
    if (!this.only.length) this.all = folds;
    this.set(folds);
  }

  /** Fold without moving the first visible line, and keep the caret on a visible row. */
  private set(folds: Folds) {
    const { view } = this;
    const { scrollDOM, state } = view;
    const first = view.lineBlockAtHeight(scrollDOM.scrollTop - view.documentPadding.top);
    const shift = first.top - scrollDOM.scrollTop;
    const hidden = folds.hiddenAt(state.doc.lineAt(state.selection.main.head).number);
    view.dispatch({
      effects: setFolds.of({ folds }),
      ...(hidden ? { selection: { anchor: state.doc.line(hidden.from).from } } : {}),
    });
    this.now = folds;
    scrollDOM.scrollTop = view.lineBlockAt(first.from).top - shift;
    this.changed();
  }
}
