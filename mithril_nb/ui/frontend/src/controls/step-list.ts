/** A list of steps in order. Arrow keys move through it, and each selected step is shown. */

import { attr, h, keyed, text, uid } from "../dom/dom";

/** Number of steps that PageUp and PageDown move. */
const PAGE = 8;

export interface Step {
  name: string;
  /** Text of the two further columns. */
  columns: [where: string, size: string];
  title: string;
  /** Length of the bar, 0 to 1. */
  share: number;
}

export class StepList {
  readonly root: HTMLElement;
  at = -1;
  private readonly id = uid("step");

  constructor(
    label: string,
    private readonly shown: (number: number) => void,
  ) {
    this.root = h("div", { class: "mnb-pass-list", role: "listbox", "aria-label": label, tabindex: 0 });
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.root.addEventListener("click", (event) => {
      const row = (event.target as Element).closest<HTMLElement>("[data-mnb-pass]");
      if (row) this.select(Number(row.dataset["mnbPass"]));
    });
  }

  fill(steps: readonly Step[]): void {
    keyed(
      this.root,
      steps.map((step, number) => ({ ...step, number })),
      ({ number }) => String(number),
      ({ number }) => this.row(number),
      (element: HTMLElement, { number, name, columns, title, share }) => {
        [String(number + 1), name, ...columns].forEach((value, i) => text(element.children[i]!, value));
        attr(element, "title", title);
        (element.children[4] as HTMLElement).style.width = `${100 * share}%`;
      },
    );
  }

  /** Show only some steps. The selected step stays selected while it is hidden. */
  filter(isShown: (number: number) => boolean): void {
    [...this.root.children].forEach((row, number) => ((row as HTMLElement).hidden = !isShown(number)));
    if (this.at >= 0) this.mark(this.at);
  }

  select(number: number): void {
    if (!(number in this.root.children)) return;
    this.mark(number);
    this.shown(number);
  }

  /** Mark the step that is shown. */
  mark(number: number): void {
    this.at = number;
    for (const element of this.root.children)
      attr(element, "aria-selected", String((element as HTMLElement).dataset["mnbPass"] === String(number)));
    const option = this.root.children[number] as HTMLElement;
    attr(this.root, "aria-activedescendant", option.hidden ? null : option.id);
    if (option.hidden) return;
    const [top, bottom] = [option.offsetTop, option.offsetTop + option.offsetHeight];
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    else if (bottom > this.root.scrollTop + this.root.clientHeight)
      this.root.scrollTop = bottom - this.root.clientHeight;
  }

  private row(number: number): HTMLElement {
    return h(
      "div",
      {
        class: "mnb-pass",
        role: "option",
        id: `${this.id}-${number}`,
        "data-mnb-pass": number,
        "aria-selected": "false",
      },
      h("span", { class: "mnb-pass-number" }),
      h("span", { class: "mnb-pass-name" }),
      h("span", { class: "mnb-pass-pipeline" }),
      h("span", { class: "mnb-pass-size" }),
      h("i", { class: "mnb-pass-bar" }),
    );
  }

  private key(event: KeyboardEvent): void {
    const shown = [...this.root.children].flatMap((row, number) => ((row as HTMLElement).hidden ? [] : [number]));
    const below = shown.findIndex((number) => number >= this.at);
    const at = below < 0 ? shown.length : below;
    const to = {
      ArrowDown: shown[at] === this.at ? at + 1 : at,
      ArrowUp: at - 1,
      PageDown: at + PAGE,
      PageUp: at - PAGE,
      Home: 0,
      End: shown.length - 1,
    }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    const number = shown[Math.max(0, Math.min(to, shown.length - 1))];
    if (number !== undefined) this.select(number);
    event.preventDefault();
    event.stopPropagation();
  }
}
