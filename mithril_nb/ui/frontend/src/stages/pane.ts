/** A code pane: the text of a stage, its linked lines, and a ruler beside the scrollbar. */

import { EditorState, type StateEffect } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { costTexts, foldFigure } from "./fold-costs";
import { figureOfLines, heatOf } from "../costs/line-costs";
import { setFolds } from "../code/folding";
import { type CostText, foldLabel } from "../code/folds";
import { colouredAs } from "../code/languages";
import { setHeat, setStripes } from "../code/margin";
import { FOUND, HOVER, INFERRED, KERNEL, type LineFlags, PINNED, marks, setFlags, stripesOf } from "../code/marks";
import { readOnly } from "../code/read-only";
import type { Tip } from "../controls/tip";
import { FIGURE_TITLES, atLeast, formatFigure } from "../costs/figures";
import { attr, h } from "../dom/dom";
import { percent } from "../dom/format";
import type { CostTableData } from "../kernel/contract";
import { describe } from "../store/description";
import { type Anchor, type Links, type StageText, lineage } from "../store/links";
import type { Store } from "../store/store";
import { PaneBar } from "./pane-bar";
import { PaneFolds } from "./pane-folds";
import { Ruler } from "./ruler";
import { type ScreenBox, merged } from "./traces";

/** Move the caret by lines. The browser's own keys cannot reach lines that are not drawn. */
function moveCaret(view: EditorView, event: KeyboardEvent): boolean {
  const down = event.key === "ArrowDown" || event.key === "PageDown" || event.key === "End";
  let head: number;
  if (event.key.startsWith("Arrow") || event.key.startsWith("Page")) {
    const page = event.key.startsWith("Page") ? Math.max(17, view.scrollDOM.clientHeight - 34) : undefined;
    head = view.moveVertically(view.state.selection.main, down, page).head;
  } else head = down ? view.state.doc.length : 0;
  view.dispatch({ selection: { anchor: head }, scrollIntoView: true });
  return true;
}

/** Flag of each kind of link. */
const FLAGS: Record<string, number> = { inferred: INFERRED, kernel: KERNEL };

export class Pane {
  readonly root: HTMLElement;
  readonly view: EditorView;
  readonly folds: PaneFolds;
  text: StageText | null = null;
  private readonly bar: PaneBar;
  private readonly ruler: Ruler;
  private readonly visibility: IntersectionObserver | null;
  private painted = "";
  private paintedCosts: CostTableData | null = null;
  private hues = new Map<string, number>();
  private costOf: CostText = () => "";
  private costed: readonly unknown[] = [];
  private flags: LineFlags = new Uint8Array(0);
  private pressed: { x: number; y: number } | null = null;

  constructor(
    readonly stage: string,
    private readonly store: Store,
    private readonly tip: Tip,
  ) {
    this.view = new EditorView({
      state: EditorState.create({
        doc: "",
        extensions: [
          marks,
          readOnly,
          colouredAs(this.store.languageOf(stage)),
          EditorView.domEventHandlers({ keydown: (event, view) => this.key(event, view) }),
          EditorView.contentAttributes.of({
            "aria-label":
              `${this.store.titleOf(stage)}, read only. Enter pins the line, or unfolds a folded ` +
              `one; z folds; o opens the outline; [ and ] move between linked lines.`,
            "aria-readonly": "true",
            tabindex: "0",
            "aria-multiline": "true",
            spellcheck: "false",
            // No screen keyboard for read-only text.
            inputmode: "none",
          }),
        ],
      }),
    });
    this.ruler = new Ruler((line) => this.scrollTo(line));
    this.folds = new PaneFolds(this.view, () => {
      this.bar.paint();
      this.paintTicks();
    });
    this.bar = new PaneBar({
      stage,
      title: store.titleOf(stage),
      folds: this.folds,
      content: () => this.text,
      firstLine: () => this.firstLine(),
      hueOf: (block) => this.hueOf(block),
      costOf: (block, role) => this.costOf(block, role),
      selected: () => store.selection,
      goTo: (line) => this.caretTo(line),
      focus: () => this.view.focus(),
    });
    const text = h("div", { class: "mnb-pane-text" }, this.view.dom, this.ruler.root);
    this.root = h("div", { class: "mnb-pane-body" }, this.bar.root, text);
    const content = this.view.contentDOM;
    this.view.scrollDOM.addEventListener("scroll", this.bar.follow, { passive: true });
    this.view.scrollDOM.querySelector(".mnb-margin")!.addEventListener("click", (event) => {
      const line = this.lineAtEvent(event as MouseEvent);
      const range = line === null ? null : this.folds.now.startsAt(line);
      if (range) this.folds.toggle(range);
    });
    // Use pointer events only. Mixed with mouse events, a leave can arrive after the next element's enter and clear its
    // hover.
    content.addEventListener("pointermove", (event) => this.hover(event));
    content.addEventListener("pointerleave", () => {
      store.setHover([]);
      tip.hide();
    });
    content.addEventListener("mousedown", (event) => (this.pressed = { x: event.clientX, y: event.clientY }));
    content.addEventListener("click", (event) => this.click(event));
    // An editor that was filled while hidden has not measured its lines, so measure when it becomes visible.
    this.visibility =
      typeof IntersectionObserver === "undefined"
        ? null
        : new IntersectionObserver(([entry]) => {
            if (entry?.isIntersecting) this.view.requestMeasure();
          });
    this.visibility?.observe(text);
  }

