/** A card that lists all keyboard shortcuts. */

import { focusedAt } from "../dom/dom";
import type { Signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { IconButton } from "../dom/view";

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
      ["x", "explain the line; x or Esc closes"],
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
export const WORKBENCH_KEYS: Keys = [
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
      ["n", "new block: its kind; Enter adds it after the selected block, or into the selected edge"],
      ["↑ ↓", "previous, next block"],
      ["→ ←", "open or enter, close or leave a group"],
      ["Shift → ←", "along an edge, forward or back; Shift ↑ ↓: other edge"],
      ["+ − 0 z", "zoom in, zoom out, show all, zoom to the selection"],
      ["Enter", "select; on a selected group: open"],
      ["Shift Enter", "add to the selection"],
      ["drag", "on the background: select; Shift: add"],
      ["Space drag", "move the view; also with the middle button"],
      ["v", "invert the selection"],
      ["a d", "ancestors, descendants of the block"],
      ["p", "path between the two selected blocks"],
      ["t", "to its row in the table of costs"],
      [", .", "feed the model with the previous, next sample"],
      ["Alt Shift ← → ↑ ↓", "move the block, or the selected blocks"],
      ["Ctrl drag", "move blocks without snapping to others"],
      ["c", "connect to…"],
      ["F2", "rename"],
      ["r", "replace by another kind"],
      ["l", "freeze the parameters, or unfreeze them"],
      ["w", "show the ports of the parameters; drag one to another block to share it"],
      ["s", "share a parameter with…"],
      ["Ctrl C, X, V, D", "copy, cut, paste, duplicate the selected blocks"],
      ["Ctrl G, Ctrl Shift G", "group, ungroup"],
      ["Shift F10", "menu of the block, edge or background"],
      ["Delete", "remove blocks or edge"],
    ],
  ],
  ...SHARED_KEYS,
];

export function Help({ keys, isOpen }: { keys: Keys; isOpen: Signal<boolean> }) {
  const root = useRef<HTMLDivElement>(null);
  const hide = (): void => void (isOpen.value = false);
  useLayoutEffect(() => {
    if (!isOpen.value) return;
    const back = focusedAt(root.current!) as HTMLElement | null;
    root.current!.querySelector("button")!.focus();
    // The widget may be higher than the window.
    root.current!.firstElementChild!.scrollIntoView?.({ block: "nearest" });
    return () => back?.focus();
  }, [isOpen.value]);
  const press = (event: KeyboardEvent) => {
    event.stopPropagation();
    if (event.key === "Escape" || event.key === "?") hide();
    // The close button is the only focusable element, so Tab does nothing.
    if (event.key === "Tab") event.preventDefault();
  };
  return (
    <div
      class="mnb-help"
      role="dialog"
      aria-modal="true"
      aria-label="All keys"
      tabIndex={-1}
      hidden={!isOpen.value}
      ref={root}
      onClick={(event) => event.target === root.current && hide()}
      onKeyDown={press}
    >
      <div class="mnb-help-card">
        <div class="mnb-row">
          <b>Keys</b>
          <span class="mnb-grow" />
          <IconButton icon="close" label="Close" action="help.close" onClick={hide} />
        </div>
        <div class="mnb-help-columns">
          {keys.map(([title, lines]) => (
            <div key={title}>
              <h4>{title}</h4>
              <dl>
                {lines.map(([key, action]) => (
                  <div key={key}>
                    <dt>
                      <kbd>{key}</kbd>
                    </dt>
                    <dd>{action}</dd>
                  </div>
                ))}
              </dl>
            </div>
          ))}
        </div>
      </div>
    </div>
  );
}
