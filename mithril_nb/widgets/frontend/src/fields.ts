/** One field of the inspector. It is made once and updated in place: a snapshot never takes the focus or the caret away. */

import { attr, h, text, uid } from "./dom";
import { fromSlider, short, toSlider } from "./format";
import type { Field, FieldValue } from "./types";

export interface FieldView {
  root: HTMLElement;
  update(field: Field): void;
}

type Send = (value: FieldValue) => void;

function spell(value: FieldValue): string {
  if (value === null) return "";
  if (Array.isArray(value)) return value.join(", ");
  return typeof value === "number" ? String(value) : String(value);
}

/** Read "64, 32" as numbers; null if it cannot be read so. */
export function readInts(value: string): number[] | null {
  const parts = value.split(/[\s,;x×()[\]]+/).filter(Boolean);
  const numbers = parts.map(Number);
  return numbers.every(Number.isInteger) && numbers.length > 0 ? numbers : null;
}

function row(field: Field, ...controls: Element[]): HTMLElement {
  return h("div", { class: "mnb-field", "data-mnb-field": field.name }, h("label", { class: "mnb-field-name", title: field.doc || field.name }, field.name), h("div", { class: "mnb-field-controls" }, ...controls));
}

/** Tie the label to the control that carries the value. */
function tie(root: HTMLElement, control: HTMLElement, field: Field): void {
  control.id = uid("field");
  root.querySelector("label")!.setAttribute("for", control.id);
  if (field.doc) control.setAttribute("aria-description", field.doc);
}

function focused(control: HTMLElement): boolean {
  return (control.getRootNode() as Document | ShadowRoot).activeElement === control;
}

/** Put a value into a text control, unless someone is typing in it. */
function put(control: HTMLInputElement, value: string): void {
  if (focused(control) && control.dataset["dirty"] === "1") return;
  if (control.value !== value) control.value = value;
}

function numberField(first: Field, send: Send): FieldView {
  let field = first;
  const integer = first.type === "int";
  const input = h("input", { type: "text", inputmode: integer ? "numeric" : "decimal", class: "mnb-input mnb-number", autocomplete: "off", spellcheck: "false" });
  const slider = h("input", { type: "range", class: "mnb-slider", min: 0, max: 1000, step: 1, "aria-label": `${first.name}, logarithmic slider` });
  const bounds = (): [number, number] => [field.min ?? (integer ? 1 : 0), field.max ?? (integer ? 4096 : 1)];
  // A slider up to a million would have no room for the sizes that people use: its end stays near the value, and does
  // not move while a hand is on it.
  let end = bounds()[1];
  const ends = (): [number, number] => [bounds()[0], end];
  const step = (direction: 1 | -1): void => {
    const [min, max] = bounds();
    const value = typeof field.value === "number" ? field.value : min;
    const by = integer ? 1 : Math.pow(10, Math.floor(Math.log10(Math.max(Math.abs(value), 1e-6))) - 1);
    take(Math.min(max, Math.max(min, Number((value + direction * by).toPrecision(6)))));
  };
  const take = (value: number): void => {
    field = { ...field, value };
    input.dataset["dirty"] = "";
    input.value = integer ? String(value) : short(value);
    slider.value = String(toSlider(value, ...ends()));
    send(value);
  };
  const commit = (): void => {
    if (input.dataset["dirty"] !== "1") return;
    const raw = input.value.trim();
    if (raw === "" && field.optional) {
      input.dataset["dirty"] = "";
      field = { ...field, value: null };
      send(null);
      return;
    }
    const value = Number(raw);
    const bad = raw === "" || !Number.isFinite(value) || (integer && !Number.isInteger(value));
    attr(input, "aria-invalid", bad ? "true" : null);
    // What is out of range goes to the kernel all the same: its message says what would fit.
    if (!bad) take(value);
  };
  const minus = h("button", { type: "button", class: "mnb-step", tabindex: -1, "aria-label": `Less ${first.name}`, onclick: () => step(-1) }, "−");
  const plus = h("button", { type: "button", class: "mnb-step", tabindex: -1, "aria-label": `More ${first.name}`, onclick: () => step(1) }, "+");
  input.addEventListener("input", () => (input.dataset["dirty"] = "1"));
  input.addEventListener("change", commit);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") commit();
    else if (event.key === "ArrowUp") step(1);
    else if (event.key === "ArrowDown") step(-1);
    else return;
    event.preventDefault();
  });
  slider.addEventListener("input", () => {
    const value = fromSlider(Number(slider.value), ...ends(), integer);
    if (value === field.value) return;
    field = { ...field, value };
    input.dataset["dirty"] = "";
    input.value = integer ? String(value) : short(value);
    attr(slider, "aria-valuetext", input.value);
    send(value);
  });
  slider.addEventListener("keydown", (event) => {
    // On a logarithmic scale one notch may be less than one: an arrow key always makes a difference.
    if (event.key === "ArrowRight" || event.key === "ArrowUp") step(1);
    else if (event.key === "ArrowLeft" || event.key === "ArrowDown") step(-1);
    else return;
    event.preventDefault();
  });
  const root = row(first, h("span", { class: "mnb-stepper" }, minus, input, plus), slider);
  tie(root, input, first);
  return {
    root,
    update(next) {
      field = next;
      const [min, max] = bounds();
      const value = next.value as number | null;
      put(input, value === null ? "" : integer ? String(value) : short(value));
      attr(input, "placeholder", next.optional ? "auto" : null);
      attr(input, "title", `${next.doc ? `${next.doc} ` : ""}${min} to ${max}`);
      // While the hand is on the slider, an older value must not pull it back.
      if (!focused(slider)) {
        end = integer ? Math.min(max, Math.max(1024, 2 ** Math.ceil(Math.log2(4 * Math.max(1, value ?? 1))))) : max;
        slider.value = String(value === null ? 0 : toSlider(value, ...ends()));
      }
      attr(slider, "aria-valuetext", value === null ? "inferred" : short(value));
    },
  };
}

