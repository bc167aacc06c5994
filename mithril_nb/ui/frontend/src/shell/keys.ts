/** Keyboard shortcuts of the whole widget. */

import type { Signal } from "@preact/signals";
import type { FullScreen } from "../controls/full-screen";
import { holdKeyboard, isTyping } from "../dom/focus";
import type { Canvas } from "../editor/canvas";
import type { Search } from "../search/search";
import type { Panes } from "../stages/panes";
import type { Store } from "../store/store";
import { toggleRun } from "../train/train";
import { type Layout, PRESET_OF_KEY } from "./layout";

export interface KeyTargets {
  store: Store;
  search: Search;
  panes: Panes;
  /** Missing in the explorer, which does not train. */
  train?: HTMLElement;
  /** Missing in the explorer, which does not edit. */
  canvas?: Pick<Canvas, "removeSelected" | "renameSelected" | "startFromBlock">;
  /** Missing in the explorer, which has no presets. */
  layout?: Pick<Layout, "choose" | "toggleInspector">;
  screen: FullScreen;
  help: Signal<boolean>;
}

/** Move the focus to the linked line in the next or previous pane. */
function focusNextPane({ store, panes }: KeyTargets, direction: 1 | -1) {
  const here = panes.focused();
  const at = here ? store.panes.indexOf(here.stage) : direction > 0 ? -1 : store.panes.length;
  const next = panes.pane(store.panes[at + direction] ?? "");
  if (!next) return false;
  store.revealStages();
  next.view.focus();
  next.walk(1);
  if (here) panes.trace(here.stage, [next.stage]);
  return true;
}

/** Return whether single keys act: only while the graph or a stage has the focus, not in a field or another text. */
function isAtWork(target: Element) {
  return target.closest(".mnb-canvas, .mnb-board, [data-mnb-pane]") !== null && !target.closest('[role="menu"]');
}

function handle(event: KeyboardEvent, targets: KeyTargets) {
  const { store, search, panes, train, help, canvas, layout, screen } = targets;
  const target = event.target as Element;
  const typing = isTyping(target);
  const command = event.ctrlKey || event.metaKey;
  if (command && !event.altKey && event.key.toLowerCase() === "z" && !typing) {
    store.command(event.shiftKey ? "redo" : "undo");
    return true;
  }
  if (command && !event.altKey && event.key.toLowerCase() === "y" && !typing) {
    store.command("redo");
    return true;
  }
  if (command && !event.altKey && event.key.toLowerCase() === "a" && !typing) {
    // Code selects its own text; elsewhere the browser would select the page.
    if (!event.defaultPrevented)
      store.pinBlocks(Object.keys(store.snapshot.blocks).filter((path) => !path.includes("/")));
    return true;
  }
  if (event.altKey && !command && (event.key === "ArrowDown" || event.key === "ArrowUp"))
    return focusNextPane(targets, event.key === "ArrowDown" ? 1 : -1);
  if (event.key === "Escape") return screen.leave() || search.clear() || store.release();
  if (typing || command || event.altKey) return false;
  if (event.key === " " && train && store.tab === "train" && train.contains(target) && !target.closest("button"))
    return toggleRun(train);
  const preset = PRESET_OF_KEY[event.key];
  // A preset may hide the graph and the stages; the focus is then on a tab.
  if (layout && preset && (isAtWork(target) || target.matches('[role="tab"], [role="radio"]')))
    return (layout.choose(preset), true);
  if (!isAtWork(target)) return false;
  const pane = panes.focused();
  switch (event.key) {
    case "?":
      return ((help.value = !help.value), true);
    case "f":
    case "F":
    case "/":
      return (search.input.focus(), true);
    case "e":
    case "E":
      return (screen.toggle(target), true);
    case "i":
    case "I":
      return layout?.toggleInspector() ?? false;
    case "n":
    case "N":
      return canvas?.startFromBlock() ?? false;
    case "[":
      return (pane?.walk(-1), pane !== null);
    case "]":
      return (pane?.walk(1), pane !== null);
    case "Delete":
    case "Backspace":
      return !target.closest("[data-mnb-pane]") && (canvas?.removeSelected() ?? false);
    case "F2":
      return canvas?.renameSelected() ?? false;
    default:
      return false;
  }
}

export function listenToKeys(root: HTMLElement, targets: KeyTargets): () => void {
  return holdKeyboard(root, (event) => handle(event, targets));
}
