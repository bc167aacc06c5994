/** Fields of forms. A snapshot does not take away the text that the user types, or the slider that is dragged. */

import { Button } from "../dom/view";
import { type Signal, batch, useSignal } from "@preact/signals";
import type { JSX, TargetedEvent } from "preact";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { focusedAt, uid } from "../dom/dom";
import { fromSlider, grouped, short, toSlider } from "../dom/format";
import type { FieldValue, SettingField } from "../kernel/contract";

/** A field; a setting of the kernel has all parts. */
type Field = Pick<SettingField, "name" | "type" | "value"> & Partial<SettingField>;

interface FieldProps {
  field: Field;
  send: (value: FieldValue) => void;
  /** Returns whether a sent value waits for its reply, so that it is newer than the field. */
  isBusy?: () => boolean;
  /** Receives why the typed text is invalid, or "". */
  judge?: (problem: string) => void;
}

interface InputProps {
  field: Field;
  value: FieldValue;
  send: (value: FieldValue) => void;
  problem: Signal<string>;
  /** Attributes of the control that holds the value. */
  control: { id: string; "aria-description"?: string };
}

function formatValue(value: FieldValue) {
  return value === null ? "" : Array.isArray(value) ? value.join(", ") : String(value);
}

/** Parse "64, 32" as integers; return null for other text. */
export function readInts(value: string): number[] | null {
  const parts = value.split(/[\s,;x×()[\]]+/).filter(Boolean);
  const numbers = parts.map(Number);
  return numbers.every(Number.isInteger) && numbers.length > 0 ? numbers : null;
}

/** Return the number in a text, or NaN. "0,01" is 0.01, as in most of Europe; "1,000" is ambiguous, so NaN. */
export const numberOf = (raw: string): number => Number(raw.replace(/^(-?0),(\d+)$/, "$1.$2"));

/** Return why a text is invalid in a number field, with the allowed range; "" if it is valid. */
export function numberProblem(raw: string, { type, min, max }: Pick<Field, "type" | "min" | "max">): string {
  const kind = type === "int" ? "whole number" : "number";
  const range =
    min != null && max != null
      ? ` from ${grouped(min)} to ${grouped(max)}`
      : min != null
        ? ` of at least ${grouped(min)}`
        : max != null
          ? ` of at most ${grouped(max)}`
          : "";
  const advice = `Enter a ${kind}${range}.`;
  if (raw === "") return advice;
  const value = numberOf(raw);
  if (!Number.isFinite(value) || (type === "int" && !Number.isInteger(value)))
    return `“${raw}” is not a ${kind}. ${advice}`;
  if (min != null && value < min) return `“${raw}” is too small. ${advice}`;
  return max != null && value > max ? `“${raw}” is too large. ${advice}` : "";
}

/** A text control. `parse` returns the value of a text, or undefined with the reason in `problem`. */
export function TextControl(
  props: InputProps & {
    shown: string;
    parse: (text: string) => FieldValue | undefined;
    attributes: JSX.IntrinsicElements["input"];
    press?: (event: KeyboardEvent) => boolean;
  },
) {
  const { field, problem, parse, send, press } = props;
  const input = useRef<HTMLInputElement>(null);
  const draft = useSignal<string | null>(null);
  // Invalid text stays, so that the user can correct it, until the value changes.
  useLayoutEffect(() => void (problem.value = ""), [formatValue(field.value)]);
  useLayoutEffect(() => {
    if (draft.value !== null && !problem.value && focusedAt(input.current!) !== input.current) draft.value = null;
  }, [field]);
  const restore = () => {
    batch(() => ([draft.value, problem.value] = [null, ""]));
  };
  const commit = () => {
    if (draft.value === null) return;
    const value = parse(draft.value.trim());
    if (value === undefined) return;
    restore();
    send(value);
  };
  const key = (event: KeyboardEvent) => {
    if (event.key === "Enter") commit();
    else if (event.key === "Escape" && draft.value !== null) {
      event.stopPropagation(); // Escape restores the value; it must not clear the selection
      restore();
    } else if (!press?.(event)) return;
    event.preventDefault();
  };
  return (
    <input
      type="text"
      autocomplete="off"
      spellcheck={false}
      aria-invalid={problem.value ? "true" : undefined}
      aria-describedby={problem.value ? `${props.control.id}-problem` : undefined}
      {...props.control}
      {...props.attributes}
      value={draft.value ?? props.shown}
      ref={input}
      onInput={(event) => void (draft.value = event.currentTarget.value)}
      onChange={commit}
      onKeyDown={key}
    />
  );
}

