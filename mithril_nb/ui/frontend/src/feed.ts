/** Collects the curve points sent by the kernel, and requests all of them if rows are missing. */

import type { Kernel } from "./kernel";
import { Curves } from "./messages";

export function feedCurves(kernel: Kernel, points: () => number): { curves: Curves; check: () => void; stop: () => void } {
  const curves = new Curves();
  const stop = kernel.on("curves", (message: { from: number; columns: string[] }, buffers) => {
    const buffer = buffers[0];
    if (buffer && !curves.take(message.from, message.columns, buffer)) void kernel.send("request_curves", {});
  });
  let isRequested = false;
  return {
    curves,
    stop,
    /** Request all points if none arrived: after a page reload, the kernel has points that the page lacks. */
    check: () => {
      if (isRequested || curves.rows > 0 || points() === 0) return;
      isRequested = true;
      void kernel.send("request_curves", {});
    },
  };
}
