/** A row of toggle buttons. Buttons without room move into a list that a button at the end opens. */

import { watchSize } from "../dom/events";
import { attr, focusedAt, h } from "../dom/dom";

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

export function createOverflowRow(label: string, action: string) {
  const press = (event: Event): void => void (event.composedPath().includes(menu) || open(false));
  let allButtons: HTMLElement[] = [];
  const row = h("div", { class: "mnb-toggles", role: "group", "aria-label": label });
  const list = h("div", {
    class: "mnb-actions mnb-overflow",
    role: "group",
    "aria-label": `More: ${label}`,
    hidden: true,
  });
  const more = h(
    "button",
    {
      type: "button",
      class: "mnb-toggle",
      "aria-expanded": "false",
      title: "Show the other buttons",
      "data-mnb-action": action,
      onclick: () => open(list.hidden === true),
    },
    "More",
  );
  const menu = h("span", { class: "mnb-menu-button", hidden: true }, more, list);
  const root = h("div", { class: "mnb-overflow-row" }, row, menu);
  menu.addEventListener(
    "focusout",
    (event) => event.relatedTarget && !menu.contains(event.relatedTarget as Node) && open(false),
  );
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || list.hidden) return;
    event.stopPropagation();
    more.focus();
    open(false);
  });
  const unwatch = watchSize(root, fit);

  function destroy() {
    open(false);
    unwatch();
  }

  /** Replace the buttons. */
  function set(buttons: HTMLElement[]) {
    open(false);
    allButtons = buttons;
    list.replaceChildren();
    row.replaceChildren(...buttons);
    fit();
  }

  /** Move the focus to a button; if it is in the closed list, to the button that opens it. */
  function focus(button: HTMLElement | undefined) {
    if (button && list.contains(button) && list.hidden) more.focus({ preventScroll: true });
    else button?.focus({ preventScroll: true });
  }

  function open(isOpen: boolean) {
    list.hidden = !isOpen;
    attr(more, "aria-expanded", String(isOpen));
    // A press on something that takes no focus closes the list, too.
    document[isOpen ? "addEventListener" : "removeEventListener"]("pointerdown", press, true);
  }

  function fit() {
    const room = root.clientWidth;
    if (!room) return; // hidden
    const buttons = allButtons;
    const wraps = getComputedStyle(row).flexWrap === "wrap";
    const activeElement = focusedAt(root);
    menu.hidden = wraps;
    row.append(...list.children); // buttons in the closed list have no width
    const width = (element: HTMLElement) =>
      element.offsetWidth + (parseFloat(getComputedStyle(element).marginLeft) || 0);
    const pressed = buttons.map((one) => one.getAttribute("aria-pressed") === "true");
    const away = wraps ? new Set<number>() : withoutRoom(buttons.map(width), pressed, room, width(more) + GAP);
    const kept = buttons.filter((_, at) => !away.has(at));
    // Moving an element drops its focus, so move only those that are not in their place.
    kept.forEach((button, at) => row.children[at] !== button && row.insertBefore(button, row.children[at] ?? null));
    list.append(...buttons.filter((_, at) => away.has(at)));
    menu.hidden = away.size === 0;
    const focused = buttons.find((button) => button === activeElement);
    if (!away.size || (focused && row.contains(focused))) open(false);
    focus(focused);
  }

  return { root, set, focus, destroy };
}
