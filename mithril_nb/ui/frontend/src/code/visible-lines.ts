/** The visible lines of an editor, and decorations of them. */

import type { Extension, Line } from "@codemirror/state";
import { type DecorationSet, type EditorView, ViewPlugin, type ViewUpdate } from "@codemirror/view";

/** Yield the visible lines once each; a very long line can have several visible ranges. */
export function* visibleLines({
  state: { doc },
  visibleRanges,
}: Pick<EditorView, "state" | "visibleRanges">): Generator<Line> {
  let last = 0;
  for (const { from, to } of visibleRanges) {
    for (let at = from; at <= to;) {
      const line = doc.lineAt(at);
      if (line.number > last) yield line;
      last = Math.max(last, line.number);
      at = line.to + 1;
    }
  }
}

/** Decorate the visible lines, again after other changes if `isStale` returns true for an update. */
export function decorated(
  build: (view: EditorView) => DecorationSet,
  isStale: (update: ViewUpdate) => boolean = () => false,
): Extension {
  return ViewPlugin.fromClass(
    class {
      decorations: DecorationSet;
      constructor(view: EditorView) {
        this.decorations = build(view);
      }
      update(update: ViewUpdate) {
        if (update.docChanged || update.viewportChanged || isStale(update)) this.decorations = build(update.view);
      }
    },
    { decorations: (plugin) => plugin.decorations },
  );
}
