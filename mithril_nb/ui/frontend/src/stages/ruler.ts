/** The ruler beside the scrollbar of a pane: a tick for each linked row. */

import type { Folds } from "../code/folds";
import { svg } from "../dom/dom";

const HEIGHT = 1000;

export function createRuler(jump: (line: number) => void) {
  const hoverTicks = svg("path", { class: "mnb-tick-hover" });
  const pinTicks = svg("path", { class: "mnb-tick-pinned" });
  let lines: readonly number[] = [];
  let count = 1;
  let shownFolds: Folds | null = null;
  const root = svg(
    "svg",
    { class: "mnb-ruler", viewBox: `0 0 10 ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
    hoverTicks,
    pinTicks,
  );
  root.addEventListener("click", (event) => jumpTo(event.offsetY / root.clientHeight));

  function paint(folds: Folds, lineCount: number, hovered: readonly number[], pinned: readonly number[]) {
    shownFolds = folds;
    lines = pinned;
    count = Math.max(1, folds.rowCount(lineCount));
    hoverTicks.setAttribute("d", ticks(folds, hovered));
    pinTicks.setAttribute("d", ticks(folds, pinned));
  }

  function ticks(folds: Folds, lines: readonly number[]) {
    let d = "";
    let last = -1;
    for (const line of lines) {
      const y = Math.round(((folds.rowOf(line) - 1) / count) * HEIGHT);
      if (y === last) continue;
      last = y;
      d += `M0 ${y}h10v${Math.max(3, Math.ceil(HEIGHT / count))}h-10z`;
    }
    return d;
  }

  function jumpTo(fraction: number) {
    const target = shownFolds?.lineOf(Math.max(1, Math.round(fraction * count))) ?? 1;
    jump(
      lines.reduce(
        (best, line) => (Math.abs(line - target) < Math.abs(best - target) ? line : best),
        lines[0] ?? target,
      ),
    );
  }

  return { root, paint };
}
