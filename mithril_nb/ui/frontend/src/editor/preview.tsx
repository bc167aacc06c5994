/** What an edit would change, before it is made: output shape, parameters, FLOPs and memory, from the kernel. */

import { type ReadonlySignal, signal } from "@preact/signals";
import { si } from "../dom/format";
import type { Preview } from "../kernel/contract";
import type { Store } from "../store/store";

function difference(value: number | null, unit: string, noun: string) {
  const sign = value === null ? "" : value < 0 ? "− " : value > 0 ? "+ " : "± ";
  return value === null ? `${noun}: unknown` : `${sign}${si(Math.abs(value), unit)} ${unit ? "" : noun}`.trimEnd();
}

/** Return the lines of a preview, or its problem as the only line. */
export function previewLines({ shape, problem, params, flops, peak_bytes, is_counted }: Preview): string[] {
  if (problem) return [problem];
  const costs = is_counted
    ? [
        difference(flops, "FLOP", "FLOPs"),
        `${difference(peak_bytes, "B", "memory")}${peak_bytes === null ? "" : " at the peak"}`,
      ]
    : ["counting FLOPs and memory…"];
  const output = shape === null ? [] : [`→ ${shape || "shape unknown"}`];
  return [...output, difference(params, "", "parameters"), ...costs];
}

/** Requests previews; only the latest is kept. */
export function createPreviews(store: Store) {
  const latest = signal<Preview | null>(null);
  let asked = "";
  const destroy = store.kernel.receive(
    "preview",
    ({ key }, preview) => void (key === asked && (latest.value = preview)),
    () => {}, // nothing is shown
  );

  /** Ask for the preview of a command; without one, show none. */
  function show(edit?: string, args: Record<string, unknown> = {}) {
    const key = edit ? JSON.stringify([store.snapshot.version, edit, args]) : "";
    if (key === asked) return;
    [asked, latest.value] = [key, null];
    if (edit) store.kernel.afterRest("preview", "request_preview", { key, edit, args });
  }

  return { latest: latest as ReadonlySignal<Preview | null>, show, destroy };
}

export type Previews = ReturnType<typeof createPreviews>;

/** The latest preview, if any. */
export function PreviewLines({ previews: { latest } }: { previews: Previews }) {
  const preview = latest.value;
  return (
    <div class="mnb-preview" role="status" data-mnb-bad={preview?.problem ? "" : undefined}>
      {preview && previewLines(preview).map((line) => <div key={line}>{line}</div>)}
    </div>
  );
}
