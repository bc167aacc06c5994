/** The cost of each line of Python, for the margin of its text. */

import type { HeatOf } from "../code/margin";
import { atLeast, formatFigure } from "./figures";
import type { CostTableData, Figure } from "../kernel/contract";
import type { StageText } from "../store/links";

/** The parts of a cost that lines need; saved pages have no more. */
type CostOfLines = Pick<CostTableData, "lines" | "source">;

/** Return the figure if lines of Python have it, else a figure that they have. */
export function figureOfLines(cost: CostOfLines, figure: Figure): Figure {
  const hasFigure = (one: Figure) => Object.values(cost.lines ?? {}).some((figures) => figures[one]);
  return hasFigure(figure) ? figure : cost.source === "measured" && hasFigure("time_s") ? "time_s" : "flops";
}

/**
 * Return the cost of each line: a bar relative to the most expensive line, as a square root so that small costs are
 * visible, and the number. An expression of several lines has its number on the first one, so that the numbers add up.
 */
export function heatOf(text: StageText, cost: CostOfLines | null, figure: Figure): HeatOf {
  const lines = cost?.lines ?? {};
  const key = cost ? figureOfLines(cost, figure) : figure;
  const most = Math.max(0, ...Object.values(lines).map((figures) => figures[key] ?? 0));
  return (line) => {
    const instruction = text.at(line);
    const source = instruction?.source[0];
    const found = source === undefined ? undefined : lines[source];
    const value = found?.[key] ?? 0;
    const isUnknown = (found?.unknown?.[key] ?? 0) > 0;
    if (!found || (value <= 0 && !isUnknown)) return null;
    const isFirst = text.at(line - 1)?.source[0] !== source;
    const number = value > 0 ? `${atLeast(found, key, value)}${formatFigure(key, value)}` : "?";
    return { level: value > 0 ? Math.sqrt(value / most) : 0, text: isFirst ? number : "" };
  };
}
