/** The inspector of the selected block: fields, shapes, parameters, formula, summary and cost. */

import { fixButton } from "../controls/diagnostic";
import { type FieldView, createField } from "../controls/fields";
import { editName } from "../controls/rename";
import { atLeast, shareOf, titled, totalOf } from "../costs/figures";
import { together } from "../dom/calls";
import { attr, h, iconButton, keyed, text } from "../dom/dom";
import { exact, percent, si } from "../dom/format";
import type { BlockDetails, CostTableRow, SettingField } from "../kernel/contract";
import { lineage } from "../store/links";
import type { Store } from "../store/store";
import { BlockFormulaView } from "./block-formula";

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

export class Inspector {
  readonly root: HTMLElement;
  private readonly title = h("span", { class: "mnb-inspector-name" });
  private readonly kind = h("span", { class: "mnb-muted" });
  private readonly hint = h("p", { class: "mnb-hint" });
  private readonly body: HTMLElement;
  private readonly fieldList = h("div", { class: "mnb-fields" });
  private readonly doc = h("p", { class: "mnb-doc" });
  private readonly formula = h("code", { class: "mnb-formula" });
  private readonly facts = h("dl", { class: "mnb-facts" });
  private readonly counted: BlockFormulaView;
  private readonly problems = h("div", { class: "mnb-inspector-problems" });
  private readonly buttons: HTMLElement;
  private readonly views = new Map<string, FieldView>();
  private path = "";
  readonly destroy: () => void;

  constructor(private readonly store: Store) {
    this.buttons = h(
      "span",
      { class: "mnb-row" },
      h(
        "button",
        {
          type: "button",
          class: "mnb-button mnb-quiet",
          "data-mnb-action": "inspector.rename",
          title: "Rename (F2)",
          onclick: () => this.rename(),
        },
        "Rename",
      ),
      iconButton("trash", "Remove this block (Delete)", "inspector.remove", () => store.remove([this.path])),
    );
    this.counted = new BlockFormulaView(store);
    this.body = h(
      "div",
      { class: "mnb-inspector-body" },
      this.problems,
      this.fieldList,
      h("div", { class: "mnb-inspector-about" }, this.formula, this.doc),
      this.facts,
      this.counted.root,
    );
    this.root = h(
      "section",
      { class: "mnb-inspector", "aria-label": "Inspector", "data-mnb-part": "inspector" },
      h(
        "div",
        { class: "mnb-bar" },
        this.title,
        this.kind,
        h("span", { class: "mnb-grow" }),
        this.buttons,
        iconButton("close", "Hide the inspector (I)", "inspector.hide", () => store.showInspector(false)),
      ),
      this.hint,
      this.body,
    );
    this.destroy = together(
      store.on("snapshot", () => this.update()),
      store.on("links", () => this.update()),
      () => this.counted.destroy(),
    );
    this.update();
  }

  private rename(): void {
    const block = this.store.snapshot.blocks[this.path];
    if (block)
      editName(
        this.title,
        block.name,
        (name) => this.store.command("rename", { path: this.path, name }),
        () => this.buttons.querySelector("button")?.focus(),
        () => this.update(),
      );
  }

