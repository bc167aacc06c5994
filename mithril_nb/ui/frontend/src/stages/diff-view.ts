/** The diff of a pass: unified in one editor, or side by side in two that scroll together. */

import { type Range, StateEffect, StateField } from "@codemirror/state";
import { Decoration, EditorView } from "@codemirror/view";
import { type Sign, type Sides, sidesOf } from "../code/diff-sides";
import { codeView, scrollToLine, setText } from "../code/read-only";
import { decorated, visibleLines } from "../code/visible-lines";
import { attr, h } from "../dom/dom";

const LOOKS: Record<string, Decoration> = {
  "+": Decoration.line({ class: "mnb-diff-added" }),
  "-": Decoration.line({ class: "mnb-diff-removed" }),
  "@": Decoration.line({ class: "mnb-diff-title" }),
  "": Decoration.line({ class: "mnb-diff-gap" }),
};
const PART = Decoration.mark({ class: "mnb-diff-part" });
const FOUND = Decoration.mark({ class: "mnb-found" });
const FOUND_LINE = Decoration.line({ class: "mnb-found-line" });

interface ShownDiff {
  signOf: (line: number, content: string) => Sign | undefined;
  parts: ReadonlyMap<number, readonly [number, number]>;
  /** The searched text in lower case, and the line that the search is at. */
  query: string;
  at: number;
}

const show = StateEffect.define<Partial<ShownDiff>>();
const shown = StateField.define<ShownDiff>({
  create: () => ({ signOf: (_, content) => content[0] as Sign, parts: new Map(), query: "", at: 0 }),
  update: (value, { effects }) =>
    effects.reduce((one, effect) => (effect.is(show) ? { ...one, ...effect.value } : one), value),
});

/** Colours the visible lines. */
const looks = decorated(
  (view) => {
    const { signOf, parts, query, at } = view.state.field(shown);
    const found: Range<Decoration>[] = [];
    for (const { number, from, text } of visibleLines(view)) {
      const look = LOOKS[signOf(number, text) ?? " "];
      if (look) found.push(look.range(from));
      if (number === at) found.push(FOUND_LINE.range(from));
      const part = parts.get(number);
      if (part && part[1] > part[0]) found.push(PART.range(from + part[0], from + part[1]));
      const lower = query && text.toLowerCase();
      for (let i = lower ? lower.indexOf(query) : -1; i >= 0; i = (lower as string).indexOf(query, i + query.length))
        found.push(FOUND.range(from + i, from + i + query.length));
    }
    return Decoration.set(found, true);
  },
  ({ startState, state }) => startState.field(shown) !== state.field(shown),
);

function createView(label: string) {
  return codeView(label, shown, looks);
}

function fill(view: EditorView, insert: string, more: Partial<ShownDiff>) {
  setText(view, insert, [show.of(more)]);
  view.scrollDOM.scrollTop = view.scrollDOM.scrollLeft = 0;
}

export function createDiffView() {
  const unified = createView("Changes of the pass, read only");
  const pair: [before: EditorView, after: EditorView] = [
    createView("Before the pass, read only"),
    createView("After the pass, read only"),
  ];
  let text = "";
  let sides: Sides | null = null;
  let areBeside = false;
  let searched = "";
  let at = 0;
  const half = (title: string, { dom }: EditorView): HTMLElement =>
    h(
      "div",
      { class: "mnb-diff-half", role: "group", "aria-label": title },
      h("small", {}, title),
      h("div", { class: "mnb-pass-text" }, dom),
    );
  const halves = h("div", { class: "mnb-diff-halves", hidden: true }, half("before", pair[0]), half("after", pair[1]));
  const root = h("div", { class: "mnb-diff" }, h("div", { class: "mnb-pass-text" }, unified.dom), halves);
  for (const [i, { scrollDOM }] of pair.entries()) {
    const other = pair[1 - i]!.scrollDOM;
    scrollDOM.addEventListener(
      "scroll",
      () => {
        // Equal positions end the echo of the other side. Sides of different widths end at different positions.
        if (other.scrollTop !== scrollDOM.scrollTop) other.scrollTop = scrollDOM.scrollTop;
        const left = Math.min(scrollDOM.scrollLeft, other.scrollWidth - other.clientWidth);
        if (Math.abs(other.scrollLeft - left) > 1 && scrollDOM.matches(":hover, :focus-within"))
          other.scrollLeft = left;
      },
      { passive: true },
    );
  }

  function destroy() {
    for (const view of [unified, ...pair]) view.destroy();
  }

  /** Switch between unified and side by side. */
  function arrange(isBeside: boolean) {
    if (isBeside === areBeside) return;
    areBeside = isBeside;
    (unified.dom.parentElement as HTMLElement).hidden = isBeside;
    halves.hidden = !isBeside;
    attr(root, "data-mnb-diff", isBeside ? "beside" : "unified");
    draw();
  }

  function take(diff: string) {
    text = diff;
    sides = null;
    at = 0;
    draw();
  }

  /** Mark a text in all lines, and scroll to a line of the diff; 0 does not scroll. */
  function find(query: string, line: number) {
    searched = query.toLowerCase();
    at = line;
    if (areBeside) {
      const row = (sides ??= sidesOf(text)).rowOf[line] ?? 0;
      for (const view of pair) goTo(view, row);
    } else goTo(unified, line);
  }

  function goTo(view: EditorView, line: number) {
    const isValid = line > 0 && line <= view.state.doc.lines;
    view.dispatch({
      effects: show.of({ query: searched, at: isValid ? line : 0 }),
      ...(isValid ? { selection: { anchor: view.state.doc.line(line).from } } : {}),
    });
    if (isValid) scrollToLine(view, line, true);
  }

  function draw() {
    const query = searched;
    if (areBeside) {
      const { left, right } = (sides ??= sidesOf(text));
      for (const [view, { lines, signs, parts }] of [
        [pair[0], left],
        [pair[1], right],
      ] as const) {
        fill(view, lines.join("\n"), { signOf: (line) => signs[line - 1], parts, query, at: 0 });
      }
    } else fill(unified, text, { query, at: 0 });
    if (at) find(query, at);
  }

  return { root, destroy, arrange, take, find };
}
