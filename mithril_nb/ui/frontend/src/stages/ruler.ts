/** The ruler beside the scrollbar of a pane: a tick for each linked row. */

import type { Folds } from "../code/folds";
import { svg } from "../dom/dom";

const HEIGHT = 1000;

export class Ruler {
  readonly root: SVGSVGElement;
  private readonly hovered = svg("path", { class: "mnb-tick-hover" });
  private readonly pinned = svg("path", { class: "mnb-tick-pinned" });
  private lines: readonly number[] = [];
  private count = 1;
  private folds: Folds | null = null;

  /** `jump` receives the pinned line next to a click, or the line at the click if none is pinned. */
  constructor(private readonly jump: (line: number) => void) {
    this.root = svg(
      "svg",
      { class: "mnb-ruler", viewBox: `0 0 10 ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
      this.hovered,
      this.pinned,
    );
    this.root.addEventListener("click", (event) => this.jumpTo(event.offsetY / this.root.clientHeight));
  }

  paint(folds: Folds, lineCount: number, hovered: readonly number[], pinned: readonly number[]): void {
    this.folds = folds;
    this.lines = pinned;
    this.count = Math.max(1, folds.rowCount(lineCount));
    this.hovered.setAttribute("d", this.ticks(folds, hovered));
    this.pinned.setAttribute("d", this.ticks(folds, pinned));
  }

  private ticks(folds: Folds, lines: readonly number[]): string {
    let d = "";
    let last = -1;
    for (const line of lines) {
      const y = Math.round(((folds.rowOf(line) - 1) / this.count) * HEIGHT);
      if (y === last) continue;
      last = y;
      d += `M0 ${y}h10v${Math.max(3, Math.ceil(HEIGHT / this.count))}h-10z`;
    }
    return d;
  }

  private jumpTo(fraction: number): void {
    const target = this.folds?.lineOf(Math.max(1, Math.round(fraction * this.count))) ?? 1;
    const { lines } = this;
    this.jump(
      lines.reduce(
        (best, line) => (Math.abs(line - target) < Math.abs(best - target) ? line : best),
        lines[0] ?? target,
      ),
    );
  }
}
