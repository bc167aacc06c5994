/** What if: settings are changed on a copy of the program, and what that makes of its costs is told at once. */

import { Chips } from "./choice";
import { Clock } from "./clock";
import { FIGURE_TITLES, VIEW_TITLES, told, toldExactly } from "./cost-figures";
import { type Drawn, Picture } from "./cost-picture";
import { attr, h, keyed, text } from "./dom";
import { type FieldView, createField } from "./fields";
import { percent } from "./format";
import { fill } from "./lists";
import { unpacked } from "./messages";
import type { Store } from "./store";
import { hostTheme } from "./theme";
import type { Tip } from "./tip";
import type { CostsInfo, Diagnostic, Field, FieldValue, Figure } from "./types";

/** Path of a block, or "" for the whole program; name of what changes; its value. */
type Change = [path: string, name: string, value: FieldValue];

type Compared = Figure | "peak_bytes";

interface Answer {
  changes: Change[];
  /** How the answer was found, in words. */
  how: string;
  rows: { figure: Compared; before: number | null; after: number | null; reason: string }[];
  /** The same by the compiler; null until it is asked. */
  compiled: { figure: Compared; before: number | null; after: number | null; reason: string }[] | null;
  picture: Drawn;
  problem: Diagnostic | null;
}

const NO_INFO: CostsInfo["what_if"] = { state: "empty", message: "", problem: null, settings: null, version: 0 };
const TYPES = new Set(["int", "float", "bool", "choice", "ints"]);

/** How much larger or smaller: "×2.00", "+1.2 %". */
export function changeOf(before: number | null, after: number | null): string {
  if (before === null || after === null) return "–";
  if (before === after) return "same";
  if (before === 0) return "new";
  const ratio = after / before;
  return ratio >= 1.995 || ratio <= 0.5 ? `×${Number(ratio.toPrecision(3))}` : `${ratio > 1 ? "+" : "−"}${percent(Math.abs(ratio - 1))}`;
}

function toldChange([path, name, value]: Change): string {
  return `${path ? `${path}.` : ""}${name} = ${String(value)}`;
}

function written(figure: Compared, value: number | null): string {
  return figure === "peak_bytes" ? told("bytes_accessed", value) : told(figure, value);
}

export class WhatIf {
  readonly root: HTMLElement;
  private readonly changes = new Map<string, Change>();
  private readonly views = new Map<string, FieldView>();
  private readonly whole = h("div", { class: "mnb-fields" });
  private readonly blockTitle = h("h4", {});
  private readonly ofBlock = h("div", { class: "mnb-fields" });
  private readonly hint = h("p", { class: "mnb-hint" });
  private readonly chips = new Chips("What is changed", "Take back", (key) => this.takeBack([key]), (key) => this.control(key));
  private readonly reset: HTMLButtonElement;
  private readonly apply: HTMLButtonElement;
  private readonly compile: HTMLButtonElement;
  private readonly buttons: HTMLElement;
  private readonly said = h("p", { class: "mnb-hint", role: "status", "data-mnb-part": "what-if" });
  private readonly old = h("p", { class: "mnb-badge", role: "status", hidden: true });
  private readonly problem = h("div", { class: "mnb-notice mnb-step-problem", hidden: true });
  private readonly body = h("tbody");
  private readonly heads = h("tr");
  private readonly table: HTMLElement;
  private readonly picture: Picture;
  private readonly main: HTMLElement;
  private readonly clock: Clock;
  /** The latest answer, and the latest that is one: what cannot be answered leaves that where it is. */
  private answer: Answer | null = null;
  private good: Answer | null = null;
  private unread = "";
  private sent = "";
  private asked = 0;
  private readonly leave: (() => void)[];

  constructor(
    private readonly store: Store,
    tip: Tip,
  ) {
    this.reset = h("button", { type: "button", class: "mnb-button", "data-mnb-action": "whatif.reset", onclick: () => this.startAnew() }, "Reset");
    this.apply = h("button", { type: "button", class: "mnb-button mnb-primary", "data-mnb-action": "whatif.apply", title: "Makes these changes in the model; undo takes them back", onclick: () => this.make() }, "Apply to the model");
    this.compile = h("button", { type: "button", class: "mnb-button", "data-mnb-action": "whatif.compile", title: "Compiles the program as it is and as it would be", onclick: () => this.send(true) }, "Compile both");
    this.table = h("table", { class: "mnb-table mnb-whatif-table" }, h("thead", {}, this.heads), this.body);
    this.picture = new Picture(store, tip);
    this.main = h("div", { class: "mnb-whatif-main" }, this.said, this.problem, this.old, this.table, this.picture.root);
    this.buttons = h("div", { class: "mnb-row mnb-wrap" }, this.apply, this.compile, this.reset);
    this.root = h(
      "div",
      { class: "mnb-whatif", "aria-label": VIEW_TITLES.what_if },
      h("div", { class: "mnb-whatif-side" }, this.whole, this.blockTitle, this.ofBlock, this.hint, this.chips.root, this.buttons),
      this.main,
    );
    this.clock = new Clock((elapsed) => elapsed && text(this.said, `${this.info.message || "Working it out"}: ${elapsed}`));
    this.leave = [
      store.on("links", () => this.store.cost.view === "what_if" && this.update()),
      store.kernel.on("what_if", ({ key }: { key: string }, buffers) =>
        void unpacked<Answer>(buffers[0], (answer) => this.take(key, answer), (why) => this.refuse(key, why))),
    ];
  }

