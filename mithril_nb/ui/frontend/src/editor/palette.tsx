/**
 * The palette of blocks: search, Enter to add after the selected block, or drag to place. Its list opens with the
 * focus.
 */

import { push } from "../dom/lists";
import { batch, useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { followPointer, handled } from "../dom/events";
import { focusedAt, h, uid } from "../dom/dom";
import type { PaletteEntry } from "../kernel/contract";
import type { Store } from "../store/store";
import type { Canvas } from "./canvas";

/** Return matching items, best first: synonyms, start of the kind, part of the kind, words of category or summary. */
export function searchPalette(items: readonly PaletteEntry[], query: string): PaletteEntry[] {
  const needle = query.trim().toLowerCase();
  const joined = needle.replace(/[\s_-]+/g, "");
  if (!joined) return [...items];
  const rank = ({ kind, category, summary, words }: PaletteEntry): number => {
    const name = kind.toLowerCase();
    const synonyms = words.split(" ");
    if (synonyms.includes(joined)) return 0;
    if (name.startsWith(joined)) return 1;
    if (name.includes(joined) || (joined.length > 2 && synonyms.some((word) => word.startsWith(joined)))) return 2;
    // Whole words only: "conv" must not find Softmax, which converts.
    return ` ${category} ${summary} `
      .toLowerCase()
      .replace(/[^a-z0-9]+/g, " ")
      .includes(` ${needle} `)
      ? 3
      : 4;
  };
  return items
    .map((item, i) => ({ item, i, rank: rank(item) }))
    .filter((hit) => hit.rank < 4)
    .sort((a, b) => a.rank - b.rank || a.i - b.i)
    .map((hit) => hit.item);
}

/** Return the entries by category, or those that match a query in one group. */
function groupsOf(palette: readonly PaletteEntry[], query: string) {
  const groups = new Map<string, PaletteEntry[]>();
  for (const entry of searchPalette(palette, query)) push(groups, query.trim() ? "" : entry.category, entry);
  return groups;
}

export function Palette({ store, canvas }: { store: Store; canvas: Canvas }) {
  const id = useMemo(() => uid("palette"), []);
  const [root, input] = [useRef<HTMLElement>(null), useRef<HTMLInputElement>(null)];
  const query = useSignal("");
  const at = useSignal(0);
  const isOpen = useSignal(false);
  const { palette } = store.snapshot;
  const kinds = palette.map(({ kind }) => kind).join();
  const groups = useMemo(() => groupsOf(palette, query.value), [kinds, query.value]);
  const entries = [...groups.values()].flat();
  // In wide widgets, the list is always visible.
  const isBeside = root.current?.closest('[data-mnb-room="wide"]') != null;
  useLayoutEffect(() => canvas.showPalette(isOpen.value && !isBeside), [isOpen.value, isBeside]);
  useLayoutEffect(() => {
    if (focusedAt(input.current!) !== input.current) return;
    root.current!.querySelector('[aria-selected="true"]')?.scrollIntoView?.({ block: "nearest" });
  });
  const open = (): void => void (isOpen.value = true);
  const search = (text: string) => batch(() => ([query.value, at.value] = [text, 0])) as unknown as void;
  const add = (entry: PaletteEntry, place?: { x: number; y: number }): void =>
    void store.command("add_block", { kind: entry.kind, ...place });
  const key = (event: KeyboardEvent) => {
    const wasOpen = isOpen.value;
    if (event.key.startsWith("Arrow")) open();
    if (event.key === "ArrowDown") at.value = Math.min(at.value + 1, entries.length - 1);
    else if (event.key === "ArrowUp") at.value = Math.max(at.value - 1, 0);
    else if (event.key === "Enter") {
      const entry = entries[at.value];
      if (entry) {
        add(entry);
        // Clear the query for the next search; a second Enter adds the same block again.
        search("");
        at.value = [...groupsOf(palette, "").values()].flat().indexOf(entry);
      }
    } else if (event.key === "Escape" && query.value) search("");
    else if (event.key === "Escape" && wasOpen) isOpen.value = false;
    else return;
    handled(event);
  };
  /** Handle a press: drag a ghost to the canvas if the pointer moves, else add the block. */
  const press = (event: PointerEvent, entry: PaletteEntry) => {
    if (event.button !== 0) return;
    event.preventDefault();
    input.current!.focus({ preventScroll: true });
    const widget = root.current!.closest(".mnb-root")!;
    let ghost: HTMLElement | null = null;
    const move = (moved: PointerEvent) => {
      if (!ghost && Math.hypot(moved.clientX - event.clientX, moved.clientY - event.clientY) < 5) return;
      if (!ghost) widget.append((ghost = h("div", { class: "mnb-ghost" }, entry.kind)));
      const frame = widget.getBoundingClientRect();
      ghost.style.transform = `translate(${moved.clientX - frame.left + 8}px, ${moved.clientY - frame.top + 8}px)`;
      ghost.classList.toggle("mnb-ok", canvas.contains(moved.clientX, moved.clientY));
    };
    const done = (ended: PointerEvent, isReleased: boolean) => {
      ghost?.remove();
      if (!isReleased) return;
      if (!ghost) add(entry);
      else if (canvas.contains(ended.clientX, ended.clientY)) {
        const { x, y } = canvas.toScene(ended.clientX, ended.clientY);
        const place = { x: Math.round(x), y: Math.round(y) };
        const edge = canvas.edgeAt(x, y);
        if (edge) {
          const { source, target } = edge;
          void store.command("place_block", { kind: entry.kind, source, target, ...place });
        } else add(entry, place);
      }
    };
    followPointer(event.currentTarget as HTMLElement, event, move, done);
  };
  return (
    <section class="mnb-palette" aria-label="Palette" data-mnb-open={isOpen.value ? "" : undefined} ref={root}>
      <input
        type="search"
        class="mnb-input mnb-palette-search"
        placeholder="Add a block…"
        aria-label="Search blocks. Enter adds a block after the selected one."
        role="combobox"
        list={undefined}
        aria-expanded={isOpen.value || isBeside}
        aria-controls={id}
        aria-activedescendant={entries.length ? `${id}-${at.value}` : undefined}
        autocomplete="off"
        spellcheck={false}
        data-mnb-action="palette.search"
        value={query.value}
        ref={input}
        onInput={(event) => {
          search(event.currentTarget.value); // first: what is rendered replaces the text
          open();
        }}
        onKeyDown={key}
        onFocus={open}
        onClick={open}
        onBlur={() => void (isOpen.value = false)}
      />
      {/* Browsers let Tab enter a list that scrolls, but this one closes when the box loses the focus. A press on its
          scrollbar must not close it. */}
      <div
        class="mnb-palette-list"
        role="listbox"
        id={id}
        aria-label="Blocks"
        tabIndex={-1}
        onMouseDown={(event) => event.preventDefault()}
      >
        {[...groups].map(([group, members]) => [
          group && (
            <div key={group} class="mnb-palette-group" role="presentation">
              {group}
            </div>
          ),
          ...members.map((entry) => {
            const index = entries.indexOf(entry);
            const { kind, formula, summary } = entry;
            return (
              <div
                key={`of ${kind}`}
                class="mnb-palette-item"
                role="option"
                id={`${id}-${index}`}
                aria-selected={index === at.value}
                data-mnb-palette={kind}
                title={`${summary}\n${formula}\nClick to add after the selected block, or drag to place.`}
                onPointerDown={(event) => press(event, entry)}
              >
                <span class="mnb-palette-kind">{kind}</span>
                <span class="mnb-palette-formula">{formula}</span>
                <span class="mnb-palette-summary">{summary}</span>
              </div>
            );
          }),
        ])}
        {entries.length === 0 && <p class="mnb-hint">{`No block matches “${query.value.trim()}”.`}</p>}
      </div>
    </section>
  );
}
