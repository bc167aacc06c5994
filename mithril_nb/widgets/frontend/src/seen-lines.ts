/** The lines in sight of an editor, each once: of a very long line an editor may show several parts. */

import type { Line } from "@codemirror/state";
import type { EditorView } from "@codemirror/view";

export function* seenLines({ state: { doc }, visibleRanges }: Pick<EditorView, "state" | "visibleRanges">): Generator<Line> {
  let last = 0;
  for (const { from, to } of visibleRanges) {
    for (let at = from; at <= to; ) {
      const line = doc.lineAt(at);
      if (line.number > last) yield line;
      last = Math.max(last, line.number);
      at = line.to + 1;
    }
  }
}
