/** A row of toggle buttons. Buttons without room move into a list that a button at the end opens. */

import { attr, h } from "../dom/dom";

/** Gap between the row and the button at its end, in px. */
const GAP = 4;

/**
 * Return which buttons move into the list, so that the other buttons and the button "More" fit: the last ones first,
 * pressed buttons only if no other buttons are left.
 *
 * @param widths Width of each button in px, with its gap.
 * @param room Width of the row in px.
 * @param more Width of the button that opens the list.
 */
export function withoutRoom(
  widths: readonly number[],
  pressed: readonly boolean[],
  room: number,
  more: number,
): Set<number> {
  const away = new Set<number>();
  let used = widths.reduce((sum, width) => sum + width, 0);
  if (used <= room) return away;
  used += more;
  const last = widths.map((_, at) => widths.length - 1 - at);
  for (const at of [...last.filter((at) => !pressed[at]), ...last.filter((at) => pressed[at])]) {
    if (used <= room) break;
    away.add(at);
    used -= widths[at]!;
  }
  return away;
}

export class OverflowRow {
  readonly root: HTMLElement;
  private readonly row: HTMLElement;
  private readonly menu: HTMLElement;
  private readonly more: HTMLButtonElement;
  private readonly list: HTMLElement;
  private readonly watcher: ResizeObserver | null;
  private readonly press = (event: Event): void => void (event.composedPath().includes(this.menu) || this.open(false));
  private buttons: HTMLElement[] = [];

  constructor(label: string, action: string) {
    this.row = h("div", { class: "mnb-toggles", role: "group", "aria-label": label });
    this.list = h("div", {
      class: "mnb-actions mnb-overflow",
      role: "group",
      "aria-label": `More: ${label}`,
      hidden: true,
    });
    this.more = h(
      "button",
      {
        type: "button",
        class: "mnb-toggle",
        "aria-expanded": "false",
        title: "Show the other buttons",
        "data-mnb-action": action,
        onclick: () => this.open(this.list.hidden === true),
      },
      "More",
    );
    this.menu = h("span", { class: "mnb-menu-button", hidden: true }, this.more, this.list);
    this.root = h("div", { class: "mnb-overflow-row" }, this.row, this.menu);
    this.menu.addEventListener(
      "focusout",
      (event) => event.relatedTarget && !this.menu.contains(event.relatedTarget as Node) && this.open(false),
    );
    this.menu.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || this.list.hidden) return;
      event.stopPropagation();
      this.more.focus();
      this.open(false);
    });
    this.watcher = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(() => this.fit());
    this.watcher?.observe(this.root);
  }

  destroy(): void {
    this.open(false);
    this.watcher?.disconnect();
  }

  /** Replace the buttons. */
  set(buttons: HTMLElement[]): void {
    this.open(false);
    this.buttons = buttons;
    this.list.replaceChildren();
    this.row.replaceChildren(...buttons);
    this.fit();
  }

  /** Move the focus to a button; if it is in the closed list, to the button that opens it. */
  focus(button: HTMLElement | undefined): void {
    if (button && this.list.contains(button) && this.list.hidden) this.more.focus({ preventScroll: true });
    else button?.focus({ preventScroll: true });
  }

  private open(isOpen: boolean): void {
    this.list.hidden = !isOpen;
    attr(this.more, "aria-expanded", String(isOpen));
    // A press on something that takes no focus closes the list, too.
    document[isOpen ? "addEventListener" : "removeEventListener"]("pointerdown", this.press, true);
  }

  private fit(): void {
    const room = this.root.clientWidth;
    if (!room) return; // hidden
    const { row, list, menu, buttons } = this;
    const wraps = getComputedStyle(row).flexWrap === "wrap";
    const { activeElement } = this.root.getRootNode() as Document | ShadowRoot;
    menu.hidden = wraps;
    row.append(...list.children); // buttons in the closed list have no width
    const width = (element: HTMLElement): number =>
      element.offsetWidth + (parseFloat(getComputedStyle(element).marginLeft) || 0);
    const pressed = buttons.map((one) => one.getAttribute("aria-pressed") === "true");
    const away = wraps ? new Set<number>() : withoutRoom(buttons.map(width), pressed, room, width(this.more) + GAP);
    const kept = buttons.filter((_, at) => !away.has(at));
    // Moving an element drops its focus, so move only those that are not in their place.
    kept.forEach((button, at) => row.children[at] !== button && row.insertBefore(button, row.children[at] ?? null));
    list.append(...buttons.filter((_, at) => away.has(at)));
    menu.hidden = away.size === 0;
    const focused = buttons.find((button) => button === activeElement);
    if (!away.size || (focused && row.contains(focused))) this.open(false);
    this.focus(focused);
  }
}
