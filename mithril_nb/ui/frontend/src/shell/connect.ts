/** Connects a built workbench or explorer to its model, its keys and the theme of the page. */

import { focusRow } from "../costs/table";
import { followTheme } from "../dom/theme";
import type { Snapshot, WidgetModel } from "../kernel/model";
import { ROW } from "../search/questions";
import { type KeyTargets, listenToKeys } from "./keys";

interface Widget {
  model: WidgetModel;
  root: HTMLElement;
  /** The Cost tab, which shows the row of a node. */
  cost: HTMLElement;
  targets: KeyTargets;
  /** Returns the snapshot of the model; null if it is not one yet. */
  read: () => Snapshot | null;
  parts: readonly ({ destroy: () => void } | null | undefined)[];
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
  ends.push(store.on("snapshot", follow), listenToKeys(root, targets), followTheme(root), () =>
    model.off("change:snapshot", take),
  );
  follow();
  void kernel.send("hello", {});
  return () => {
    for (const end of ends) end();
    for (const part of parts) part?.destroy();
    kernel.destroy();
    root.remove();
  };
}
