/** Queries mean the same here as in Python: both are compared with `golden/queries.json`. */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { expect, test } from "vitest";
import { type Item, QueryError, matches, parseQuery } from "../src/search/query";

interface Case {
  text: string;
  terms?: [string, string, string | number, boolean][];
  matches?: number[];
  error?: [summary: string, advice: string];
}

const GOLDEN = JSON.parse(
  readFileSync(resolve(import.meta.dirname, "../../../../tests/viz/golden/queries.json"), "utf8"),
) as { items: Item[]; cases: Case[] };

function read(text: string): Case {
  try {
    const terms = parseQuery(text);
    const found = GOLDEN.items.flatMap((item, at) => (matches(terms, item) ? [at] : []));
    return {
      text,
      terms: terms.map(({ key, relation, value, isNegated }) => [key, relation, value, isNegated]),
      matches: found,
    };
  } catch (error) {
    if (!(error instanceof QueryError)) throw error;
    return { text, error: [error.message, error.advice] };
  }
}

test("queries are read, matched and rejected as in Python", () => {
  expect(GOLDEN.cases.length).toBeGreaterThan(300);
  expect(GOLDEN.cases.map(({ text }) => read(text))).toEqual(GOLDEN.cases);
});
