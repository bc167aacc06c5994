/** Marks in a code pane: linked lines and block stripes. Only visible lines get marks. */

import { type Extension, RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, type EditorView } from "@codemirror/view";
import type { StageText } from "../store/links";
import type { FoldRange } from "./fold-ranges";
import { folding, foldsOf, setFolds } from "./folding";
import { type StripeOf, margin } from "./margin";
import { decorated, visibleLines } from "./visible-lines";

export const HOVER = 1;
export const PINNED = 2;
export const INFERRED = 4;
export const KERNEL = 8;
/** A match of the search. */
export const FOUND = 16;

/** One byte of flags for each line, counted from 1. */
export type LineFlags = Uint8Array;

export const setFlags = StateEffect.define<LineFlags>();

const flagsField = StateField.define<LineFlags>({
  create: () => new Uint8Array(0),
  update(flags, transaction) {
    for (const effect of transaction.effects) if (effect.is(setFlags)) return effect.value;
    return flags;
  },
});

/**
 * Return the flags of a folded part, and the number of its pinned lines. The link is inferred if the links of all lines
 * are.
 */
function flagsInside(flags: LineFlags, { from, to }: FoldRange): [flags: number, pinned: number] {
  let [any, all, pinned] = [0, INFERRED | KERNEL, 0];
  for (let line = from; line <= to; line++) {
    const flag = flags[line] ?? 0;
    if (!flag) continue;
    any |= flag;
    all &= flag;
    pinned += Number((flag & PINNED) !== 0);
  }
  return [(any & (HOVER | PINNED | FOUND)) | (any ? all : 0), pinned];
}

function lineDecoration(line: number | null, flags: number, inside = 0) {
  const pinned = (flags & PINNED) !== 0;
  const isFound = (flags & FOUND) !== 0;
  if ((flags & (PINNED | HOVER)) === 0)
    return Decoration.line({
      class: "mnb-found",
      ...(line === null ? {} : { attributes: { "data-mnb-line": String(line) } }),
    });
  const names = [
    "mnb-linked",
    isFound ? "mnb-found" : "",
    pinned ? "mnb-pinned" : "",
    flags & HOVER ? "mnb-hovered" : "",
    flags & INFERRED ? "mnb-inferred" : "",
    flags & KERNEL ? "mnb-kernel" : "",
  ];
  const origin = flags & INFERRED ? "inferred" : flags & KERNEL ? "kernel" : "";
  return Decoration.line({
    class: names.filter(Boolean).join(" "),
    // A folded row is not a line of the text.
    attributes:
      line === null
        ? inside
          ? { "data-mnb-inside": `${inside} linked` }
          : undefined
        : {
            "data-mnb-line": String(line),
            "data-mnb-linked": pinned ? "pinned" : "hover",
            ...(origin ? { "data-mnb-origin": origin } : {}),
          },
  });
}

/** Marks the failing line of a program that cannot be traced. */
const FAILING = /^ *!! /;
const failing = Decoration.line({ class: "mnb-failing" });

function build(view: EditorView): DecorationSet {
  const flags = view.state.field(flagsField);
  const folds = foldsOf(view.state);
  const builder = new RangeSetBuilder<Decoration>();
  for (const line of visibleLines(view)) {
    const folded = folds.hiddenAt(line.number);
    // The last line of a folded part is visible too.
    if (folded && folded.from !== line.number) continue;
    const [flag, inside] = folded ? flagsInside(flags, folded) : [flags[line.number] ?? 0, 0];
    if (!folded && FAILING.test(line.text)) builder.add(line.from, line.from, failing);
    if (flag) builder.add(line.from, line.from, lineDecoration(folded ? null : line.number, flag, inside));
  }
  return builder.finish();
}

const linkedLines = decorated(build, ({ transactions }) =>
  transactions.some(({ effects }) => effects.some((effect) => effect.is(setFlags) || effect.is(setFolds))),
);

/** Return the stripe of each line: hue of the main block, pattern of the role. */
export function stripesOf(text: StageText, hueOf: (block: string) => number | null): StripeOf {
  return (line) => {
    const instruction = text.at(line);
    const block = instruction ? text.mainBlock(instruction) : null;
    const hue = block === null ? null : hueOf(block);
    return instruction && hue !== null ? `mnb-stripe mnb-hue-${hue} mnb-role-${instruction.role ?? "forward"}` : null;
  };
}

export const marks: Extension = [folding, flagsField, linkedLines, margin];
