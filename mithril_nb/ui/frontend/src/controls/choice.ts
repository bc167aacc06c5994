/** Groups of buttons: radio buttons, toggle buttons, and removable chips. */

import { attr, h, keyed, text } from "../dom/dom";

export interface Choice<T extends string> {
  value: T;
  title: string;
  hint?: string;
}

/** A radio group with one stop in the tab order. */
export class Radios<T extends string> {
  readonly root: HTMLElement;
  private readonly buttons = new Map<T, HTMLButtonElement>();

  constructor(label: string, action: string, choices: readonly Choice<T>[], picked: (value: T) => void) {
    this.root = h("div", { class: "mnb-toggles", role: "radiogroup", "aria-label": label });
    choices.forEach(({ value, title, hint }, i) => {
      const button = h(
        "button",
        {
          type: "button",
          class: "mnb-toggle",
          role: "radio",
          title: hint,
          "data-mnb-action": `${action}.${value}`,
          onclick: () => picked(value),
        },
        title,
      );
      button.addEventListener("keydown", (event) => {
        const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
        event.preventDefault();
        event.stopPropagation();
        const next = choices[(i + by + choices.length) % choices.length]!.value;
        picked(next);
        this.buttons.get(next)!.focus();
      });
      this.buttons.set(value, button);
      this.root.append(button);
    });
  }

  show(picked: T): void {
    for (const [value, button] of this.buttons) {
      attr(button, "aria-checked", String(value === picked));
      attr(button, "tabindex", value === picked ? 0 : -1);
    }
  }
}

/** A group of toggle buttons; arrow keys move the focus. */
export class Presses<T extends string> {
  readonly root: HTMLElement;
  private readonly buttons = new Map<T, HTMLButtonElement>();

  constructor(label: string, action: string, choices: readonly Choice<T>[], pressed: (value: T) => void) {
    this.root = h("div", { class: "mnb-toggles", role: "group", "aria-label": label });
    for (const { value, title, hint } of choices) {
      const button = h(
        "button",
        {
          type: "button",
          class: "mnb-toggle",
          title: hint,
          "data-mnb-action": `${action}.${value}`,
          onclick: () => pressed(value),
        },
        title,
      );
      this.buttons.set(value, button);
      this.root.append(button);
    }
    this.root.addEventListener("keydown", (event) => {
      const to =
        event.key === "ArrowRight" ? "nextElementSibling" : event.key === "ArrowLeft" ? "previousElementSibling" : null;
      const next = to && (event.target as Element)[to];
      if (!next) return;
      (next as HTMLElement).focus();
      event.preventDefault();
      event.stopPropagation();
    });
  }

  show(pressed: readonly T[], look: (value: T) => { title?: string; disabled?: boolean } = () => ({})): void {
    for (const [value, button] of this.buttons) {
      attr(button, "aria-pressed", String(pressed.includes(value)));
      const { title, disabled = false } = look(value);
      if (title !== undefined) attr(button, "title", title);
      attr(button, "aria-disabled", disabled ? "true" : null);
    }
  }
}

/** Chips that a click removes. The focus moves to the next chip, and after the last one to `home`. */
export class Chips {
  readonly root: HTMLElement;

  constructor(
    label: string,
    private readonly verb: string,
    private readonly remove: (key: string) => void,
    private readonly home: (key: string) => HTMLElement | null,
  ) {
    this.root = h("div", { class: "mnb-toggles", role: "group", "aria-label": label });
  }

  show(chips: readonly { key: string; label: string }[]): void {
    keyed(
      this.root,
      chips,
      ({ key }) => key,
      ({ key }) => h("button", { type: "button", class: "mnb-toggle mnb-removable", onclick: () => this.press(key) }),
      (chip: HTMLElement, { label }) => {
        text(chip, `${label} ✕`);
        attr(chip, "aria-label", `${this.verb} ${label}`);
        attr(chip, "title", label);
      },
    );
    this.root.hidden = chips.length === 0;
  }

  private press(key: string): void {
    const at = [...this.root.children].findIndex((chip) => (chip as any).__mnbKey === key);
    this.remove(key);
    const left = this.root.children;
    ((left[Math.min(at, left.length - 1)] as HTMLElement | undefined) ?? this.home(key))?.focus();
  }
}
