/** Diffs side by side, and the motion between panes. */

import { expect, test } from "vitest";
import { type Sides, sidesOf } from "../src/code/diff-sides";
import { merged } from "../src/stages/traces";

/** Return the rows as "sign line | sign line". */
function rows({ left, right }: Sides): string[] {
  return left.lines.map((line, i) => `${left.signs[i]}${line} | ${right.signs[i]}${right.lines[i]}`);
}

test("instructions with the same name share a row", () => {
  const sides = sidesOf(
    "@@ -1,4 +1,4 @@ %main\n   %a = add(x)\n-  %gone = neg(x)\n-  %b = mul(x, y)\n-  %c = sub(x)\n+  %b = " +
      "mul(x, z)\n+  %new = exp(x)\n+  %c = sub(y)\n   %d = f(x)\n",
  );
  expect(rows(sides)).toEqual([
    "@@@ -1,4 +1,4 @@ %main | @@@ -1,4 +1,4 @@ %main",
    "   %a = add(x) |    %a = add(x)",
    "-  %gone = neg(x) | ",
    "-  %b = mul(x, y) | +  %b = mul(x, z)",
    " | +  %new = exp(x)",
    "-  %c = sub(x) | +  %c = sub(y)",
    "   %d = f(x) |    %d = f(x)",
  ]);
  const [from, to] = sides.left.parts.get(4)!;
  expect([sides.left.lines[3]!.slice(from, to), sides.right.lines[3]!.slice(...sides.right.parts.get(4)!)]).toEqual([
    "y",
    "z",
  ]);
  expect([4, 7, 8].map((line) => sides.rowOf[line])).toEqual([4, 5, 6]);
});

test("other changed lines fill the same rows, and an empty diff has none", () => {
  expect(rows(sidesOf("-a\n-b\n+c\n"))).toEqual(["-a | +c", "-b | "]);
  expect(rows(sidesOf(""))).toEqual([]);
});

test("each line of a random diff is in one row of its side, in order", () => {
  let seed = 99;
  const next = (): number => (seed = (seed * 16807) % 2147483647) / 2147483647;
  for (let round = 0; round < 50; round++) {
    const lines = Array.from(
      { length: 60 },
      () => `${"-+ @"[Math.floor(next() * 4)]}  %n${Math.floor(next() * 9)} = op(${Math.floor(next() * 99)})`,
    );
    const { left, right, rowOf } = sidesOf(`${lines.join("\n")}\n`);
    expect(left.lines.length).toBe(right.lines.length);
    for (const [side, sign] of [
      [left, "-"],
      [right, "+"],
    ] as const) {
      const mine = lines.filter((line) => line[0] === sign || line[0] === " " || line[0] === "@");
      expect(
        side.lines
          .filter((_, i) => side.signs[i] !== "")
          .map((line, i) => (mine[i]![0] === "@" ? line : `${mine[i]![0]}${line}`)),
      ).toEqual(mine);
    }
    lines.forEach((line, i) =>
      expect(
        [left, right].some(({ lines: all }) => line.endsWith(all[rowOf[i + 1]! - 1]!) && all[rowOf[i + 1]! - 1] !== ""),
      ).toBe(true),
    );
  }
});

test("traces start and end at whole runs of rows in sight", () => {
  const row = (top: number): { left: number; top: number; width: number; height: number } => ({
    left: 5,
    top,
    width: 900,
    height: 17,
  });
  expect(
    merged([row(-30), row(-10), row(7), row(24), row(92), row(120)], { left: 0, top: 0, width: 300, height: 100 }),
  ).toEqual([
    { left: 0, top: 0, width: 300, height: 41 },
    { left: 0, top: 92, width: 300, height: 8 },
  ]);
});
