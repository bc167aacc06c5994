/** A live plot of a training run: train and validation over steps, linear or logarithmic, optionally smoothed. */

import uPlot from "uplot";
import { attr, h, zoomOf } from "../dom/dom";
import { figure } from "../dom/format";
import { oncePerFrame } from "../dom/calls";

/** Return the exponential moving average with bias correction; gaps stay gaps. */
export function smooth(values: readonly (number | null)[], weight: number): readonly (number | null)[] {
  if (weight <= 0) return values;
  let mean = 0;
  let mass = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return mean / mass;
  });
}

/**
 * Return the rows from `from` to `to` (exclusive) that a plot of width `pixels` needs to look complete: in each run of
 * rows that share a pixel, the rows with the minimum or maximum of a line. Run lengths are powers of two, and runs
 * start at multiples of the length, so that a growing curve keeps its points.
 */
export function thin(
  lines: readonly (readonly (number | null)[])[],
  from: number,
  to: number,
  pixels: number,
): number[] {
  let run = 1;
  while (to - from > run * pixels) run *= 2;
  if (run <= 2) return Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i);
  const kept: number[] = [];
  for (let start = from; start < to;) {
    const end = Math.min((Math.floor(start / run) + 1) * run, to);
    const here = new Set<number>();
    for (const line of lines) {
      let lowest = -1;
      let highest = -1;
      for (let i = start; i < end; i++) {
        const value = line[i];
        if (value == null) continue;
        if (lowest < 0 || value < line[lowest]!) lowest = i;
        if (highest < 0 || value > line[highest]!) highest = i;
      }
      if (lowest >= 0) here.add(lowest).add(highest);
    }
    kept.push(...[...here].sort((a, b) => a - b));
    start = end;
  }
  return kept;
}

/** Least height of the legend, so that a second row does not move the plot. */
const LEGEND_PX = 42;

export interface PlotData {
  x: (number | null)[];
  train: (number | null)[];
  validation: (number | null)[];
}

/** Return the range of an axis of shares: as far as the values reach, with a margin that stays between 0 and 1. */
export function shareRange(_plot: unknown, least: number | null, most: number | null): [number, number] {
  if (least === null || most === null) return [0, 1];
  const margin = Math.max(0.01, (most - least) * 0.08);
  return [Math.max(0, least - margin), Math.min(1, most + margin)];
}

/** Distances between two ticks of the axis of steps, which are integers. */
const STEP_INCREMENTS = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();