  destroy(): void {
    this.visibility?.disconnect();
    this.view.destroy();
  }

  setText(text: StageText): void {
    // Keep the scroll position, except between the full and the short form; there the caller scrolls to a pinned line.
    const before = this.text;
    const kept = before && (before.places === null) === (text.places === null) ? this.view.scrollDOM.scrollTop : 0;
    this.text = text;
    this.flags = new Uint8Array(text.lineCount + 1);
    this.painted = "";
    this.costed = [];
    // One dispatch for text and stripes, because each dispatch causes a layout of the page.
    const effects = [setFlags.of(this.flags), ...this.stripes(), ...this.labels(), this.folds.take(text)];
    this.view.dispatch({
      changes: { from: 0, to: this.view.state.doc.length, insert: text.text },
      selection: { anchor: 0 },
      effects,
    });
    if (before) this.view.scrollDOM.scrollTop = kept;
    attr(this.root, "data-mnb-version", text.version);
    this.bar.reset();
  }

  /** Repaint stripes and costs. */
  paintStripes(): void {
    const effects = [...this.stripes(), ...this.labels()];
    if (effects.length === 0) return;
    this.view.dispatch({ effects });
    this.bar.paint();
  }

  /** Return the effect for the costs in folded rows; none if they are unchanged. */
  private labels(): StateEffect<unknown>[] {
    const { lineCosts, cost } = this.store;
    const figure = foldFigure(lineCosts, cost.figure);
    if (this.costed.length && this.costed[0] === lineCosts && this.costed[1] === figure) return [];
    this.costed = [lineCosts, figure];
    const costOf = (this.costOf = costTexts(lineCosts, figure));
    return [setFolds.of({ labelOf: (range) => foldLabel(range, costOf) })];
  }

  /** Return the hue of a block, or of the nearest group around it that has one. */
  private hueOf(block: string): number | null {
    for (const path of lineage(block)) {
      const hue = this.hues.get(path);
      if (hue !== undefined) return hue;
    }
    return null;
  }

  /** Return the first visible line. All rows have the same height; a call of the editor would measure again. */
  private firstLine(): number {
    const { scrollDOM, defaultLineHeight, documentPadding } = this.view;
    return this.folds.now.lineOf(
      1 + Math.max(0, Math.floor((scrollDOM.scrollTop - documentPadding.top + 1) / defaultLineHeight)),
    );
  }

  /** Return effects for the stripes, and for the line costs of Python; none if they are unchanged. */
  private stripes(): StateEffect<unknown>[] {
    if (!this.text) return [];
    const { blocks, cost } = this.store.snapshot;
    const {
      lineCosts,
      cost: { figure },
    } = this.store;
    const isPython = this.stage === "python";
    const hues = new Map<string, number>();
    for (const row of cost?.rows ?? []) if (row.hue >= 0) hues.set(row.block, row.hue);
    for (const block of Object.values(blocks)) hues.set(block.path, block.hue);
    this.hues = hues;
    const painted = `${this.text.version} ${[...hues].join()} ${isPython ? figure : ""}`;
    if (painted === this.painted && (!isPython || lineCosts === this.paintedCosts)) return [];
    this.painted = painted;
    this.paintedCosts = lineCosts;
    const stripes = setStripes.of(stripesOf(this.text, (block) => hues.get(block) ?? null));
    return isPython ? [stripes, setHeat.of(heatOf(this.text, lineCosts, figure))] : [stripes];
  }