  private update(): void {
    const { snapshot, selection } = this.store;
    const path = selection[0] ?? "";
    const block = snapshot.blocks[path];
    if (path !== this.path) {
      this.views.clear();
      this.fieldList.replaceChildren();
    }
    this.path = path;
    this.body.hidden = this.buttons.hidden = block === undefined;
    this.hint.hidden = block !== undefined;
    this.counted.show(block ? path : null);
    if (!block) {
      text(this.title, "Inspector");
      text(this.kind, "");
      this.root.classList.remove("mnb-has-hue");
      text(
        this.hint,
        Object.keys(snapshot.blocks).length
          ? "Select a block, an edge or a line of code to see its details."
          : "Add a block from the palette to start.",
      );
      return;
    }
    if (!this.title.querySelector("input"))
      text(
        this.title,
        lineage(block.path)
          .reverse()
          .map((one) => snapshot.blocks[one]?.name ?? one)
          .join(" / "),
      );
    attr(this.title, "title", block.path);
    attr(this.kind, "title", block.kind);
    text(this.kind, selection.length > 1 ? `${block.kind} · ${selection.length - 1} more selected` : block.kind);
    this.root.className = `mnb-inspector mnb-has-hue mnb-hue-${((block.hue % 8) + 8) % 8}`;
    const kind = snapshot.kinds?.[block.kind];
    this.fields(this.store.fieldsOf(path));
    text(this.formula, kind?.formula ?? "");
    this.formula.hidden = !kind?.formula;
    text(this.doc, kind?.doc ?? "");
    this.paintFacts(block);
    const ofBlock = snapshot.problems.filter((problem) => problem.block === path);
    keyed(
      this.problems,
      ofBlock,
      (problem) => `${problem.code} ${problem.summary}`,
      () => h("p", { class: "mnb-inline-problem" }),
      (line: HTMLElement, problem) => {
        text(line, `${problem.summary}${problem.advice ? ` Try: ${problem.advice}` : ""}`);
        attr(line, "title", line.textContent);
        const fix = fixButton(this.store, problem);
        if (fix) line.append(" ", fix);
      },
    );
  }

  private fields(fields: SettingField[]): void {
    const key = (field: SettingField): string => `${field.name} ${field.type}`;
    for (const field of fields) {
      if (!this.views.has(key(field)))
        this.views.set(
          key(field),
          createField(field, (value) => this.send(field.name, value)),
        );
    }
    keyed(
      this.fieldList,
      fields,
      key,
      (field) => this.views.get(key(field))!.root,
      (_, field) => {
        // A change that waits for its reply is newer than the snapshot.
        if (!this.store.kernel.busy(`set ${this.path} ${field.name}`)) this.views.get(key(field))!.update(field);
      },
    );
  }

  private send(name: string, value: unknown): void {
    this.store.kernel.latest(`set ${this.path} ${name}`, "set_attribute", { path: this.path, name, value });
  }

  private paintFacts(block: BlockDetails): void {
    const { cost } = this.store.snapshot;
    const row = cost?.rows.find((one) => one.block === block.path);
    const count = block.params.reduce((sum, param) => sum + (param.count ?? 0), 0);
    const facts: [string, string, string][] = [
      ...block.inputs.map(({ port, shape }): [string, string, string] => [`in · ${port}`, shape || "?", ""]),
      ...block.outputs.map(({ port, shape }): [string, string, string] => [`out · ${port}`, shape || "?", ""]),
      ...block.params.map(({ name, shape, count: size }): [string, string, string] => [
        name.split(".").pop() ?? name,
        `${shape}  ${si(size)}`,
        `${name}: ${exact(size, "values")}`,
      ]),
    ];
    if (block.params.length > 1) facts.push(["parameters", si(count), exact(count, "values")]);
    if (block.children.length) facts.push(["inside", `${block.children.length} blocks`, block.children.join("\n")]);
    for (const [figure, name] of row
      ? ([
          ["flops", "compute"],
          ["bytes_accessed", "traffic"],
        ] as const)
      : []) {
      facts.push([row!.total ? titled(name, false) : name, ...describeCost(totalOf(row!), cost!.total, figure)]);
      if (row!.total) facts.push([titled(name, true), ...describeCost(row!, cost!.total, figure)]);
    }
    for (const [name, value] of block.facts ?? []) facts.push([name, value, value]);
    keyed(
      this.facts,
      facts,
      ([name]) => name,
      ([name]) => h("div", {}, h("dt", {}, name), h("dd")),
      (line: HTMLElement, [, value, title]) => {
        text(line.lastElementChild!, value);
        attr(line, "title", title || line.firstElementChild!.textContent);
      },
    );
  }
}
