/**
 * The palette of blocks: search, Enter to add after the selected block, or drag to place or to insert into a wire. In
 * narrow widgets, its list opens with the focus.
 */

import { push } from "../dom/lists";
import { batch, useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { openMenu } from "../controls/menu";
import { followPointer, handled } from "../dom/events";
import { focusedAt, uid, zoomOf } from "../dom/dom";
import { mount } from "../dom/view";
import type { PaletteEntry } from "../kernel/contract";
import type { Store } from "../store/store";
import type { Canvas } from "./canvas";
import { Picture } from "./pictures";
import { PreviewLines, type Previews } from "./preview";

/** Return the name of a kind, or of a file of *My blocks*. */
export function nameOf({ kind }: { kind: string }): string {
  return kind.replace(/^my_blocks\/(.*)\.json$/s, "$1");
}

/** Return matching items, best first: synonyms, start of the kind, part of the kind, words of category or summary. */
export function searchPalette(items: readonly PaletteEntry[], query: string): PaletteEntry[] {
  const needle = query.trim().toLowerCase();
  const joined = needle.replace(/[\s_-]+/g, "");
  if (!joined) return [...items];
  const rank = (entry: PaletteEntry): number => {
    const { category, summary, words } = entry;
    const name = nameOf(entry).toLowerCase();
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

/** Return a name whose lines may break before its words. */
function wordsOf(name: string) {
  return name.split(/(?<=[a-z\d])(?=[A-Z])/).flatMap((word, at) => (at ? [<wbr />, word] : word));
}

const FIRST = "Recent and common";
const MOST_RECENT = 6;

/** Return the entries by family, after recent and common ones; or those that match a query in one group. */
export function groupsOf(
  palette: readonly PaletteEntry[],
  query: string,
  recent: readonly string[],
): Map<string, PaletteEntry[]> {
  const groups = new Map<string, PaletteEntry[]>();
  if (query.trim()) return groups.set("", searchPalette(palette, query));
  const first = recent.flatMap((kind) => palette.find((entry) => entry.kind === kind) ?? []);
  if (palette.length) groups.set(FIRST, first);
  for (const entry of palette)
    if (!recent.includes(entry.kind)) push(groups, entry.is_common ? FIRST : entry.category, entry);
  return groups;
}

export function Palette({ store, canvas }: { store: Store; canvas: Canvas }) {
  const id = useMemo(() => uid("palette"), []);
  const [root, input] = [useRef<HTMLElement>(null), useRef<HTMLInputElement>(null)];
  const query = useSignal("");
  const at = useSignal(0);
  const isOpen = useSignal(false);
  const isDragging = useSignal(false);
  const {
    snapshot: { palette, version },
    selection,
  } = store;
  const { previews } = canvas;
  const kinds = palette.map(({ kind, problem = "" }) => kind + problem).join();
  /** The recent kinds in the list: it keeps its order while the pointer or the focus is in the palette. */
  const recent = useSignal(store.memory.get("recent", ""));
  const isPointed = useRef(false);
  const groups = useMemo(
    () => groupsOf(palette, query.value, recent.value.split(" ")),
    [kinds, query.value, recent.value],
  );
  const entries = [...groups.values()].flat();
  const current = entries[at.value];
  const isBeside = root.current?.closest("[data-mnb-docked]") != null;
  const after = selection.at(-1);
  useLayoutEffect(() => {
    if (isOpen.value && current) previews.show("add_block", { kind: current.kind, ...(after && { after }) });
    else previews.show();
  }, [isOpen.value, current?.kind, after, version]);
  useLayoutEffect(() => canvas.showPalette(isOpen.value && !isBeside), [isOpen.value, isBeside]);
  useLayoutEffect(() => {
    if (focusedAt(input.current!) !== input.current) return;
    root.current!.querySelector('[aria-selected="true"]')?.scrollIntoView?.({ block: "nearest" });
  }, [groups, at.value, isOpen.value]);
  const open = (): void => void (isOpen.value = true);
  const search = (text: string, index = 0): void => void batch(() => ([query.value, at.value] = [text, index]));
  const add = ({ kind, problem }: PaletteEntry, place?: object) => {
    const others = store.memory
      .get("recent", "")
      .split(" ")
      .filter((other) => other && other !== kind);
    if (!problem) store.memory.set("recent", [kind, ...others].slice(0, MOST_RECENT).join(" "));
    if (!isBeside) isOpen.value = false;
    void store.command(place ? "place_block" : "add_block", { kind, ...place });
  };
  const leave = () => {
    const latest = store.memory.get("recent", "");
    if (isPointed.current || focusedAt(input.current!) === input.current || latest === recent.value) return;
    batch(() => ([recent.value, at.value] = [latest, 0]));
  };
  /** Ask whether to delete a file of *My blocks*. */
  const askToDelete = ({ kind, problem }: PaletteEntry, event: Event) => {
    if (problem === undefined) return;
    handled(event);
    const { left, bottom } = root
      .current!.querySelector(`[data-mnb-palette="${CSS.escape(kind)}"]`)!
      .getBoundingClientRect();
    const actions = [
      { title: `Delete ${kind}`, act: () => void store.command("delete_block", { kind }, `Deleted ${kind}`) },
      { title: "Keep it", act: () => {} },
    ];
    const widget = root.current!.closest<HTMLElement>(".mnb-root")!;
    openMenu(widget, `Delete ${kind}?`, actions, left, bottom, () => input.current!.focus());
  };
  const key = (event: KeyboardEvent) => {
    const wasOpen = isOpen.value;
    if (event.key.startsWith("Arrow")) open();
    if (event.key === "ArrowDown") at.value = Math.min(at.value + 1, entries.length - 1);
    else if (event.key === "ArrowUp") at.value = Math.max(at.value - 1, 0);
    else if (event.key === "Enter") {
      if (current) {
        add(current);
        const all = [...groupsOf(palette, "", recent.value.split(" ")).values()].flat();
        search("", all.indexOf(current)); // for the next search; a second Enter adds the same block again
      }
    } else if (event.key === "Delete" && !query.value && current) return askToDelete(current, event);
    else if (event.key === "Escape" && query.value) search("");
    else if (event.key === "Escape" && wasOpen) isOpen.value = false;
    else return;
    handled(event);
  };
  /** Handle a press: drag a ghost to the canvas if the pointer moves, else add the block. */
  const press = (event: PointerEvent, entry: PaletteEntry) => {
    if (event.button !== 0) return;
    event.preventDefault();
    input.current!.focus({ preventScroll: true });
    const widget = root.current!.closest<HTMLElement>(".mnb-root")!;
    const { kind } = entry;
    const name = nameOf(entry);
    let ghost: ReturnType<typeof mount> | null = null;
    const move = (moved: PointerEvent) => {
      if (!ghost && Math.hypot(moved.clientX - event.clientX, moved.clientY - event.clientY) < 5) return;
      isDragging.value = true;
      if (!ghost) widget.append((ghost = mount(<Ghost name={name} previews={previews} />)).root);
      const [frame, zoom] = [widget.getBoundingClientRect(), zoomOf(widget)];
      const [left, top] = [(moved.clientX - frame.left) / zoom + 8, (moved.clientY - frame.top) / zoom + 8];
      ghost.root.style.transform = `translate(${left}px, ${top}px)`;
      const aim = canvas.aimAt(moved);
      ghost.root.classList.toggle("mnb-ok", aim !== null);
      if (aim) previews.show("place_block", { kind, ...aim.ends });
      else previews.show();
    };
    const done = (ended: PointerEvent, isReleased: boolean) => {
      const aim = ghost && canvas.aimAt(ended);
      canvas.aimAt(null);
      isDragging.value = false;
      previews.show();
      ghost?.root.remove();
      ghost?.destroy();
      if (!isReleased) return;
      if (!ghost) add(entry);
      else if (aim) add(entry, { ...aim.ends, ...aim.place });
    };
    followPointer(event.currentTarget as HTMLElement, event, move, done);
  };
  // The same elements for each snapshot: the palette has two hundred.
  const items = useMemo(
    () =>
      [...groups].map(([group, members]) => [
        group && (
          <div key={group} class="mnb-palette-group" role="presentation">
            {group}
          </div>
        ),
        ...members.map((entry) => {
          const index = entries.indexOf(entry);
          const { kind, category, hue, formula, summary, problem } = entry;
          return (
            <div
              key={`of ${kind}`}
              class={`mnb-palette-item mnb-hue-${hue}`}
              role="option"
              id={`${id}-${index}`}
              aria-selected={index === at.value}
              data-mnb-palette={kind}
              data-mnb-bad={problem || undefined}
              title={[
                `${category}: ${summary}`,
                formula,
                "Click to add after the selected block, or drag to place.",
                problem === undefined ? "" : "Delete deletes the file.",
              ].join("\n")}
              onContextMenu={(event) => askToDelete(entry, event)}
              onPointerDown={(event) => press(event, entry)}
            >
              <Picture family={category} kind={kind} />
              <span class="mnb-palette-kind">{wordsOf(nameOf(entry))}</span>
              {problem && <small>{problem}</small>}
            </div>
          );
        }),
      ]),
    [groups, at.value, isBeside],
  );
  return (
    <section
      class="mnb-palette"
      aria-label="Palette"
      data-mnb-open={isOpen.value ? "" : undefined}
      ref={root}
      onPointerEnter={() => void (isPointed.current = true)}
      onPointerLeave={() => {
        isPointed.current = false;
        leave();
      }}
    >
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
        onBlur={() => {
          isOpen.value = false;
          leave();
        }}
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
        {items}
        {entries.length === 0 && <p class="mnb-hint">{`No block matches “${query.value.trim()}”.`}</p>}
      </div>
      {/* Below the list: in it, it would move the blocks under the pointer. */}
      <div class="mnb-palette-about" hidden={!isOpen.value || !current || isDragging.value}>
        <PreviewLines previews={previews} />
        <div>{current?.summary}</div>
        <i>{current?.formula}</i>
      </div>
    </section>
  );
}

/** The block at the pointer while it is dragged, with what a drop would change. */
function Ghost({ name, previews }: { name: string; previews: Previews }) {
  return (
    <div class="mnb-ghost">
      {name}
      <PreviewLines previews={previews} />
    </div>
  );
}
