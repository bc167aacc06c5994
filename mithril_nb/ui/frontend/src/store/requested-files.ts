/** Texts of files that the kernel makes on request. */

import { together } from "../dom/calls";
import { decodeJson, errorOf } from "../kernel/messages";
import type { Store } from "./store";

interface Waiting {
  resolve: (text: string) => void;
  reject: (error: Error) => void;
}

const NOT_CONNECTED = "Not connected to the kernel, so the file cannot be made.";

export function createRequestedFiles(store: Store) {
  const requests = new Map<string, Waiting>();
  const { kernel } = store;
  const destroy = together(
    kernel.on("export", ({ format, problem }, [buffer]) => {
      const waiting = take(format);
      if (problem || !buffer) waiting?.reject(new Error(problem));
      else if (waiting) void decodeJson<string>(buffer).then(waiting.resolve, waiting.reject);
    }),
    kernel.watch(() => {
      if (kernel.isGone) for (const format of [...requests.keys()]) take(format)?.reject(new Error(NOT_CONNECTED));
    }),
  );

  /** Request a file from the kernel. Other pages with the same widget receive it too, and ignore it. */
  async function request(format: string) {
    take(format)?.reject(new Error("A later export of the same format replaced this one."));
    const text = new Promise<string>((resolve, reject) => requests.set(format, { resolve, reject }));
    void store.command("request_export", { format }).then((reply) => {
      if (!reply.ok) take(format)?.reject(new Error(errorOf(reply) ?? NOT_CONNECTED));
    });
    return text;
  }

  function take(format: string) {
    const waiting = requests.get(format);
    requests.delete(format);
    return waiting;
  }

  return { destroy, request };
}

export type RequestedFiles = ReturnType<typeof createRequestedFiles>;
