/** Computations of the Cost tab: shares and bounds, columns, rows of several sources side by side, CSV. No DOM. */

import type { CostView } from "../kernel/model";
import { exact, percent, seconds, si } from "../dom/format";
import { COMMUNICATION, COUNTED, FIGURE_TITLES, FIGURES } from "../kernel/contract";
import type { CostTableData, CostTableRow, Figure, Figures, Quantity, Role, Source } from "../kernel/contract";

export const SOURCES: readonly Source[] = ["analytic", "lowered", "compiled", "predicted", "measured"];
export const SOURCE_TITLES: Record<Source, [title: string, hint: string]> = {
  analytic: ["Analytic", "A formula for each equation of the jaxpr. Nothing is compiled or run."],
  lowered: ["Lowered", "XLA's cost analysis of each HLO instruction before XLA's passes"],
  compiled: ["Compiled", "XLA's cost analysis of each optimized HLO instruction. Compiles the program."],
  predicted: [
    "Predicted",
    "Time of each optimized HLO instruction on the device, by its compiler or from published figures; not measured",
  ],
  measured: ["Measured", "Time of each instruction, from JAX's profiler"],
};

export { FIGURE_TITLES, FIGURES };
/** The time that a source has. */
export const TIME_OF: Partial<Record<string, Figure>> = { measured: "time_s", predicted: "predicted_s" };

/** Return a figure; for a time, that of the source, so that measured and predicted times are beside each other. */
function timeIn(source: Source, figure: Figure): Figure {
  return Object.values(TIME_OF).includes(figure) ? (TIME_OF[source] ?? figure) : figure;
}

/** Explains the attributed share of the status line. */
export const ATTRIBUTED =
  "Share of the analytic FLOPs traced back to a block, the loss or the optimizer. The cost table has a row for " +
  "the unattributed part of each source and figure.";

export const VIEWS: readonly CostView[] = ["table", "treemap", "roofline", "memory", "beside", "what_if"];
export const VIEW_TITLES: Record<CostView, string> = {
  table: "Table",
  treemap: "Treemap",
  roofline: "Roofline",
  memory: "Memory",
  beside: "Before / after",
  what_if: "What if",
};

export const ROLES: readonly Role[] = ["forward", "backward", "update"];

/**
 * Return the title of a figure with the convention for blocks that contain others, as `titled` in
 * `viz/costs/node_values.py`.
 */
export function titled(title: string, own: boolean): string {
  return own
    ? `own ${/^[A-Z][a-z]/.test(title) ? title[0]!.toLowerCase() + title.slice(1) : title}`
    : `${title}, with inner blocks`;
}

/** Format a figure, rounded. */
export function formatFigure(figure: Quantity, value: number | null | undefined): string {
  if (FIGURE_TITLES[figure][1] === "s") return seconds(value);
  return value === 0 ? "0" : si(value, FIGURE_TITLES[figure][1]);
}

export function formatExactly(figure: Quantity, value: number | null | undefined): string {
  return exact(value, FIGURE_TITLES[figure][1]);
}

function formatBoth(figure: Quantity, value: number | null): [rounded: string, exact: string] {
  return [formatFigure(figure, value), formatExactly(figure, value)];
}

/** Return "≥ " for a sum with unknown parts. 0 is exact, because a sum without known parts is null. */
export function atLeast(row: Pick<CostTableRow, "unknown">, figure: Quantity, value: unknown): string {
  return value && (row.unknown?.[figure] ?? 0) > 0 ? "≥ " : "";
}

/** Return a figure of a row as text, rounded and exact: a number with its bound, or a formula. */
export function figureText(row: CostTableRow, figure: Quantity): [text: string, exact: string] {
  const value = figureOf(row, figure);
  const bound = atLeast(row, figure, value);
  return (
    (value === null ? row.formulas?.[figure] : undefined) ?? [
      bound + formatFigure(figure, value),
      bound + formatExactly(figure, value),
    ]
  );
}

/** Return the share of a row in the total, and its bound if some costs are unknown. */
export function shareOf(
  row: CostTableRow,
  total: CostTableRow,
  figure: Figure,
): [share: number | null, bound: "" | "≤ " | "≥ "] {
  const [value, whole] = [row[figure], total[figure]];
  const [here, all] = [row.unknown?.[figure] ?? 0, total.unknown?.[figure] ?? 0];
  if (value === null || !whole || (here > 0 && here < all)) return [value === 0 && !all ? 0 : null, ""];
  const share = value / whole;
  // A share of 0, or of 1 with unknown parts in the row, is exact.
  return [share, !all || share === (here ? 1 : 0) ? "" : here ? "≥ " : "≤ "];
}

/** Return the cost of a block, including the blocks inside it. */
export function totalOf(row: CostTableRow): CostTableRow {
  return row.total ? { ...row, roles: undefined, unknown: undefined, formulas: undefined, ...row.total } : row;
}

