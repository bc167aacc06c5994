/** The live-run widget: the Train tab alone, for a run started by a cell. */

import { h } from "./dom/dom";
import { holdKeyboard, isTyping } from "./dom/focus";
import { oncePerFrame } from "./dom/calls";
import { hideFallback } from "./dom/static-fallback";
import { styleFor } from "./dom/styles";
import { followTheme } from "./dom/theme";
import { Kernel } from "./kernel/kernel";
import type { RunData } from "./kernel/contract";
import type { Mounted } from "./kernel/model";
import { Connection } from "./shell/connection";
import { feedCurves } from "./train/curves";
import { Train } from "./train/train";

const NO_RUN: RunData = {
  state: "none",
  epoch: 0,
  epochs: 0,
  step: 0,
  steps: 0,
  loss: null,
  accuracy: null,
  validation_loss: null,
  validation_accuracy: null,
  steps_per_s: null,
  left_s: null,
  learning_rate: null,
  learning_rate_is_relative: false,
  message: "",
  points: 0,
  is_current_model: true,
};

export function mountCurves({ model, el }: Mounted): () => void {
  styleFor(el);
  const showFallback = hideFallback(el);
  const kernel = new Kernel(model);
  let latest = model.get("run") as Partial<RunData> | null;
  const run = (): RunData => ({ ...NO_RUN, ...latest });
  const root = h("div", { class: "mnb-root mnb-live", role: "region", "aria-label": "Training run" });
  const connection = new Connection(kernel, () => ({}));
  const feed = feedCurves(kernel, () => run().points);
  const train = new Train({ kernel, curves: feed.curves, run, canStart: false });
  root.append(connection.root, train.root);
  el.append(root);
  const releaseKeyboard = holdKeyboard(root, (event) => {
    if (event.key !== " " || isTyping(event.target) || (event.target as Element).closest("button")) return false;
    return (train.toggle(), true);
  });
  const unfollowTheme = followTheme(root, () => train.recolour());
  const unwatch = kernel.watch(() => train.update());
  const paint = oncePerFrame(() => train.update());
  const onTrait = (): void => {
    latest = model.get("run") as Partial<RunData> | null;
    onRun();
  };
  const onRun = (): void => {
    kernel.receivedMessage();
    paint();
    feed.check();
  };
  model.on("change:run", onTrait);
  const leave = kernel.on("run", (message) => {
    latest = message.run;
    onRun();
  });
  feed.check();
  return () => {
    model.off("change:run", onTrait);
    leave();
    unfollowTheme();
    releaseKeyboard();
    unwatch();
    connection.destroy();
    feed.stop();
    train.destroy();
    kernel.destroy();
    root.remove();
    showFallback();
  };
}
