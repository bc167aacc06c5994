/**
 * Folds the lines of a saved page's pane: by a click, by keys, by block, and everything outside of the pinned block.
 */

import { type OutlineItem, blockAt, foldRanges, outlineOf, rangesOutside } from "../code/fold-ranges";
import { type CostText, Folds, foldLabel, nameOf } from "../code/folds";
import { attr, h, textButton } from "../dom/dom";
import type { StageText } from "../store/links";

export function createFoldedPane(
  text: StageText,
  title: string,
  costOf: CostText,
  changed: () => void,
  go: (line: number) => void,
  pinned: () => string | null,
) {
  let now: Folds;
  let items: OutlineItem[] | null = null;
  /** The folds while all blocks are shown, if only some are. */
  let all: Folds | null = null;
  const ranges = foldRanges(text);
  now = Folds.NONE.carriedTo(ranges);
  const menu = h("select", {
    "aria-label": `Blocks of ${title}`,
    title: "The block of the first visible line. Choose a block to go to it",
  });
  // A page of many blocks would be slow with all options of all panes.
  for (const type of ["pointerdown", "focus"]) menu.addEventListener(type, fill);
  menu.addEventListener("change", () => {
    const item = items?.[Number(menu.value)];
    if (!item) return;
    set(now.show(item.line));
    go(item.line);
  });
  const only = textButton("only this block", toggleOnly);
  attr(only, "aria-pressed", "false");
  only.title = "Hide the lines of other blocks than the pinned one (b)";
  const root = ranges.length
    ? h(
        "span",
        { class: "folds" },
        menu,
        only,
        textButton("fold", () => set(now.foldAll())),
        textButton("unfold", () => set(now.unfoldAll())),
      )
    : null;

  /** Handle a key at a line; returns whether it did. */
  function key(key: string, line: number) {
    if (key === "Z") set(now.isAllFolded ? now.unfoldAll() : now.foldAll());
    else if (key === "b") toggleOnly();
    else if (key === "z") {
      const range = now.hiddenAt(line) ?? now.around(line).find((one) => !now.folded.has(one));
      if (!range) return false;
      set(now.toggle(range));
    } else return false;
    return true;
  }

  /**
   * Fold or unfold the part that starts at a line, or the part of the line at a character. Returns whether there is
   * one.
   */
  function toggle(line: number, character?: string) {
    const range = now.partAt(line, character);
    if (range) set(now.toggle(range));
    return range !== null;
  }

  /** Return the label of a folded row, or null. */
  function labelOf(line: number) {
    const hidden = now.hiddenAt(line);
    return hidden && foldLabel(hidden, costOf);
  }

  /** Return the pieces of a line with folded arguments; null without any. */
  function piecesOf(line: number, whole: string) {
    const spans = now.spans.filter(({ from }) => from === line);
    if (!spans.length) return null;
    const found: (string | HTMLElement)[] = [];
    let at = 0;
    for (const range of spans) {
      found.push(
        whole.slice(at, range.span![0]),
        h("span", { class: "fold", "data-span": range.span![0] }, foldLabel(range, costOf)),
      );
      at = range.span![1];
    }
    return [...found, whole.slice(at)];
  }

  /** Name the block of the first visible line. */
  function follow(line: number) {
    const found = blockAt(text, line);
    const cost = found && costOf(found.block, found.role);
    const label = found ? `${nameOf(found)}${cost ? `: ${cost}` : ""}` : "Blocks";
    if (menu.options[0]?.value !== "") menu.prepend(h("option", { value: "" }));
    const [first] = menu.options;
    if (first!.textContent !== label) first!.textContent = label;
    menu.value = "";
  }

  function fill() {
    if (items) return;
    items = outlineOf(text);
    menu.append(
      ...items.map(({ path, depth }, i) =>
        h("option", { value: i }, `${"\u00a0\u00a0".repeat(depth)}${path.slice(path.lastIndexOf("/") + 1)}`),
      ),
    );
  }

  function toggleOnly() {
    const block = pinned();
    if (all) [now, all] = [all, null];
    else if (block) {
      const ranges = rangesOutside(text, [block]);
      [all, now] = [now, new Folds(ranges, new Set(ranges))];
    }
    attr(only, "aria-pressed", String(all !== null));
    changed();
  }

  function set(folds: Folds) {
    now = folds;
    changed();
  }

  return {
    get now() {
      return now;
    },
    root,
    key,
    toggle,
    labelOf,
    piecesOf,
    follow,
  };
}
