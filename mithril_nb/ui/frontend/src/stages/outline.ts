/** The outline of a pane: a menu of its blocks, filtered by typing. */

import type { OutlineItem } from "../code/fold-ranges";
import { h, uid } from "../dom/dom";

/** Number of rows drawn at most; typing finds the others. */
const MOST_ROWS = 500;

export class Outline {
  readonly root = h("div", { class: "mnb-menu mnb-outline", hidden: true });
  private readonly id = uid("outline");
  private readonly input: HTMLInputElement;
  private readonly list: HTMLElement;
  private readonly note = h("p", { class: "mnb-outline-note", role: "status" });
  private items: readonly OutlineItem[] = [];
  private found: OutlineItem[] = [];
  private at = 0;

  /** `detailOf` returns the right column of a row, `classOf` the class of its swatch; `closed` takes the focus back. */
  constructor(
    label: string,
    private readonly detailOf: (item: OutlineItem) => string,
    private readonly classOf: (path: string) => string,
    private readonly chosen: (item: OutlineItem) => void,
    private readonly closed: (byKey: boolean) => void,
  ) {
    this.list = h("div", { class: "mnb-options", role: "listbox", id: this.id, "aria-label": label });
    this.input = h("input", {
      class: "mnb-input",
      type: "text",
      role: "combobox",
      placeholder: "Filter blocks",
      "aria-label": `Filter: ${label}`,
      "aria-controls": this.id,
      "aria-expanded": "true",
      "aria-autocomplete": "list",
      autocomplete: "off",
      spellcheck: "false",
      "data-mnb-action": `${this.id}.filter`,
    });
    this.root.append(this.input, this.note, this.list);
    this.input.addEventListener("input", () => this.filter());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("blur", () => this.close(false));
    // The focus stays in the box.
    this.list.addEventListener("pointerdown", (event) => event.preventDefault());
    this.list.addEventListener("click", (event) => {
      const row = (event.target as Element).closest<HTMLElement>("[data-mnb-item]");
      if (row) this.choose(Number(row.dataset["mnbItem"]));
    });
  }

  get isOpen(): boolean {
    return !this.root.hidden;
  }

  /** Open with the block `here` marked. */
  open(items: readonly OutlineItem[], here: string): void {
    this.items = items;
    this.input.value = "";
    this.root.hidden = false;
    this.filter();
    this.at = Math.max(
      0,
      this.found.findIndex(({ path }) => path === here),
    );
    this.paint();
    this.input.focus({ preventScroll: true });
  }

  close(byKey: boolean): void {
    if (!this.isOpen) return;
    this.root.hidden = true;
    this.closed(byKey);
  }

  private filter(): void {
    const query = this.input.value.trim().toLowerCase();
    const all = this.items.filter(({ path }) => path.toLowerCase().includes(query));
    this.found = all.slice(0, MOST_ROWS);
    this.at = 0;
    this.note.textContent =
      all.length === 0
        ? "No block matches"
        : all.length > MOST_ROWS
          ? `The first ${MOST_ROWS} of ${all.length.toLocaleString("en-US")} blocks`
          : "";
    this.note.hidden = this.note.textContent === "";
    this.list.replaceChildren(
      ...this.found.map((item, i) => {
        // A filtered list shows full paths, because outer groups may be missing.
        const name = query ? item.path : item.path.slice(item.path.lastIndexOf("/") + 1);
        const row = h(
          "div",
          { class: "mnb-option", role: "option", id: `${this.id}-${i}`, "data-mnb-item": i, title: item.path },
          h("span", {}, h("i", { class: `mnb-swatch ${this.classOf(item.path)}` }), name),
          h("small", {}, this.detailOf(item)),
        );
        if (!query) row.style.paddingLeft = `${8 + 12 * item.depth}px`;
        return row;
      }),
    );
    this.paint();
  }

  private choose(at: number): void {
    const item = this.found[at];
    if (!item) return;
    this.close(true);
    this.chosen(item);
  }

  private paint(): void {
    [...this.list.children].forEach((row, i) => row.setAttribute("aria-selected", String(i === this.at)));
    const row = this.list.children[this.at];
    if (row) this.input.setAttribute("aria-activedescendant", row.id);
    else this.input.removeAttribute("aria-activedescendant");
    row?.scrollIntoView?.({ block: "nearest" });
  }

  private key(event: KeyboardEvent): void {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (by !== undefined) this.at = Math.max(0, Math.min(this.at + by, this.found.length - 1));
    else if (event.key === "Enter") this.choose(this.at);
    else if (event.key === "Escape") this.close(true);
    else return;
    event.preventDefault();
    event.stopPropagation();
    if (this.isOpen) this.paint();
  }
}
