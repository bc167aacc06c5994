/** Dividers that move by dragging or with the arrow keys. */

import { followPointer, handled, hasModifier } from "../dom/events";
import type { Memory } from "../dom/memory";
import { attr, h } from "../dom/dom";

interface SplitOptions {
  /** "x": a vertical bar that moves left and right; "y": a horizontal one. */
  axis: "x" | "y";
  label: string;
  /** Current size of the part before the divider: a share of both parts (0..1), or pixels without `length`. */
  get: () => number;
  set: (size: number) => void;
  /** Length of both parts in px. */
  length?: () => number;
  min?: number;
  max?: number;
  /** Change of an arrow key. */
  step?: number;
}

export function createSplitter(options: SplitOptions) {
  const root = h("div", { role: "separator", tabindex: 0, "aria-label": options.label });
  root.addEventListener("pointerdown", drag);
  root.addEventListener("keydown", key);
  // Its size also changes with the window.
  root.addEventListener("focus", update);
  update();

  /** Change the direction. */
  function turn(axis: "x" | "y") {
    options.axis = axis;
    update();
  }

  function update() {
    const { axis, get, length, min = 0.1, max = 0.9 } = options;
    const unit = length ? 100 : 1; // shares in percent
    attr(root, "class", `mnb-split mnb-split-${axis}`);
    attr(root, "aria-orientation", axis === "x" ? "vertical" : "horizontal");
    attr(root, "aria-valuemin", Math.round(min * unit));
    attr(root, "aria-valuemax", Math.round(max * unit));
    attr(
      root,
      "aria-valuenow",
      Math.min(Math.round(max * unit), Math.max(Math.round(min * unit), Math.round(get() * unit))),
    );
    attr(root, "aria-valuetext", length ? null : `${Math.round(get())} pixels`);
  }

  function move(size: number) {
    const { set, min = 0.1, max = 0.9 } = options;
    set(Math.min(max, Math.max(min, size)));
    update();
  }

  function drag(event: PointerEvent) {
    event.preventDefault();
    root.focus({ preventScroll: true });
    const at = (moved: PointerEvent) => (options.axis === "x" ? moved.clientX : moved.clientY);
    const from = options.get();
    const whole = Math.max(1, options.length?.() ?? 1);
    followPointer(root, event, (moved) => move(from + (at(moved) - at(event)) / whole));
  }

  function key(event: KeyboardEvent) {
    const { get, min = 0.1, max = 0.9, step = 0.02 } = options;
    const direction = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    const to = direction === undefined ? { Home: min, End: max }[event.key] : get() + direction * step;
    if (to === undefined || hasModifier(event)) return;
    handled(event);
    move(to);
  }

  return { root, turn, update };
}

export type Splitter = ReturnType<typeof createSplitter>;

/** Return the length of an element on the screen, like the coordinates of pointer events also in a zoomed widget. */
export function lengthOf(element: HTMLElement, axis: "x" | "y"): number {
  const { width, height } = element.getBoundingClientRect();
  return axis === "x" ? width : height;
}

/**
 * Create a divider that writes the height of the part before it into a CSS variable and remembers it. Heights are
 * pixels, so that added height goes to the part below.
 */
export function divider(
  label: string,
  whole: HTMLElement,
  before: HTMLElement,
  variable: string,
  memory: Memory,
): HTMLElement {
  const set = (pixels: number) => whole.style.setProperty(variable, `${pixels}px`);
  const remembered = memory.get(variable, 0);
  if (remembered > 0) set(remembered);
  return createSplitter({
    axis: "y",
    label,
    min: 0.15,
    max: 0.85,
    length: () => lengthOf(whole, "y"),
    get: () => (lengthOf(whole, "y") ? lengthOf(before, "y") / lengthOf(whole, "y") : 0.4),
    set: (share) => {
      const pixels = Math.round(share * lengthOf(whole, "y"));
      set(pixels);
      memory.set(variable, pixels);
    },
  }).root;
}