/** Return the least distance in px between two ticks: room for the largest number. */
export function tickSpace(_plot: unknown, _axis: number, _least: number, most: number): number {
  return 14 + 7 * Math.round(most).toLocaleString("en-US").length;
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
  /** Height of the legend. */
  private legend = LEGEND_PX;
  /** The range of steps selected by dragging; null for all. */
  private zoom: [number, number] | null = null;
  private readonly queue = oncePerFrame(() => this.draw());

  /** `quantity` is "loss" or "accuracy". */
  constructor(
    readonly quantity: string,
    private readonly asPercent: boolean,
  ) {
    this.root = h("figure", { class: "mnb-plot", role: "img", "aria-label": `${quantity} over steps` }, this.holder);
    this.watcher = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(() => this.resize());
    this.watcher?.observe(this.root);
  }

  destroy(): void {
    this.watcher?.disconnect();
    this.chart?.destroy();
    this.chart = null;
  }

  set(data: PlotData, scale: "linear" | "log", weight: number): void {
    const recreate = scale !== this.scale || weight > 0 !== this.weight > 0; // the legend has another text
    [this.data, this.scale, this.weight] = [data, scale, weight];
    if (recreate) this.recreate();
    else this.queue();
  }

  /** Recreate the plot, for example after a theme change. */
  recreate(): void {
    this.zoom = null;
    this.chart?.destroy();
    this.chart = null;
    this.queue();
  }

  private aligned(): uPlot.AlignedData {
    const { x } = this.data;
    const train = smooth(this.data.train, this.weight);
    const { validation } = this.data;
    const kept = thin([train, validation], ...this.visibleRows(), this.holder.clientWidth);
    // Always include the first and last row, which set the axis range when the zoom is reset.
    if (x.length > 0 && kept[0] !== 0) kept.unshift(0);
    if (x.length > 1 && kept.at(-1) !== x.length - 1) kept.push(x.length - 1);
    // A logarithmic axis cannot show values of 0 or below.
    const least = this.scale === "log" ? Number.MIN_VALUE : -Infinity;
    const shown = (line: readonly (number | null)[]): (number | null)[] =>
      kept.map((i) => (line[i] != null && line[i]! >= least ? line[i]! : null));
    return [kept.map((i) => x[i] ?? i), shown(train), shown(validation)];
  }

  /** Return the rows within the zoom and one more on each side, so that lines reach the edge. */
  private visibleRows(): [number, number] {
    const { x } = this.data;
    if (!this.zoom) return [0, x.length];
    const [least, most] = this.zoom;
    const first = x.findIndex((step) => step! >= least);
    const after = x.findIndex((step) => step! > most);
    return [Math.max(0, (first < 0 ? x.length : first) - 1), after < 0 ? x.length : after + 1];
  }

  private zoomed(plot: uPlot): void {
    const { min, max } = plot.scales["x"]!;
    const x = plot.data[0];
    const zoom: [number, number] | null =
      min == null || max == null || (min <= x[0]! && max >= x.at(-1)!) ? null : [min, max];
    if (zoom?.join() === this.zoom?.join()) return;
    this.zoom = zoom;
    this.queue();
  }

  private draw(): void {
    if (this.holder.clientWidth < 40) {
      // Wait for a size. JupyterLab hides everything for less than a frame when the theme changes, which is no new
      // size.
      this.watcher?.unobserve(this.root);
      this.watcher?.observe(this.root);
      return;
    }
    const { chart, zoom } = this;
    if (!chart) this.chart = this.make();
    else if (!zoom) chart.setData(this.aligned());
    else
      chart.batch(() => {
        chart.setData(this.aligned(), false);
        chart.setScale("x", { min: zoom[0], max: zoom[1] });
      });
    const last = this.data.train.findLast((value) => value !== null);
    attr(this.root, "aria-label", `${this.quantity} over steps, in the last batch ${figure(last)}`);
  }

  private resize(): void {
    const { clientWidth: width, clientHeight: height } = this.holder;
    if (width < 40) return;
    this.legend = LEGEND_PX;
    if (this.chart) this.chart.setSize({ width, height: this.height(height) });
    this.queue();
  }

  /**
   * Leave room for all rows of the legend. It only grows, so that the plot does not move with the values under the
   * pointer.
   */
  private fitLegend(): void {
    const legend = this.holder.querySelector<HTMLElement>(".u-legend")?.offsetHeight ?? 0;
    if (!this.chart || legend <= this.legend) return;
    this.legend = legend;
    this.chart.setSize({ width: this.holder.clientWidth, height: this.height(this.holder.clientHeight) });
  }

  private height(available: number): number {
    return Math.max(90, available - this.legend);
  }

  private make(): uPlot {
    const ink = cssVar(this.root, "--mnb-muted", "#555");
    const grid = cssVar(this.root, "--mnb-grid", "#ddd");
    const font = `11px ${cssVar(this.root, "--mnb-ui", "sans-serif")}`;
    const axis = {
      stroke: ink,
      font,
      labelFont: font,
      grid: { stroke: grid, width: 1 },
      ticks: { stroke: grid, width: 1, size: 4 },
    };
    const value = (plot: uPlot, shown: number | null, series: number, at: number | null): string => {
      // Validation is computed once per epoch; between epochs, show its last value.
      const current =
        shown ??
        (plot.data[series] as (number | null)[]).slice(0, (at ?? -1) + 1).findLast((point) => point !== null) ??
        null;
      return current === null ? "–" : this.asPercent ? `${(current * 100).toFixed(1)} %` : figure(current);
    };
    const hasValidation = this.data.validation.some((point) => point !== null);
    return new uPlot(
      {
        width: this.holder.clientWidth,
        height: this.height(this.holder.clientHeight),
        padding: [8, 12, 0, 0],
        cursor: {
          drag: { x: true, y: false },
          points: { size: 6 },
          move: (plot, left, top) => [left / zoomOf(plot.over), top / zoomOf(plot.over)],
        },
        // Without a pointer over the plot, show the last step in the legend; uPlot does not update it on new data.
        hooks: {
          draw: [() => queueMicrotask(() => this.fitLegend())],
          setScale: [(plot, scale) => scale === "x" && this.zoomed(plot)],
          setLegend: [
            (plot) =>
              plot.cursor.idx == null &&
              plot.data[0].length > 0 &&
              plot.setLegend({ idx: plot.data[0].length - 1 }, false),
          ],
        },
        scales: {
          x: { time: false },
          y: { distr: this.scale === "log" ? 3 : 1, ...(this.asPercent ? { range: shareRange } : {}) },
        },
        axes: [
          { ...axis, size: 26, gap: 3, space: tickSpace, incrs: STEP_INCREMENTS },
          {
            ...axis,
            size: 48,
            gap: 3,
            values: (_u, splits) =>
              splits.map((split) =>
                split === null
                  ? ""
                  : this.asPercent
                    ? `${Math.round(split * 100)} %`
                    : String(Number(split.toPrecision(3))),
              ),
          },
        ],
        series: [
          { label: "step", value: (_u, shown) => (shown === null ? "–" : String(shown)) },
          {
            label: `batch ${this.quantity}${this.weight > 0 ? ", smoothed" : ""}`,
            stroke: cssVar(this.root, "--mnb-train", "#0072B2"),
            width: 1.5,
            points: { show: false },
            spanGaps: true,
            value,
          },
          {
            label: `validation ${this.quantity}`,
            stroke: cssVar(this.root, "--mnb-validation", "#D55E00"),
            width: 1.5,
            dash: [6, 3],
            points: { show: hasValidation, size: 5 },
            spanGaps: true,
            value,
          },
        ],
      },
      this.aligned(),
      this.holder,
    );
  }
}
