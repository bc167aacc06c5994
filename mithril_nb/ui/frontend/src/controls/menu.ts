/** Menus of actions: of a button, and at the pointer. */

import { handled, hasModifier } from "../dom/events";
import { attr, h, text, zoomOf } from "../dom/dom";

export interface MenuAction {
  title: string;
  hint?: string;
  /** The key of the same command, at the right. */
  keys?: string;
  /** Whether a line above begins a section. */
  starts?: boolean;
  act: () => void;
}

/** Create a menu; `leave` is called before an action, and by Escape. */
function listOf(name: string, items: readonly MenuAction[], leave: () => void): HTMLElement {
  const choose = (act: () => void) => {
    leave();
    act();
  };
  return h(
    "div",
    { class: "mnb-actions", role: "menu", "aria-label": name },
    ...items.flatMap(({ title, hint, keys, starts, act }, i) => [
      ...(starts && i ? [h("div", { class: "mnb-action-line", role: "separator" })] : []),
      h(
        "div",
        { class: "mnb-action", role: "menuitem", tabindex: -1, title: hint, onclick: () => choose(act) },
        h("span", {}, title),
        ...(keys ? [h("kbd", {}, keys)] : []),
      ),
    ]),
  );
}

function itemsOf(list: HTMLElement) {
  return [...list.querySelectorAll<HTMLElement>('[role="menuitem"]')];
}

/** Handle a key in an open menu; return whether it had a meaning. */
function press(event: KeyboardEvent, list: HTMLElement, leave: () => void) {
  const items = itemsOf(list);
  const at = items.indexOf(event.target as HTMLElement);
  if (event.key === "Escape") leave();
  else if (event.key === "Enter" || event.key === " ") {
    if (at < 0) return false; // the button itself
    items[at]!.click();
  } else {
    const starts = ({ textContent }: HTMLElement) => textContent!.toLowerCase().startsWith(event.key.toLowerCase());
    const named = /^\p{L}$/u.test(event.key) ? [...items.slice(at + 1), ...items].find(starts) : undefined;
    const to = named
      ? items.indexOf(named)
      : { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key as "Home"];
    if (to === undefined) return false;
    items.at(to % items.length)!.focus({ preventScroll: true });
  }
  return true;
}

/** Open a menu at a point of the window. When it closes, `back` moves the focus to where it was. */
export function openMenu(
  frame: HTMLElement,
  name: string,
  items: readonly MenuAction[],
  x: number,
  y: number,
  back: () => void,
): void {
  let isOpen = true;
  const close = () => {
    if (!isOpen) return;
    isOpen = false; // removing the list blurs it, which closes it again
    list.remove();
  };
  const leave = () => {
    back();
    close();
  };
  const list = listOf(name, items, leave);
  list.classList.add("mnb-popup");
  list.addEventListener("keydown", (event) => {
    if (press(event, list, leave)) handled(event);
  });
  list.addEventListener("contextmenu", (event) => event.preventDefault());
  list.addEventListener("focusout", (event) => list.contains(event.relatedTarget as Node | null) || close());
  frame.append(list);
  const [box, zoom] = [frame.getBoundingClientRect(), zoomOf(frame)];
  const put = (at: number, from: number, room: number, length: number) =>
    `${Math.max(0, Math.min((at - from) / zoom, room / zoom - length))}px`;
  list.style.left = put(x, box.left, box.width, list.offsetWidth);
  list.style.top = put(y, box.top, box.height, list.offsetHeight);
  itemsOf(list)[0]?.focus({ preventScroll: true });
}

export function createMenuButton(label: string, name: string, action: string, items: readonly MenuAction[]) {
  const button = h(
    "button",
    {
      type: "button",
      class: "mnb-select",
      "aria-haspopup": "menu",
      "aria-expanded": "false",
      title: name,
      "data-mnb-action": action,
      onclick: () => show(list.hidden === true),
    },
    label,
  );
  const list = listOf(name, items, leave);
  list.hidden = true;
  const root = h("span", { class: "mnb-menu-button" }, button, list);
  root.addEventListener("keydown", key);
  root.addEventListener("focusout", (event) => root.contains(event.relatedTarget as Node | null) || show(false));

  /** Show the name of the running work on the button; "" shows the title again. */
  function report(work: string) {
    text(button, work || label);
    attr(button, "aria-busy", work ? "true" : null);
  }

  function show(isOpen: boolean) {
    if (list.hidden === !isOpen) return;
    list.hidden = !isOpen;
    attr(button, "aria-expanded", String(isOpen));
    if (!isOpen) return;
    list.classList.remove("mnb-left");
    list.classList.toggle("mnb-left", list.getBoundingClientRect().left < 0);
    itemsOf(list)[0]?.focus({ preventScroll: true });
  }

  function leave() {
    button.focus({ preventScroll: true });
    show(false);
  }

  function key(event: KeyboardEvent) {
    if (hasModifier(event)) return;
    if (list.hidden) {
      if (event.key !== "ArrowDown") return;
      show(true);
    } else if (!press(event, list, leave)) return;
    handled(event);
  }

  return { root, report };
}
