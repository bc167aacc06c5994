/**
 * The margin of a code pane: line numbers, block stripes, and for Python the cost of each line.
 *
 * CodeMirror's gutters create an element per line and column, and scrolling rewrites all of them, which took longer
 * than drawing the lines. Here all rows have the same height, so the numbers are one text, and adjacent rows with
 * the same stripe share one bar. A folded part is one row.
 */

import { type Extension, StateEffect } from "@codemirror/state";
import { type EditorView, ViewPlugin, type ViewUpdate } from "@codemirror/view";
import { h } from "../dom/dom";
import { foldsOf, setFolds } from "./folding";

/** Returns the CSS class of a line's stripe, or null; lines are counted from 1. */
export type StripeOf = (line: number) => string | null;

/** The cost of a line: the length of its bar, 1 for the most expensive line, and its number. */
interface LineCost {
  level: number;
  text: string;
}

/** Returns the cost of a line; null if it is 0. */
export type HeatOf = (line: number) => LineCost | null;

interface Bar {
  name: string;
  /** First row, and the row after the last one. */
  from: number;
  to: number;
}

/** Replaces the stripes. */
export const setStripes = StateEffect.define<StripeOf>();

/** Replaces the line costs. */
export const setHeat = StateEffect.define<HeatOf>();

/** Return bars for the rows `from` to `to`, inclusive. */
export function barsOf(stripeOf: StripeOf, from: number, to: number): Bar[] {
  const bars: Bar[] = [];
  for (let row = from; row <= to; row++) {
    const name = stripeOf(row);
    const last = bars.at(-1);
    if (name === null) continue;
    if (last?.name === name && last.to === row) last.to++;
    else bars.push({ name, from: row, to: row + 1 });
  }
  return bars;
}

export const margin: Extension = ViewPlugin.fromClass(
  class {
    private readonly numbers = h("div", { class: "mnb-numbers" });
    private readonly bars = h("div", { class: "mnb-stripes" });
    private readonly heat = h("div", { class: "mnb-heats" });
    private readonly signs = h("div", { class: "mnb-fold-signs" });
    private readonly root = h(
      "div",
      { class: "mnb-margin", "aria-hidden": "true" },
      this.numbers,
      this.signs,
      this.heat,
      this.bars,
    );
    private stripeOf: StripeOf = () => null;
    private heatOf: HeatOf = () => null;

    constructor(private readonly view: EditorView) {
      view.scrollDOM.insertBefore(this.root, view.contentDOM);
      this.fit();
      this.draw();
    }

    update(update: ViewUpdate) {
      let fresh = update.docChanged || update.viewportChanged || update.heightChanged;
      for (const { effects } of update.transactions) {
        for (const effect of effects) {
          if (effect.is(setStripes)) this.stripeOf = effect.value;
          else if (effect.is(setHeat)) this.heatOf = effect.value;
          else if (!effect.is(setFolds)) continue;
          fresh = true;
        }
      }
      if (update.docChanged || update.geometryChanged) this.fit();
      if (fresh) this.draw();
    }

    destroy() {
      this.root.remove();
    }

    /** Make the margin as tall as the text and as wide as the last line number. */
    private fit() {
      const { contentHeight, scaleY, state } = this.view;
      this.root.style.height = `${contentHeight / scaleY}px`;
      this.root.style.setProperty("--digits", String(Math.max(2, String(state.doc.lines).length)));
    }

    private draw() {
      const { viewportLineBlocks, documentPadding, scaleY, state } = this.view;
      const folds = foldsOf(state);
      const lines = viewportLineBlocks.map(({ from }) => state.doc.lineAt(from).number);
      const last = lines.length - 1;
      const top = documentPadding.top + (viewportLineBlocks[0]?.top ?? 0) / scaleY;
      const height = (viewportLineBlocks[0]?.height ?? 0) / scaleY;
      this.numbers.textContent = lines.map((line) => `${line}\n`).join("");
      this.signs.textContent = folds.ranges.length ? lines.map((line) => `${folds.signAt(line)}\n`).join("") : "";
      for (const part of [this.numbers, this.signs, this.bars, this.heat]) part.style.top = `${top}px`;
      const createBar = ({ name, from, to }: Bar): HTMLElement => {
        const bar = h("div", { class: name });
        bar.style.top = `${from * height}px`;
        bar.style.height = `${(to - from) * height}px`;
        return bar;
      };
      this.bars.replaceChildren(
        ...barsOf(
          (row) => (folds.hiddenAt(lines[row]!)?.block === "" ? null : this.stripeOf(lines[row]!)),
          0,
          last,
        ).map(createBar),
      );
      const heats = lines.flatMap((line, row) => {
        const cost = this.heatOf(line);
        return cost ? [{ row, cost }] : [];
      });
      this.heat.replaceChildren(
        ...heats.map(({ row, cost }) => {
          const element = createBar({ name: "mnb-heat", from: row, to: row + 1 });
          element.style.setProperty("--level", `${(cost.level * 100).toFixed(0)}%`);
          element.textContent = cost.text;
          return element;
        }),
      );
      this.root.classList.toggle("mnb-with-heat", heats.length > 0);
      this.root.classList.toggle("mnb-with-folds", folds.ranges.length > 0);
    }
  },
);
