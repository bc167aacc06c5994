/** A unified diff as two sides with aligned rows. Pure: no DOM. */

/** The sign of a row: removed, added, unchanged, title of a computation, or nothing on this side. */
export type Sign = "-" | "+" | " " | "@" | "";

interface Side {
  /** The lines without their signs, one for each row. */
  lines: string[];
  signs: Sign[];
  /** The changed characters of rows whose instruction is on both sides. */
  parts: Map<number, readonly [from: number, to: number]>;
}

export interface Sides {
  left: Side;
  right: Side;
  /** The row of each line of the diff. Lines and rows are counted from 1; index 0 is unused. */
  rowOf: number[];
}

/** A line of the diff with its number. */
type Numbered = readonly [number: number, content: string];

const NAME = /^\s*(?:ROOT )?(%?[\w.-]+) = /;

/** Split a diff. Instructions with the same name share a row; other changed lines fill the rows between them. */
export function sidesOf(diff: string): Sides {
  const left: Side = { lines: [], signs: [], parts: new Map() };
  const right: Side = { lines: [], signs: [], parts: new Map() };
  const rowOf: number[] = [0];
  const push = (before: Numbered | undefined, after: Numbered | undefined, signs: readonly [Sign, Sign]) => {
    left.lines.push(before?.[1] ?? "");
    right.lines.push(after?.[1] ?? "");
    left.signs.push(before ? signs[0] : "");
    right.signs.push(after ? signs[1] : "");
    for (const one of [before, after]) if (one) rowOf[one[0]] = left.lines.length;
  };
  let removed: Numbered[] = [];
  let added: Numbered[] = [];
  const zip = (before: readonly Numbered[], after: readonly Numbered[]) => {
    for (let i = 0; i < Math.max(before.length, after.length); i++) push(before[i], after[i], ["-", "+"]);
  };
  const flush = () => {
    const places = new Map(added.map(([, content], i) => [NAME.exec(content)?.[1], i]));
    let [done, free] = [0, [] as Numbered[]];
    for (const line of removed) {
      const name = NAME.exec(line[1])?.[1];
      const place = name === undefined ? undefined : places.get(name);
      if (place === undefined || place < done) {
        free.push(line);
        continue;
      }
      zip(free, added.slice(done, place));
      const match = added[place]!;
      push(line, match, ["-", "+"]);
      const [before, after] = changedPart(line[1], match[1]);
      left.parts.set(left.lines.length, before);
      right.parts.set(right.lines.length, after);
      [done, free] = [place + 1, []];
    }
    zip(free, added.slice(done));
    [removed, added] = [[], []];
  };
  diff.split("\n").forEach((line, i) => {
    if (line === "") return;
    const entry: Numbered = [i + 1, line.slice(1)];
    if (line[0] === "-") removed.push(entry);
    else if (line[0] === "+") added.push(entry);
    else {
      flush();
      const title: Numbered = line[0] === "@" ? [i + 1, line] : entry;
      const sign: Sign = line[0] === "@" ? "@" : " ";
      push(title, title, [sign, sign]);
    }
  });
  flush();
  return { left, right, rowOf };
}

/** Return the characters between the common start and the common end of two lines. */
function changedPart(
  before: string,
  after: string,
): [before: readonly [number, number], after: readonly [number, number]] {
  const least = Math.min(before.length, after.length);
  let start = 0;
  while (start < least && before[start] === after[start]) start++;
  let end = 0;
  while (end < least - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  return [
    [start, before.length - end],
    [start, after.length - end],
  ];
}