  /** Repaint the linked lines without scrolling. */
  paintLinks(hover: Links, pins: Links, found: Pick<Links, "lines"> | null = null): void {
    const { text } = this;
    if (!text) return;
    const flags = new Uint8Array(text.lineCount + 1);
    const paint = (links: Pick<Links, "lines">, bit: number): void => {
      for (const index of links.lines.get(this.stage) ?? []) {
        const instruction = text.instructions[index];
        const lines = text.linesOf(index);
        if (!instruction || !lines) continue;
        for (let line = lines[0]; line <= lines[1]; line++) {
          // Lines of inner instructions are highlighted by their own links.
          if (text.places || text.owner[line] === index) flags[line]! |= bit | (FLAGS[instruction.origin ?? ""] ?? 0);
        }
      }
    };
    if (found) paint(found, FOUND);
    paint(pins, PINNED);
    paint(hover, HOVER);
    if (flags.length === this.flags.length && flags.every((flag, i) => flag === this.flags[i])) return;
    this.flags = flags;
    this.view.dispatch({ effects: setFlags.of(flags) });
    this.paintTicks();
  }

  /** Follow a new selection. */
  followSelection(): void {
    this.bar.followSelection();
  }

  /** Return the numbers of lines with a flag. */
  lines(bit: number): number[] {
    const found: number[] = [];
    this.flags.forEach((flag, line) => {
      if (flag & bit) found.push(line);
    });
    return found;
  }

  /**
   * Scroll the nearest pinned line to the upper third, unless a pinned line is visible. Unfolded lines come before
   * folded ones, and lines with a link preserved by the compiler before inferred ones: parameters at the top of the
   * text are rarely of interest.
   */
  reveal(): void {
    const pinned = this.lines(PINNED);
    const folds = this.folds.now;
    const open = pinned.filter((line) => !folds.hiddenAt(line));
    const tagged = (open.length ? open : pinned).filter((line) => !(this.flags[line]! & INFERRED));
    const lines = tagged.length ? tagged : open.length ? open : pinned;
    if (lines.length === 0) return;
    const { scrollDOM } = this.view;
    const top = scrollDOM.scrollTop;
    const bottom = top + scrollDOM.clientHeight;
    let best: number | null = null;
    let least = Infinity;
    for (const number of lines) {
      const block = this.view.lineBlockAt(this.view.state.doc.line(number).from);
      if (block.top >= top && block.bottom <= bottom) return;
      const distance = Math.min(Math.abs(block.top - top), Math.abs(block.bottom - bottom));
      if (distance < least) {
        least = distance;
        best = number;
      }
    }
    if (best !== null) this.scrollTo(best);
  }

  /** Scroll a line to the end of the upper third. */
  scrollTo(line: number): void {
    const number = Math.max(1, Math.min(line, this.view.state.doc.lines));
    const at = this.view.state.doc.line(number).from;
    // EditorView.scrollIntoView would also scroll the notebook.
    const { scrollDOM } = this.view;
    scrollDOM.scrollTop = this.view.lineBlockAt(at).top - scrollDOM.clientHeight / 3;
  }

  /** Return the visible pinned rows, in window coordinates. */
  pinnedBoxes(): ScreenBox[] {
    const rows = [...this.view.contentDOM.querySelectorAll(".mnb-pinned")];
    return merged(
      rows.map((row) => row.getBoundingClientRect()),
      this.view.scrollDOM.getBoundingClientRect(),
    );
  }

  /** Move the caret to the next (1) or previous (-1) linked line, or to the row of a folded part with such lines. */
  walk(direction: 1 | -1): void {
    const folds = this.folds.now;
    const lines = [...new Set(this.lines(PINNED).map((line) => folds.hiddenAt(line)?.from ?? line))];
    if (lines.length === 0) return;
    const here = this.view.state.doc.lineAt(this.view.state.selection.main.head).number;
    const ahead = direction > 0 ? lines.find((line) => line > here) : lines.findLast((line) => line < here);
    const line = ahead ?? (direction > 0 ? lines[0]! : lines.at(-1)!);
    this.view.dispatch({ selection: { anchor: this.view.state.doc.line(line).from } });
    this.scrollTo(line);
  }

  /** Move the caret to a line, unfolded. */
  caretTo(line: number): void {
    this.folds.reveal(line);
    this.view.dispatch({
      selection: { anchor: this.view.state.doc.line(Math.max(1, Math.min(line, this.view.state.doc.lines))).from },
    });
    this.scrollTo(line);
  }

