/**
 * Fields of the inspector. Each is created once and updated in place, so that snapshots keep the focus and the caret.
 */

import { attr, h, text, uid } from "../dom/dom";
import { fromSlider, short, toSlider } from "../dom/format";
import type { FieldValue, SettingField } from "../kernel/contract";

/** A field; a setting of the kernel has all parts. */
export type Field = Pick<SettingField, "name" | "type" | "value"> & Partial<SettingField>;

export interface FieldView {
  root: HTMLElement;
  update(field: Field): void;
  /** Return the error of the typed text, or "" if it is valid. */
  problem(): string;
  /** Replace invalid text with the current value. */
  restore(): void;
}

type Send = (value: FieldValue) => void;
/** Called when the typed text becomes invalid or valid. */
type OnValidity = () => void;

function formatValue(value: FieldValue): string {
  if (value === null) return "";
  if (Array.isArray(value)) return value.join(", ");
  return typeof value === "number" ? String(value) : String(value);
}

/** Parse "64, 32" as integers; return null for other text. */
export function readInts(value: string): number[] | null {
  const parts = value.split(/[\s,;x×()[\]]+/).filter(Boolean);
  const numbers = parts.map(Number);
  return numbers.every(Number.isInteger) && numbers.length > 0 ? numbers : null;
}

const formatCount = (value: number): string => value.toLocaleString("en-US");

/** Return the number in a text, or NaN. "0,01" is 0.01, as in most of Europe; "1,000" is ambiguous, so NaN. */
export const numberOf = (raw: string): number => Number(raw.replace(/^(-?0),(\d+)$/, "$1.$2"));

/** Return why a text is invalid in a number field, with the allowed range; "" if it is valid. */
export function numberProblem(raw: string, { type, min, max }: Pick<Field, "type" | "min" | "max">): string {
  const kind = type === "int" ? "whole number" : "number";
  const range =
    min != null && max != null
      ? ` from ${formatCount(min)} to ${formatCount(max)}`
      : min != null
        ? ` of at least ${formatCount(min)}`
        : max != null
          ? ` of at most ${formatCount(max)}`
          : "";
  const advice = `Enter a ${kind}${range}.`;
  if (raw === "") return advice;
  const value = numberOf(raw);
  if (!Number.isFinite(value) || (type === "int" && !Number.isInteger(value)))
    return `“${raw}” is not a ${kind}. ${advice}`;
  if (min != null && value < min) return `“${raw}” is too small. ${advice}`;
  return max != null && value > max ? `“${raw}” is too large. ${advice}` : "";
}

/** The error message below a control with invalid text. */
class FieldError {
  readonly root = h("p", { class: "mnb-field-problem", id: uid("problem"), role: "alert", hidden: true });
  message = "";

  constructor(
    private readonly control: HTMLElement,
    private readonly onValidity: OnValidity,
  ) {}

  show(message: string): void {
    if (message === this.message) return;
    this.message = message;
    text(this.root, message);
    this.root.hidden = message === "";
    attr(this.control, "aria-invalid", message ? "true" : null);
    attr(this.control, "aria-describedby", message ? this.root.id : null);
    this.onValidity();
  }
}

function row(field: Field, ...controls: Element[]): HTMLElement {
  return h(
    "div",
    { class: "mnb-field", "data-mnb-field": field.name },
    h("label", { class: "mnb-field-name", title: field.doc || field.name }, field.label ?? field.name),
    h("div", { class: "mnb-field-controls" }, ...controls),
  );
}

/** Associate the label with the control that holds the value. */
function associateLabel(root: HTMLElement, control: HTMLElement, field: Field): void {
  control.id = uid("field");
  root.querySelector("label")!.setAttribute("for", control.id);
  if (field.doc) control.setAttribute("aria-description", field.doc);
}

function focused(control: HTMLElement): boolean {
  return (control.getRootNode() as Document | ShadowRoot).activeElement === control;
}

/** Set the value of a text control unless the user is typing in it. */
function setText(control: HTMLInputElement, value: string): void {
  if (focused(control) && control.dataset["dirty"] === "1") return;
  if (control.value !== value) control.value = value;
}

