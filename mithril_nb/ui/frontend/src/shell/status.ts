/** The status line: stage times, program cost, attributed share, and the result of the last command. */

import { together } from "../dom/calls";
import { attr, h, keyed, text } from "../dom/dom";
import { exact, percent, seconds, si } from "../dom/format";
import type { Store } from "../store/store";

export class Status {
  readonly root = h("div", { class: "mnb-status", role: "group", "aria-label": "Figures", "data-mnb-part": "status" });
  private readonly figures = h("span", { class: "mnb-status-figures" });
  private readonly waiting = h("span", { class: "mnb-status-waiting", role: "status" });
  private timer: ReturnType<typeof setInterval> | null = null;
  readonly destroy: () => void;

  constructor(private readonly store: Store) {
    this.root.append(this.figures, h("span", { class: "mnb-grow" }), this.waiting);
    this.destroy = together(
      store.on("snapshot", () => this.update()),
      store.on("outcome", () => this.paintWaiting()),
      store.kernel.watch(() => this.paintWaiting()),
      () => {
        if (this.timer !== null) clearInterval(this.timer);
      },
    );
    this.update();
  }

  private update(): void {
    const { status, problems, version, cost } = this.store.snapshot;
    const parts: [string, string, string][] = [];
    const time = (name: string, value: number | null | undefined, detail = ""): void => {
      if (value !== null && value !== undefined) parts.push([name, `${name} ${seconds(value)}`, `${name}: ${value} s${detail}`]);
    };
    time("trace", status.trace_s);
    time("lower", status.lower_s);
    time("optimize", status.optimize_s, " for XLA's passes and memory planning, without code generation");
    time("compile", status.compile_s);
    const formula = cost?.total.formulas?.flops;
    if (formula) parts.push(["flops", `${formula[0]} FLOP`, formula[1]]);
    else if (status.flops !== null) parts.push(["flops", `${cost?.total.unknown?.flops ? "≥ " : ""}${si(status.flops, "FLOP")}`, exact(status.flops, "FLOP")]);
    if (status.bytes !== null) parts.push(["bytes", si(status.bytes, "B"), exact(status.bytes, "bytes")]);
    if (status.attributed !== null) parts.push(["attributed", `${percent(status.attributed)} attributed`, "Share of the FLOPs traced back to a block, the loss or the optimizer"]);
    if (problems.length) parts.push(["problems", `${problems.length} ${problems.length === 1 ? "problem" : "problems"}`, problems[0]!.summary]);
    keyed(this.figures, parts, ([name]) => name, ([name]) => h("span", { "data-mnb-status": name }), (element: HTMLElement, [, value, title]) => {
      text(element, value);
      attr(element, "title", title);
    });
    attr(this.root, "title", `model version ${version}`);
  }

  private paintWaiting(): void {
    const { waiting, connection } = this.store.kernel;
    if (this.timer !== null) clearInterval(this.timer);
    this.timer = null;
    if (connection !== "waiting" || !waiting) {
      text(this.waiting, this.store.outcome);
      return;
    }
    const paint = (): void => text(this.waiting, `Waiting for the kernel: “${waiting.name.replaceAll("_", " ")}”, ${seconds((performance.now() - waiting.since) / 1000)}`);
    paint();
    this.timer = setInterval(paint, 1000);
  }
}
