/** The outline of a pane: a menu of its blocks, filtered by typing. */

import { batch, useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { OutlineItem } from "../code/fold-ranges";
import { Options } from "../controls/options";
import { uid } from "../dom/dom";
import { handled } from "../dom/events";
import { grouped } from "../dom/format";

/** Number of rows drawn at most; typing finds the others. */
const MOST_ROWS = 500;

interface OutlineProps {
  label: string;
  /** Null while the outline is closed. */
  items: readonly OutlineItem[] | null;
  /** The block that is marked at first. */
  here: string;
  /** Returns the right column of a row. */
  detailOf: (item: OutlineItem) => string;
  /** Returns the class of the swatch of a block. */
  classOf: (path: string) => string;
  choose: (item: OutlineItem) => void;
  /** `byKey` is false if the focus has left already. */
  close: (byKey: boolean) => void;
}

export function Outline({ label, items, here, detailOf, classOf, choose, close }: OutlineProps) {
  const id = useMemo(() => uid("outline"), []);
  const input = useRef<HTMLInputElement>(null);
  const query = useSignal("");
  const at = useSignal(0);
  const needle = query.value.trim().toLowerCase();
  const matches = (items ?? []).filter(({ path }) => path.toLowerCase().includes(needle));
  const found = matches.slice(0, MOST_ROWS);
  const filter = (text: string, at_ = 0): void => batch(() => void ([query.value, at.value] = [text, at_]));
  useLayoutEffect(() => {
    if (!items) return;
    const marked = items.slice(0, MOST_ROWS).findIndex(({ path }) => path === here);
    filter("", Math.max(0, marked));
    input.current!.focus({ preventScroll: true });
  }, [items]);
  const pick = (at: number) => {
    const item = found[at];
    if (!item) return;
    close(true);
    choose(item);
  };
  const press = (event: KeyboardEvent) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (by !== undefined) at.value = Math.max(0, Math.min(at.value + by, found.length - 1));
    else if (event.key === "Enter") pick(at.value);
    else if (event.key === "Escape") close(true);
    else return;
    handled(event);
  };
  const note =
    matches.length === 0
      ? "No block matches"
      : matches.length > MOST_ROWS && `The first ${MOST_ROWS} of ${grouped(matches.length)} blocks`;
  return (
    <div class="mnb-menu mnb-outline" hidden={!items}>
      <input
        class="mnb-input"
        type="text"
        role="combobox"
        list={undefined}
        placeholder="Filter blocks"
        aria-label={`Filter: ${label}`}
        aria-controls={id}
        aria-expanded="true"
        aria-autocomplete="list"
        aria-activedescendant={found.length ? `${id}-${at.value}` : undefined}
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
        options={found.map((item) => ({
          label: (
            <>
              <i class={`mnb-swatch ${classOf(item.path)}`} />
              {/* A filtered list shows full paths, because outer groups may be missing. */}
              {needle ? item.path : item.path.slice(item.path.lastIndexOf("/") + 1)}
            </>
          ),
          title: item.path,
          detail: detailOf(item),
          ...(needle ? {} : { depth: item.depth }),
        }))}
      />
    </div>
  );
}