function numberField(first: Field, send: Send, onValidity: OnValidity): FieldView {
  let field = first;
  const integer = first.type === "int";
  const input = h("input", {
    type: "text",
    inputmode: integer ? "numeric" : "decimal",
    class: "mnb-input mnb-number",
    autocomplete: "off",
    spellcheck: "false",
  });
  const error = new FieldError(input, onValidity);
  const slider = h("input", {
    type: "range",
    class: "mnb-slider",
    min: 0,
    max: 1000,
    step: 1,
    "aria-label": `${first.name}, logarithmic slider`,
  });
  const bounds = (): [number, number] => [field.min ?? (integer ? 1 : 0), field.max ?? (integer ? 4096 : 1)];
  // A slider up to a million would leave no room for common sizes, so its end stays near the value. The end does
  // not move while the slider has the focus.
  let end = bounds()[1];
  const ends = (): [number, number] => [bounds()[0], end];
  const step = (direction: 1 | -1): void => {
    const [min, max] = bounds();
    const value = typeof field.value === "number" ? field.value : min;
    const by = integer ? 1 : Math.pow(10, Math.floor(Math.log10(Math.max(Math.abs(value), 1e-6))) - 1);
    take(Math.min(max, Math.max(min, Number((value + direction * by).toPrecision(6)))));
  };
  const format = (value: FieldValue): string =>
    typeof value !== "number" ? "" : integer ? String(value) : short(value);
  const hold = (value: number | null): void => {
    field = { ...field, value };
    input.dataset["dirty"] = "";
    input.value = format(value);
    error.show("");
  };
  const take = (value: number): void => {
    hold(value);
    slider.value = String(toSlider(value, ...ends()));
    send(value);
  };
  const commit = (): void => {
    if (input.dataset["dirty"] !== "1") return;
    const raw = input.value.trim();
    const isNone = raw === "" && field.optional === true;
    error.show(isNone ? "" : numberProblem(raw, field));
    if (error.message) return;
    if (!isNone) return take(numberOf(raw));
    hold(null);
    send(null);
  };
  const minus = h(
    "button",
    {
      type: "button",
      class: "mnb-step",
      tabindex: -1,
      "aria-label": `Decrease ${first.name}`,
      onclick: () => step(-1),
    },
    "−",
  );
  const plus = h(
    "button",
    { type: "button", class: "mnb-step", tabindex: -1, "aria-label": `Increase ${first.name}`, onclick: () => step(1) },
    "+",
  );
  input.addEventListener("input", () => (input.dataset["dirty"] = "1"));
  input.addEventListener("change", commit);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") commit();
    else if (event.key === "ArrowUp") step(1);
    else if (event.key === "ArrowDown") step(-1);
    else if (event.key === "Escape" && input.dataset["dirty"] === "1") {
      event.stopPropagation(); // Escape restores the value; it must not clear the selection
      hold(field.value as number | null);
    } else return;
    event.preventDefault();
  });
  slider.addEventListener("input", () => {
    const value = fromSlider(Number(slider.value), ...ends(), integer);
    if (value === field.value) return;
    hold(value);
    attr(slider, "aria-valuetext", input.value);
    send(value);
  });
  slider.addEventListener("keydown", (event) => {
    // One notch of the logarithmic slider may change an integer by less than 1; arrow keys always change the value.
    if (event.key === "ArrowRight" || event.key === "ArrowUp") step(1);
    else if (event.key === "ArrowLeft" || event.key === "ArrowDown") step(-1);
    else return;
    event.preventDefault();
  });
  const root = row(first, h("span", { class: "mnb-stepper" }, minus, input, plus), slider);
  root.append(error.root);
  associateLabel(root, input, first);
  return {
    root,
    problem: () => error.message,
    restore: () => hold(field.value as number | null),
    update(next) {
      // Invalid text stays, so that the user can correct it, until the value changes.
      if (next.value !== field.value) error.show("");
      field = next;
      const [min, max] = bounds();
      const value = next.value as number | null;
      if (!error.message) setText(input, format(value));
      attr(input, "placeholder", next.optional ? "auto" : null);
      attr(input, "title", `${next.doc ? `${next.doc} ` : ""}${min} to ${max}`);
      // While the user drags the slider, an older snapshot must not move it back.
      if (!focused(slider)) {
        end = integer ? Math.min(max, Math.max(1024, 2 ** Math.ceil(Math.log2(4 * Math.max(1, value ?? 1))))) : max;
        slider.value = String(value === null ? 0 : toSlider(value, ...ends()));
      }
      attr(slider, "aria-valuetext", value === null ? "inferred" : short(value));
    },
  };
}

