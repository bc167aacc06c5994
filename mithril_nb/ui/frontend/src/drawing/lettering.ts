/** Texts on a canvas: one line each, shortened in the middle; widths are measured once. */

const MOST_KEPT = 20_000;
/** Longer names are cut before they are measured. */
const LONGEST = 300;
const BREAKS = /\t*[\n\v\f\r\x85\u2028\u2029][\t\n\v\f\r\x85\u2028\u2029]*/g;
const UNPRINTABLE = new RegExp(
  String.raw`[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]|` +
    String.raw`[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]`,
  "g",
);

/**
 * Return a text as one line, like `one_line` in the kernel.
 * Line breaks become `⏎`, tabs become spaces, and unprintable characters become escapes.
 */
export function oneLine(text: string): string {
  return text
    .replace(BREAKS, "⏎")
    .replaceAll("\t", " ")
    .replace(UNPRINTABLE, (found) => {
      const code = found.charCodeAt(0);
      return code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
    });
}

/** Return a name with its repeat count, if above 1. */
export function times(name: string, repeat: number): string {
  return repeat > 1 ? `${name} ×${repeat}` : name;
}

export function createLettering(context: CanvasRenderingContext2D, family: string) {
  let widths = new Map<string, number>();
  let cuts = new Map<string, string>();
  let used = "";

  /** Use a font of a size in px for the following texts. */
  function use(size: number, bold = false) {
    const font = `${bold ? "600 " : ""}${size}px ${family}`;
    // Setting the same font again takes as long as drawing a text.
    if (font !== used) context.font = used = font;
  }

  /** Forget the font, because the context was reset. */
  function reset() {
    used = "";
  }

  /** Return the width in px of a text at a size. */
  function widthOf(text: string, size: number, bold = false) {
    const key = `${bold ? "b" : ""}${text}`;
    let width = widths.get(key);
    if (width === undefined) {
      if (widths.size > MOST_KEPT) widths.clear();
      // Measured at one size: widths are proportional to it.
      use(100, bold);
      width = context.measureText(text).width / 100;
      widths.set(key, width);
    }
    return width * size;
  }

  /**
   * Return one line of a text, shortened to a width by replacing its middle with `…`; "" if not even `…` fits.
   * The end is kept because names often differ in their ends: `linear_0`, `linear_1`.
   */
  function fit(text: string, size: number, room: number, bold = false) {
    const key =
      `${bold ? "b" : ""}${Math.round((room / size) * 8)} ` +
      `${text.length > LONGEST ? text.slice(0, LONGEST) + text.slice(-LONGEST) : text}`;
    let cut = cuts.get(key);
    if (cut === undefined) {
      if (cuts.size > MOST_KEPT) cuts.clear();
      cut = shortened(text, size, room, bold);
      cuts.set(key, cut);
    }
    return cut;
  }

  function shortened(text: string, size: number, room: number, bold: boolean) {
    const line = oneLine(text.length > 2 * LONGEST ? `${text.slice(0, LONGEST)}${text.slice(-LONGEST)}` : text);
    if (text.length <= 2 * LONGEST && widthOf(line, size, bold) <= room) return line;
    const characters = Array.from(line);
    const kept = (count: number) => {
      const tail = Math.floor(count / 3);
      return `${characters.slice(0, count - tail).join("")}…${tail ? characters.slice(-tail).join("") : ""}`;
    };
    let [low, high] = [-1, Math.min(characters.length - 1, LONGEST)];
    while (low < high) {
      const count = Math.ceil((low + high) / 2);
      // Not cached: a search measures a dozen texts that are never drawn.
      use(100, bold);
      if ((context.measureText(kept(count)).width / 100) * size <= room) low = count;
      else high = count - 1;
    }
    return low < 0 ? "" : kept(low);
  }

  return { family, use, reset, width: widthOf, fit };
}

export type Lettering = ReturnType<typeof createLettering>;
