/** The cost of a block in a folded row, with the same numbers as the cost table. */

import { isWithin } from "../store/links";
import { FIGURE_TITLES, atLeast, formatFigure, shareOf, totalOf } from "../costs/figures";
import { percent, si } from "../dom/format";
import { getOrCreate } from "../dom/lists";
import type { CostTableData, CostTableRow, Figure, Role } from "../kernel/contract";
import type { CostText } from "../code/folds";

/** Return the figure if the costs have it for blocks and roles, else FLOPs. */
export function foldFigure(cost: CostTableData | null, figure: Figure): Figure {
  const { total } = cost ?? {};
  const hasFigure = (one: Figure) => total?.[one] != null || total?.formulas?.[one] !== undefined;
  if (figure !== "params" && hasFigure(figure)) return figure;
  return hasFigure("flops") || !hasFigure("time_s") ? "flops" : "time_s";
}

/** Return a function that formats the cost of a block, inner blocks included, in one role. */
export function costTexts(cost: CostTableData | null, figure: Figure): CostText {
  const known = new Map<string, string>();
  return (block, role) =>
    getOrCreate(known, `${block}\n${role}`, () => (cost ? textOf(cost, figure, block, role) : ""));
}

function textOf(cost: CostTableData, figure: Figure, block: string, role: Role | null) {
  const rows = cost.rows.filter((row) => isWithin(row.block, block));
  if (rows.length === 0) return "";
  const unknown = rows.reduce((sum, row) => sum + (row.unknown?.[figure] ?? 0), 0);
  const values = rows.map((row) => valueOf(row, figure, role));
  // A sum without known parts is unknown, not 0.
  const value =
    values.every((one) => one === null) || (unknown && !values.some(Boolean))
      ? null
      : values.reduce<number>((sum, one) => sum + (one ?? 0), 0);
  if (value === null) return formulaOf(rows, figure, block) ?? "cost unknown";
  const sum = { ...cost.total, [figure]: value, unknown: { [figure]: unknown } } as CostTableRow;
  const [share, bound] = shareOf(sum, cost.total, figure);
  const number = value === 0 ? si(0, FIGURE_TITLES[figure][1]) : formatFigure(figure, value);
  return `${atLeast(sum, figure, value)}${number}${share === null ? "" : `, ${bound}${percent(share)}`}`;
}

function valueOf(row: CostTableRow, figure: Figure, role: Role | null) {
  const { roles } = row;
  if (role === null || !roles || Object.keys(roles).length === 0 || row[figure] === null) return row[figure];
  // Figures of 0 are left out.
  return roles[role]?.[figure] ?? 0;
}

/**
 * Return the formula of a cost that depends on symbolic sizes; "" if the cost has several roles; null without a
 * formula.
 */
function formulaOf(rows: readonly CostTableRow[], figure: Figure, block: string) {
  const row = rows.find((one) => one.block === block);
  const formula = row && totalOf(row).formulas?.[figure];
  if (!formula) return null;
  return Object.keys(row.roles ?? {}).length > 1 ? "" : `${formula[0]} ${FIGURE_TITLES[figure][1]}`.trimEnd();
}