  destroy(): void {
    for (const leave of this.leave) leave();
    this.clock.stop();
    this.picture.destroy();
  }

  recolour(): void {
    this.picture.recolour(hostTheme());
  }

  private get info(): CostsInfo["what_if"] {
    return this.store.snapshot.costs?.what_if ?? NO_INFO;
  }

  /** What can be another of the whole is found out when somebody looks. */
  private ask(): void {
    const { version, cost } = this.store.snapshot;
    if (this.info.version === version || this.asked === version || cost === null || cost.stale || this.store.tab !== "cost") return;
    this.asked = version;
    this.store.kernel.latest("settings", "want_settings", {});
  }

  update(): void {
    const { snapshot, selection, kernel } = this.store;
    this.ask();
    for (const [key, [of]] of this.changes) if (of && !snapshot.blocks[of]) this.changes.delete(key);
    if (this.changes.size === 0) this.forget();
    const settings = this.info.settings ?? [];
    const path = selection[0] ?? "";
    const own = (snapshot.blocks[path]?.fields ?? []).filter((field) => TYPES.has(field.type));
    const shown = new Set([...this.fields(this.whole, "", settings), ...this.fields(this.ofBlock, path, own)]);
    for (const key of this.views.keys()) if (!shown.has(key)) this.views.delete(key);
    this.blockTitle.hidden = own.length === 0;
    text(this.blockTitle, path.split("/").join(" / "));
    const canEdit = snapshot.palette.length > 0;
    const hint = this.info.state === "unavailable" || (own.length > 0 && settings.length > 0) ? "" : this.info.settings === null ? "Finding out what can be another." : canEdit ? (path ? "This block has nothing to change." : "Select a block to change its sizes too.") : settings.length ? "" : "Nothing of this program can be changed from here: ml.what_if(make) takes any settings of a function that makes it.";
    this.hint.hidden = hint === "";
    text(this.hint, hint);
    this.chips.show([...this.changes].map(([key, change]) => ({ key, said: toldChange(change) })));
    const active = (this.root.getRootNode() as Document | ShadowRoot).activeElement;
    this.apply.hidden = !canEdit || this.changes.size === 0;
    this.compile.hidden = this.changes.size === 0 || this.info.state === "loading" || this.answer === null || this.answer.compiled !== null || this.answer.problem !== null;
    this.clock.run(this.info.state === "loading" && !kernel.isGone);
    if (this.changes.size) this.send(false);
    this.paint();
    // A button that is pressed and has no more to do hands the focus on.
    if (this.buttons.contains(active) && (active as HTMLElement).hidden) (this.buttons.querySelector<HTMLElement>("button:not([hidden])") ?? this.control())?.focus();
  }

  /** The control of a change, or the first there is. */
  private control(key = ""): HTMLElement | null {
    const view = [...this.views].find(([one]) => key && one.startsWith(`${key} `))?.[1];
    return (view?.root ?? this.root).querySelector<HTMLElement>("input, select");
  }

  private get isWrong(): boolean {
    return [...this.views.values()].some((view) => view.problem() !== "");
  }

  /** Whether the answer is to other changes than those that are there now. */
  private get isOld(): boolean {
    return this.answer !== null && JSON.stringify(this.answer.changes) !== JSON.stringify([...this.changes.values()]);
  }

  private fields(parent: HTMLElement, path: string, fields: readonly Field[]): string[] {
    const key = (field: Field): string => `${path} ${field.name} ${field.type}`;
    keyed(parent, fields, key, (field) => {
      this.views.set(key(field), createField(field, (value) => this.change(path, field.name, value), () => this.paint()));
      return this.views.get(key(field))!.root;
    }, (_, field) => {
      const change = this.changes.get(`${path} ${field.name}`);
      this.views.get(key(field))!.update(change ? { ...field, value: change[2] } : field);
    });
    return fields.map(key);
  }

  private valueNow(path: string, name: string): FieldValue | undefined {
    const fields = path ? this.store.snapshot.blocks[path]?.fields : (this.info.settings ?? undefined);
    return fields?.find((field) => field.name === name)?.value;
  }

  private change(path: string, name: string, value: FieldValue): void {
    const key = `${path} ${name}`;
    if (JSON.stringify(this.valueNow(path, name)) === JSON.stringify(value)) this.changes.delete(key);
    else this.changes.set(key, [path, name, value]);
    this.update();
  }

