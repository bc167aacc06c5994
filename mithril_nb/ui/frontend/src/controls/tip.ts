/** The tooltip of a widget: text only, beside the pointer. */

import { h, zoomOf } from "../dom/dom";

export class Tip {
  readonly root = h("div", { class: "mnb-tip", role: "tooltip", hidden: true });
  private timer: ReturnType<typeof setTimeout> | null = null;

  constructor(private readonly frame: HTMLElement) {}

  /** Show lines at a point of the window immediately. */
  show(lines: readonly string[], x: number, y: number, tone: "plain" | "error" = "plain"): void {
    this.cancel();
    this.root.replaceChildren(...lines.map((line, i) => h("div", { class: i === 0 ? "mnb-tip-first" : "" }, line)));
    this.root.classList.toggle("mnb-tip-error", tone === "error");
    this.root.hidden = false;
    const zoom = zoomOf(this.frame);
    const frame = this.frame.getBoundingClientRect();
    const { offsetWidth, offsetHeight } = this.root;
    const [at, down] = [(x - frame.left) / zoom, (y - frame.top) / zoom];
    const left = Math.max(4, Math.min(at + 14, frame.width / zoom - offsetWidth - 4));
    const top = down + offsetHeight + 22 > frame.height / zoom ? down - offsetHeight - 10 : down + 18;
    this.root.style.transform = `translate(${Math.round(left)}px, ${Math.round(Math.max(4, top))}px)`;
  }

  /** Show lines after the pointer has rested for 450 ms. */
  later(lines: readonly string[], x: number, y: number): void {
    this.cancel();
    if (!this.root.hidden) this.root.hidden = true;
    this.timer = setTimeout(() => this.show(lines, x, y), 450);
  }

  hide(): void {
    this.cancel();
    this.root.hidden = true;
  }

  private cancel(): void {
    if (this.timer !== null) clearTimeout(this.timer);
    this.timer = null;
  }
}
