/** Groups of buttons: radio buttons, toggle buttons, and removable chips. */

import { Button } from "../dom/view";
import { handled, hasModifier } from "../dom/events";
import { useRef } from "preact/hooks";

interface Choice<T extends string> {
  value: T;
  title: string;
  hint?: string;
}

interface GroupProps<T extends string> {
  label: string;
  action: string;
  choices: readonly Choice<T>[];
  pick: (value: T) => void;
}

function Toggle<T extends string>(props: { of: GroupProps<T>; choice: Choice<T>; role?: "radio"; state: object }) {
  const { of, choice, role, state } = props;
  return (
    <Button
      class="mnb-toggle"
      role={role}
      title={choice.hint}
      action={`${of.action}.${choice.value}`}
      onClick={() => of.pick(choice.value)}
      {...state}
    >
      {choice.title}
    </Button>
  );
}

/** A radio group with one stop in the tab order. */
export function Radios<T extends string>({ value, ...props }: GroupProps<T> & { value: T }) {
  const { label, choices, pick } = props;
  const press = (event: KeyboardEvent) => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (by === undefined || hasModifier(event)) return;
    handled(event);
    const buttons = (event.currentTarget as Element).children;
    const next = ([...buttons].indexOf(event.target as Element) + by + choices.length) % choices.length;
    pick(choices[next]!.value);
    (buttons[next] as HTMLElement).focus();
  };
  return (
    <div class="mnb-toggles" role="radiogroup" aria-label={label} onKeyDown={press}>
      {choices.map((choice) => {
        const isPicked = choice.value === value;
        const state = { "aria-checked": isPicked, tabIndex: isPicked ? 0 : -1 };
        return <Toggle key={choice.value} of={props} choice={choice} role="radio" state={state} />;
      })}
    </div>
  );
}

/** A group of toggle buttons; arrow keys move the focus. */
export function Presses<T extends string>(props: GroupProps<T> & { pressed: readonly T[]; hidden?: boolean }) {
  const press = (event: KeyboardEvent) => {
    const target = event.target as Element;
    const next = { ArrowRight: target.nextElementSibling, ArrowLeft: target.previousElementSibling }[event.key];
    if (!next) return;
    (next as HTMLElement).focus();
    handled(event);
  };
  return (
    <div class="mnb-toggles" role="group" aria-label={props.label} hidden={props.hidden} onKeyDown={press}>
      {props.choices.map((choice) => {
        const state = { "aria-pressed": props.pressed.includes(choice.value) };
        return <Toggle key={choice.value} of={props} choice={choice} state={state} />;
      })}
    </div>
  );
}

interface ChipsProps {
  label: string;
  verb: string;
  chips: readonly { key: string; label: string }[];
  remove: (key: string) => void;
  /** Takes the focus after the last chip. */
  home: (key: string) => HTMLElement | null | undefined;
}

/** Chips that a click removes. The focus moves to the next chip, and after the last one to `home`. */
export function Chips({ label, verb, chips, remove, home }: ChipsProps) {
  const root = useRef<HTMLDivElement>(null);
  const press = (key: string, at: number) => {
    remove(key);
    const left = root.current!.children;
    ((left[Math.min(at, left.length - 1)] as HTMLElement | undefined) ?? home(key))?.focus();
  };
  return (
    <div class="mnb-toggles" role="group" aria-label={label} hidden={chips.length === 0} ref={root}>
      {chips.map(({ key, label }, at) => (
        <Button
          key={key}
          class="mnb-toggle mnb-removable"
          aria-label={`${verb} ${label}`}
          title={label}
          onClick={() => press(key, at)}
        >
          {`${label} ✕`}
        </Button>
      ))}
    </div>
  );
}
