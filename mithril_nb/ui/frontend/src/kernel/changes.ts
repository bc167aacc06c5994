/** Keeps the snapshot of a model current. The kernel sends its changes, in the format of `ui/widgets/changes.py`. */

import { push } from "../dom/lists";
import type { WidgetModel } from "./model";

/** Changes inside a dict or list; or [], [value], [value, next key], [start, count, values]. */
export type Change = { [key: string]: Change } | readonly unknown[];

/** Return the value after a change. Unchanged parts are shared with the old value. */
export function applyChange(old: unknown, change: Change): unknown {
  if (Array.isArray(change)) {
    if (change.length < 3) return change[0];
    const [start, count, values] = change as [number, number, unknown[]];
    const list = old as unknown[];
    return [...list.slice(0, start), ...values, ...list.slice(start + count)];
  }
  const changes = new Map(Object.entries(change as { [key: string]: Change }));
  if (Array.isArray(old))
    return old.map((value, at) => (changes.has(String(at)) ? applyChange(value, changes.get(String(at))!) : value));
  // Build entries: assigning to the key "__proto__" would set the prototype.
  const entries: [string, unknown][] = [];
  const before = new Map<unknown, [string, unknown][]>();
  for (const [key, one] of changes)
    if (!Object.hasOwn(old as object, key) && Array.isArray(one)) push(before, one[1], [key, one[0]]);
  for (const [key, value] of Object.entries(old as object)) {
    entries.push(...(before.get(key) ?? []));
    const one = changes.get(key);
    if (!one) entries.push([key, value]);
    else if (!Array.isArray(one) || one.length > 0) entries.push([key, applyChange(value, one)]);
  }
  return Object.fromEntries([...entries, ...(before.get(undefined) ?? [])]);
}

/** A request that has no effect within this time counts as lost. */
const AGAIN_MS = 2000;

interface Changed {
  type: "snapshot_change";
  /** The revisions of the snapshot before and after. */
  from: number;
  to: number;
  change: Change;
}

/**
 * Apply the kernel's changes to the snapshot of a model, once for all its views. The host then saves the current
 * snapshot. If a message was missed, request the whole snapshot.
 *
 * @returns A function for the end of the model. It releases the snapshot: JupyterLab keeps the models of earlier runs
 * of a cell.
 */
export function followSnapshot({ model }: { model: WidgetModel }): () => void {
  const read = () => (model.get("snapshot") as { revision?: number } | null) ?? {};
  let missing = -1;
  let requestedAt = 0;
  const request = () => {
    try {
      model.send({ type: "command", id: null, name: "request_snapshot", args: { revision: read().revision ?? null } });
    } catch {
      // A closed comm may throw on send. The views show that the kernel is gone.
    }
  };
  model.on("msg:custom", (message: Changed | null) => {
    if (message?.type !== "snapshot_change") return;
    const revision = read().revision ?? 0;
    if (revision === message.from) {
      model.set("snapshot", applyChange(read(), message.change));
    } else if (revision < message.from && (missing !== revision || performance.now() - requestedAt > AGAIN_MS)) {
      missing = revision;
      requestedAt = performance.now();
      request();
    }
  });
  request();
  return () => {
    // Twice, because Backbone keeps the values before the last change, too.
    for (const nothing of [null, {}]) model.set("snapshot", nothing, { silent: true });
  };
}
