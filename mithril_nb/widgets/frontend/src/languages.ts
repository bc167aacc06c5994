/** Small tokenisers for the stages: enough to tell operations, types, values and numbers apart. */

import { type Extension, RangeSetBuilder } from "@codemirror/state";
import { Decoration, type DecorationSet, type EditorView, ViewPlugin, type ViewUpdate } from "@codemirror/view";

export type Rule = [RegExp, string | null];

export interface Token {
  from: number;
  to: number;
  name: string;
}

/** Longer lines are constants: what is past this is left plain. */
const MOST_CHARACTERS = 4000;

/** Tokens of one line: at each place the first rule that fits; a character that none takes is plain. */
export function tokens(rules: readonly Rule[], line: string): Token[] {
  const found: Token[] = [];
  const end = Math.min(line.length, MOST_CHARACTERS);
  let at = 0;
  while (at < end) {
    const rest = line.slice(at, end);
    let length = /^\s+/.exec(rest)?.[0].length ?? 0;
    for (const [pattern, name] of length ? [] : rules) {
      length = pattern.exec(rest)?.[0].length ?? 0;
      if (length === 0) continue;
      if (name) found.push({ from: at, to: at + length, name });
      break;
    }
    at += length || 1;
  }
  return found;
}

const JAXPR: Rule[] = [
  [/^#.*/, "comment"],
  [/^"(?:[^"\\]|\\.)*"/, "string"],
  [/^(?:lambda|let|in)\b/, "op"],
  // Type of a value: f32[32,64], i32[]
  [/^(?:bool|[fiuc]\d+|bf16|f8_\w+|key<\w+>)\[[^\]\s]*\]/, "type"],
  [/^-?\d+(?:\.\d*)?(?:e[-+]?\d+)?\b/, "number"],
  [/^[A-Za-z_]\w*(?=\[|:(?!\w+\[))/, "op"],
  // Parameters: axes=(0,)
  [/^[a-z_]\w*(?==)/, "name"],
  // Values have short names; longer words are primitives.
  [/^[a-z]{1,3}(?![\w.])/, "value"],
  [/^[A-Za-z_][\w.]*/, "op"],
  [/^[={};]/, "punctuation"],
];

const MLIR: Rule[] = [
  [/^\/\/.*/, "comment"],
  [/^"(?:[^"\\]|\\.)*"/, "string"],
  [/^%[\w$.#-]+/, "value"],
  [/^[@#^][\w$.-]+/, "meta"],
  [/^(?:tensor|memref|vector)<[^>]*>/, "type"],
  [/^(?:stablehlo|chlo|mhlo|func|sdy|mpmd|builtin|arith)\.\w+/, "op"],
  [/^(?:module|return|call)\b/, "op"],
  [/^-?(?:0x[\dA-Fa-f]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?)(?![\w])/, "number"],
  [/^!?[a-z_]\w*(?=\s*=)/, "name"],
  [/^(?:[fiu]\d+|index|bf16)\b/, "type"],
  [/^[A-Za-z_][\w.]*/, null],
  [/^->|^[=:{}]/, "punctuation"],
];

const HLO: Rule[] = [
  [/^\/\*.*?\*\//, "comment"],
  [/^\/\/.*/, "comment"],
  [/^"(?:[^"\\]|\\.)*"/, "string"],
  [/^%[\w.-]+/, "value"],
  [/^(?:HloModule|ENTRY|ROOT)\b/, "meta"],
  [/^(?:pred|token|opaque|bf16|[fsuc]\d+(?:e\d+m\d+\w*)?)\[[^\]]*\](?:\{[^}]*\})?/, "type"],
  [/^[a-z_]\w*(?==)/, "name"],
  // The opcode stands before its operands.
  [/^[a-z][\w-]*(?=\()/, "op"],
  [/^-?(?:\d+(?:\.\d*)?(?:e[-+]?\d+)?)(?![\w.])/, "number"],
  [/^[A-Za-z_][\w.-]*/, null],
  [/^->|^[={}]/, "punctuation"],
];

const PYTHON: Rule[] = [
  [/^#.*/, "comment"],
  [/^[rbf]*"""[^]*?"""/, "string"],
  [/^[rbf]*"(?:[^"\\]|\\.)*"|^[rbf]*'(?:[^'\\]|\\.)*'/, "string"],
  [/^(?:from|import|as|def|class|return|for|in|if|else|with|lambda|None|True|False|and|or|not)\b/, "op"],
  [/^[A-Za-z_]\w*(?=\s*=[^=])/, "name"],
  [/^[A-Z]\w*/, "type"],
  [/^\d[\d_]*(?:\.\d*)?(?:e[-+]?\d+)?/, "number"],
  [/^[A-Za-z_]\w*/, null],
];

export const RULES: Record<string, Rule[]> = { jaxpr: JAXPR, stablehlo: MLIR, hlo: HLO, python: PYTHON };

/** Drawn as the text around them: a mark would cost the page an element each, and they are the most. */
const PLAIN = new Set(["value", "punctuation"]);
const MARKS = new Map<string, Decoration>();

/** Colours are CSS classes, so that they follow the theme without making the editor anew. */
function markOf(name: string): Decoration {
  let mark = MARKS.get(name);
  if (!mark) MARKS.set(name, (mark = Decoration.mark({ class: `mnb-t-${name}` })));
  return mark;
}

function colour(view: EditorView, rules: readonly Rule[]): DecorationSet {
  const builder = new RangeSetBuilder<Decoration>();
  for (const { from, to } of view.visibleRanges) {
    for (let at = from; at <= to; ) {
      const line = view.state.doc.lineAt(at);
      for (const token of tokens(rules, line.text)) if (!PLAIN.has(token.name)) builder.add(line.from + token.from, line.from + token.to, markOf(token.name));
      at = line.to + 1;
    }
  }
  return builder.finish();
}

/** Colours the lines in sight. Every line stands alone in these texts, so no parser has to read what lies above. */
export function languageOf(stage: string): Extension {
  const rules = RULES[stage] ?? HLO;
  return ViewPlugin.fromClass(
    class {
      decorations: DecorationSet;
      constructor(view: EditorView) {
        this.decorations = colour(view, rules);
      }
      update(update: ViewUpdate): void {
        if (update.docChanged || update.viewportChanged) this.decorations = colour(update.view, rules);
      }
    },
    { decorations: (plugin) => plugin.decorations },
  );
}

export const STAGE_TITLES: Record<string, string> = { jaxpr: "jaxpr", stablehlo: "StableHLO", hlo: "HLO", python: "Python" };

/** What is done to reach a stage: the word that the running clock shows. */
export const STAGE_VERBS: Record<string, string> = { jaxpr: "Tracing", stablehlo: "Lowering", hlo: "Compiling" };

export function titleOf(stage: string): string {
  return STAGE_TITLES[stage] ?? stage;
}
