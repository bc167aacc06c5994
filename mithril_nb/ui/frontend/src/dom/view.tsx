/** Components of Preact among the elements of other code, and the controls that they share. */

import { watchSize } from "./events";
import { signal } from "@preact/signals";
import { type ComponentChildren, type JSX, options, render } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { ICONS } from "./dom";
import { elapsed } from "./format";

// By default, Preact renders after the current task, and signals update attributes in the next frame. Code that moves
// the focus, and tests, need the elements at once.
options.debounceRendering = options.requestAnimationFrame = (work) => work();

/** Make fields of an object signals: a component that reads one is rendered again when it changes. */
export function followFields<T extends object>(target: T, ...names: (keyof T)[]): void {
  for (const name of names) {
    const field = signal(target[name]);
    Object.defineProperty(target, name, { get: () => field.value, set: (value) => (field.value = value) });
  }
}

/** Render a component with one root element; return the element, and a function that removes it. */
export function mount(view: ComponentChildren): { root: HTMLElement; destroy: () => void } {
  const holder = document.createElement("div");
  render(view, holder);
  return { root: holder.firstElementChild as HTMLElement, destroy: () => render(null, holder) };
}

/** An element that contains elements of other code. */
export function Holder({ nodes, ...props }: { nodes: readonly Node[] } & JSX.IntrinsicElements["div"]) {
  const div = useRef<HTMLDivElement>(null);
  useStart(() => div.current!.append(...nodes));
  return <div {...props} ref={div} />;
}

const GRACE_MS = 300;

/** Return the time since `isRunning` became true, as in "3.2 s"; "" while it is false, and for a moment at first. */
export function useElapsed(isRunning: boolean): string {
  const [passed, setPassed] = useState("");
  useLayoutEffect(() => {
    setPassed("");
    if (!isRunning) return;
    const since = performance.now();
    const timer = setInterval(() => {
      const time = performance.now() - since;
      if (time >= GRACE_MS) setPassed(elapsed(time / 1000));
    }, 100);
    return () => clearInterval(timer);
  }, [isRunning]);
  return isRunning ? passed : "";
}

/** Call a function when the component appears; it may return one to call when the component is removed. */
export function useStart(start: () => void | (() => void)): void {
  useLayoutEffect(start, []);
}

/** Call a function with each size of an element, and at first. */
export function useSize(element: { current: HTMLElement | null }, changed: () => void): void {
  useStart(() => watchSize(element.current!, changed));
}

export function Icon({ name }: { name: keyof typeof ICONS }) {
  return (
    <svg viewBox="0 0 16 16" width={16} height={16} aria-hidden="true" class="mnb-icon">
      <path
        d={ICONS[name]}
        fill="none"
        stroke="currentColor"
        stroke-width="1.5"
        stroke-linecap="round"
        stroke-linejoin="round"
      />
    </svg>
  );
}

/** Create an icon for elements of other code. */
export function icon(name: keyof typeof ICONS): HTMLElement {
  return mount(<Icon name={name} />).root;
}

type ButtonProps = JSX.IntrinsicElements["button"] & {
  action?: string;
  /** Shown as disabled. The button keeps the focus: `disabled` would pass the next key to the notebook. */
  off?: boolean;
};

export function Button({ action, off, ...props }: ButtonProps) {
  return (
    <button
      type="button"
      class="mnb-button"
      data-mnb-action={action}
      aria-disabled={off ? "true" : undefined}
      {...props}
    />
  );
}

/** A button with an icon, a tooltip and a name for screen readers. */
export function IconButton({ icon, label, ...props }: { icon: keyof typeof ICONS; label: string } & ButtonProps) {
  return (
    <Button class="mnb-button mnb-icon-button" aria-label={label} title={label} {...props}>
      <Icon name={icon} />
    </Button>
  );
}

/** Create an icon button for elements of other code. */
export function iconButton(name: keyof typeof ICONS, label: string, action: string, act: () => void): HTMLElement {
  return mount(<IconButton icon={name} label={label} action={action} onClick={act} />).root;
}

/** A menu of texts. */
export function Select({
  action,
  values,
  pick,
  none = "choose…",
  ...props
}: JSX.IntrinsicElements["select"] & SelectProps) {
  return (
    <select class="mnb-input" data-mnb-action={action} onChange={(event) => pick(event.currentTarget.value)} {...props}>
      {values.map((value) => (
        <option key={value} value={value}>
          {value || none}
        </option>
      ))}
    </select>
  );
}

interface SelectProps {
  action?: string;
  values: readonly string[];
  pick: (value: string) => void;
  /** The text of "". */
  none?: string;
}
