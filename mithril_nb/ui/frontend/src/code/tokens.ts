/** Splits lines into tokens by the rules of viz/tokens.json, which Python uses too. */

import definition from "../../../../viz/tokens.json";

/** Pattern and name of a token. A token with `end` continues, also over lines, until `end` matches. */
export interface Rule {
  pattern: RegExp;
  name: string | null;
  end: RegExp | null;
}

interface Token {
  from: number;
  to: number;
  name: string;
}

/** Split a line into tokens. The first matching rule applies; unmatched characters are plain. */
export function tokens(rules: readonly Rule[], line: string): Token[] {
  return tokensFrom(rules, line, null).found;
}

/** Split a line into tokens, given the token open at its start; also return the token open at its end. */
export function tokensFrom(
  rules: readonly Rule[],
  line: string,
  open: Rule | null,
): { found: Token[]; open: Rule | null } {
  const found: Token[] = [];
  // Longer lines are constants; their rest stays plain.
  const text = line.slice(0, definition.longest);
  let at = 0;
  while (at < text.length) {
    const from = at;
    let name: string | null = null;
    if (!open) {
      let rule: Rule | undefined;
      for (const candidate of rules) {
        candidate.pattern.lastIndex = at;
        if (candidate.pattern.test(text) && candidate.pattern.lastIndex > at) {
          rule = candidate;
          break;
        }
      }
      at = rule ? rule.pattern.lastIndex : at + String.fromCodePoint(text.codePointAt(at)!).length;
      name = rule?.name ?? null;
      if (rule?.end) open = rule;
    }
    if (open?.end) {
      open.end.lastIndex = at;
      const closed = open.end.exec(text);
      at = closed ? open.end.lastIndex : text.length;
      name = open.name;
      if (closed) open = null;
    }
    if (name) found.push({ from, to: at, name });
  }
  return { found, open };
}

function rulesOf(language: (string | null)[][]): Rule[] {
  // Sticky: a pattern matches at `lastIndex`, and lookbehind can see the text before it.
  return language.map(([pattern, name, end]) => ({
    pattern: new RegExp(pattern!, "uy"),
    name: name ?? null,
    end: end ? new RegExp(end, "ug") : null,
  }));
}

/** The rules of each language. */
export const RULES: Record<string, Rule[]> = Object.fromEntries(
  Object.entries(definition.languages).map(([name, language]) => [name, rulesOf(language)]),
);