  private takeBack(keys: readonly string[]): void {
    for (const key of keys) this.changes.delete(key);
    this.update();
  }

  private startAnew(): void {
    for (const view of this.views.values()) view.restore();
    this.takeBack([...this.changes.keys()]);
  }

  private forget(): void {
    if (this.sent) this.picture.show(null);
    this.answer = this.good = null;
    this.sent = this.unread = "";
  }

  /** Apply the changes as one edit, which undo takes back. */
  private make(): void {
    const changes = [...this.changes.values()];
    void this.store.kernel.send("apply_what_if", { changes }).then((reply) => {
      if (reply.ok) this.takeBack([...this.changes.keys()]);
    });
  }

  private send(compile: boolean): void {
    const changes = [...this.changes.values()];
    const { figure } = this.store.cost;
    const key = JSON.stringify([this.store.snapshot.version, figure, changes]);
    if (this.store.kernel.isGone || (key === this.sent && !compile) || this.store.snapshot.cost?.stale) return;
    this.sent = key;
    this.store.kernel.latest("what if", "what_if", { key, changes, figure, compile, width: Math.floor((this.main.clientWidth || 720) / 40) * 40 });
  }

  private take(key: string, answer: Answer): void {
    if (key !== this.sent) return;
    this.answer = answer;
    this.unread = "";
    if (answer.problem === null) {
      this.good = answer;
      this.picture.show(answer.picture, hostTheme());
    }
    this.update();
  }

  private refuse(key: string, why: string): void {
    if (key !== this.sent) return;
    this.unread = why;
    this.paint();
  }

  private saying(isEmpty: boolean, isOld: boolean): string {
    if (this.store.kernel.isGone) return "Not connected to the kernel, so nothing can be computed.";
    if (this.info.state === "unavailable") return "What other settings would cost is not to be had:";
    if (this.unread) return this.unread;
    if (isEmpty) return "Change a setting to see at once what it does to the costs. The model stays as it is.";
    return isOld ? "" : (this.good?.how ?? "");
  }

  private paint(): void {
    const { answer: latest, good: answer, info } = this;
    const isEmpty = this.changes.size === 0;
    const problem = info.state === "unavailable" ? info.problem : isEmpty || this.isOld ? null : (latest?.problem ?? null);
    const cannot = this.isWrong || problem !== null || this.unread !== "";
    const isOld = !isEmpty && (cannot || this.isOld);
    this.table.hidden = this.picture.root.hidden = isEmpty || answer === null;
    for (const part of [this.table, this.picture.root]) part.classList.toggle("mnb-old", isOld);
    this.old.hidden = !cannot || isEmpty || answer === null;
    text(this.old, answer ? `The answer to ${answer.changes.map(toldChange).join(", ")}` : "");
    this.problem.hidden = problem === null;
    if (problem) fill(this.problem, problem);
    attr(this.apply, "aria-disabled", cannot ? "true" : null);
    this.reset.hidden = isEmpty && !this.isWrong;
    if (info.state !== "loading" || this.store.kernel.isGone) text(this.said, this.saying(isEmpty, isOld));
    if (!answer || isEmpty) return;
    const hasCompiled = answer.compiled !== null;
    const heads = ["", "now", "then", "change", ...(hasCompiled ? ["compiled now", "then", "change"] : [])];
    keyed(this.heads, heads.map((title, i) => ({ title, i })), ({ title, i }) => `${i} ${title}`, ({ title, i }) => h("th", { scope: "col", class: i ? "mnb-num" : "" }, title || h("span", { class: "mnb-offscreen" }, "Figure")), () => {});
    const rows = answer.rows.map((row, i) => ({ row, other: answer.compiled?.[i] }));
    keyed(this.body, rows, ({ row, other }) => `${row.figure} ${other !== undefined}`, ({ other }) => h("tr", {}, h("th", { scope: "row" }), ...Array.from({ length: other ? 6 : 3 }, () => h("td", { class: "mnb-num" }))), (element: HTMLElement, { row, other }) => {
      text(element.children[0]!, row.figure === "peak_bytes" ? "Peak memory" : FIGURE_TITLES[row.figure][0]);
      attr(element, "data-mnb-whatif", row.figure);
      [row, ...(other ? [other] : [])].forEach((one, at) => {
        const cells = [written(one.figure, one.before), written(one.figure, one.after), changeOf(one.before, one.after)];
        const titles = [one.before, one.after, null].map((value) => (value === null ? one.reason : toldExactly(one.figure === "peak_bytes" ? "bytes_accessed" : one.figure, value)));
        cells.forEach((said, i) => {
          text(element.children[1 + 3 * at + i]!, said);
          attr(element.children[1 + 3 * at + i]!, "title", titles[i] || null);
        });
      });
    });
  }
}