/** Return the sources that a view shows; `chosen` has the latest one last. */
export function shownSources(view: CostView, chosen: readonly Source[]): Source[] {
  if (view === "beside") {
    const last = [...new Set(chosen)].slice(-2);
    if (last.length === 2) return inOrder(last);
    return inOrder([...last, last[0] === "compiled" ? "lowered" : "compiled"]);
  }
  return view === "table" ? inOrder(chosen) : chosen.slice(-1);
}

export function inOrder(sources: readonly Source[]): Source[] {
  return SOURCES.filter((source) => sources.includes(source));
}

/** A block with its costs by source. */
export interface TableLine {
  block: string;
  label: string;
  hue: number;
  by: Partial<Record<Source, CostTableRow>>;
}

/** Merge the rows of several sources: in the order of the first, then rows that only the others have. */
export function linesOf(costs: readonly CostTableData[]): TableLine[] {
  const found = new Map<string, TableLine>();
  for (const cost of costs) {
    for (const row of cost.rows) {
      const line = found.get(row.block) ?? { block: row.block, label: row.label, hue: row.hue, by: {} };
      line.by[cost.source] = row;
      found.set(row.block, line);
    }
  }
  // Rows add up to the total, so a block without a row costs 0.
  for (const line of found.values()) for (const { source, total } of costs) line.by[source] ??= zeroRow(line, total);
  return [...found.values()];
}

/** Return a row of zeros for a block without a row. */
export function zeroRow(
  { block, label, hue }: Pick<CostTableRow, "block" | "label" | "hue">,
  total: CostTableRow,
): CostTableRow {
  const zeros = FIGURES.map((one) => [one, COUNTED.includes(one) || total[one] !== null ? 0 : null]);
  return { block, label, hue, ...(Object.fromEntries(zeros) as Figures) };
}

export function totalLine(costs: readonly CostTableData[]): TableLine {
  return { block: "", label: "Total", hue: -1, by: Object.fromEntries(costs.map((cost) => [cost.source, cost.total])) };
}

export interface Column {
  key: string;
  title: string;
  hint: string;
  figure: Quantity | null;
  /** Cell of a line: sort value; text and tooltip. */
  value: (line: TableLine) => number | null;
  texts: (line: TableLine) => [text: string, title: string];
  /** Cell in a CSV file: all digits, or the full formula; empty if unknown. */
  exact?: (line: TableLine) => string;
  /** Parts of the bar behind the number, by role; "" is the rest. */
  bar?: (line: TableLine) => [role: Role | "", value: number][];
}

/** Return whether the parameter count is known; if not, its column is left out. */
const hasParams = ({ total }: CostTableData) => total.params !== null || total.formulas?.params !== undefined;

/** Return the notes on unknown costs for a figure. The note on parameters is shown only with that figure. */
export function notesOf(cost: CostTableData, figure: Figure): string[] {
  return cost.notes.filter((note) => figure === "params" || hasParams(cost) || !note.startsWith("params: "));
}

/** Return whether the program sends data to other devices, or may do so. */
const communicates = ({ rows, total }: CostTableData) =>
  [...rows, total].some((row) => COMMUNICATION.some((one) => row[one] !== undefined && row[one] !== 0));

/** Return the columns of the cost table: all figures of one source, or one figure of several sources. */
export function costColumns(costs: readonly CostTableData[], chosen: Figure): Column[] {
  const [first] = costs;
  if (!first) return [];
  const figure = timeIn(first.source, chosen);
  // The two conventions differ only where blocks contain others.
  const hasGroups = costs.some(({ rows }) => rows.some((row) => row.total));
  const self = (one: Column) =>
    hasGroups
      ? {
          ...one,
          title: titled(one.title, true),
          hint: `${one.hint}. Without the blocks inside the block. The rows add up to the total`,
        }
      : one;
  const total = (one: Column): Column => ({
    ...one,
    key: `total_${one.key}`,
    title: titled(one.title, false),
    hint: `${one.hint}. With the blocks inside the block, as in the graph and the inspector`,
    bar: undefined,
    ...Object.fromEntries(
      (["value", "texts", "exact"] as const).map((name) => [name, (line: TableLine) => one[name]?.(totalLineOf(line))]),
    ),
  });
  // If the total is a formula, there are no shares, and roles have no numbers.
  const share = first.total.formulas?.[figure] ? [] : [shareColumn(first, figure)];
  const totals = hasGroups ? [column(first.source, figure), ...share].map(total) : [];
  const shares = [...share.map(self), ...totals];
  if (costs.length > 1) {
    const [title] = FIGURE_TITLES[figure];
    return [
      ...costs.map(({ source }): Column => {
        const [name, hint] = SOURCE_TITLES[source];
        const own = hasGroups ? `, ${titled(title, true)}` : "";
        return { ...column(source, timeIn(source, figure)), key: source, title: name + own, hint };
      }),
      ...shares,
    ];
  }
  const { source } = first;
  const figures = [...FIGURES, ...(communicates(first) ? COMMUNICATION : [])].filter((one) =>
    Object.values(TIME_OF).includes(one as Figure)
      ? typeof first.total[one] === "number" || one === TIME_OF[source]
      : one !== "params" || one === figure || hasParams(first),
  );
  const columns = figures.map((one) => self(column(source, one)));
  const roles = ROLES.filter((role) => first.rows.some((row) => row.roles?.[role]?.[figure]));
  const parts = roles.length > 1 && shares.length ? roles.map((role) => roleColumn(source, figure, role)) : [];
  return [...columns, ...shares, ...parts];
}

