/** A menu whose rows are filtered by typing. */

import { batch, useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { uid } from "../dom/dom";
import { handled } from "../dom/events";
import { grouped } from "../dom/format";
import { type Option, Options } from "./options";

/** Number of rows drawn at most; typing finds the others. */
const MOST_ROWS = 500;

interface PickerProps<T> {
  label: string;
  /** What a row is: "block". */
  noun: string;
  look?: string;
  /** Null while the menu is closed. */
  items: readonly T[] | null;
  /** Returns whether an item matches a text in lower case; "" without one. */
  matches: (item: T, needle: string) => boolean;
  /** Returns whether an item is marked at first. */
  isHere: (item: T) => boolean;
  rowOf: (item: T, isFiltered: boolean) => Option;
  choose: (item: T) => void;
  /** Takes a text that no item matches. */
  enter?: (text: string) => void;
  /** `byKey` is false if the focus has left already. */
  close: (byKey: boolean) => void;
}

export function Picker<T>({ label, noun, items, look = "", matches, isHere, rowOf, ...does }: PickerProps<T>) {
  const { choose, enter, close } = does;
  const id = useMemo(() => uid("picker"), []);
  const input = useRef<HTMLInputElement>(null);
  const query = useSignal("");
  const at = useSignal(0);
  const needle = query.value.trim().toLowerCase();
  const matching = (items ?? []).filter((item) => matches(item, needle));
  const rows = matching.slice(0, MOST_ROWS);
  const filter = (text: string, row = 0) => batch(() => void ([query.value, at.value] = [text, row]));
  const isOpen = items !== null;
  useLayoutEffect(() => {
    if (!items) return;
    filter(
      "",
      Math.max(
        0,
        items
          .filter((item) => matches(item, ""))
          .slice(0, MOST_ROWS)
          .findIndex(isHere),
      ),
    );
    input.current!.focus({ preventScroll: true });
  }, [isOpen]);
  const pick = (row: number) => {
    const item = rows[row];
    if (item === undefined && !(enter && needle)) return;
    close(true);
    if (item === undefined) enter!(needle);
    else choose(item);
  };
  const press = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (by !== undefined) at.value = Math.max(0, Math.min(at.value + by, rows.length - 1));
    else if (event.key === "Enter") pick(at.value);
    else if (event.key === "Escape") close(true);
    else return;
    handled(event);
  };
  const note =
    matching.length === 0
      ? `No ${noun} matches${enter ? ". Enter tries this name." : ""}`
      : matching.length > MOST_ROWS && `The first ${MOST_ROWS} of ${grouped(matching.length)} ${noun}s`;
  return (
    <div class={`mnb-menu ${look}`} hidden={!isOpen}>
      <input
        class="mnb-input"
        type="text"
        role="combobox"
        list={undefined}
        placeholder={`Filter ${noun}s`}
        aria-label={`Filter: ${label}`}
        aria-controls={id}
        aria-expanded="true"
        aria-autocomplete="list"
        aria-activedescendant={rows.length ? `${id}-${at.value}` : undefined}
        autocomplete="off"
        spellcheck={false}
        data-mnb-action={`${id}.filter`}
        value={query.value}
        ref={input}
        onInput={(event) => filter(event.currentTarget.value)}
        onKeyDown={press}
        onBlur={() => close(false)}
      />
      <p class="mnb-outline-note" role="status" hidden={!note}>
        {note}
      </p>
      <Options
        id={id}
        label={label}
        at={at.value}
        most={MOST_ROWS}
        pick={pick}
        options={rows.map((item) => rowOf(item, needle !== ""))}
      />
    </div>
  );
}