function boolField(first: Field, send: Send): FieldView {
  const input = h("input", { type: "checkbox", role: "switch", class: "mnb-switch" });
  input.addEventListener("change", () => send(input.checked));
  const root = row(first, input);
  tie(root, input, first);
  return { root, update: (field) => void (input.checked = field.value === true) };
}

function choiceField(first: Field, send: Send): FieldView {
  const menu = h("select", { class: "mnb-input" });
  menu.addEventListener("change", () => send(menu.value === "" && menu.selectedOptions[0]?.dataset["none"] ? null : menu.value));
  const root = row(first, menu);
  tie(root, menu, first);
  return {
    root,
    update(field) {
      const choices = field.choices ?? [];
      const wanted = [...(field.optional ? [""] : []), ...choices];
      if (Array.from(menu.options, (option) => option.value).join("\n") !== wanted.join("\n")) {
        menu.replaceChildren(...wanted.map((choice) => (choice === "" && field.optional ? h("option", { value: "", "data-none": "1" }, "none") : h("option", { value: choice }, choice))));
      }
      menu.value = spell(field.value);
    },
  };
}

function textField(first: Field, send: Send): FieldView {
  let field = first;
  const input = h("input", { type: "text", class: "mnb-input", autocomplete: "off", spellcheck: "false" });
  const commit = (): void => {
    if (input.dataset["dirty"] !== "1") return;
    const raw = input.value.trim();
    const value = raw === "" && field.optional ? null : field.type === "ints" ? readInts(raw) : raw;
    const bad = value === null && !(raw === "" && field.optional);
    attr(input, "aria-invalid", bad ? "true" : null);
    if (bad) return;
    input.dataset["dirty"] = "";
    send(value);
  };
  input.addEventListener("input", () => (input.dataset["dirty"] = "1"));
  input.addEventListener("change", commit);
  input.addEventListener("keydown", (event) => event.key === "Enter" && commit());
  const root = row(first, input);
  tie(root, input, first);
  return {
    root,
    update(next) {
      field = next;
      put(input, spell(next.value));
      attr(input, "placeholder", next.optional ? "inferred" : next.type === "ints" ? "64, 32" : null);
      attr(input, "title", next.doc);
    },
  };
}

export function createField(field: Field, send: Send): FieldView {
  const make = { int: numberField, float: numberField, bool: boolField, choice: choiceField, ints: textField, text: textField }[field.type] ?? textField;
  const view = make(field, send);
  view.update(field);
  text(view.root.querySelector("label")!, field.name);
  return view;
}
