/**
 * The status line: stage times, costs of the program and of the selected block, attributed share, and the result of the
 * last command.
 */

import { together } from "../dom/calls";
import { attr, h, keyed, text } from "../dom/dom";
import { ATTRIBUTED, FIGURE_TITLES, figureText, shareOf, titled, totalOf } from "../costs/figures";
import { elapsed, percent, seconds } from "../dom/format";
import type { Store } from "../store/store";

const LONGEST = 40; // characters of a path; its whole name is in the tooltip

export class Status {
  readonly root = h("div", { class: "mnb-status", role: "group", "aria-label": "Figures", "data-mnb-part": "status" });
  private readonly figures = h("span", { class: "mnb-status-figures" });
  private readonly waiting = h("span", { class: "mnb-status-waiting", role: "status" });
  private timer: ReturnType<typeof setInterval> | null = null;
  readonly destroy: () => void;

  constructor(private readonly store: Store) {
    this.root.append(this.figures, this.waiting);
    this.destroy = together(
      store.on("snapshot", () => this.update()),
      store.on("links", () => this.update()),
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
    // One line: what does not fit is left out, the times first.
    const selected = this.selected();
    if (selected) parts.push(["selected", ...selected]);
    const time = (name: string, value: number | null | undefined, detail = ""): void => {
      if (value !== null && value !== undefined)
        parts.push([name, `${name} ${seconds(value)}`, `${name}: ${value} s${detail}`]);
    };
    for (const figure of ["flops", "bytes_accessed"] as const) {
      if (!cost) break;
      const [shown, whole] = figureText(cost.total, figure);
      parts.push([figure, `${FIGURE_TITLES[figure][0]}: ${shown} in total`, `${FIGURE_TITLES[figure][2]}: ${whole}`]);
    }
    if (status.attributed !== null)
      parts.push(["attributed", `${percent(status.attributed)} of FLOPs attributed`, ATTRIBUTED]);
    if (problems.length)
      parts.push([
        "problems",
        `${problems.length} ${problems.length === 1 ? "problem" : "problems"}`,
        problems[0]!.summary,
      ]);
    time("trace", status.trace_s);
    time("lower", status.lower_s);
    time("optimize", status.optimize_s, " for XLA's passes and memory planning, without code generation");
    time("compile", status.compile_s);
    keyed(
      this.figures,
      parts,
      ([name]) => name,
      ([name]) => h("span", { "data-mnb-status": name }),
      (element: HTMLElement, [, value, title]) => {
        text(element, value);
        attr(element, "title", title);
      },
    );
    attr(this.root, "title", [`model version ${version}`, ...parts.map(([, , title]) => title)].join("\n"));
  }

  /** Return the FLOPs of the selected block, by the convention of graph and table, and the exact value. */
  private selected(): [string, string] | null {
    const {
      snapshot: { cost, overlay },
      selection,
    } = this.store;
    const [path] = selection;
    const row = selection.length === 1 && cost?.rows.find(({ block }) => block === path);
    if (!cost || !row) return null;
    const own = overlay?.own === true;
    const shown = own ? row : totalOf(row);
    const [title] = FIGURE_TITLES.flops;
    const name = cost.rows.some((one) => one.total) ? titled(title, own) : title;
    const [text, whole] = figureText(shown, "flops");
    const [share, bound] = cost.total.formulas?.flops ? [null, ""] : shareOf(shown, cost.total, "flops");
    const label = path!.length > LONGEST ? `${path!.slice(0, LONGEST / 2)}…${path!.slice(-LONGEST / 2)}` : path;
    return [
      `${label}: ${name} ${text}${share === null ? "" : `, ${bound}${percent(share)}`}`,
      `${name} of ${path}: ${whole}`,
    ];
  }

  private paintWaiting(): void {
    const { waiting, connection } = this.store.kernel;
    if (this.timer !== null) clearInterval(this.timer);
    this.timer = null;
    if (connection !== "waiting" || !waiting) {
      text(this.waiting, this.store.outcome);
      return;
    }
    const paint = (): void =>
      text(
        this.waiting,
        `Waiting for the kernel: “${waiting.name.replaceAll("_", " ")}”, ` +
          `${elapsed((performance.now() - waiting.since) / 1000)}`,
      );
    paint();
    this.timer = setInterval(paint, 1000);
  }
}
