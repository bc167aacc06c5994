/** A button that opens a menu of actions. */

import { attr, h, text } from "../dom/dom";

export interface MenuAction {
  title: string;
  hint?: string;
  act: () => void;
}

export class MenuButton {
  readonly root: HTMLElement;
  private readonly button: HTMLButtonElement;
  private readonly list: HTMLElement;

  constructor(
    private readonly label: string,
    name: string,
    action: string,
    items: readonly MenuAction[],
  ) {
    this.button = h("button", { type: "button", class: "mnb-select", "aria-haspopup": "menu", "aria-expanded": "false", title: name, "data-mnb-action": action, onclick: () => this.show(this.list.hidden === true) }, label);
    this.list = h("div", { class: "mnb-actions", role: "menu", "aria-label": name, hidden: true },
      ...items.map(({ title, hint, act }) => h("div", { class: "mnb-action", role: "menuitem", tabindex: -1, title: hint, onclick: () => this.choose(act) }, title)));
    this.root = h("span", { class: "mnb-menu-button" }, this.button, this.list);
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.root.addEventListener("focusout", (event) => this.root.contains(event.relatedTarget as Node | null) || this.show(false));
  }

  /** Show the name of the running work on the button; "" shows the title again. */
  report(work: string): void {
    text(this.button, work || this.label);
    attr(this.button, "aria-busy", work ? "true" : null);
  }

  private get items(): HTMLElement[] {
    return [...this.list.children] as HTMLElement[];
  }

  private show(isOpen: boolean): void {
    if (this.list.hidden === !isOpen) return;
    this.list.hidden = !isOpen;
    attr(this.button, "aria-expanded", String(isOpen));
    if (!isOpen) return;
    this.list.classList.remove("mnb-left");
    this.list.classList.toggle("mnb-left", this.list.getBoundingClientRect().left < 0);
    this.items[0]?.focus({ preventScroll: true });
  }

  private choose(act: () => void): void {
    this.button.focus({ preventScroll: true });
    this.show(false);
    act();
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { items } = this;
    const at = items.indexOf(event.target as HTMLElement);
    if (this.list.hidden) {
      if (event.key !== "ArrowDown") return;
      this.show(true);
    } else if (event.key === "Escape") {
      this.button.focus({ preventScroll: true });
      this.show(false);
    } else if (event.key === "Enter" || event.key === " ") {
      if (at < 0) return; // the button itself
      items[at]!.click();
    } else {
      const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: -1 }[event.key];
      if (to === undefined) return;
      items.at(to % items.length)!.focus({ preventScroll: true });
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