/** For controls that accept only valid values. */
const ALWAYS_VALID = { problem: () => "", restore: () => {} };

function boolField(first: Field, send: Send): FieldView {
  const input = h("input", { type: "checkbox", role: "switch", class: "mnb-switch" });
  input.addEventListener("change", () => send(input.checked));
  const root = row(first, input);
  associateLabel(root, input, first);
  return { root, update: (field) => void (input.checked = field.value === true), ...ALWAYS_VALID };
}

/** A flag that is on, off, or chosen by the block. */
function flagField(first: Field, send: Send): FieldView {
  const options = [
    ["", "auto"],
    ["true", "on"],
    ["false", "off"],
  ] as const;
  const menu = h(
    "select",
    { class: "mnb-input", title: first.doc },
    ...options.map(([value, label]) => h("option", { value }, label)),
  );
  menu.addEventListener("change", () => send(menu.value === "" ? null : menu.value === "true"));
  const root = row(first, menu);
  associateLabel(root, menu, first);
  return {
    root,
    update: (field) => void (menu.value = field.value === null ? "" : String(field.value)),
    ...ALWAYS_VALID,
  };
}

function choiceField(first: Field, send: Send): FieldView {
  const menu = h("select", { class: "mnb-input" });
  menu.addEventListener("change", () =>
    send(menu.value === "" && menu.selectedOptions[0]?.dataset["none"] ? null : menu.value),
  );
  const root = row(first, menu);
  associateLabel(root, menu, first);
  return {
    root,
    ...ALWAYS_VALID,
    update(field) {
      const choices = field.choices ?? [];
      const values = [...(field.optional ? [""] : []), ...choices];
      if (Array.from(menu.options, (option) => option.value).join("\n") !== values.join("\n")) {
        menu.replaceChildren(
          ...values.map((choice) =>
            choice === "" && field.optional
              ? h("option", { value: "", "data-none": "1" }, "none")
              : h("option", { value: choice }, choice),
          ),
        );
      }
      menu.value = formatValue(field.value);
    },
  };
}

function textField(first: Field, send: Send, onValidity: OnValidity): FieldView {
  let field = first;
  const input = h("input", { type: "text", class: "mnb-input", autocomplete: "off", spellcheck: "false" });
  const error = new FieldError(input, onValidity);
  const commit = (): void => {
    if (input.dataset["dirty"] !== "1") return;
    const raw = input.value.trim();
    const value = raw === "" && field.optional ? null : field.type === "ints" ? readInts(raw) : raw;
    const isBad = value === null && !(raw === "" && field.optional);
    error.show(isBad ? `${raw ? `“${raw}” is not a list of whole numbers. ` : ""}Enter numbers such as 64, 32.` : "");
    if (isBad) return;
    field = { ...field, value };
    input.dataset["dirty"] = "";
    send(value);
  };
  input.addEventListener("input", () => (input.dataset["dirty"] = "1"));
  input.addEventListener("change", commit);
  input.addEventListener("keydown", (event) => event.key === "Enter" && commit());
  const root = row(first, input);
  root.append(error.root);
  associateLabel(root, input, first);
  return {
    root,
    problem: () => error.message,
    restore() {
      input.dataset["dirty"] = "";
      input.value = formatValue(field.value);
      error.show("");
    },
    update(next) {
      if (formatValue(next.value) !== formatValue(field.value)) error.show("");
      field = next;
      if (!error.message) setText(input, formatValue(next.value));
      attr(input, "placeholder", next.optional ? "inferred" : next.type === "ints" ? "64, 32" : null);
      attr(input, "title", next.doc);
    },
  };
}

export function createField(field: Field, send: Send, onValidity: OnValidity = () => {}): FieldView {
  const make =
    {
      int: numberField,
      float: numberField,
      bool: field.optional ? flagField : boolField,
      choice: choiceField,
      ints: textField,
      text: textField,
    }[field.type] ?? textField;
  const view = make(field, send, onValidity);
  view.update(field);
  text(view.root.querySelector("label")!, field.label ?? field.name);
  return view;
}
