/** A card that lists all keyboard shortcuts. */

import { h, iconButton } from "../dom/dom";

export type Keys = [string, [string, string][]][];

/** Shortcuts shared by the workbench and the explorer. */
export const SHARED_KEYS: Keys = [
  [
    "Code",
    [
      ["↑ ↓", "move the caret"],
      ["Enter", "pin the line; on a folded row: unfold"],
      ["Shift click", "add to the pins"],
      ["[ ]", "previous, next linked line"],
      ["Alt ↑ ↓", "to the linked line one stage up or down"],
      ["z", "fold the block of the line, unfold a folded row"],
      ["Shift z", "fold all, unfold all"],
      ["b", "only the selected block, all blocks"],
      ["o", "outline: list the blocks"],
    ],
  ],
  [
    "Cost",
    [
      ["↑ ↓", "previous, next block"],
      ["→ ←", "open, close its equations"],
      ["Enter", "select"],
      ["← →", "on the bar: previous, next choice"],
    ],
  ],
  [
    "Passes, transforms",
    [
      ["↑ ↓", "previous, next step"],
      ["Enter", "in the search of passes: next match"],
      ["Shift Enter", "previous match"],
    ],
  ],
];
const KEYS: Keys = [
  [
    "Everywhere",
    [
      ["Ctrl Z", "undo"],
      ["Ctrl Shift Z", "redo"],
      ["Ctrl A", "select all blocks; in code: its text"],
      ["Esc", "leave full screen; clear the selection"],
      ["Space", "in the Train tab: run, pause or resume"],
    ],
  ],
  [
    "Graph and stages",
    [
      ["?", "show this card"],
      ["F or /", "search; Enter, Shift Enter: next, previous match"],
    ],
  ],
  [
    "Layout",
    [
      ["1 … 5", "Build, Read, Cost, Train, Lecture"],
      ["E", "show the part with the focus in full screen, and back"],
      ["I", "show or hide the inspector"],
      ["← → ↑ ↓", "on a divider or the lower edge: move it"],
    ],
  ],
  [
    "Graph",
    [
      ["n", "new block: its kind; Enter adds it after the selected block"],
      ["↑ ↓", "previous, next block"],
      ["→ ←", "open or enter, close or leave a group"],
      ["Shift → ←", "along an edge, forward or back; Shift ↑ ↓: other edge"],
      ["+ − 0", "zoom in, zoom out, show all"],
      ["Enter", "select; on a selected group: open"],
      ["Shift Enter", "add to the selection"],
      ["a d", "ancestors, descendants of the block"],
      ["p", "path between the two selected blocks"],
      ["t", "to its row in the table of costs"],
      ["Alt Shift ← → ↑ ↓", "move the block"],
      ["c", "connect to…"],
      ["F2", "rename"],
      ["Delete", "remove block or edge"],
    ],
  ],
  ...SHARED_KEYS,
];

export class Help {
  readonly root: HTMLElement;
  private back: HTMLElement | null = null;

  constructor(keys: Keys = KEYS) {
    const close = iconButton("close", "Close", "help.close", () => this.hide());
    this.root = h(
      "div",
      { class: "mnb-help", role: "dialog", "aria-modal": "true", "aria-label": "All keys", tabindex: -1, hidden: true },
      h(
        "div",
        { class: "mnb-help-card" },
        h("div", { class: "mnb-row" }, h("b", {}, "Keys"), h("span", { class: "mnb-grow" }), close),
        h(
          "div",
          { class: "mnb-help-columns" },
          ...keys.map(([title, lines]) =>
            h(
              "div",
              {},
              h("h4", {}, title),
              h(
                "dl",
                {},
                ...lines.map(([key, action]) => h("div", {}, h("dt", {}, h("kbd", {}, key)), h("dd", {}, action))),
              ),
            ),
          ),
        ),
      ),
    );
    this.root.addEventListener("click", (event) => event.target === this.root && this.hide());
    this.root.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Escape" || event.key === "?") this.hide();
      // The close button is the only focusable element, so Tab does nothing.
      if (event.key === "Tab") event.preventDefault();
    });
  }

  toggle(): void {
    if (this.root.hidden) this.show();
    else this.hide();
  }

  private show(): void {
    this.back = (this.root.getRootNode() as Document | ShadowRoot).activeElement as HTMLElement | null;
    this.root.hidden = false;
    this.root.querySelector("button")!.focus();
    this.root.firstElementChild!.scrollIntoView?.({ block: "nearest" }); // the widget may be higher than the window
  }

  private hide(): void {
    this.root.hidden = true;
    this.back?.focus();
  }
}
