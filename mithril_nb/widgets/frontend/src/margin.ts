/**
 * The margin of a code pane: numbers of the lines, and the stripes of their blocks.
 *
 * CodeMirror's own gutters hold an element for each line and each column, and scrolling writes all of them anew: that took
 * more than the lines themselves. Lines are all of one height here, so the numbers are one text, and lines below each
 * other with the same stripe are one bar.
 */

import { type Extension, StateEffect } from "@codemirror/state";
import { type EditorView, ViewPlugin, type ViewUpdate } from "@codemirror/view";
import { h } from "./dom";

/** The class of a line's stripe, or null; lines count from 1. */
export type StripeOf = (line: number) => string | null;

export interface Bar {
  name: string;
  /** Its first line, and the first one below it. */
  from: number;
  to: number;
}

/** Put a text's stripes in place of those before. */
export const setStripes = StateEffect.define<StripeOf>();

/** Bars for the lines `from` to `to`, both included. */
export function barsOf(stripeOf: StripeOf, from: number, to: number): Bar[] {
  const bars: Bar[] = [];
  for (let line = from; line <= to; line++) {
    const name = stripeOf(line);
    const last = bars.at(-1);
    if (name === null) continue;
    if (last?.name === name && last.to === line) last.to++;
    else bars.push({ name, from: line, to: line + 1 });
  }
  return bars;
}

export const margin: Extension = ViewPlugin.fromClass(
  class {
    private readonly numbers = h("div", { class: "mnb-numbers" });
    private readonly bars = h("div", { class: "mnb-stripes" });
    private readonly root = h("div", { class: "mnb-margin", "aria-hidden": "true" }, this.numbers, this.bars);
    private stripeOf: StripeOf = () => null;

    constructor(private readonly view: EditorView) {
      view.scrollDOM.insertBefore(this.root, view.contentDOM);
      this.fit();
      this.draw();
    }

    update(update: ViewUpdate): void {
      let fresh = update.docChanged || update.viewportChanged || update.heightChanged;
      for (const { effects } of update.transactions) {
        for (const effect of effects) {
          if (!effect.is(setStripes)) continue;
          this.stripeOf = effect.value;
          fresh = true;
        }
      }
      if (update.docChanged || update.geometryChanged) this.fit();
      if (fresh) this.draw();
    }

    destroy(): void {
      this.root.remove();
    }

    /** As long as the text, and as wide as its last number. */
    private fit(): void {
      const { contentHeight, scaleY, state } = this.view;
      this.root.style.height = `${contentHeight / scaleY}px`;
      this.root.style.setProperty("--digits", String(Math.max(2, String(state.doc.lines).length)));
    }

    private draw(): void {
      const { viewport, viewportLineBlocks, documentPadding, scaleY, state } = this.view;
      const first = state.doc.lineAt(viewport.from).number;
      const last = state.doc.lineAt(viewport.to).number;
      const top = documentPadding.top + (viewportLineBlocks[0]?.top ?? 0) / scaleY;
      const height = (viewportLineBlocks[0]?.height ?? 0) / scaleY;
      let text = "";
      for (let line = first; line <= last; line++) text += `${line}\n`;
      this.numbers.textContent = text;
      this.numbers.style.top = this.bars.style.top = `${top}px`;
      this.bars.replaceChildren(...barsOf(this.stripeOf, first, last).map(({ name, from, to }) => {
        const bar = h("div", { class: name });
        bar.style.top = `${(from - first) * height}px`;
        bar.style.height = `${(to - from) * height}px`;
        return bar;
      }));
    }
  },
);
