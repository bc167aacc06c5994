/** A live plot of a training run: train and validation over steps, linear or logarithmic, optionally smoothed. */

import uPlot from "uplot";
import { attr, h, zoomOf } from "../dom/dom";
import { figure, grouped } from "../dom/format";
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

interface PlotData {
  x: (number | null)[];
  train: (number | null)[];
  validation: (number | null)[];
  /** Steps where a setting changed, with their texts. */
  marks?: readonly [step: number, text: string][];
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
function tickSpace(_plot: unknown, _axis: number, _least: number, most: number) {
  return 14 + 7 * grouped(Math.round(most)).length;
}

function cssVar(element: Element, name: string, fallback: string) {
  return getComputedStyle(element).getPropertyValue(name).trim() || fallback;
}

/** Draw a line at each mark, and its text where it does not cover the one before. */
function drawMarks(plot: uPlot, marks: NonNullable<PlotData["marks"]>, ink: string, font: string) {
  const { ctx, bbox } = plot;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  [ctx.fillStyle, ctx.strokeStyle, ctx.font] = [ink, ink, font.replace("11", String(11 * ratio))];
  ctx.textAlign = "left";
  ctx.textBaseline = "alphabetic";
  ctx.setLineDash([3 * ratio, 3 * ratio]);
  let end = -Infinity;
  let row = 0;
  for (const [step, text] of marks) {
    const x = plot.valToPos(step, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const width = ctx.measureText(text).width;
    const gap = 4 * ratio;
    const left = x + gap + width > bbox.left + bbox.width ? Math.max(bbox.left, x - gap - width) : x + gap;
    row = left < end ? (row + 1) % 4 : 0;
    end = left + width + 6 * ratio;
    ctx.fillText(text, left, bbox.top + (11 + 13 * row) * ratio);
  }
  ctx.restore();
}

export function createPlot(quantity: string, asPercent: boolean, ofBatch = true) {
  let chart: uPlot | null = null;
  const holder = h("div", { class: "mnb-plot-holder" });
  let points: PlotData = { x: [], train: [], validation: [] };
  let scaling: "linear" | "log" = "linear";
  let smoothing = 0;
  /** Whether a metric of a loop has no validation curve. */
  let isSingle = false;
  /** Height of the legend. */
  let legendPx = LEGEND_PX;
  /** The range of steps selected by dragging; null for all. */
  let range: [number, number] | null = null;
  const queue = oncePerFrame(draw);
  const root = h("figure", { class: "mnb-plot", role: "img", "aria-label": `${quantity} over steps` }, holder);
  const watcher = typeof ResizeObserver === "undefined" ? null : new ResizeObserver(resize);
  watcher?.observe(root);

  function destroy() {
    watcher?.disconnect();
    chart?.destroy();
    chart = null;
  }

  function set(data: PlotData, scale: "linear" | "log", weight: number) {
    const single = !ofBatch && !data.validation.some((value) => value !== null);
    // The legend has another text.
    const isOther = scale !== scaling || weight > 0 !== smoothing > 0 || single !== isSingle;
    isSingle = single;
    [points, scaling, smoothing] = [data, scale, weight];
    if (isOther) recreate();
    else queue();
  }

  /** Recreate the plot, for example after a theme change. */
  function recreate() {
    range = null;
    chart?.destroy();
    chart = null;
    queue();
  }

  function aligned(): uPlot.AlignedData {
    const { x } = points;
    const train = smooth(points.train, smoothing);
    const { validation } = points;
    const kept = thin([train, validation], ...visibleRows(), holder.clientWidth);
    // Always include the first and last row, which set the axis range when the zoom is reset.
    if (x.length > 0 && kept[0] !== 0) kept.unshift(0);
    if (x.length > 1 && kept.at(-1) !== x.length - 1) kept.push(x.length - 1);
    // A logarithmic axis cannot show values of 0 or below.
    const least = scaling === "log" ? Number.MIN_VALUE : -Infinity;
    const shown = (line: readonly (number | null)[]) =>
      kept.map((i) => (line[i] != null && line[i]! >= least ? line[i]! : null));
    return [kept.map((i) => x[i] ?? i), shown(train), ...(isSingle ? [] : [shown(validation)])];
  }

  /** Return the rows within the zoom and one more on each side, so that lines reach the edge. */
  function visibleRows(): [number, number] {
    const { x } = points;
    if (!range) return [0, x.length];
    const [least, most] = range;
    const first = x.findIndex((step) => step! >= least);
    const after = x.findIndex((step) => step! > most);
    return [Math.max(0, (first < 0 ? x.length : first) - 1), after < 0 ? x.length : after + 1];
  }

  function zoomed(plot: uPlot) {
    const { min, max } = plot.scales["x"]!;
    const x = plot.data[0];
    const zoom: [number, number] | null =
      min == null || max == null || (min <= x[0]! && max >= x.at(-1)!) ? null : [min, max];
    if (zoom?.join() === range?.join()) return;
    range = zoom;
    queue();
  }

  function draw() {
    if (holder.clientWidth < 40) {
      // Wait for a size. JupyterLab hides everything for less than a frame when the theme changes, which is no new
      // size.
      watcher?.unobserve(root);
      watcher?.observe(root);
      return;
    }
    const zoom = range;
    const shown = chart;
    if (!shown) chart = make();
    else if (!zoom) shown.setData(aligned());
    else
      shown.batch(() => {
        shown.setData(aligned(), false);
        shown.setScale("x", { min: zoom[0], max: zoom[1] });
      });
    const last = points.train.findLast((value) => value !== null);
    attr(root, "aria-label", `${quantity} over steps, ${ofBatch ? "in the last batch" : "now"} ${figure(last)}`);
  }

  function resize() {
    const { clientWidth: width, clientHeight: height } = holder;
    if (width < 40) return;
    legendPx = LEGEND_PX;
    if (chart) chart.setSize({ width, height: heightIn(height) });
    queue();
  }

  /**
   * Leave room for all rows of the legend. It only grows, so that the plot does not move with the values under the
   * pointer.
   */
  function fitLegend() {
    const legend = holder.querySelector<HTMLElement>(".u-legend")?.offsetHeight ?? 0;
    if (!chart || legend <= legendPx) return;
    legendPx = legend;
    chart.setSize({ width: holder.clientWidth, height: heightIn(holder.clientHeight) });
  }

  function heightIn(available: number) {
    return Math.max(90, available - legendPx);
  }

  function make() {
    const ink = cssVar(root, "--mnb-muted", "#555");
    const grid = cssVar(root, "--mnb-grid", "#ddd");
    const font = `11px ${cssVar(root, "--mnb-ui", "sans-serif")}`;
    const axis = {
      stroke: ink,
      font,
      labelFont: font,
      grid: { stroke: grid, width: 1 },
      ticks: { stroke: grid, width: 1, size: 4 },
    };
    const value = (plot: uPlot, shown: number | null, series: number, at: number | null) => {
      // Validation is computed once per epoch; between epochs, show its last value.
      const current =
        shown ??
        (plot.data[series] as (number | null)[]).slice(0, (at ?? -1) + 1).findLast((point) => point !== null) ??
        null;
      return current === null ? "–" : asPercent ? `${(current * 100).toFixed(1)} %` : figure(current);
    };
    const hasValidation = points.validation.some((point) => point !== null);
    return new uPlot(
      {
        width: holder.clientWidth,
        height: heightIn(holder.clientHeight),
        padding: [8, 12, 0, 0],
        cursor: {
          drag: { x: true, y: false },
          points: { size: 6 },
          move: (plot, left, top) => [left / zoomOf(plot.over), top / zoomOf(plot.over)],
        },
        // Without a pointer over the plot, show the last step in the legend; uPlot does not update it on new data.
        hooks: {
          draw: [() => queueMicrotask(fitLegend), (plot) => drawMarks(plot, points.marks ?? [], ink, font)],
          setScale: [(plot, scale) => scale === "x" && zoomed(plot)],
          setLegend: [
            (plot) =>
              plot.cursor.idx == null &&
              plot.data[0].length > 0 &&
              plot.setLegend({ idx: plot.data[0].length - 1 }, false),
          ],
        },
        scales: {
          x: { time: false },
          y: { distr: scaling === "log" ? 3 : 1, ...(asPercent ? { range: shareRange } : {}) },
        },
        axes: [
          { ...axis, size: 26, gap: 3, space: tickSpace, incrs: STEP_INCREMENTS },
          {
            ...axis,
            size: 48,
            gap: 3,
            values: (_u, splits) =>
              splits.map((split) =>
                split === null ? "" : asPercent ? `${Math.round(split * 100)} %` : String(Number(split.toPrecision(3))),
              ),
          },
        ],
        series: [
          { label: "step", value: (_u: uPlot, shown: number | null) => (shown === null ? "–" : String(shown)) },
          {
            label: `${ofBatch ? "batch " : ""}${quantity}${smoothing > 0 ? ", smoothed" : ""}`,
            stroke: cssVar(root, "--mnb-train", "#0072B2"),
            width: 1.5,
            points: { show: false },
            spanGaps: true,
            value,
          },
          {
            label: `validation ${quantity}`,
            stroke: cssVar(root, "--mnb-validation", "#D55E00"),
            width: 1.5,
            dash: [6, 3],
            points: { show: hasValidation, size: 5 },
            spanGaps: true,
            value,
          },
        ].slice(0, isSingle ? 2 : 3),
      },
      aligned(),
      holder,
    );
  }

  return { root, set, destroy, recreate };
}
