/** A list of steps in order. Arrow keys move through it, and each selected step is shown. */

import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { uid } from "../dom/dom";
import { handled, hasModifier } from "../dom/events";

/** Number of steps that PageUp and PageDown move. */
const PAGE = 8;

export interface Step {
  name: string;
  /** Text of the two further columns. */
  columns: [where: string, size: string];
  title: string;
  /** Length of the bar, 0 to 1. */
  share: number;
  hidden?: boolean;
}

interface StepListProps {
  label: string;
  steps: readonly Step[];
  /** The selected step, which stays selected while it is hidden; -1 for none. */
  at: number;
  select: (number: number) => void;
}

export function StepList({ label, steps, at, select }: StepListProps) {
  const id = useMemo(() => uid("step"), []);
  const root = useRef<HTMLDivElement>(null);
  const isMarked = at in steps && !steps[at]!.hidden;
  useLayoutEffect(() => {
    if (!isMarked) return;
    const list = root.current!;
    const { offsetTop, offsetHeight } = list.children[at] as HTMLElement;
    // scrollIntoView would also scroll the notebook.
    list.scrollTop = Math.min(offsetTop, Math.max(list.scrollTop, offsetTop + offsetHeight - list.clientHeight));
  }, [at, isMarked, steps.filter(({ hidden }) => hidden).length]);
  const press = (event: KeyboardEvent) => {
    const shown = steps.flatMap(({ hidden }, number) => (hidden ? [] : [number]));
    const below = shown.findIndex((number) => number >= at);
    const here = below < 0 ? shown.length : below;
    const to = {
      ArrowDown: shown[here] === at ? here + 1 : here,
      ArrowUp: here - 1,
      PageDown: here + PAGE,
      PageUp: here - PAGE,
      Home: 0,
      End: shown.length - 1,
    }[event.key];
    if (to === undefined || hasModifier(event)) return;
    const number = shown[Math.max(0, Math.min(to, shown.length - 1))];
    if (number !== undefined) select(number);
    handled(event);
  };
  return (
    <div
      class="mnb-pass-list"
      role="listbox"
      aria-label={label}
      aria-activedescendant={isMarked ? `${id}-${at}` : undefined}
      tabIndex={0}
      ref={root}
      onKeyDown={press}
    >
      {steps.map(({ name, columns: [where, size], title, share, hidden }, number) => (
        <div
          key={number}
          class="mnb-pass"
          role="option"
          id={`${id}-${number}`}
          aria-selected={number === at}
          title={title}
          hidden={hidden}
          data-mnb-pass={number}
          onClick={() => select(number)}
        >
          <span class="mnb-pass-number">{number + 1}</span>
          <span class="mnb-pass-name">{name}</span>
          <span class="mnb-pass-pipeline">{where}</span>
          <span class="mnb-pass-size">{size}</span>
          <i class="mnb-pass-bar" style={{ width: `${100 * share}%` }} />
        </div>
      ))}
    </div>
  );
}