/**
 * Return the attributes of a logarithmic slider, and a function that forgets where it was dragged.
 * While the user drags it, an older value must not move it back.
 */
export function useSlider(
  value: number | null,
  rangeOf: (isHeld: boolean) => readonly [min: number, max: number],
  isInteger: boolean,
  take: (value: number) => void,
) {
  const slider = useRef<HTMLInputElement>(null);
  const dragged = useSignal<number | null>(null);
  const isHeld = slider.current !== null && focusedAt(slider.current) === slider.current;
  const range = rangeOf(isHeld);
  const attributes: JSX.IntrinsicElements["input"] = {
    type: "range",
    class: "mnb-slider",
    min: 0,
    max: 1000,
    step: 1,
    value: (isHeld ? dragged.value : null) ?? (value === null ? 0 : toSlider(value, ...range)),
    ref: slider,
    onInput: (event) =>
      batch(() => {
        dragged.value = Number(event.currentTarget.value);
        take(fromSlider(dragged.value, ...range, isInteger));
      }),
  };
  return { attributes, forget: () => void (dragged.value = null) };
}

function NumberInput(props: InputProps) {
  const { field, value, send, problem } = props;
  const integer = field.type === "int";
  const [min, max] = [field.min ?? (integer ? 1 : 0), field.max ?? (integer ? 4096 : 1)];
  const end = useRef(max);
  const number = typeof value === "number" ? value : null;
  const rangeOf = (isHeld: boolean): [number, number] => {
    // A slider up to a million would leave no room for common sizes, so its end stays near the value.
    if (!isHeld && integer)
      end.current = Math.min(max, Math.max(1024, 2 ** Math.ceil(Math.log2(4 * Math.max(1, number ?? 1)))));
    return [min, end.current];
  };
  const slider = useSlider(number, rangeOf, integer, (next) => next !== number && take(next));
  const take = (value: number) => {
    problem.value = "";
    send(value);
  };
  const step = (direction: number) => {
    const from = number ?? min;
    const by = integer ? 1 : Math.pow(10, Math.floor(Math.log10(Math.max(Math.abs(from), 1e-6))) - 1);
    slider.forget();
    take(Math.min(max, Math.max(min, Number((from + direction * by).toPrecision(6)))));
  };
  const steps: Record<string, number> = { ArrowUp: 1, ArrowDown: -1 };
  // One notch of the logarithmic slider may change an integer by less than 1; arrow keys always change the value.
  const notches: Record<string, number> = { ...steps, ArrowRight: 1, ArrowLeft: -1 };
  const press = (event: KeyboardEvent, by = steps[event.key]) => {
    if (by) step(by);
    return by !== undefined;
  };
  const parse = (text: string): FieldValue | undefined => {
    if (text === "" && field.optional) return null;
    problem.value = numberProblem(text, field);
    return problem.value ? undefined : numberOf(text);
  };
  const button = (by: number, sign: string, verb: string) => (
    <Button class="mnb-step" tabIndex={-1} aria-label={`${verb} ${field.name}`} onClick={() => step(by)}>
      {sign}
    </Button>
  );
  return (
    <>
      <span class="mnb-stepper">
        {button(-1, "−", "Decrease")}
        <TextControl
          {...props}
          shown={number === null ? "" : integer ? String(number) : short(number)}
          parse={parse}
          press={press}
          attributes={{
            class: "mnb-input mnb-number",
            inputMode: integer ? "numeric" : "decimal",
            placeholder: field.optional ? "auto" : undefined,
            title: `${field.doc ? `${field.doc} ` : ""}${min} to ${max}`,
          }}
        />
        {button(1, "+", "Increase")}
      </span>
      <input
        {...slider.attributes}
        aria-label={`${field.name}, logarithmic slider`}
        aria-valuetext={number === null ? "inferred" : short(number)}
        onKeyDown={(event) => press(event, notches[event.key]) && event.preventDefault()}
      />
    </>
  );
}

