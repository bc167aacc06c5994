/** The live-run widget: the Train tab alone, for a run started by a cell. */

import { signal } from "@preact/signals";
import { h } from "./dom/dom";
import { holdKeyboard, isTyping } from "./dom/focus";
import { hideFallback } from "./dom/static-fallback";
import { styleFor } from "./dom/styles";
import { followTheme } from "./dom/theme";
import { mount } from "./dom/view";
import { Kernel } from "./kernel/kernel";
import type { RunData } from "./kernel/contract";
import type { Mounted } from "./kernel/model";
import { Connection } from "./shell/connection";
import { feedCurves } from "./train/curves";
import { NO_RUN, Train, toggleRun } from "./train/train";

export function mountCurves({ model, el }: Mounted): () => void {
  styleFor(el);
  const showFallback = hideFallback(el);
  const kernel = new Kernel(model);
  const latest = signal<Partial<RunData> | null>(null);
  const run = (): RunData => ({ ...NO_RUN, ...latest.value });
  const root = h("div", { class: "mnb-root mnb-live", role: "region", "aria-label": "Training run" });
  const feed = feedCurves(kernel, () => run().points);
  const connection = mount(<Connection kernel={kernel} work={() => ({})} />);
  const train = mount(<Train kernel={kernel} curves={feed.curves} run={run} canStart={false} />);
  root.append(connection.root, train.root);
  el.append(root);
  const take = (state: Partial<RunData> | null) => {
    kernel.receivedMessage();
    latest.value = state;
    feed.check();
  };
  const onTrait = () => take(model.get("run") as Partial<RunData> | null);
  latest.value = model.get("run") as Partial<RunData> | null;
  model.on("change:run", onTrait);
  feed.check();
  const ends = [
    kernel.on("run", (message) => take(message.run)),
    holdKeyboard(root, ({ key, target }) => {
      if (key !== " " || isTyping(target) || (target as Element).closest("button")) return false;
      return toggleRun(train.root);
    }),
    followTheme(root),
    feed.stop,
    () => model.off("change:run", onTrait),
    () => connection.destroy(),
    () => train.destroy(),
    () => kernel.destroy(),
    () => root.remove(),
    showFallback,
  ];
  return () => ends.forEach((end) => end());
}
