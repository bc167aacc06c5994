/** A search for a kind of block at a point of the canvas: to end a wire, to insert into an edge, to replace a block. */

import { batch, type ReadonlySignal, useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo } from "preact/hooks";
import { Options } from "../controls/options";
import { handled } from "../dom/events";
import { uid, zoomOf } from "../dom/dom";
import { mount } from "../dom/view";
import type { PaletteEntry } from "../kernel/contract";
import { nameOf, searchPalette } from "./palette";
import { PreviewLines, type Previews } from "./preview";

export type Fits = ReadonlySignal<Readonly<Record<string, string>> | null>;

interface BlockSearchProps {
  title: string;
  palette: readonly PaletteEntry[];
  /** The output shapes of the blocks that fit, once they are known. */
  fits: Fits;
  take: (kind: string) => void;
  previews: Previews;
  /** Show what a kind would change. */
  preview: (kind: string) => void;
  /** `byKey` is false if the focus has left already. */
  close: (byKey: boolean) => void;
}

function BlockSearch({ title, palette, fits, take, previews, preview, close }: BlockSearchProps) {
  const id = useMemo(() => uid("kinds"), []);
  const query = useSignal("");
  const at = useSignal(0);
  const shapes = fits.value;
  const isFit = ({ kind }: PaletteEntry) => !shapes || kind in shapes;
  const matches = searchPalette(palette, query.value);
  const entries = [...matches.filter(isFit), ...matches.filter((entry) => !isFit(entry))];
  const kind = entries[at.value]?.kind;
  useLayoutEffect(() => void (kind && preview(kind)), [kind]);
  const pick = (index: number) => entries[index] && take(entries[index].kind);
  const press = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") at.value = Math.min(at.value + 1, entries.length - 1);
    else if (event.key === "ArrowUp") at.value = Math.max(at.value - 1, 0);
    else if (event.key === "Enter") pick(at.value);
    else if (event.key === "Escape") close(true);
    else return;
    handled(event);
  };
  return (
    <div class="mnb-menu mnb-block-search">
      <div class="mnb-menu-title">{title}</div>
      <input
        type="search"
        class="mnb-input"
        aria-label={title}
        role="combobox"
        list={undefined}
        aria-expanded="true"
        aria-controls={id}
        aria-activedescendant={entries.length ? `${id}-${at.value}` : undefined}
        autocomplete="off"
        spellcheck={false}
        placeholder="Search blocks"
        data-mnb-action="blocks.search"
        onInput={({ currentTarget }) => batch(() => ([query.value, at.value] = [currentTarget.value, 0]))}
        onKeyDown={press}
        onBlur={() => close(false)}
      />
      <Options
        id={id}
        label="Blocks"
        options={entries.map((entry) => {
          const { kind, summary, formula } = entry;
          return {
            label: nameOf(entry),
            title: summary,
            detail: isFit(entry) ? shapes?.[kind] || formula : "does not fit",
          };
        })}
        at={at.value}
        pick={pick}
      />
      <PreviewLines previews={previews} />
      {!entries.length && <p>{`No block matches “${query.value.trim()}”.`}</p>}
    </div>
  );
}

/** Open the search in a frame at a point of the window. `closed` is called once; `byKey` is false if the focus left. */
export function openBlockSearch(
  frame: HTMLElement,
  title: string,
  palette: readonly PaletteEntry[],
  fits: Fits,
  [x, y]: readonly [number, number],
  take: (kind: string) => void,
  previews: Previews,
  preview: (kind: string) => void,
  closed: (byKey: boolean) => void,
): () => void {
  let isOpen = true;
  const close = (byKey: boolean) => {
    if (!isOpen) return;
    isOpen = false; // removing the field blurs it, which closes it again
    root.remove();
    destroy();
    previews.show();
    closed(byKey);
  };
  const chosen = (kind: string) => {
    close(true);
    take(kind);
  };
  const { root, destroy } = mount(
    <BlockSearch {...{ title, palette, fits, take: chosen, previews, preview, close }} />,
  );
  frame.append(root);
  const [box, zoom] = [frame.getBoundingClientRect(), zoomOf(frame)];
  const put = (at: number, from: number, room: number, length: number) =>
    `${Math.max(4, Math.min((at - from) / zoom, room / zoom - length - 4))}px`;
  root.style.left = put(x, box.left, box.width, root.offsetWidth);
  root.style.top = put(y, box.top, box.height, root.offsetHeight);
  root.querySelector("input")!.focus({ preventScroll: true });
  return () => close(false);
}
