/** The What if view: change settings on a copy of the program, and compare its costs. */

import { Chips } from "../controls/choice";
import { fillDiagnostic } from "../controls/diagnostic";
import { type FieldView, createField } from "../controls/fields";
import type { Tip } from "../controls/tip";
import { together } from "../dom/calls";
import { Clock } from "../dom/clock";
import { attr, h, keyed, text } from "../dom/dom";
import { percent } from "../dom/format";
import { hostTheme } from "../dom/theme";
import type { FieldValue, Figure, SettingChange, SettingField, WhatIfAnswer, WhatIfState } from "../kernel/contract";
import type { Store } from "../store/store";
import { FIGURE_TITLES, VIEW_TITLES, formatFigure, formatExactly } from "./figures";
import { Picture } from "./picture";

const NO_INFO: WhatIfState = { state: "empty", message: "", problem: null, settings: null, version: 0 };
const TYPES = new Set(["int", "float", "bool", "choice", "ints"]);

/** Format a relative change: "×2.00", "+1.2 %". */
export function changeOf(before: number | null, after: number | null): string {
  if (before === null || after === null) return "–";
  if (before === after) return "same";
  if (before === 0) return "new";
  const ratio = after / before;
  return ratio >= 1.995 || ratio <= 0.5
    ? `×${Number(ratio.toPrecision(3))}`
    : `${ratio > 1 ? "+" : "−"}${percent(Math.abs(ratio - 1))}`;
}

function describeChange([path, name, value]: SettingChange, settings: readonly SettingField[]): string {
  const label = path ? `${path}.${name}` : (settings.find((one) => one.name === name)?.label ?? name);
  return `${label} = ${String(value)}`;
}

export class WhatIf {
  readonly root: HTMLElement;
  private readonly changes = new Map<string, SettingChange>();
  private readonly views = new Map<string, FieldView>();
  private readonly whole = h("div", { class: "mnb-fields" });
  private readonly blockTitle = h("h4", {});
  private readonly ofBlock = h("div", { class: "mnb-fields" });
  private readonly hint = h("p", { class: "mnb-hint" });
  private readonly chips = new Chips(
    "Changes",
    "Remove",
    (key) => this.removeChanges([key]),
    (key) => this.control(key),
  );
  private readonly resetButton: HTMLButtonElement;
  private readonly apply: HTMLButtonElement;
  private readonly compile: HTMLButtonElement;
  private readonly buttons: HTMLElement;
  private readonly status = h("p", { class: "mnb-hint", role: "status", "data-mnb-part": "what-if" });
  private readonly old = h("p", { class: "mnb-badge", role: "status", hidden: true });
  private readonly problem = h("div", { class: "mnb-notice mnb-step-problem", hidden: true });
  private readonly body = h("tbody");
  private readonly heads = h("tr");
  private readonly table: HTMLElement;
  private readonly picture: Picture;
  private readonly main: HTMLElement;
  private readonly clock: Clock;
  /** The latest answer, and the latest answer without a problem, which stays on screen. */
  private answer: WhatIfAnswer | null = null;
  private valid: WhatIfAnswer | null = null;
  private decodeError = "";
  private sent = "";
  private requestedVersion = 0;
  readonly destroy: () => void;

  constructor(
    private readonly store: Store,
    tip: Tip,
  ) {
    this.resetButton = h(
      "button",
      { type: "button", class: "mnb-button", "data-mnb-action": "whatif.reset", onclick: () => this.resetChanges() },
      "Reset",
    );
    this.apply = h(
      "button",
      {
        type: "button",
        class: "mnb-button mnb-primary",
        "data-mnb-action": "whatif.apply",
        title: "Apply these changes to the model; can be undone",
        onclick: () => this.applyChanges(),
      },
      "Apply to the model",
    );
    this.compile = h(
      "button",
      {
        type: "button",
        class: "mnb-button",
        "data-mnb-action": "whatif.compile",
        title: "Compile the program with and without the changes",
        onclick: () => this.send(true),
      },
      "Compile both",
    );
    this.table = h("table", { class: "mnb-table mnb-whatif-table" }, h("thead", {}, this.heads), this.body);
    this.picture = new Picture(store, tip);
    this.main = h(
      "div",
      { class: "mnb-whatif-main" },
      this.status,
      this.problem,
      this.old,
      this.table,
      this.picture.root,
    );
    this.buttons = h("div", { class: "mnb-row mnb-wrap" }, this.apply, this.compile, this.resetButton);
    this.root = h(
      "div",
      { class: "mnb-whatif", "aria-label": VIEW_TITLES.what_if },
      h(
        "div",
        { class: "mnb-whatif-side" },
        this.whole,
        this.blockTitle,
        this.ofBlock,
        this.hint,
        this.chips.root,
        this.buttons,
      ),
      this.main,
    );
    this.clock = new Clock(
      (elapsed) => elapsed && text(this.status, `${this.info.message || "Computing"}: ${elapsed}`),
    );
    this.destroy = together(
      store.on("links", () => this.store.cost.view === "what_if" && this.update()),
      store.kernel.receive(
        "what_if",
        ({ key }, answer) => this.take(key, answer),
        (why, { key }) => this.fail(key, why),
      ),
      () => this.clock.stop(),
      () => this.picture.destroy(),
    );
  }

