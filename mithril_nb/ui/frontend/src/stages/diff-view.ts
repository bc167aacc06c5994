/** The diff of a pass: unified in one editor, or side by side in two that scroll together. */

import { EditorState, type Range, StateEffect, StateField } from "@codemirror/state";
import { Decoration, type DecorationSet, EditorView, ViewPlugin, type ViewUpdate } from "@codemirror/view";
import { type Sign, type Sides, sidesOf } from "../code/diff-sides";
import { readOnly } from "../code/read-only";
import { visibleLines } from "../code/visible-lines";
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
const looks = ViewPlugin.fromClass(
  class {
    decorations: DecorationSet;
    constructor(view: EditorView) {
      this.decorations = this.build(view);
    }
    update(update: ViewUpdate): void {
      if (update.docChanged || update.viewportChanged || update.startState.field(shown) !== update.state.field(shown))
        this.decorations = this.build(update.view);
    }
    build(view: EditorView): DecorationSet {
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
    }
  },
  { decorations: (plugin) => plugin.decorations },
);

function createView(label: string): EditorView {
  return new EditorView({
    state: EditorState.create({
      extensions: [
        readOnly,
        shown,
        looks,
        EditorView.contentAttributes.of({
          "aria-label": label,
          "aria-readonly": "true",
          tabindex: "0",
          spellcheck: "false",
        }),
      ],
    }),
  });
}

function fill(view: EditorView, insert: string, more: Partial<ShownDiff>): void {
  view.dispatch({
    changes: { from: 0, to: view.state.doc.length, insert },
    selection: { anchor: 0 },
    effects: show.of(more),
  });
  view.scrollDOM.scrollTop = view.scrollDOM.scrollLeft = 0;
}

export class DiffView {
  readonly root: HTMLElement;
  private readonly unified = createView("Changes of the pass, read only");
  private readonly pair: [before: EditorView, after: EditorView] = [
    createView("Before the pass, read only"),
    createView("After the pass, read only"),
  ];
  private readonly halves: HTMLElement;
  private diff = "";
  private sides: Sides | null = null;
  private isBeside = false;
  private query = "";
  private at = 0;

  constructor() {
    const half = (title: string, { dom }: EditorView): HTMLElement =>
      h(
        "div",
        { class: "mnb-diff-half", role: "group", "aria-label": title },
        h("small", {}, title),
        h("div", { class: "mnb-pass-text" }, dom),
      );
    this.halves = h(
      "div",
      { class: "mnb-diff-halves", hidden: true },
      half("before", this.pair[0]),
      half("after", this.pair[1]),
    );
    this.root = h("div", { class: "mnb-diff" }, h("div", { class: "mnb-pass-text" }, this.unified.dom), this.halves);
    for (const [i, { scrollDOM }] of this.pair.entries()) {
      const other = this.pair[1 - i]!.scrollDOM;
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
  }

  destroy(): void {
    for (const view of [this.unified, ...this.pair]) view.destroy();
  }

  /** Switch between unified and side by side. */
  arrange(isBeside: boolean): void {
    if (isBeside === this.isBeside) return;
    this.isBeside = isBeside;
    (this.unified.dom.parentElement as HTMLElement).hidden = isBeside;
    this.halves.hidden = !isBeside;
    attr(this.root, "data-mnb-diff", isBeside ? "beside" : "unified");
    this.draw();
  }

  take(diff: string): void {
    this.diff = diff;
    this.sides = null;
    this.at = 0;
    this.draw();
  }

  /** Mark a text in all lines, and scroll to a line of the diff; 0 does not scroll. */
  find(query: string, line: number): void {
    this.query = query.toLowerCase();
    this.at = line;
    if (this.isBeside) {
      const row = (this.sides ??= sidesOf(this.diff)).rowOf[line] ?? 0;
      for (const view of this.pair) this.goTo(view, row);
    } else this.goTo(this.unified, line);
  }

  private goTo(view: EditorView, line: number): void {
    const isValid = line > 0 && line <= view.state.doc.lines;
    view.dispatch({
      effects: show.of({ query: this.query, at: isValid ? line : 0 }),
      ...(isValid ? { selection: { anchor: view.state.doc.line(line).from } } : {}),
    });
    if (!isValid) return;
    const { scrollDOM } = view;
    const { top, bottom } = view.lineBlockAt(view.state.doc.line(line).from);
    if (top < scrollDOM.scrollTop || bottom > scrollDOM.scrollTop + scrollDOM.clientHeight)
      scrollDOM.scrollTop = top - scrollDOM.clientHeight / 3;
  }

  private draw(): void {
    const { query } = this;
    if (this.isBeside) {
      const { left, right } = (this.sides ??= sidesOf(this.diff));
      for (const [view, { lines, signs, parts }] of [
        [this.pair[0], left],
        [this.pair[1], right],
      ] as const) {
        fill(view, lines.join("\n"), { signOf: (line) => signs[line - 1], parts, query, at: 0 });
      }
    } else fill(this.unified, this.diff, { query, at: 0 });
    if (this.at) this.find(query, this.at);
  }
}
