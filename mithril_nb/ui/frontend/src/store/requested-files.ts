/** Texts of files that the kernel makes on request. */

import { together } from "../dom/calls";
import { decodeJson, errorOf } from "../kernel/messages";
import type { Store } from "./store";

interface Waiting {
  resolve: (text: string) => void;
  reject: (error: Error) => void;
}

const NOT_CONNECTED = "Not connected to the kernel, so the file cannot be made.";

export class RequestedFiles {
  readonly destroy: () => void;
  private readonly waiting = new Map<string, Waiting>();

  constructor(private readonly store: Store) {
    const { kernel } = store;
    this.destroy = together(
      kernel.on("export", ({ format, problem }, [buffer]) => {
        const waiting = this.take(format);
        if (problem || !buffer) waiting?.reject(new Error(problem));
        else if (waiting) void decodeJson<string>(buffer).then(waiting.resolve, waiting.reject);
      }),
      kernel.watch(() => {
        if (kernel.isGone)
          for (const format of [...this.waiting.keys()]) this.take(format)?.reject(new Error(NOT_CONNECTED));
      }),
    );
  }

  /** Request a file from the kernel. Other pages with the same widget receive it too, and ignore it. */
  async request(format: string): Promise<string> {
    this.take(format)?.reject(new Error("A later export of the same format replaced this one."));
    const text = new Promise<string>((resolve, reject) => this.waiting.set(format, { resolve, reject }));
    void this.store.command("request_export", { format }).then((reply) => {
      if (!reply.ok) this.take(format)?.reject(new Error(errorOf(reply) ?? NOT_CONNECTED));
    });
    return text;
  }

  private take(format: string): Waiting | undefined {
    const waiting = this.waiting.get(format);
    this.waiting.delete(format);
    return waiting;
  }
}
