/** One live plot of a training run: train and validation over steps, linear or logarithmic, smoothed if asked. */

import uPlot from "uplot";
import { h } from "./dom";
import { figure } from "./format";

/** Exponential smoothing with the start-up bias taken out; gaps stay gaps. */
export function smooth(values: readonly (number | null)[], weight: number): (number | null)[] {
  if (weight <= 0) return [...values];
  let mean = 0;
  let mass = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return mean / mass;
  });
}

/** A logarithmic axis has no place for 0 and below. */
function positive(values: (number | null)[]): (number | null)[] {
  return values.map((value) => (value !== null && value > 0 ? value : null));
}

export interface PlotData {
  x: (number | null)[];
  train: (number | null)[];
  validation: (number | null)[];
}

function cssVar(element: Element, name: string, fallback: string): string {
  return getComputedStyle(element).getPropertyValue(name).trim() || fallback;
}

export class Plot {
  readonly root: HTMLElement;
  private chart: uPlot | null = null;
  private readonly holder = h("div", { class: "mnb-plot-holder" });
  private readonly watcher: ResizeObserver | null;
  private data: PlotData = { x: [], train: [], validation: [] };
  private scale: "linear" | "log" = "linear";
  private weight = 0;
  private queued = false;

  constructor(
    readonly title: string,
    private readonly asPercent: boolean,
  ) {
    this.root = h("figure", { class: "mnb-plot", role: "img", "aria-label": `${title} over steps` }, this.holder);
    this.watcher = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(() => this.resize());
    this.watcher?.observe(this.root);
  }

  destroy(): void {
    this.watcher?.disconnect();
    this.chart?.destroy();
    this.chart = null;
  }

  set(data: PlotData, scale: "linear" | "log", weight: number): void {
    const remake = scale !== this.scale;
    [this.data, this.scale, this.weight] = [data, scale, weight];
    if (remake) this.remake();
    else this.queue();
  }

  /** Draw anew, as after a change of theme. */
  remake(): void {
    this.chart?.destroy();
    this.chart = null;
    this.queue();
  }

  /** At most one drawing a frame, and none while nobody sees it. */
  private queue(): void {
    if (this.queued) return;
    this.queued = true;
    requestAnimationFrame(() => {
      this.queued = false;
      this.draw();
    });
  }

  private aligned(): uPlot.AlignedData {
    let { train, validation } = this.data;
    train = smooth(train, this.weight);
    if (this.scale === "log") [train, validation] = [positive(train), positive(validation)];
    return [this.data.x.map((x, i) => x ?? i), train, validation] as uPlot.AlignedData;
  }

  private draw(): void {
    if (!this.root.isConnected || this.holder.clientWidth < 40) return;
    if (this.chart) this.chart.setData(this.aligned());
    else this.chart = this.make();
    const last = this.data.train.findLast((value) => value !== null);
    this.root.setAttribute("aria-label", `${this.title} over steps, now ${figure(last)}`);
  }

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.holder;
    if (width < 40) return;
    if (this.chart) this.chart.setSize({ width, height: this.height(height) });
    else this.queue();
  }

  private height(available: number): number {
    return Math.max(90, available - 26);
  }

  private make(): uPlot {
    const ink = cssVar(this.root, "--mnb-muted", "#555");
    const grid = cssVar(this.root, "--mnb-grid", "#ddd");
    const font = `11px ${cssVar(this.root, "--mnb-ui", "sans-serif")}`;
    const axis = { stroke: ink, font, labelFont: font, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1, size: 4 } };
    const value = (plot: uPlot, shown: number | null, series: number, at: number | null): string => {
      // Validation has a value once an epoch: between two of them the last one holds.
      const known = shown ?? (plot.data[series] as (number | null)[]).slice(0, (at ?? -1) + 1).findLast((point) => point !== null) ?? null;
      return known === null ? "–" : this.asPercent ? `${(known * 100).toFixed(1)} %` : figure(known);
    };
    const rail = this.data.validation.some((point) => point !== null);
    return new uPlot(
      {
        width: this.holder.clientWidth,
        height: this.height(this.holder.clientHeight),
        padding: [8, 12, 0, 0],
        cursor: { drag: { x: true, y: false }, points: { size: 6 } },
        // With no pointer over it, the legend says where the run is now.
        hooks: { setCursor: [(plot) => plot.cursor.idx == null && plot.data[0].length > 0 && plot.setLegend({ idx: plot.data[0].length - 1 }, false)] },
        scales: { x: { time: false }, y: { distr: this.scale === "log" ? 3 : 1 } },
        axes: [
          { ...axis, size: 26, gap: 3, space: 60 },
          { ...axis, size: 48, gap: 3, values: (_u, splits) => splits.map((split) => (split === null ? "" : this.asPercent ? `${Math.round(split * 100)} %` : String(Number(split.toPrecision(3))))) },
        ],
        series: [
          { label: "step", value: (_u, shown) => (shown === null ? "–" : String(shown)) },
          { label: `${this.title}, train`, stroke: cssVar(this.root, "--mnb-train", "#0072B2"), width: 1.5, points: { show: false }, spanGaps: true, value },
          { label: "validation", stroke: cssVar(this.root, "--mnb-validation", "#D55E00"), width: 1.5, dash: [6, 3], points: { show: rail, size: 5 }, spanGaps: true, value },
        ],
      },
      this.aligned(),
      this.holder,
    );
  }
}