  recolour(): void {
    this.picture.recolour(hostTheme());
  }

  private get info(): WhatIfState {
    return this.store.snapshot.costs?.what_if ?? NO_INFO;
  }

  /** Request the settings of the whole program, once per version, while the tab is shown. */
  private requestSettings(): void {
    const { version, cost } = this.store.snapshot;
    if (
      this.info.version === version ||
      this.requestedVersion === version ||
      cost === null ||
      cost.stale ||
      this.store.tab !== "cost"
    )
      return;
    this.requestedVersion = version;
    this.store.kernel.latest("settings", "request_settings", {});
  }

  update(): void {
    const { snapshot, selection, kernel } = this.store;
    this.requestSettings();
    for (const [key, [of]] of this.changes) if (of && !snapshot.blocks[of]) this.changes.delete(key);
    if (this.changes.size === 0) this.discardWhatIfAnswer();
    const settings = this.info.settings ?? [];
    const path = selection[0] ?? "";
    const blockFields = this.store.fieldsOf(path).filter((field) => TYPES.has(field.type));
    const shown = new Set([...this.fields(this.whole, "", settings), ...this.fields(this.ofBlock, path, blockFields)]);
    for (const key of this.views.keys()) if (!shown.has(key)) this.views.delete(key);
    this.blockTitle.hidden = blockFields.length === 0;
    text(this.blockTitle, path.split("/").join(" / "));
    const canEdit = snapshot.palette.length > 0;
    const hint =
      this.info.state === "unavailable" || (blockFields.length > 0 && settings.length > 0)
        ? ""
        : this.info.settings === null
          ? "Loading settings…"
          : canEdit
            ? path
              ? "This block has no settings to change."
              : "Select a block to change its settings too."
            : settings.length
              ? ""
              : "This program has no settings to change here. In code, ml.what_if(make) varies the arguments of " +
                "a function that builds the program.";
    this.hint.hidden = hint === "";
    text(this.hint, hint);
    this.chips.show([...this.changes].map(([key, change]) => ({ key, label: describeChange(change, settings) })));
    const active = (this.root.getRootNode() as Document | ShadowRoot).activeElement;
    this.apply.hidden = !canEdit || this.changes.size === 0;
    this.compile.hidden =
      this.changes.size === 0 ||
      this.info.state === "loading" ||
      this.answer === null ||
      this.answer.compiled !== null ||
      this.answer.problem !== null;
    this.clock.run(this.info.state === "loading" && !kernel.isGone);
    if (this.changes.size) this.send(false);
    this.paint();
    // A pressed button that gets hidden passes the focus on.
    if (this.buttons.contains(active) && (active as HTMLElement).hidden)
      (this.buttons.querySelector<HTMLElement>("button:not([hidden])") ?? this.control())?.focus();
  }

  /** Return the control of a change, or the first control. */
  private control(key = ""): HTMLElement | null {
    const view = [...this.views].find(([one]) => key && one.startsWith(`${key} `))?.[1];
    return (view?.root ?? this.root).querySelector<HTMLElement>("input, select");
  }

  private get hasInvalidInput(): boolean {
    return [...this.views.values()].some((view) => view.problem() !== "");
  }

  /** True if the answer belongs to earlier changes. */
  private get isOld(): boolean {
    return this.answer !== null && JSON.stringify(this.answer.changes) !== JSON.stringify([...this.changes.values()]);
  }

  private fields(parent: HTMLElement, path: string, fields: readonly SettingField[]): string[] {
    const key = (field: SettingField): string => `${path} ${field.name} ${field.type}`;
    keyed(
      parent,
      fields,
      key,
      (field) => {
        this.views.set(
          key(field),
          createField(
            field,
            (value) => this.change(path, field.name, value),
            () => this.paint(),
          ),
        );
        return this.views.get(key(field))!.root;
      },
      (_, field) => {
        const change = this.changes.get(`${path} ${field.name}`);
        this.views.get(key(field))!.update(change ? { ...field, value: change[2] } : field);
      },
    );
    return fields.map(key);
  }

  private valueNow(path: string, name: string): FieldValue | undefined {
    const fields = path ? this.store.fieldsOf(path) : (this.info.settings ?? []);
    return fields?.find((field) => field.name === name)?.value;
  }

  private change(path: string, name: string, value: FieldValue): void {
    const key = `${path} ${name}`;
    if (JSON.stringify(this.valueNow(path, name)) === JSON.stringify(value)) this.changes.delete(key);
    else this.changes.set(key, [path, name, value]);
    this.update();
  }

  private removeChanges(keys: readonly string[]): void {
    for (const key of keys) this.changes.delete(key);
    this.update();
  }

