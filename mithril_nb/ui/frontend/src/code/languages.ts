/** Syntax colours of the stages in a code pane. */

import { type Extension, RangeSetBuilder } from "@codemirror/state";
import { Decoration, type DecorationSet, type EditorView } from "@codemirror/view";
import { getOrCreate } from "../dom/lists";
import { RULES, type Rule, tokensFrom } from "./tokens";
import { decorated, visibleLines } from "./visible-lines";

/** Tokens without a mark. They are the most frequent, and each mark would add an element to the page. */
const PLAIN = new Set(["value", "punctuation"]);
const MARKS = new Map<string, Decoration>();

/** Return the CSS class mark of a token. Classes follow the theme without recreating the editor. */
function markOf(name: string) {
  return getOrCreate(MARKS, name, () => Decoration.mark({ class: `mnb-t-${name}` }));
}

function colour(view: EditorView, rules: readonly Rule[]): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  const { doc } = view.state;
  // The lines above matter only if a token can span lines.
  const spans = rules.some((rule) => rule.end);
  let open: Rule | null = null;
  let read = 0;
  for (const line of visibleLines(view)) {
    if (spans) while (read < line.number - 1) open = tokensFrom(rules, doc.line(++read).text, open).open;
    const { found, open: stillOpen } = tokensFrom(rules, line.text, open);
    [open, read] = [spans ? stillOpen : null, line.number];
    for (const token of found)
      if (!PLAIN.has(token.name)) builder.add(line.from + token.from, line.from + token.to, markOf(token.name));
  }
  return builder.finish();
}

/** Return an extension that colours the visible lines; an unknown language is plain text. */
export function colouredAs(language: string): Extension {
  const rules = RULES[language] ?? [];
  return decorated((view) => colour(view, rules));
}