function TextInput(props: InputProps) {
  const { field, value, problem } = props;
  const parse = (text: string): FieldValue | undefined => {
    if (text === "" && field.optional) return null;
    const parsed = field.type === "ints" ? readInts(text) : text;
    const why = text ? `“${text}” is not a list of whole numbers. ` : "";
    problem.value = parsed === null ? `${why}Enter numbers such as 64, 32.` : "";
    return parsed ?? undefined;
  };
  const placeholder = field.optional ? "inferred" : field.type === "ints" ? "64, 32" : undefined;
  const attributes = { class: "mnb-input", placeholder, title: field.doc };
  return <TextControl {...props} shown={formatValue(value)} parse={parse} attributes={attributes} />;
}

function SwitchInput({ value, send, control }: InputProps) {
  return (
    <input
      type="checkbox"
      role="switch"
      class="mnb-switch"
      checked={value === true}
      onChange={(event) => send(event.currentTarget.checked)}
      {...control}
    />
  );
}

/** A menu of values with their titles. */
function Menu({ options, ...props }: InputProps & { options: readonly (readonly [FieldValue, string])[] }) {
  const change = (event: TargetedEvent<HTMLSelectElement>) =>
    props.send(options[event.currentTarget.selectedIndex]![0]);
  return (
    <select
      class="mnb-input"
      title={props.field.doc}
      value={formatValue(props.value)}
      onChange={change}
      {...props.control}
    >
      {options.map(([value, title]) => (
        <option key={title} value={formatValue(value)}>
          {title}
        </option>
      ))}
    </select>
  );
}

/** A flag that is on, off, or chosen by the block. */
function FlagInput(props: InputProps) {
  const options = [
    [null, "auto"],
    [true, "on"],
    [false, "off"],
  ] as const;
  return <Menu {...props} options={options} />;
}

function ChoiceInput(props: InputProps) {
  const choices = (props.field.choices ?? []).map((choice) => [choice, choice] as const);
  return (
    <Menu {...props} options={props.field.optional ? [[null, props.field.unset ?? "none"], ...choices] : choices} />
  );
}

const INPUTS: Record<string, (props: InputProps) => JSX.Element> = {
  int: NumberInput,
  float: NumberInput,
  bool: SwitchInput,
  choice: ChoiceInput,
};

export function FieldRow({ field, send, isBusy, judge }: FieldProps) {
  const id = useMemo(() => uid("field"), []);
  const problem = useSignal("");
  /** The value that the user has chosen, until the field follows. */
  const chosen = useSignal<FieldValue | undefined>(undefined);
  useLayoutEffect(() => {
    if (!isBusy?.()) chosen.value = undefined;
  }, [field]);
  useLayoutEffect(() => judge?.(problem.value), [problem.value]);
  const Input = field.type === "bool" && field.optional ? FlagInput : (INPUTS[field.type] ?? TextInput);
  return (
    <div class="mnb-field" data-mnb-field={field.name}>
      <label class="mnb-field-name" title={field.doc || field.name} for={id}>
        {field.label ?? field.name}
      </label>
      <div class="mnb-field-controls">
        <Input
          field={field}
          value={chosen.value === undefined ? field.value : chosen.value}
          send={(value) => {
            chosen.value = value;
            send(value);
          }}
          problem={problem}
          control={{ id, "aria-description": field.doc || undefined }}
        />
      </div>
      <p class="mnb-field-problem" id={`${id}-problem`} role="alert" hidden={!problem.value}>
        {problem.value}
      </p>
    </div>
  );
}
