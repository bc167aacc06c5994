/** Shows for 150 ms where lines of one pane are in another pane. Nothing moves if the user prefers reduced motion. */

import { h } from "../dom/dom";

const MS = 150;
/** Number of traces per pane at most; more would only blur. */
const MOST = 6;

/** A rectangle in window coordinates. */
type ScreenBox = Pick<DOMRect, "left" | "top" | "width" | "height">;

/** Merge boxes of adjacent rows, and drop the parts outside of a frame. */
export function merged(boxes: readonly ScreenBox[], frame: ScreenBox): ScreenBox[] {
  const found: { left: number; top: number; width: number; height: number }[] = [];
  const bottom = frame.top + frame.height;
  for (const { top, height } of boxes) {
    const [start, end] = [Math.max(top, frame.top), Math.min(top + height, bottom)];
    if (end <= start) continue;
    const last = found.at(-1);
    if (last && start <= last.top + last.height + 1) last.height = end - last.top;
    else found.push({ left: frame.left, top: start, width: frame.width, height: end - start });
  }
  return found;
}

export function createTraces() {
  const root = h("div", { class: "mnb-traces", "aria-hidden": "true" });

  /** Move a shadow of each box in `from` to the boxes in `to`. */
  function show(from: readonly ScreenBox[], to: readonly ScreenBox[]) {
    if (!from.length || (globalThis.matchMedia?.("(prefers-reduced-motion: reduce)").matches ?? true)) return;
    const frame = root.getBoundingClientRect();
    // In a zoomed widget, lengths on the screen differ from those of styles.
    const zoom = frame.width / root.offsetWidth || 1;
    to.slice(0, MOST).forEach((goal, i) => {
      const source = from[Math.min(i, from.length - 1)]!;
      const trace = h("i", { class: "mnb-trace" });
      Object.assign(trace.style, {
        left: `${(goal.left - frame.left) / zoom}px`,
        top: `${(goal.top - frame.top) / zoom}px`,
        width: `${goal.width / zoom}px`,
        height: `${goal.height / zoom}px`,
      });
      root.append(trace);
      const start =
        `translate(${(source.left - goal.left) / zoom}px, ${(source.top - goal.top) / zoom}px) ` +
        `scale(${source.width / goal.width}, ${source.height / goal.height})`;
      const motion = trace.animate(
        [
          { transform: start, opacity: 0.5 },
          { transform: "none", opacity: 0.25 },
        ],
        { duration: MS, easing: "ease-out" },
      );
      motion.onfinish = motion.oncancel = () => trace.remove();
    });
  }

  return { root, show };
}
