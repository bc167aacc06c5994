/** Connects a built workbench or explorer to its model, its keys and the theme of the page. */

import { focusRow } from "../costs/table";
import { followTheme } from "../dom/theme";
import type { Snapshot, WidgetModel } from "../kernel/model";
import { ROW } from "../search/questions";
import type { Signal } from "@preact/signals";
import type { FullScreen } from "../controls/full-screen";
import { holdKeyboard, isTyping } from "../dom/focus";
import type { Canvas } from "../editor/canvas";
import { stepSample } from "../editor/values";
import type { Search } from "../search/search";
import type { Panes } from "../stages/panes";
import type { Store } from "../store/store";
import { toggleRun } from "../train/train";
import { type Layout, PRESET_OF_KEY } from "./layout";

interface KeyTargets {
  store: Store;
  search: Search;
  panes: Panes;
  /** Missing in the explorer, which does not train. */
  train?: HTMLElement;
  /** Missing in the explorer, which does not edit. */
  canvas?: Pick<Canvas, "removeSelected" | "renameSelected" | "startFromBlock">;
  /** The explorer has no inspector. */
  layout: Pick<Layout, "choose"> & Partial<Pick<Layout, "toggleInspector">>;
  screen: FullScreen;
  help: Signal<boolean>;
}

interface Widget {
  model: WidgetModel;
  root: HTMLElement;
  /** The Cost tab, which shows the row of a node. */
  cost: HTMLElement;
  targets: KeyTargets;
  /** Returns the snapshot of the model; null if it is not one yet. */
  read: () => Snapshot | null;
  parts: readonly ({ root?: HTMLElement; destroy?: () => void } | null | undefined)[];
}

/** Connect a widget. Return a function that ends it, with what is in `ends`. */
export function connect({ model, root, cost, targets, read, parts }: Widget, ends: (() => void)[]): () => void {
  const { store } = targets;
  const { kernel } = store;
  root.addEventListener(ROW, (event) => {
    store.showTab("cost");
    store.showCost({ view: "table" });
    if (focusRow(cost, (event as CustomEvent<string>).detail)) event.preventDefault();
  });
  const follow = (): void => void (root.dataset["mnbVersion"] = String(store.snapshot.version));
  const take = () => {
    const snapshot = read();
    if (!snapshot) return;
    kernel.receivedMessage();
    store.takeSnapshot(snapshot);
  };
  model.on("change:snapshot", take);
  ends.push(
    store.on("snapshot", follow),
    holdKeyboard(root, (event) => handle(event, targets)),
    followTheme(root),
    () => model.off("change:snapshot", take),
  );
  follow();
  void kernel.send("hello", {});
  return () => {
    for (const end of ends) end();
    for (const part of parts) part?.destroy?.();
    kernel.destroy();
    root.remove();
  };
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
  const key = event.key.toLowerCase();
  const letter = command && !event.altKey && !typing ? key : "";
  if (letter === "z" || letter === "y") {
    store.command(letter === "y" || event.shiftKey ? "redo" : "undo");
    return true;
  }
  if (letter === "a") {
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
  if (preset && (isAtWork(target) || target.matches('[role="tab"], [role="radio"]')))
    return (layout.choose(preset), true);
  if (!isAtWork(target)) return false;
  const pane = panes.focused();
  switch (key) {
    case "?":
      return ((help.value = !help.value), true);
    case "f":
    case "/":
      return (search.input.focus(), true);
    case "e":
      return (screen.toggle(target), true);
    case "i":
      return layout.toggleInspector?.() ?? false;
    case "n":
      return canvas?.startFromBlock() ?? false;
    case "[":
      return (pane?.walk(-1), pane !== null);
    case "]":
      return (pane?.walk(1), pane !== null);
    case ",":
    case ".":
      return stepSample(store, key === "," ? -1 : 1);
    case "delete":
    case "backspace":
      return !target.closest("[data-mnb-pane]") && (canvas?.removeSelected() ?? false);
    case "f2":
      return canvas?.renameSelected() ?? false;
    default:
      return false;
  }
}