  private resetChanges(): void {
    for (const view of this.views.values()) view.restore();
    this.removeChanges([...this.changes.keys()]);
  }

  private discardWhatIfAnswer(): void {
    if (this.sent) this.picture.show(null);
    this.answer = this.valid = null;
    this.sent = this.decodeError = "";
  }

  /** Apply the changes as one edit that can be undone. */
  private applyChanges(): void {
    const changes = [...this.changes.values()];
    void this.store.kernel.send("apply_what_if", { changes }).then((reply) => {
      if (reply.ok) this.removeChanges([...this.changes.keys()]);
    });
  }

  private send(compile: boolean): void {
    const changes = [...this.changes.values()];
    const { figure } = this.store.cost;
    const key = JSON.stringify([this.store.snapshot.version, figure, changes]);
    if (this.store.kernel.isGone || (key === this.sent && !compile) || this.store.snapshot.cost?.stale) return;
    this.sent = key;
    this.store.kernel.latest("what if", "what_if", {
      key,
      changes,
      figure,
      compile,
      width: Math.floor((this.main.clientWidth || 720) / 40) * 40,
    });
  }

  private take(key: string, answer: WhatIfAnswer): void {
    if (key !== this.sent) return;
    this.answer = answer;
    this.decodeError = "";
    if (answer.problem === null) {
      this.valid = answer;
      this.picture.show(answer.picture, hostTheme());
    }
    this.update();
  }

  private fail(key: string, why: string): void {
    if (key !== this.sent) return;
    this.decodeError = why;
    this.paint();
  }

  private messageFor(isEmpty: boolean, isOld: boolean): string {
    if (this.store.kernel.isGone) return "Not connected to the kernel, so nothing can be computed.";
    if (this.info.state === "unavailable") return "The cost of other settings is not available:";
    if (this.decodeError) return this.decodeError;
    if (isEmpty) return "Change a setting to see its effect on the costs. The model stays unchanged.";
    return isOld ? "" : (this.valid?.how ?? "");
  }

  private paint(): void {
    const { answer: latest, valid: answer, info } = this;
    const isEmpty = this.changes.size === 0;
    const problem =
      info.state === "unavailable" ? info.problem : isEmpty || this.isOld ? null : (latest?.problem ?? null);
    const isBlocked = this.hasInvalidInput || problem !== null || this.decodeError !== "";
    const isOld = !isEmpty && (isBlocked || this.isOld);
    this.table.hidden = this.picture.root.hidden = isEmpty || answer === null;
    for (const part of [this.table, this.picture.root]) part.classList.toggle("mnb-old", isOld);
    this.old.hidden = !isBlocked || isEmpty || answer === null;
    text(
      this.old,
      answer ? `Costs for ${answer.changes.map((one) => describeChange(one, info.settings ?? [])).join(", ")}` : "",
    );
    this.problem.hidden = problem === null;
    if (problem) fillDiagnostic(this.problem, problem);
    attr(this.apply, "aria-disabled", isBlocked ? "true" : null);
    this.resetButton.hidden = isEmpty && !this.hasInvalidInput;
    if (info.state !== "loading" || this.store.kernel.isGone) text(this.status, this.messageFor(isEmpty, isOld));
    if (!answer || isEmpty) return;
    const hasCompiled = answer.compiled !== null;
    const heads = ["", "before", "after", "change", ...(hasCompiled ? ["compiled before", "after", "change"] : [])];
    keyed(
      this.heads,
      heads.map((title, i) => ({ title, i })),
      ({ title, i }) => `${i} ${title}`,
      ({ title, i }) =>
        h("th", { scope: "col", class: i ? "mnb-num" : "" }, title || h("span", { class: "mnb-offscreen" }, "Figure")),
      () => {},
    );
    const rows = answer.rows.map((row, i) => ({ row, other: answer.compiled?.[i] }));
    keyed(
      this.body,
      rows,
      ({ row, other }) => `${row.figure} ${other !== undefined}`,
      ({ other }) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }),
          ...Array.from({ length: other ? 6 : 3 }, () => h("td", { class: "mnb-num" })),
        ),
      (element: HTMLElement, { row, other }) => {
        const isPeak = row.figure === "peak_bytes";
        const figure = (isPeak ? "bytes_accessed" : row.figure) as Figure;
        text(element.children[0]!, isPeak ? "Peak memory" : FIGURE_TITLES[figure][0]);
        attr(element, "data-mnb-whatif", row.figure);
        [row, ...(other ? [other] : [])].forEach((one, at) => {
          const cells = [
            formatFigure(figure, one.before),
            formatFigure(figure, one.after),
            changeOf(one.before, one.after),
          ];
          const titles = [one.before, one.after, null].map((value) =>
            value === null ? one.reason : formatExactly(figure, value),
          );
          cells.forEach((value, i) => {
            text(element.children[1 + 3 * at + i]!, value);
            attr(element.children[1 + 3 * at + i]!, "title", titles[i] || null);
          });
        });
      },
    );
  }
}
