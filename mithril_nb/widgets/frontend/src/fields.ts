/** One field of the inspector. It is made once and updated in place: a snapshot never takes the focus or the caret away. */

import { attr, h, text, uid } from "./dom";
import { fromSlider, short, toSlider } from "./format";
import type { Field, FieldValue } from "./types";

export interface FieldView {
  root: HTMLElement;
  update(field: Field): void;
  /** Why what was typed is no value of the field; "" if it is one. */
  problem(): string;
  /** Let go of what was typed and is no value. */
  restore(): void;
}

type Send = (value: FieldValue) => void;
/** Called where what was typed is no value, or is one again. */
type Judged = () => void;

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

const many = (value: number): string => value.toLocaleString("en-US");

/** Why a text is no value of a number's field, with what would be one; "" if it is one. */
export function numberProblem(raw: string, { type, min, max }: Pick<Field, "type" | "min" | "max">): string {
  const kind = type === "int" ? "whole number" : "number";
  const range = min != null && max != null ? ` from ${many(min)} to ${many(max)}` : min != null ? ` from ${many(min)} on` : max != null ? ` up to ${many(max)}` : "";
  const wanted = `Type a ${kind}${range}.`;
  if (raw === "") return wanted;
  const value = Number(raw);
  if (!Number.isFinite(value) || (type === "int" && !Number.isInteger(value))) return `“${raw}” is no ${kind}. ${wanted}`;
  if (min != null && value < min) return `“${raw}” is too small. ${wanted}`;
  return max != null && value > max ? `“${raw}” is too large. ${wanted}` : "";
}

/** Says below a control what is wrong with what was typed into it. */
class Verdict {
  readonly root = h("p", { class: "mnb-field-problem", id: uid("problem"), role: "alert", hidden: true });
  words = "";

  constructor(
    private readonly control: HTMLElement,
    private readonly judged: Judged,
  ) {}

  say(words: string): void {
    if (words === this.words) return;
    this.words = words;
    text(this.root, words);
    this.root.hidden = words === "";
    attr(this.control, "aria-invalid", words ? "true" : null);
    attr(this.control, "aria-describedby", words ? this.root.id : null);
    this.judged();
  }
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

function numberField(first: Field, send: Send, judged: Judged): FieldView {
  let field = first;
  const integer = first.type === "int";
  const input = h("input", { type: "text", inputmode: integer ? "numeric" : "decimal", class: "mnb-input mnb-number", autocomplete: "off", spellcheck: "false" });
  const verdict = new Verdict(input, judged);
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
  const written = (value: FieldValue): string => (typeof value !== "number" ? "" : integer ? String(value) : short(value));
  const hold = (value: number | null): void => {
    field = { ...field, value };
    input.dataset["dirty"] = "";
    input.value = written(value);
    verdict.say("");
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
    verdict.say(isNone ? "" : numberProblem(raw, field));
    if (verdict.words) return;
    if (!isNone) return take(Number(raw));
    hold(null);
    send(null);
  };
  const minus = h("button", { type: "button", class: "mnb-step", tabindex: -1, "aria-label": `Less ${first.name}`, onclick: () => step(-1) }, "−");
  const plus = h("button", { type: "button", class: "mnb-step", tabindex: -1, "aria-label": `More ${first.name}`, onclick: () => step(1) }, "+");
  input.addEventListener("input", () => (input.dataset["dirty"] = "1"));
  input.addEventListener("change", commit);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") commit();
    else if (event.key === "ArrowUp") step(1);
    else if (event.key === "ArrowDown") step(-1);
    else if (event.key === "Escape" && input.dataset["dirty"] === "1") {
      event.stopPropagation(); // it lets go of what was typed, not of the selection
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
    // On a logarithmic scale one notch may be less than one: an arrow key always makes a difference.
    if (event.key === "ArrowRight" || event.key === "ArrowUp") step(1);
    else if (event.key === "ArrowLeft" || event.key === "ArrowDown") step(-1);
    else return;
    event.preventDefault();
  });
  const root = row(first, h("span", { class: "mnb-stepper" }, minus, input, plus), slider);
  root.append(verdict.root);
  tie(root, input, first);
  return {
    root,
    problem: () => verdict.words,
    restore: () => hold(field.value as number | null),
    update(next) {
      // What was typed and is no value stays to be mended, until there is another value.
      if (next.value !== field.value) verdict.say("");
      field = next;
      const [min, max] = bounds();
      const value = next.value as number | null;
      if (!verdict.words) put(input, written(value));
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

/** Of a control that cannot be given what is no value. */
const ALWAYS_SOUND = { problem: () => "", restore: () => {} };

function boolField(first: Field, send: Send): FieldView {
  const input = h("input", { type: "checkbox", role: "switch", class: "mnb-switch" });
  input.addEventListener("change", () => send(input.checked));
  const root = row(first, input);
  tie(root, input, first);
  return { root, update: (field) => void (input.checked = field.value === true), ...ALWAYS_SOUND };
}

function choiceField(first: Field, send: Send): FieldView {
  const menu = h("select", { class: "mnb-input" });
  menu.addEventListener("change", () => send(menu.value === "" && menu.selectedOptions[0]?.dataset["none"] ? null : menu.value));
  const root = row(first, menu);
  tie(root, menu, first);
  return {
    root,
    ...ALWAYS_SOUND,
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

function textField(first: Field, send: Send, judged: Judged): FieldView {
  let field = first;
  const input = h("input", { type: "text", class: "mnb-input", autocomplete: "off", spellcheck: "false" });
  const verdict = new Verdict(input, judged);
  const commit = (): void => {
    if (input.dataset["dirty"] !== "1") return;
    const raw = input.value.trim();
    const value = raw === "" && field.optional ? null : field.type === "ints" ? readInts(raw) : raw;
    const isBad = value === null && !(raw === "" && field.optional);
    verdict.say(isBad ? `${raw ? `“${raw}” is no list of whole numbers. ` : ""}Type them as in 64, 32.` : "");
    if (isBad) return;
    field = { ...field, value };
    input.dataset["dirty"] = "";
    send(value);
  };
  input.addEventListener("input", () => (input.dataset["dirty"] = "1"));
  input.addEventListener("change", commit);
  input.addEventListener("keydown", (event) => event.key === "Enter" && commit());
  const root = row(first, input);
  root.append(verdict.root);
  tie(root, input, first);
  return {
    root,
    problem: () => verdict.words,
    restore() {
      input.dataset["dirty"] = "";
      input.value = spell(field.value);
      verdict.say("");
    },
    update(next) {
      if (spell(next.value) !== spell(field.value)) verdict.say("");
      field = next;
      if (!verdict.words) put(input, spell(next.value));
      attr(input, "placeholder", next.optional ? "inferred" : next.type === "ints" ? "64, 32" : null);
      attr(input, "title", next.doc);
    },
  };
}

export function createField(field: Field, send: Send, judged: Judged = () => {}): FieldView {
  const make = { int: numberField, float: numberField, bool: boolField, choice: choiceField, ints: textField, text: textField }[field.type] ?? textField;
  const view = make(field, send, judged);
  view.update(field);
  text(view.root.querySelector("label")!, field.name);
  return view;
}
