/** Checks that TypeScript and Python split the lines of a golden file into the same tokens. */

import { EditorState } from "@codemirror/state";
import { visibleLines } from "../src/code/visible-lines";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { RULES, type Rule, tokensFrom } from "../src/code/tokens";

const golden = JSON.parse(
  readFileSync(join(import.meta.dirname, "../../../../tests/viz/golden/tokens.json"), "utf8"),
) as Record<string, [string, [string, string][]][]>;

describe("tokens", () => {
  test.each(Object.keys(golden))("of %s match those of Python", (language) => {
    let open: Rule | null = null;
    for (const [line, expected] of golden[language]!) {
      const read = tokensFrom(RULES[language]!, line, open);
      open = read.open;
      expect(read.found.map(({ from, to, name }) => [name, line.slice(from, to)])).toEqual(expected);
    }
  });
  test("have rules for every language", () => {
    expect(Object.keys(RULES).sort()).toEqual(Object.keys(golden).sort());
  });
});

test("colours a line with two visible ranges once", () => {
  const state = EditorState.create({ doc: "a\nlong line\nb" });
  const seen = (...ranges: [number, number][]): number[] =>
    [...visibleLines({ state, visibleRanges: ranges.map(([from, to]) => ({ from, to })) })].map((line) => line.number);
  expect(seen([2, 4], [8, 13])).toEqual([2, 3]);
  expect(seen([0, 13])).toEqual([1, 2, 3]);
});
