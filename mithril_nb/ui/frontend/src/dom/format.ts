/**
 * Number formatting: SI prefixes with three digits, and exact values for tooltips; the same texts as `viz/units.py`.
 */

const PREFIXES = ["", "k", "M", "G", "T", "P", "E"];
const SMALL = [
  ["s", 1],
  ["ms", 1e-3],
  ["µs", 1e-6],
  ["ns", 1e-9],
] as const;
/** Larger values have no prefix, or too many digits. */
const [MOST_PREFIXED, MOST_EXACT] = [1e21, 1e30];

/** Like `toFixed`, with halves rounded to even digits as in Python. */
function fixed(value: number, places: number) {
  const halves = value * 2 ** (places + 1); // exact; an odd integer exactly for a number in the middle of two
  if (!Number.isInteger(halves) || halves % 2 === 0) return value.toFixed(places);
  const below = Math.floor(value * 10 ** places);
  return ((below + (below % 2)) / 10 ** places).toFixed(places);
}

/** Three significant digits of a number from 0 to 1000. */
function threeFigures(value: number) {
  return fixed(value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2);
}

/** Return an exponent as Python writes it: `1e-7` is `1e-07`. */
function asInPython(text: string) {
  return text.replace(/e([+-])(\d)$/, "e$10$2");
}

/** `84200` → `84,200`. */
export function grouped(value: number): string {
  return value.toLocaleString("en-US");
}

/** `1, "match"` → `1 match`; `1200, "match"` → `1,200 matches`. */
export function counted(
  count: number,
  noun: string,
  many = `${noun}${noun.endsWith("ch") || noun.endsWith("ss") ? "es" : "s"}`,
): string {
  return `${grouped(count)} ${count === 1 ? noun : many}`;
}

/** `84200000, "FLOP"` → `84.2 MFLOP`. Unknown is an en dash, never 0. */
export function si(value: number | null | undefined, unit = ""): string {
  if (value == null || !Number.isFinite(value)) return "–";
  let size = Math.abs(value);
  if (size >= MOST_PREFIXED) return `${value.toExponential(2)} ${unit}`.trimEnd();
  let step = 0;
  // 999.5 of a prefix would print as "1000", so use the next prefix from there on.
  while (size >= (step ? 999.5 : 1000) && step < PREFIXES.length - 1) {
    size /= 1000;
    step += 1;
  }
  const number = step === 0 && Number.isInteger(size) ? String(size) : threeFigures(size);
  return `${value < 0 ? "-" : ""}${number} ${PREFIXES[step]}${unit}`.trimEnd();
}

export function seconds(value: number | null | undefined): string {
  if (value == null || !Number.isFinite(value)) return "–";
  if (value >= MOST_PREFIXED) return `${value.toExponential(2)} s`;
  if (value >= 59.95) {
    const whole = Number(fixed(value, 0));
    const minutes = Math.floor((whole % 3600) / 60);
    return whole < 3600 ? `${minutes} min ${whole % 60} s` : `${Math.floor(whole / 3600)} h ${minutes} min`;
  }
  if (value <= 0) return "0 s";
  const [unit, size] = SMALL.find(([, one]) => value >= one * 0.9995) ?? SMALL[3];
  return `${threeFigures(value / size)} ${unit}`;
}

/** The time since a start, which counts up: with few digits, so that its width changes rarely. */
export function elapsed(value: number): string {
  return value < 0.9995 || value >= 59.5 ? seconds(value) : `${value.toFixed(value < 9.95 ? 1 : 0)} s`;
}

/** `0.4312` → `43.1 %`. A share that would round to 0 or 100 % is shown as `<` or `>`. */
export function percent(share: number | null | undefined, places = 1): string {
  if (share == null || !Number.isFinite(share)) return "–";
  if (share === 0 || share === 1) return `${share * 100} %`;
  const step = 10 ** -places;
  if (share > 0 && share * 100 < step) return `< ${fixed(step, places)} %`;
  if (share >= 1 - step / 200 && share < 1) return `> ${fixed(100 - step, places)} %`;
  return `${share < 0 ? "-" : ""}${fixed(Math.abs(share * 100), places)} %`;
}

/** The exact value for a tooltip: `84,200,000 FLOP`. */
export function exact(value: number | null | undefined, unit = ""): string {
  if (value == null) return "unknown";
  return `${exactNumber(value)} ${unit}`.trimEnd();
}

function exactNumber(value: number) {
  const size = Math.abs(value);
  if (size >= MOST_EXACT) return value.toExponential(20);
  if (Number.isInteger(value)) return BigInt(value).toLocaleString("en-US");
  if (size < 1e-4) return asInPython(value.toExponential());
  const [whole, fraction] = String(value).split(".");
  return `${Number(whole) === 0 ? whole : grouped(Number(whole))}.${fraction}`;
}

/** The exact time for a tooltip, with nine digits. */
export function exactSeconds(value: number): string {
  const [digits, power] = value.toExponential(8).split("e") as [string, string];
  const isPlain = Number(power) >= -4 && Number(power) < 9;
  return `${isPlain ? String(Number(value.toPrecision(9))) : asInPython(`${Number(digits)}e${power}`)} s`;
}

/** Format a loss or metric with three or four significant digits. */
export function figure(value: number | null | undefined): string {
  if (value == null || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e5)) return value.toExponential(2);
  return value.toPrecision(4);
}

/** Format a learning rate or other setting with up to three digits: `0.001`, `3.2e-5`. */
export function short(value: number): string {
  if (value === 0) return "0";
  const rounded = Number(value.toPrecision(3));
  return Math.abs(rounded) < 1e-3 || Math.abs(rounded) >= 1e6
    ? rounded.toExponential().replace("e+", "e")
    : String(rounded);
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
