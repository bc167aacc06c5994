/** Keeping curves up to date: take what arrives, and ask for all of it where rows are missing. */

import type { Kernel } from "./kernel";
import { Curves } from "./messages";

export function feedCurves(kernel: Kernel, points: () => number): { curves: Curves; check: () => void; stop: () => void } {
  const curves = new Curves();
  const stop = kernel.on("curves", (message: { from: number; columns: string[] }, buffers) => {
    const buffer = buffers[0];
    if (buffer && !curves.take(message.from, message.columns, buffer)) void kernel.send("request_curves", {});
  });
  let asked = false;
  return {
    curves,
    stop,
    /** After a reload the kernel has points that this page has not seen. */
    check: () => {
      if (asked || curves.rows > 0 || points() === 0) return;
      asked = true;
      void kernel.send("request_curves", {});
    },
  };
}
