/** Marks in a code pane: linked lines, the block's stripe in the gutter. Only what is in sight gets decorations. */

import { type Extension, RangeSet, RangeSetBuilder, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, GutterMarker, ViewPlugin, type ViewUpdate, gutter } from "@codemirror/view";
import type { StageText } from "./links";
import { seenLines } from "./seen-lines";

export const HOVER = 1;
export const PINNED = 2;
export const INFERRED = 4;

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

function lineDecoration(line: number, flags: number): Decoration {
  const pinned = (flags & PINNED) !== 0;
  const names = ["mnb-linked", pinned ? "mnb-pinned" : "", flags & HOVER ? "mnb-hovered" : "", flags & INFERRED ? "mnb-inferred" : ""];
  return Decoration.line({
    class: names.filter(Boolean).join(" "),
    attributes: { "data-mnb-line": String(line), "data-mnb-linked": pinned ? "pinned" : "hover", ...(flags & INFERRED ? { "data-mnb-origin": "inferred" } : {}) },
  });
}

/** Where a program that cannot be traced went wrong, as the kernel marks it. */
const FAILING = /^ *!! /;
const failing = Decoration.line({ class: "mnb-failing" });

function build(view: EditorView): DecorationSet {
  const flags = view.state.field(flagsField);
  const builder = new RangeSetBuilder<Decoration>();
  for (const line of seenLines(view)) {
    const flag = flags[line.number] ?? 0;
    if (FAILING.test(line.text)) builder.add(line.from, line.from, failing);
    if (flag) builder.add(line.from, line.from, lineDecoration(line.number, flag));
  }
  return builder.finish();
}

const linkedLines = ViewPlugin.fromClass(
  class {
    decorations: DecorationSet;
    constructor(view: EditorView) {
      this.decorations = build(view);
    }
    update(update: ViewUpdate): void {
      const flagged = update.transactions.some((transaction) => transaction.effects.some((effect) => effect.is(setFlags)));
      if (flagged || update.docChanged || update.viewportChanged) this.decorations = build(update.view);
    }
  },
  { decorations: (plugin) => plugin.decorations },
);

class Stripe extends GutterMarker {
  constructor(readonly names: string) {
    super();
  }
  override eq(other: GutterMarker): boolean {
    return other instanceof Stripe && other.names === this.names;
  }
  override toDOM(): Node {
    const bar = document.createElement("div");
    bar.className = this.names;
    return bar;
  }
}

const stripes = new Map<string, Stripe>();

function stripe(hue: number, role: string | null): Stripe {
  const names = `mnb-stripe mnb-hue-${hue} mnb-role-${role ?? "forward"}`;
  let marker = stripes.get(names);
  if (!marker) stripes.set(names, (marker = new Stripe(names)));
  return marker;
}

const setStripes = StateEffect.define<RangeSet<GutterMarker>>();

const stripeField = StateField.define<RangeSet<GutterMarker>>({
  create: () => RangeSet.empty,
  update(set, transaction) {
    for (const effect of transaction.effects) if (effect.is(setStripes)) return effect.value;
    return set.map(transaction.changes);
  },
});

/** Stripes for a text that the editor already holds: hue of the main block, pattern of the role. */
export function stripesOf(view: EditorView, text: StageText, hueOf: (block: string) => number | null): StateEffect<RangeSet<GutterMarker>> {
  const builder = new RangeSetBuilder<GutterMarker>();
  const doc = view.state.doc;
  for (let number = 1; number <= Math.min(doc.lines, text.lineCount); number++) {
    const instruction = text.at(number);
    const block = instruction ? text.mainBlock(instruction) : null;
    const hue = block === null ? null : hueOf(block);
    if (instruction && hue !== null) {
      const { from } = doc.line(number);
      builder.add(from, from, stripe(hue, instruction.role));
    }
  }
  return setStripes.of(builder.finish());
}

export const marks: Extension = [
  flagsField,
  linkedLines,
  stripeField,
  gutter({ class: "mnb-stripes", markers: (view) => view.state.field(stripeField) }),
];
