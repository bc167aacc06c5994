/** Number formatting: SI prefixes with three digits, and exact values for tooltips. */

const PREFIXES = ["", "k", "M", "G", "T", "P", "E"];

function digits(value: number): string {
  const size = Math.abs(value);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

/** `84200000, "FLOP"` → `84.2 MFLOP`. Unknown is an en dash, never 0. */
export function si(value: number | null | undefined, unit = ""): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return unit ? `0 ${unit}` : "0";
  const sign = value < 0 ? "−" : "";
  let size = Math.abs(value);
  let step = 0;
  // 999.5 would print as "1000", so use the next prefix from there on.
  while (size >= 999.5 && step < PREFIXES.length - 1) {
    size /= 1000;
    step += 1;
  }
  const number = step === 0 && Number.isInteger(size) ? String(size) : digits(size);
  return `${sign}${number}${unit || PREFIXES[step] ? " " : ""}${PREFIXES[step]}${unit}`;
}

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0 s";
  if (value < 0.9995e-3) return `${Number((value * 1e6).toPrecision(3))} µs`;
  if (value < 0.9995) return `${Number((value * 1e3).toPrecision(3))} ms`;
  if (value < 60) return `${value < 9.95 ? value.toFixed(1) : value.toFixed(0)} s`;
  const whole = Math.round(value);
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes} min ${whole % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** `0.4312` → `43.1 %`. */
export function percent(share: number | null | undefined, places = 1): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  const value = share * 100;
  if (value > 0 && value < 0.1) return "< 0.1 %";
  return `${value.toFixed(places)} %`;
}

/** The exact value for a tooltip: `84,200,000 FLOP`. */
export function exact(value: number | null | undefined, unit = ""): string {
  if (value === null || value === undefined) return "unknown";
  const number = Number.isInteger(value) ? value.toLocaleString("en-US") : String(value);
  return unit ? `${number} ${unit}` : number;
}

/** Format a loss or metric with three or four significant digits. */
export function figure(value: number | null | undefined): string {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(2);
  return value.toPrecision(4);
}

/** Format a learning rate or other setting with up to three digits: `0.001`, `3.2e-5`. */
export function short(value: number): string {
  if (value === 0) return "0";
  const rounded = Number(value.toPrecision(3));
  return Math.abs(rounded) < 1e-3 || Math.abs(rounded) >= 1e6 ? rounded.toExponential().replace("e+", "e") : String(rounded);
}

/** Return the position 0..1000 of a value on a logarithmic slider; value 0 is at the left end if min is 0. */
export function toSlider(value: number, min: number, max: number): number {
  const low = min > 0 ? min : Math.min(1e-4, max / 1e4);
  if (value <= low) return 0;
  return Math.round((1000 * Math.log(value / low)) / Math.log(max / low));
}

/** Return the value at a slider position: an integer, or a float with three digits. */
export function fromSlider(position: number, min: number, max: number, integer: boolean): number {
  if (position <= 0) return min;
  if (position >= 1000) return max;
  const low = min > 0 ? min : Math.min(1e-4, max / 1e4);
  const value = low * Math.pow(max / low, position / 1000);
  const clipped = Math.min(max, Math.max(min, value));
  return integer ? Math.round(clipped) : Number(clipped.toPrecision(3));
}
