/**
 * The palette of blocks: search, Enter to add after the selected block, or drag to place. Its list opens with the
 * focus.
 */

import { attr, h, text, uid } from "../dom/dom";
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

export class Palette {
  readonly root: HTMLElement;
  readonly input: HTMLInputElement;
  private readonly id = uid("palette");
  // Browsers let Tab enter a list that scrolls, but this one closes when the box loses the focus.
  private readonly list = h("div", {
    class: "mnb-palette-list",
    role: "listbox",
    id: this.id,
    "aria-label": "Blocks",
    tabindex: -1,
  });
  private items: PaletteEntry[] = [];
  private at = 0;
  private drawn = "";
  readonly destroy: () => void;

  constructor(
    private readonly store: Store,
    private readonly canvas: Canvas,
  ) {
    this.input = h("input", {
      type: "search",
      class: "mnb-input mnb-palette-search",
      placeholder: "Add a block…",
      "aria-label": "Search blocks. Enter adds a block after the selected one.",
      role: "combobox",
      "aria-expanded": "false",
      "aria-controls": this.id,
      autocomplete: "off",
      spellcheck: "false",
      "data-mnb-action": "palette.search",
    });
    this.input.addEventListener("input", () => {
      this.at = 0;
      this.update();
    });
    this.input.addEventListener("keydown", (event) => this.key(event));
    for (const type of ["focus", "click", "input"]) this.input.addEventListener(type, () => this.open(true));
    this.input.addEventListener("blur", () => this.open(false));
    // A press on the scrollbar of the list must not close it.
    this.list.addEventListener("mousedown", (event) => event.preventDefault());
    this.root = h("section", { class: "mnb-palette", "aria-label": "Palette" }, this.input, this.list);
    this.destroy = store.on("snapshot", () => this.update());
    this.update();
  }

  /** Open or close the list. In wide widgets it is always visible. */
  private open(isOpen: boolean): void {
    attr(this.root, "data-mnb-open", isOpen);
    const isBeside = this.root.closest('[data-mnb-room="wide"]') !== null;
    attr(this.input, "aria-expanded", String(isOpen || isBeside));
    this.canvas.showPalette(isOpen && !isBeside);
    if (isOpen) this.paintActive();
  }

  private key(event: KeyboardEvent): void {
    const wasOpen = this.root.hasAttribute("data-mnb-open");
    if (event.key.startsWith("Arrow")) this.open(true);
    if (event.key === "ArrowDown") this.at = Math.min(this.at + 1, this.items.length - 1);
    else if (event.key === "ArrowUp") this.at = Math.max(this.at - 1, 0);
    else if (event.key === "Enter") {
      const item = this.items[this.at];
      if (item) {
        this.add(item);
        // Clear the query for the next search; a second Enter adds the same block again.
        this.input.value = "";
        this.update();
        this.at = this.items.indexOf(item);
      }
    } else if (event.key === "Escape" && this.input.value) {
      this.input.value = "";
      this.at = 0;
      this.update();
    } else if (event.key === "Escape" && wasOpen) this.open(false);
    else return;
    event.preventDefault();
    event.stopPropagation();
    this.paintActive();
  }

  private add(item: PaletteEntry, place?: { x: number; y: number }): void {
    this.store.command("add_block", { kind: item.kind, ...place });
  }

  private update(): void {
    const { palette } = this.store.snapshot;
    const key = `${this.input.value}\n${palette.map((item) => item.kind).join()}`;
    if (key === this.drawn) return;
    this.drawn = key;
    const searching = this.input.value.trim() !== "";
    const found = searchPalette(palette, this.input.value);
    const groups = new Map<string, PaletteEntry[]>();
    for (const item of found) {
      const group = searching ? "" : item.category;
      groups.set(group, [...(groups.get(group) ?? []), item]);
    }
    this.items = [...groups.values()].flat();
    const parts: Element[] = [];
    for (const [group, members] of groups) {
      if (group) parts.push(h("div", { class: "mnb-palette-group", role: "presentation" }, group));
      for (const item of members) parts.push(this.option(item));
    }
    if (found.length === 0) parts.push(h("p", { class: "mnb-hint" }, `No block matches “${this.input.value.trim()}”.`));
    this.list.replaceChildren(...parts);
    this.paintActive();
  }

  private option(item: PaletteEntry): HTMLElement {
    const index = this.items.indexOf(item);
    const option = h(
      "div",
      {
        class: "mnb-palette-item",
        role: "option",
        id: `${this.id}-${index}`,
        "data-mnb-palette": item.kind,
        title: `${item.summary}\n${item.formula}\nClick to add after the selected block, or drag to place.`,
      },
      h("span", { class: "mnb-palette-kind" }, item.kind),
      h("span", { class: "mnb-palette-formula" }, item.formula),
      h("span", { class: "mnb-palette-summary" }, item.summary),
    );
    option.addEventListener("pointerdown", (event) => this.press(event, option, item));
    return option;
  }

  /** Handle a press: drag a ghost to the canvas if the pointer moves, else add the block. */
  private press(event: PointerEvent, option: HTMLElement, item: PaletteEntry): void {
    if (event.button !== 0) return;
    event.preventDefault();
    this.input.focus({ preventScroll: true });
    option.setPointerCapture(event.pointerId);
    let ghost: HTMLElement | null = null;
    const move = (moved: PointerEvent): void => {
      if (!ghost && Math.hypot(moved.clientX - event.clientX, moved.clientY - event.clientY) < 5) return;
      if (!ghost) {
        ghost = h("div", { class: "mnb-ghost" });
        text(ghost, item.kind);
        this.root.closest(".mnb-root")!.append(ghost);
      }
      const frame = this.root.closest(".mnb-root")!.getBoundingClientRect();
      ghost.style.transform = `translate(${moved.clientX - frame.left + 8}px, ${moved.clientY - frame.top + 8}px)`;
      ghost.classList.toggle("mnb-ok", this.canvas.contains(moved.clientX, moved.clientY));
    };
    const done = (ended: PointerEvent): void => {
      option.removeEventListener("pointermove", move);
      option.removeEventListener("pointerup", done);
      option.removeEventListener("pointercancel", done);
      const dragged = ghost !== null;
      ghost?.remove();
      if (ended.type !== "pointerup") return;
      if (!dragged) this.add(item);
      else if (this.canvas.contains(ended.clientX, ended.clientY)) {
        const { x, y } = this.canvas.toScene(ended.clientX, ended.clientY);
        this.add(item, { x: Math.round(x), y: Math.round(y) });
      }
    };
    option.addEventListener("pointermove", move);
    option.addEventListener("pointerup", done);
    option.addEventListener("pointercancel", done);
  }

  private paintActive(): void {
    this.list.querySelectorAll(".mnb-palette-item").forEach((element) => {
      const active = element.id === `${this.id}-${this.at}`;
      attr(element, "aria-selected", String(active));
      if (active && this.input === (this.root.getRootNode() as Document | ShadowRoot).activeElement)
        (element as HTMLElement).scrollIntoView?.({ block: "nearest" });
    });
    attr(this.input, "aria-activedescendant", this.items.length ? `${this.id}-${this.at}` : null);
  }
}
