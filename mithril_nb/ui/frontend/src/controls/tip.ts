/** The tooltip of a widget: text only, beside the pointer. */

import { h, zoomOf } from "../dom/dom";

export function createTip(widget: HTMLElement) {
  const root = h("div", { class: "mnb-tip", role: "tooltip", hidden: true });
  let timer: ReturnType<typeof setTimeout> | null = null;

  /** Show lines at a point of the window immediately. */
  function show(lines: readonly string[], x: number, y: number, tone: "plain" | "error" = "plain") {
    cancel();
    root.replaceChildren(...lines.map((line, i) => h("div", { class: i === 0 ? "mnb-tip-first" : "" }, line)));
    root.classList.toggle("mnb-tip-error", tone === "error");
    root.hidden = false;
    const zoom = zoomOf(widget);
    const frame = widget.getBoundingClientRect();
    const { offsetWidth, offsetHeight } = root;
    const [at, down] = [(x - frame.left) / zoom, (y - frame.top) / zoom];
    const left = Math.max(4, Math.min(at + 14, frame.width / zoom - offsetWidth - 4));
    const top = down + offsetHeight + 22 > frame.height / zoom ? down - offsetHeight - 10 : down + 18;
    root.style.transform = `translate(${Math.round(left)}px, ${Math.round(Math.max(4, top))}px)`;
  }

  /** Show lines after the pointer has rested for 450 ms. */
  function later(lines: readonly string[], x: number, y: number) {
    cancel();
    if (!root.hidden) root.hidden = true;
    timer = setTimeout(() => show(lines, x, y), 450);
  }

  function hide() {
    cancel();
    root.hidden = true;
  }

  function cancel() {
    if (timer !== null) clearTimeout(timer);
    timer = null;
  }

  return { root, show, later, hide, destroy: hide };
}

export type Tip = ReturnType<typeof createTip>;
