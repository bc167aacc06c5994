/** Elapsed time of a wait, as in "Compiling: 3.2 s". Hidden for the first 300 ms. */

import { elapsed } from "./format";

export const GRACE_MS = 300;

export class Clock {
  private since: number | null = null;
  private timer: ReturnType<typeof setInterval> | null = null;

  constructor(private readonly tick: (elapsed: string | null) => void) {}

  run(running: boolean): void {
    if (running === (this.since !== null)) return;
    if (!running) {
      this.stop();
      this.tick(null);
      return;
    }
    this.since = performance.now();
    this.timer = setInterval(() => {
      const passed = performance.now() - this.since!;
      if (passed >= GRACE_MS) this.tick(elapsed(passed / 1000));
    }, 100);
  }

  stop(): void {
    if (this.timer !== null) clearInterval(this.timer);
    this.timer = null;
    this.since = null;
  }
}
