/** Yields the visible lines of an editor once each; a very long line can have several visible ranges. */

import type { Line } from "@codemirror/state";
import type { EditorView } from "@codemirror/view";

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
