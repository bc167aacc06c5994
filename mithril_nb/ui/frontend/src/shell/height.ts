/** The height of a widget: its lower edge can be dragged, or moved by keys. */

import { createSplitter, lengthOf } from "../controls/split";
import { attr } from "../dom/dom";
import type { Memory } from "../dom/memory";

const LEAST_PX = 400;
const MOST_PX = 2400;

/** Create the lower edge of a widget. Its style sheet has the default height. */
export function lowerEdge(root: HTMLElement, memory: Memory): HTMLElement {
  const set = (height: number) => root.style.setProperty("--mnb-height", `${Math.round(height)}px`);
  const remembered = memory.get("height", 0);
  if (remembered > 0) set(Math.min(MOST_PX, Math.max(LEAST_PX, remembered)));
  const edge = createSplitter({
    axis: "y",
    label: "Height of the widget",
    min: LEAST_PX,
    max: MOST_PX,
    step: 20,
    get: () => lengthOf(root, "y"),
    set: (height) => {
      set(height);
      memory.set("height", Math.round(height));
    },
  });
  attr(edge.root, "data-mnb-part", "height");
  attr(edge.root, "title", "Drag to change the height");
  return edge.root;
}
