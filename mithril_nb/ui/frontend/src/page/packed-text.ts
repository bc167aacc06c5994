/**
 * Long texts in their compact form: templates of lines, and their numbers as columns of differences; see
 * viz/pages/packed_text.py.
 */

export interface PackedText {
  templates: string[];
  lines: number[];
  addresses: string;
  numbers: string[];
}

const SIGN = /[\u0001-\u0003]/; // a decimal number, a hexadecimal one, and one with at least four digits

/** Return the text of a stage. */
export function textOf(packed: { text: string } | PackedText): string {
  if ("text" in packed) return packed.text;
  const { templates, lines, numbers } = packed;
  const addresses = counter(packed.addresses);
  const parts = templates.map((template) => template.split(SIGN));
  const signs = templates.map((template) => [...template].filter((letter) => SIGN.test(letter)));
  const columns: (() => number)[][] = [];
  let used = 0;
  return lines
    .map((key) => {
      const [texts, kinds] = [parts[key]!, signs[key]!];
      const isAddress = kinds[0] === "\u0003";
      const own = (columns[key] ??= kinds.slice(isAddress ? 1 : 0).map(() => counter(numbers[used++]!)));
      let line = texts[0]!;
      kinds.forEach((kind, at) => {
        const value = isAddress && at === 0 ? addresses() : own[at - (isAddress ? 1 : 0)]!();
        const digits =
          kind === "\u0001" ? String(value) : `0x${value.toString(16).padStart(kind === "\u0003" ? 4 : 1, "0")}`;
        line += digits + texts[at + 1]!;
      });
      return line;
    })
    .join("\n");
}

/** Return a function that returns the numbers of a column one after another. */
function counter(column: string) {
  const steps = column ? column.split(" ") : [];
  let [at, value] = [0, 0];
  return () => (value += Number(steps[at++]!));
}
