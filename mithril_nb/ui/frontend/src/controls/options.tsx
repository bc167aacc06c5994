/** The options of a list box; a field or the list itself has the focus, and moves through them by keys. */

import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

export interface Option {
  label: JSX.Element | string;
  title: string;
  /** At the right. */
  detail: string;
  /** Levels by which it is indented. */
  depth?: number;
}

type OptionsProps = Omit<JSX.IntrinsicElements["div"], "label"> & {
  id: string;
  label: string;
  options: readonly Option[];
  /** The current option. */
  at: number;
  /** The most options drawn at once, around the current one. */
  most?: number;
  pick: (at: number) => void;
};

export function Options({ id, label, options, at, most = 60, pick, ...props }: OptionsProps) {
  const list = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    list.current!.querySelector('[aria-selected="true"]')?.scrollIntoView?.({ block: "nearest" });
  });
  const first = Math.max(0, Math.min(at - most / 2, options.length - most));
  return (
    // A press keeps the focus in the field.
    <div
      class="mnb-options"
      role="listbox"
      id={id}
      aria-label={label}
      onPointerDown={(event) => event.preventDefault()}
      {...props}
      ref={list}
    >
      {options.slice(first, first + most).map(({ label, title, detail, depth }, i) => (
        <div
          key={first + i}
          class="mnb-option"
          role="option"
          id={`${id}-${first + i}`}
          aria-selected={first + i === at}
          aria-posinset={first + i + 1}
          aria-setsize={options.length}
          title={title}
          style={depth === undefined ? undefined : { paddingLeft: `${8 + 12 * depth}px` }}
          onClick={() => pick(first + i)}
        >
          <span>{label}</span>
          <small title={detail}>{detail}</small>
        </div>
      ))}
    </div>
  );
}