function totalLineOf(line: TableLine): TableLine {
  return { ...line, by: Object.fromEntries(Object.entries(line.by).map(([source, row]) => [source, totalOf(row)])) };
}

function column(source: Source, figure: Quantity): Column {
  const [title, , hint] = FIGURE_TITLES[figure];
  const value = (line: TableLine) => (line.by[source] ? figureOf(line.by[source], figure) : null);
  return {
    key: figure,
    title,
    hint,
    figure,
    value,
    texts: ({ by }) => (by[source] ? figureText(by[source], figure) : formatBoth(figure, null)),
    exact: (line) =>
      (value(line) === null ? line.by[source]?.formulas?.[figure]?.[1] : undefined) ?? String(value(line) ?? ""),
    bar: (line) => partsOf(line.by[source], figure),
  };
}

/** Return a figure of a row; missing communication is 0. */
function figureOf(row: CostTableRow, figure: Quantity) {
  const found = row[figure];
  return found === undefined ? 0 : found;
}

function partsOf(row: CostTableRow | undefined, figure: Quantity): [Role | "", number][] {
  const value = row?.[figure] ?? 0;
  if (!row || value <= 0) return [];
  const parts = ROLES.map((role): [Role, number] => [role, row.roles?.[role]?.[figure] ?? 0]).filter(
    ([, part]) => part > 0,
  );
  const rest = value - parts.reduce((sum, [, part]) => sum + part, 0);
  return rest > 0 ? [...parts, ["", rest]] : parts;
}

function shareColumn({ source, total }: CostTableData, figure: Figure): Column {
  const shareIn = ({ by }: TableLine): ReturnType<typeof shareOf> =>
    by[source] ? shareOf(by[source], total, figure) : [null, ""];
  const [title] = FIGURE_TITLES[figure];
  return {
    key: "share",
    title: `Share of ${title}`,
    hint: `Share of the program's ${title}`,
    figure: null,
    value: (line) => shareIn(line)[0],
    texts: (line) => {
      const [share, bound] = shareIn(line);
      return share === null ? ["–", "unknown"] : [bound + percent(share), String(share)];
    },
  };
}

function roleColumn(source: Source, figure: Figure, role: Role): Column {
  const title = role[0]!.toUpperCase() + role.slice(1);
  const value = (line: TableLine) => (line.by[source] ? (line.by[source].roles?.[role]?.[figure] ?? 0) : null);
  return {
    key: role,
    title,
    hint: `${FIGURE_TITLES[figure][0]} ${role === "update" ? "of the optimizer's update" : `in the ${role} pass`}`,
    figure,
    value,
    texts: (line) => formatBoth(figure, value(line)),
  };
}

/** Sort lines by a column; unknown values come last. */
export function sortLines(lines: readonly TableLine[], column: Column | null, direction: 1 | -1): TableLine[] {
  return lines
    .map((line, i) => ({ line, i, value: column?.value(line) ?? null }))
    .sort((a, b) => {
      if (!column) return direction * a.line.block.localeCompare(b.line.block, "en", { numeric: true }) || a.i - b.i;
      if (a.value === null || b.value === null) return Number(a.value === null) - Number(b.value === null) || a.i - b.i;
      return (a.value - b.value) * direction || a.i - b.i;
    })
    .map(({ line }) => line);
}

function cell(value: string) {
  return /[",\n\r]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
}

/** Return the table as CSV: exact numbers, empty cells for unknown values, the total last. */
export function toCsv(costs: readonly CostTableData[], figure: Figure): string {
  const columns = costColumns(costs, figure);
  const named =
    costs.length > 1
      ? columns.map(({ key }) => (SOURCES.includes(key as Source) ? `${key} ${figure}` : key))
      : columns.map(({ key }) => key);
  const row = (line: TableLine, name: string) =>
    [cell(name), ...columns.map((one) => cell(one.exact?.(line) ?? String(one.value(line) ?? "")))].join(",");
  const rows = linesOf(costs).map((line) => row(line, line.block || "(unattributed)"));
  return `${[["block", ...named].join(","), ...rows, row(totalLine(costs), "total")].join("\n")}\n`;
}