  private paintTicks(): void {
    this.ruler.paint(this.folds.now, this.text?.lineCount ?? 1, this.lines(HOVER | FOUND), this.lines(PINNED));
  }

  private lineAtEvent(event: MouseEvent): number | null {
    if (!this.text || this.text.lineCount === 0) return null;
    const block = this.view.lineBlockAtHeight(event.clientY - this.view.documentTop);
    return this.view.state.doc.lineAt(block.from).number;
  }

  private anchorAt(line: number | null): Anchor | null {
    const folded = line === null ? null : this.folds.now.hiddenAt(line);
    if (folded) return folded.block ? { kind: "block", path: folded.block } : null;
    const instruction = line === null ? null : this.text?.at(line);
    return this.text && instruction
      ? { kind: "instruction", stage: this.stage, version: this.text.version, index: instruction.index }
      : null;
  }

  private hover(event: PointerEvent): void {
    const line = this.lineAtEvent(event);
    const anchor = this.anchorAt(line);
    this.store.setHover(anchor ? [anchor] : []);
    const description = line === null ? null : this.describe(line);
    if (description && event.buttons === 0) this.tip.later(description, event.clientX, event.clientY);
    else this.tip.hide();
  }

  private click(event: MouseEvent): void {
    const moved = this.pressed && Math.hypot(event.clientX - this.pressed.x, event.clientY - this.pressed.y) > 4;
    // A drag selects text to copy; it is not a click.
    if (moved) return;
    this.tip.hide();
    const label = (event.target as Element).closest<HTMLElement>(".mnb-fold");
    if (label) {
      this.folds.unfold(Number(label.dataset["mnbFold"]), label.dataset["mnbSpan"]);
      return;
    }
    const anchor = this.anchorAt(this.lineAtEvent(event));
    if (anchor) this.store.pin([anchor], event.shiftKey, this.stage);
    else if (!event.shiftKey) this.store.pin([], false, this.stage);
  }

  private key(event: KeyboardEvent, view: EditorView): boolean {
    if (event.altKey) return false;
    const command = event.ctrlKey || event.metaKey;
    const line = view.state.doc.lineAt(view.state.selection.main.head).number;
    const letter = command ? "" : event.key.toLowerCase();
    if (letter === "z" && event.shiftKey) this.folds.toggleAll();
    else if (letter === "z") this.folds.toggleAt(line);
    else if (letter === "o") this.bar.openOutline();
    else if (letter === "b") this.bar.toggleOnly();
    else if (event.key === "Enter" && !command && this.folds.now.hiddenAt(line)) this.folds.toggleAt(line);
    else if (event.key === "Enter" && !command) {
      const anchor = this.anchorAt(line);
      if (anchor) this.store.pin([anchor], event.shiftKey, this.stage);
    } else if (
      !event.shiftKey &&
      (command ? ["Home", "End"] : ["ArrowUp", "ArrowDown", "PageUp", "PageDown"]).includes(event.key)
    )
      moveCaret(view, event);
    else return false;
    event.preventDefault();
    return true;
  }

  /** Format the cost of a line of Python, and its share of the program. */
  private lineCost(source: string): string[] {
    const { lineCosts, cost } = this.store;
    if (!lineCosts?.lines) return [];
    const figure = figureOfLines(lineCosts, cost.figure);
    const [line, whole] = [lineCosts.lines[source], lineCosts.total[figure]];
    const value = line?.[figure];
    if (!value || !whole) return line?.unknown?.[figure] ? [`${FIGURE_TITLES[figure][0]} unknown`] : [];
    return [
      `${FIGURE_TITLES[figure][0]} ${atLeast(line, figure, value)}${formatFigure(figure, value)} · ` +
        `${percent(value / whole)}`,
    ];
  }

  /** Return the tooltip of a line, with the costs of a line of Python. */
  private describe(line: number): string[] | null {
    const folded = this.folds.now.hiddenAt(line);
    if (folded)
      return [
        foldLabel(folded, this.costOf),
        `Lines ${folded.from.toLocaleString("en-US")} to ${folded.to.toLocaleString("en-US")}, folded`,
      ];
    const instruction = this.text?.at(line);
    if (!this.text || !instruction) return null;
    return describe(this.text, instruction, this.stage === "python" ? this.lineCost(instruction.source[0] ?? "") : []);
  }
}
