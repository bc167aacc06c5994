/** The inspector of the selected block: fields, shapes, parameters, formula, summary and cost. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { FixButton } from "../controls/diagnostic";
import { FieldRow } from "../controls/fields";
import { NameField } from "../controls/rename";
import { atLeast, shareOf, titled, totalOf } from "../costs/figures";
import { exact, percent, si } from "../dom/format";
import { IconButton } from "../dom/view";
import type { BlockDetails, CostTableData, CostTableRow } from "../kernel/contract";
import { lineage } from "../store/links";
import type { Store } from "../store/store";
import { BlockFormulaView } from "./block-formula";
import { Inputs, Parameters } from "./parameters";
import { ValuesView } from "./values";

const UNITS = { flops: "FLOP", bytes_accessed: "B" };

/** Format a cost of a block, rounded and exact: a number with its share of the program, or a formula. */
export function describeCost(
  row: CostTableRow,
  total: CostTableRow,
  figure: keyof typeof UNITS,
): [rounded: string, exact: string] {
  const formula = row[figure] === null ? row.formulas?.[figure] : undefined;
  if (formula) return formula;
  const bound = atLeast(row, figure, row[figure]);
  const [share, of] = figure === "flops" && !total.formulas?.flops ? shareOf(row, total, figure) : [null, ""];
  return [
    bound + si(row[figure], UNITS[figure]) + (share === null ? "" : ` · ${of}${percent(share)}`),
    bound + exact(row[figure], UNITS[figure]),
  ];
}

type Fact = [name: string, value: string, title: string];

/** Return the shapes, parameters and costs of a block. */
function factsOf(block: BlockDetails, cost: CostTableData | null): Fact[] {
  const row = cost?.rows.find((other) => other.block === block.path);
  const facts: Fact[] = [
    ...block.inputs.map(({ port, shape }): Fact => [`in · ${port}`, shape || "?", ""]),
    ...block.outputs.map(({ port, shape }): Fact => [`out · ${port}`, shape || "?", ""]),
  ];
  if (block.children.length) facts.push(["inside", `${block.children.length} blocks`, block.children.join("\n")]);
  for (const [figure, name] of [
    ["flops", "compute"],
    ["bytes_accessed", "traffic"],
  ] as const) {
    if (!row) break;
    facts.push([row.total ? titled(name, false) : name, ...describeCost(totalOf(row), cost!.total, figure)]);
    if (row.total) facts.push([titled(name, true), ...describeCost(row, cost!.total, figure)]);
  }
  return [...facts, ...block.facts.map(([name, value]): Fact => [name, value, value])];
}

function Details({ store, block }: { store: Store; block: BlockDetails }) {
  const { problems, kinds, cost } = store.snapshot;
  const { path } = block;
  const kind = kinds[block.kind];
  return (
    <>
      <div class="mnb-inspector-problems">
        {problems
          .filter((problem) => problem.block === path)
          .map((problem) => {
            const line = `${problem.summary}${problem.advice ? ` Try: ${problem.advice}` : ""}`;
            return (
              <p key={`${problem.code} ${problem.summary}`} class="mnb-inline-problem" title={line}>
                {line} <FixButton store={store} problem={problem} />
              </p>
            );
          })}
      </div>
      <div class="mnb-fields">
        {store.fieldsOf(path).map((field) => {
          const key = `set ${path} ${field.name}`;
          return (
            <FieldRow
              key={`${path} ${field.name} ${field.type}`}
              field={field}
              send={(value) => store.kernel.latest(key, "set_attribute", { path, name: field.name, value })}
              isBusy={() => store.kernel.busy(key)}
            />
          );
        })}
      </div>
      <Parameters store={store} path={path} />
      <div class="mnb-inspector-about">
        <code class="mnb-formula" hidden={!kind?.formula}>
          {kind?.formula}
        </code>
        <p class="mnb-doc">{kind?.doc}</p>
      </div>
      <dl class="mnb-facts">
        {factsOf(block, cost).map(([name, value, title]) => (
          <div key={name} title={title || name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </>
  );
}

export function Inspector({ store }: { store: Store }) {
  const { snapshot, selection } = store;
  void store.kernel.dropped; // fields return to the values of the model
  const root = useRef<HTMLElement>(null);
  /** The path of the block that is renamed. */
  const renamed = useSignal<string | null>(null);
  const path = selection[0] ?? "";
  const block = snapshot.blocks[path];
  const more = selection.length > 1 ? ` · ${selection.length - 1} more selected` : "";
  const name = block
    ? lineage(path)
        .reverse()
        .map((around) => snapshot.blocks[around]?.name ?? around)
        .join(" / ")
    : "Inspector";
  const close = (byKey: boolean) => {
    renamed.value = null;
    if (byKey) root.current!.querySelector<HTMLElement>('[data-mnb-action="inspector.rename"]')?.focus();
  };
  return (
    <section
      class={block ? `mnb-inspector mnb-has-hue mnb-hue-${((store.hueOf(block) % 8) + 8) % 8}` : "mnb-inspector"}
      aria-label="Inspector"
      data-mnb-part="inspector"
      ref={root}
    >
      <div class="mnb-bar">
        <span class="mnb-inspector-name" title={block?.path}>
          {renamed.value === null ? (
            name
          ) : (
            <NameField
              name={() => snapshot.blocks[renamed.value!]?.name ?? ""}
              take={(name) => store.command("rename", { path: renamed.value, name })}
              close={close}
            />
          )}
        </span>
        <span class="mnb-muted" title={block?.kind}>
          {block && block.kind + more}
        </span>
        <span class="mnb-grow" />
        <span class="mnb-row" hidden={!block}>
          <IconButton
            icon="pencil"
            label="Rename (F2)"
            action="inspector.rename"
            onClick={() => void (renamed.value = path)}
          />
          <IconButton
            icon="trash"
            label="Remove this block (Delete)"
            action="inspector.remove"
            onClick={() => store.remove([path])}
          />
        </span>
        <IconButton
          icon="close"
          label="Hide the inspector (I)"
          action="inspector.hide"
          onClick={() => store.showInspector(false)}
        />
      </div>
      <p class="mnb-hint" hidden={block !== undefined}>
        {Object.keys(snapshot.blocks).length
          ? "Select a block, an edge or a line of code to see its details. The inputs of the model:"
          : "Add a block from the palette to start."}
      </p>
      <div class="mnb-inspector-body">
        <ValuesView store={store} path={block ? path : ""} />
        {block ? <Details store={store} block={block} /> : <Inputs store={store} />}
        <BlockFormulaView store={store} path={block ? path : ""} />
      </div>
    </section>
  );
}
