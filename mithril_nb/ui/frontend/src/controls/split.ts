/** Dividers that move by dragging or with the arrow keys. */

import { attr, h } from "../dom/dom";

export interface SplitOptions {
  /** "x": a vertical bar that moves left and right; "y": a horizontal one. */
  axis: "x" | "y";
  label: string;
  /** Current share (0..1) of the part before the divider. */
  get: () => number;
  set: (share: number) => void;
  /** Total length in px of both parts. */
  length: () => number;
  min?: number;
  max?: number;
}

const STEP = 0.02;

export function splitter(options: SplitOptions): HTMLElement {
  const { axis, label, get, set, length, min = 0.1, max = 0.9 } = options;
  const bar = h("div", {
    class: `mnb-split mnb-split-${axis}`, role: "separator", tabindex: 0, "aria-label": label,
    "aria-orientation": axis === "x" ? "vertical" : "horizontal", "aria-valuemin": Math.round(min * 100), "aria-valuemax": Math.round(max * 100),
  });
  const move = (share: number): void => {
    set(Math.min(max, Math.max(min, share)));
    attr(bar, "aria-valuenow", Math.round(get() * 100));
  };
  attr(bar, "aria-valuenow", Math.round(get() * 100));
  bar.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    bar.focus();
    bar.setPointerCapture(event.pointerId);
    const start = axis === "x" ? event.clientX : event.clientY;
    const from = get();
    const whole = Math.max(1, length());
    const drag = (moved: PointerEvent): void => move(from + ((axis === "x" ? moved.clientX : moved.clientY) - start) / whole);
    const done = (): void => {
      bar.removeEventListener("pointermove", drag);
      bar.removeEventListener("pointerup", done);
      bar.removeEventListener("pointercancel", done);
    };
    bar.addEventListener("pointermove", drag);
    bar.addEventListener("pointerup", done);
    bar.addEventListener("pointercancel", done);
  });
  bar.addEventListener("keydown", (event) => {
    const direction = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (direction === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    move(get() + direction * STEP);
  });
  return bar;
}

/**
 * Create a divider that writes the size of the part before it into a CSS variable. Widths are percentages, because the
 * page sets the total width. Heights are pixels, so that added height goes to the part below.
 */
export function divider(axis: "x" | "y", label: string, whole: HTMLElement, before: HTMLElement, variable: string): HTMLElement {
  const size = (element: HTMLElement): number => (axis === "x" ? element.offsetWidth : element.offsetHeight);
  return splitter({ axis, label, min: 0.15, max: 0.85, length: () => size(whole), get: () => (size(whole) ? size(before) / size(whole) : 0.4), set: (share) => whole.style.setProperty(variable, axis === "x" ? `${(share * 100).toFixed(2)}%` : `${Math.round(share * size(whole))}px`) });
}
