/**
 * The table of costs: sortable, with bars by role, rows that expand to their equations, unattributed costs and totals.
 */

import { handled, hasModifier } from "../dom/events";
import { type ReadonlySignal, useComputed, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { grouped, percent } from "../dom/format";
import { Button, Icon, useStart } from "../dom/view";
import { COUNTED, MAIN } from "../kernel/contract";
import type { CostDetails, CostTableData, Figure } from "../kernel/contract";
import { UNATTRIBUTED, lineage } from "../store/links";
import type { Store } from "../store/store";
import {
  costColumns,
  type Column,
  FIGURE_TITLES,
  SOURCES,
  type TableLine,
  linesOf,
  zeroRow,
  sortLines,
  formatFigure,
  totalLine,
  TIME_OF,
} from "./figures";

const NAME = "block";
const ROWS = "tr[data-mnb-cost]";

/** With the error, if the rows could not be decoded. */
type Details = CostDetails & { problem?: string };

/** The key of the sorted column, or null for the order of the model. */
interface Order {
  key: string | null;
  direction: 1 | -1;
}

/** Return the next order after a click on a header; the third click restores the order of the model. */
function nextOrder({ key, direction }: Order, clicked: string): Order {
  const first = clicked === NAME ? 1 : -1;
  if (key !== clicked) return { key: clicked, direction: first };
  return direction === first ? { key, direction: first === 1 ? -1 : 1 } : { key: null, direction };
}

/** Return the value of a full bar, by column. Bars of several sources share one scale. */
function scalesOf(columns: readonly Column[], lines: readonly TableLine[], isShared: boolean) {
  const scale = (column: Column) => (isShared ? "all" : column.key);
  const scales = new Map<string, number>();
  for (const column of columns) {
    if (!column.bar) continue;
    const most = Math.max(Number.MIN_VALUE, ...lines.map((line) => column.value(line) ?? 0));
    scales.set(scale(column), Math.max(most, scales.get(scale(column)) ?? 0));
  }
  return new Map(columns.map((column) => [column.key, scales.get(scale(column)) ?? 1]));
}

function Cell({ column, line, most }: { column: Column; line: TableLine; most: number }) {
  const [text, title] = column.texts(line);
  const parts = most > 0 ? (column.bar?.(line) ?? []) : [];
  return (
    // Screen readers get the full formula instead of the shortened one.
    <td
      class={column.bar ? "mnb-num mnb-barred" : "mnb-num"}
      title={title}
      aria-label={text.endsWith("…") ? title : undefined}
    >
      {column.bar && (
        <i aria-hidden="true">
          {parts.map(([role, size]) => (
            <b
              key={role}
              class={role ? `mnb-role-${role}` : ""}
              style={{ width: `${((100 * size) / most).toFixed(2)}%` }}
            />
          ))}
        </i>
      )}
      <span class={column.value(line) === 0 ? "mnb-zero" : ""}>{text}</span>
    </td>
  );
}

/** The equations or instructions of a block. */
function DetailTable({ details, source, figure }: { details: Details; source: string; figure: Figure }) {
  const { rows, left, problem } = details;
  if (!rows.length)
    return (
      <p class="mnb-hint">
        {problem ?? "Own cost 0: the block has only parameters, or its inner blocks do all the work."}
      </p>
    );
  const time = TIME_OF[source];
  const shown: readonly Figure[] = time ? [time, ...MAIN] : COUNTED;
  const heads = [
    ["Id"],
    [source === "analytic" ? "Primitive" : "Opcode"],
    ["Role"],
    ["Runs", "mnb-num"],
    ...shown.map((name) => [FIGURE_TITLES[name][0], "mnb-num"]),
    ["FLOPs of one run"],
  ];
  return (
    <>
      <table class="mnb-table mnb-table-small">
        <thead>
          <tr>
            {heads.map(([title, look]) => (
              <th key={title} scope="col" class={look}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.id}>
              <td class="mnb-code">{row.id}</td>
              <td class="mnb-code">{row.opcode + (row.share < 1 ? ` (${percent(row.share, 0)})` : "")}</td>
              <td>{row.role}</td>
              <td class="mnb-num">
                {row.repeats === null ? "?" : row.repeats === 1 ? "" : `×${grouped(row.repeats)}`}
              </td>
              {shown.map((name) => (
                <td key={name} class="mnb-num">
                  {formatFigure(name, row.figures[name])}
                </td>
              ))}
              <td class="mnb-cost-formula" title={row.formula}>
                {row.formula}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {left > 0 && <p class="mnb-hint">{`and ${grouped(left)} more with fewer ${FIGURE_TITLES[figure][0]}`}</p>}
    </>
  );
}

/** What all rows share. */
interface TableContext {
  store: Store;
  columns: readonly Column[];
  most: ReadonlyMap<string, number>;
  /** Paths of all rows. */
  known: ReadonlySet<string>;
  opened: ReadonlySet<string>;
  /** The row in the tab order; arrow keys move from there. */
  current: ReadonlySignal<string | null>;
  setCurrent: (block: string) => void;
  toggle: (block: string, isOpen?: boolean) => void;
}

type RowProps = JSX.IntrinsicElements["tr"] & { shared: TableContext; block: string; look: string };

/** A row that is linked to a block. Links change with the pointer, so they do not render the row again. */
function LinkedRow({ shared, block, look, ...props }: RowProps) {
  const { store, current, setCurrent, toggle } = shared;
  const link = useComputed(() =>
    store.pinLinks.blocks.has(block) ? "pinned" : store.hoverLinks.blocks.has(block) ? "hover" : undefined,
  );
  const classes = useComputed(() => {
    const isHovered = store.hoverLinks.blocks.has(block);
    return `${look}${link.value === "pinned" ? " mnb-pinned" : ""}${isHovered ? " mnb-hovered" : ""}`;
  });
  const press = (event: KeyboardEvent) => {
    const row = event.currentTarget as HTMLElement;
    if (event.target !== row || hasModifier(event)) return;
    const rows = [...row.closest("table")!.querySelectorAll<HTMLElement>(ROWS)];
    const at = rows.indexOf(row);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to !== undefined) rows[to]?.focus();
    else if (event.key === "Enter" || event.key === " ") store.pinBlocks([block], event.shiftKey);
    else if ((event.key === "ArrowRight" || event.key === "ArrowLeft") && block !== UNATTRIBUTED)
      toggle(block, event.key === "ArrowRight");
    else return;
    handled(event);
  };
  return (
    <tr
      data-mnb-cost={block}
      data-mnb-linked={link}
      aria-selected={useComputed(() => (link.value === "pinned" ? "true" : undefined)) as ReadonlySignal<any>}
      tabIndex={useComputed(() => (current.value === block ? 0 : -1))}
      class={classes}
      onFocus={() => setCurrent(block)}
      onKeyDown={press}
      {...props}
    />
  );
}

function Row({ shared, line }: { shared: TableContext; line: TableLine }) {
  const { store, columns, most, known, opened, setCurrent, toggle } = shared;
  const { block, label, hue } = line;
  const inside = lineage(block)
    .slice(1)
    .filter((group) => known.has(group)).length;
  const open = (event: Event) => {
    event.stopPropagation();
    toggle(block);
  };
  return (
    <LinkedRow
      key={hue}
      shared={shared}
      block={block}
      look={hue < 0 || block.startsWith("(") ? "mnb-pseudo" : `mnb-hue-${((hue % 8) + 8) % 8}`}
      aria-level={inside + 1}
      aria-expanded={opened.has(block)}
      onPointerEnter={() => store.setHover([{ kind: "block", path: block }])}
      onPointerLeave={() => store.setHover([])}
      onClick={(event) => {
        setCurrent(block);
        store.pinBlocks([block], event.shiftKey);
      }}
    >
      <th scope="row" title={block} style={{ paddingLeft: `${4 + 12 * inside}px` }}>
        <Button class="mnb-open" tabIndex={-1} aria-label="Show equations" action="cost.open" onClick={open}>
          <Icon name="chevron" />
        </Button>
        <i class="mnb-swatch" />
        <span>{label}</span>
      </th>
      {columns.map((column) => (
        <Cell key={column.key} column={column} line={line} most={most.get(column.key) ?? 1} />
      ))}
    </LinkedRow>
  );
}

/** The rows of what no block has caused, and of the total. */
function Feet({ shared, costs }: { shared: TableContext; costs: readonly CostTableData[] }) {
  const { store, columns } = shared;
  const outside = linesOf(costs).find(({ block }) => block === "");
  const none = { block: "", label: "", hue: -1 };
  const by = costs.map(({ source, total }) => [source, outside?.by[source] ?? zeroRow(none, total)]);
  const unattributed: TableLine = { ...none, by: Object.fromEntries(by) };
  const isMeasured = costs.length === 1 && costs[0]!.source === "measured";
  const hint = isMeasured
    ? "Time of instructions without a known block, and time between and around instructions."
    : "Cost of instructions without a known block.";
  const cells = (line: TableLine) =>
    columns.map((column) => <Cell key={column.key} column={column} line={line} most={0} />);
  return (
    <>
      <LinkedRow
        shared={shared}
        block={UNATTRIBUTED}
        look="mnb-unattributed"
        title={`${hint} Click to see its lines.`}
        onClick={() => store.pinBlocks([UNATTRIBUTED])}
      >
        <th scope="row">{isMeasured ? "Unattributed and overhead" : "Unattributed"}</th>
        {cells(unattributed)}
      </LinkedRow>
      <tr class="mnb-total">
        <th scope="row">Total</th>
        {cells(totalLine(costs))}
      </tr>
    </>
  );
}

function Heads(props: { columns: readonly Column[]; order: Order; sort: (key: string) => void }) {
  const { columns, order, sort } = props;
  return (
    <tr>
      {[{ key: NAME, title: "Block", hint: "Block of the model" }, ...columns].map(({ key, title, hint }) => (
        <th
          key={`${key} ${title}`}
          scope="col"
          class={key === NAME ? "" : "mnb-num"}
          aria-sort={key !== order.key ? undefined : order.direction === 1 ? "ascending" : "descending"}
        >
          <Button
            class="mnb-sort"
            title={`${hint}. Click to sort.`}
            action={`cost.sort.${key}`}
            onClick={() => sort(key)}
          >
            {title}
          </Button>
        </th>
      ))}
    </tr>
  );
}

/** Move the focus to the row of a block, or of the nearest block around it; return whether there is one. */
export function focusRow(root: HTMLElement, block: string): boolean {
  const rows = [...root.querySelectorAll<HTMLElement>(ROWS)];
  const known = new Map(rows.map((row) => [row.dataset["mnbCost"], row]));
  const path = lineage(block).find((around) => known.has(around));
  const row = known.get(path);
  row?.focus();
  row?.scrollIntoView?.({ block: "nearest" });
  return row !== undefined;
}

interface TableProps {
  store: Store;
  /** The costs of the sources. */
  costs: readonly CostTableData[];
  /** Compared side by side, and used for shares. */
  figure: Figure;
  hidden: boolean;
}

export function TableView({ store, costs, figure, hidden }: TableProps) {
  const order = useSignal<Order>({ key: null, direction: -1 });
  const opened = useSignal<ReadonlySet<string>>(new Set());
  const current = useSignal<string | null>(null);
  /** The received details, and the blocks whose details were requested. */
  const details = useRef(new Map<string, Details>());
  const fetched = useRef(new Set<string>());
  const taken = useSignal(0);
  const [first] = costs;
  const latest = useRef({ source: first?.source, figure });
  latest.current = { source: first?.source, figure };
  // Details of another version, source or figure are out of date, and so are those of costs that arrive again.
  useMemo(() => {
    details.current.clear();
    fetched.current.clear();
  }, [store.snapshot.version, first?.source, first?.stale, figure, store.received]);
  useStart(() => {
    const take = (block: string, found: Details) => {
      details.current.set(block, found);
      taken.value++;
    };
    return store.kernel.receive(
      "cost_rows",
      (head, found) => {
        if (head.source === latest.current.source && head.figure === latest.current.figure) take(head.block, found);
      },
      (problem, { block }) => take(block, { rows: [], left: 0, problem }),
    );
  });
  const toggle = (block: string, isOpen = !opened.value.has(block)) => {
    const blocks = new Set(opened.value);
    if (isOpen) blocks.add(block);
    else blocks.delete(block);
    if (!isOpen) fetched.current.delete(block);
    opened.value = blocks;
  };
  // A thousand rows have 25 elements each, so they are only rendered if they change.
  const [body, blocks] = useMemo(() => {
    const columns = costColumns(costs, figure);
    const { key, direction } = order.value;
    const column = columns.find((other) => other.key === key) ?? null;
    const isSorted = column !== null || key === NAME;
    const inner = linesOf(costs).filter(({ block }) => block !== "");
    const lines = isSorted ? sortLines(inner, column, direction) : inner;
    const blocks = lines.map(({ block }) => block);
    const shared: TableContext = {
      store,
      columns,
      most: scalesOf(columns, inner, costs.length > 1),
      known: new Set(blocks),
      opened: opened.value,
      current,
      setCurrent: (block) => void (current.value = block),
      toggle,
    };
    const signature = columns.map((other) => other.key).join();
    const table = (
      <table class="mnb-table" role="treegrid" aria-label="Costs by block">
        <thead>
          <Heads
            columns={columns}
            order={isSorted ? order.value : { ...order.value, key: null }}
            sort={(clicked) =>
              void (order.value = nextOrder(isSorted ? order.value : { key: null, direction }, clicked))
            }
          />
        </thead>
        <tbody>
          {lines.map((line) => [
            <Row key={`of ${signature} ${line.block}`} shared={shared} line={line} />,
            // An open row is followed by its details.
            opened.value.has(line.block) && (
              <tr key={`in ${signature} ${line.block}`} class="mnb-cost-detail">
                <td colSpan={columns.length + 1}>
                  {details.current.has(line.block) ? (
                    <DetailTable details={details.current.get(line.block)!} source={first!.source} figure={figure} />
                  ) : (
                    "Loading…"
                  )}
                </td>
              </tr>
            ),
          ])}
        </tbody>
        <tfoot>{costs.length > 0 && <Feet key={signature} shared={shared} costs={costs} />}</tfoot>
      </table>
    );
    return [table, blocks] as const;
  }, [
    ...SOURCES.map((_, i) => costs[i]),
    store.snapshot.version,
    figure,
    order.value,
    opened.value,
    taken.value,
    store.received,
  ]);
  useLayoutEffect(() => {
    if (current.value === null || !(current.value === UNATTRIBUTED || blocks.includes(current.value)))
      current.value = blocks[0] ?? null;
    for (const block of blocks) {
      if (!first || !opened.value.has(block) || details.current.has(block) || fetched.current.has(block)) continue;
      fetched.current.add(block);
      void store.kernel.send("request_cost_rows", { source: first.source, block, figure });
    }
  });
  return (
    <div class="mnb-cost-table" hidden={hidden}>
      {body}
    </div>
  );
}
