/** A code pane: the text of a stage, its linked lines, and a ruler beside the scrollbar. */

import { mount } from "../dom/view";
import { oncePerFrame } from "../dom/calls";
import { createElement } from "preact";
import { signal } from "@preact/signals";
import type { StateEffect } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { costTexts, foldFigure } from "./fold-costs";
import { figureOfLines, heatOf } from "../costs/line-costs";
import { setFolds } from "../code/folding";
import { type CostText, foldLabel } from "../code/folds";
import { colouredAs } from "../code/languages";
import { setHeat, setStripes } from "../code/margin";
import { FOUND, HOVER, INFERRED, KERNEL, type LineFlags, PINNED, marks, setFlags, stripesOf } from "../code/marks";
import { codeView, scrollToLine, setText as replaceText } from "../code/read-only";
import type { Tip } from "../controls/tip";
import { FIGURE_TITLES, atLeast, formatFigure } from "../costs/figures";
import { attr, h } from "../dom/dom";
import { grouped, percent } from "../dom/format";
import type { CostTableData, ExplanationHead } from "../kernel/contract";
import { describe } from "../store/description";
import { type Anchor, type Links, type StageText, lineage } from "../store/links";
import type { Store } from "../store/store";
import { Explanation } from "./explanation";
import { PaneBar } from "./pane-bar";
import { PaneFolds } from "./pane-folds";
import { createRuler } from "./ruler";
import { merged } from "./traces";

/** Move the caret by lines. The browser's own keys cannot reach lines that are not drawn. */
function moveCaret(view: EditorView, event: KeyboardEvent) {
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

export function createPane(stage: string, store: Store, tip: Tip) {
  const content = signal<StageText | null>(null);
  /** The first visible line. */
  const firstLine = signal(1);
  /** Number of pinned lines. */
  const linked = signal(0);
  const costs = signal<CostText>(() => "");
  const explanation = signal<ExplanationHead | null>(null);
  /** Index of the instruction whose explanation was requested last. */
  let explained = -1;
  /** Opens or closes the outline; set by the bar. */
  let openOutline = () => {};
  let visibility: IntersectionObserver | null;
  let paintedFor = "";
  let paintedCosts: CostTableData | null = null;
  const hueByBlock = signal<ReadonlyMap<string, number>>(new Map());
  let costed: readonly unknown[] = [];
  let lineFlags: LineFlags = new Uint8Array(0);
  let pressed: { x: number; y: number } | null = null;
  const view = codeView(
    `${store.titleOf(stage)}, read only. Enter pins the line, or unfolds a folded ` +
      `one; x explains it; z folds; o opens the outline; [ and ] move between linked lines.`,
    marks,
    colouredAs(store.languageOf(stage)),
    EditorView.domEventHandlers({ keydown: key }),
    // No screen keyboard for read-only text.
    EditorView.contentAttributes.of({ "aria-multiline": "true", inputmode: "none" }),
  );
  const ruler = createRuler(scrollTo);
  const paneFolds = new PaneFolds(view, () => {
    readFirstLine();
    paintTicks();
  });
  const text = h("div", { class: "mnb-pane-text" }, view.dom, ruler.root);
  const root = h("div", { class: "mnb-pane-body" }, text);
  const lines = view.contentDOM;
  const scrolled = oncePerFrame(readFirstLine);
  view.scrollDOM.addEventListener("scroll", scrolled, { passive: true });
  view.scrollDOM.querySelector(".mnb-margin")!.addEventListener("click", (event) => {
    const line = lineAtEvent(event as MouseEvent);
    if (line !== null) paneFolds.toggleFrom(line);
  });
  // Use pointer events only. Mixed with mouse events, a leave can arrive after the next element's enter and clear its
  // hover.
  lines.addEventListener("pointermove", hover);
  lines.addEventListener("pointerleave", () => {
    store.setHover([]);
    tip.hide();
  });
  lines.addEventListener("mousedown", (event) => (pressed = { x: event.clientX, y: event.clientY }));
  lines.addEventListener("click", click);
  // An editor that was filled while hidden has not measured its lines, so measure when it becomes visible.
  visibility =
    typeof IntersectionObserver === "undefined"
      ? null
      : new IntersectionObserver(([entry]) => {
          if (entry?.isIntersecting) view.requestMeasure();
        });
  visibility?.observe(text);

  const leave = store.kernel.on("explanation", (head) => {
    if (head.stage === stage && head.index === explained && head.version === content.value?.version)
      explanation.value = head;
  });

  function destroy() {
    leave();
    card.destroy();
    visibility?.disconnect();
    bar.destroy();
    view.destroy();
  }

  function setText(text: StageText) {
    // Keep the scroll position, except between the full and the short form; there the caller scrolls to a pinned line.
    const before = content.value;
    const kept = before && (before.places === null) === (text.places === null) ? view.scrollDOM.scrollTop : 0;
    content.value = text;
    explanation.value = null;
    lineFlags = new Uint8Array(text.lineCount + 1);
    linked.value = 0;
    paintedFor = "";
    costed = [];
    // One dispatch for text and stripes, because each dispatch causes a layout of the page.
    const effects = [setFlags.of(lineFlags), ...stripes(), ...labels(), paneFolds.take(text)];
    replaceText(view, text.text, effects);
    if (before) view.scrollDOM.scrollTop = kept;
    attr(root, "data-mnb-version", text.version);
    readFirstLine();
  }

  /** Repaint stripes and costs. */
  function paintStripes() {
    const effects = [...stripes(), ...labels()];
    if (effects.length) view.dispatch({ effects });
  }

  /** Return the effect for the costs in folded rows; none if they are unchanged. */
  function labels(): StateEffect<unknown>[] {
    const { lineCosts, cost } = store;
    const figure = foldFigure(lineCosts, cost.figure);
    if (costed.length && costed[0] === lineCosts && costed[1] === figure) return [];
    costed = [lineCosts, figure];
    const costOf = (costs.value = costTexts(lineCosts, figure));
    return [setFolds.of({ labelOf: (range) => foldLabel(range, costOf) })];
  }

  /** Return the hue of a block, or of the nearest group around it that has one. */
  function hueOf(block: string) {
    for (const path of lineage(block)) {
      const hue = hueByBlock.value.get(path);
      if (hue !== undefined) return hue;
    }
    return null;
  }

  /** Read the first visible line. All rows have the same height; a call of the editor would measure again. */
  function readFirstLine() {
    const { scrollDOM, defaultLineHeight, documentPadding } = view;
    firstLine.value = paneFolds.now.lineOf(
      1 + Math.max(0, Math.floor((scrollDOM.scrollTop - documentPadding.top + 1) / defaultLineHeight)),
    );
  }

  /** Return effects for the stripes, and for the line costs of Python; none if they are unchanged. */
  function stripes(): StateEffect<unknown>[] {
    if (!content.value) return [];
    const { blocks, cost } = store.snapshot;
    const {
      lineCosts,
      cost: { figure },
    } = store;
    const isPython = stage === "python";
    const hues = new Map<string, number>();
    for (const row of cost?.rows ?? []) if (row.hue >= 0) hues.set(row.block, row.hue);
    for (const block of Object.values(blocks)) hues.set(block.path, store.hueOf(block));
    hueByBlock.value = hues;
    const painted = `${content.value.version} ${[...hues].join()} ${isPython ? figure : ""}`;
    if (painted === paintedFor && (!isPython || lineCosts === paintedCosts)) return [];
    paintedFor = painted;
    paintedCosts = lineCosts;
    const stripes = setStripes.of(stripesOf(content.value, (block) => hues.get(block) ?? null));
    return isPython ? [stripes, setHeat.of(heatOf(content.value, lineCosts, figure))] : [stripes];
  }

  /** Repaint the linked lines without scrolling. */
  function paintLinks(hover: Links, pins: Links, found: Pick<Links, "lines"> | null = null) {
    const text = content.value;
    if (!text) return;
    const flags = new Uint8Array(text.lineCount + 1);
    const paint = (links: Pick<Links, "lines">, bit: number) => {
      for (const index of links.lines.get(stage) ?? []) {
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
    if (flags.length === lineFlags.length && flags.every((flag, i) => flag === lineFlags[i])) return;
    lineFlags = flags;
    linked.value = linesWith(PINNED).length;
    view.dispatch({ effects: setFlags.of(flags) });
    paintTicks();
  }

  /** Show only the selected blocks, or all again. */
  function toggleOnly() {
    paneFolds.showOnly(paneFolds.only.length ? [] : store.selection);
  }

  /** Return the numbers of lines with a flag. */
  function linesWith(bit: number) {
    const found: number[] = [];
    lineFlags.forEach((flag, line) => {
      if (flag & bit) found.push(line);
    });
    return found;
  }

  /**
   * Scroll the nearest pinned line to the upper third, unless a pinned line is visible. Unfolded lines come before
   * folded ones, and lines with a link preserved by the compiler before inferred ones: parameters at the top of the
   * text are rarely of interest.
   */
  function reveal() {
    const pinned = linesWith(PINNED);
    const folds = paneFolds.now;
    const open = pinned.filter((line) => !folds.hiddenAt(line));
    const tagged = (open.length ? open : pinned).filter((line) => !(lineFlags[line]! & INFERRED));
    const lines = tagged.length ? tagged : open.length ? open : pinned;
    if (lines.length === 0) return;
    const { scrollDOM } = view;
    const top = scrollDOM.scrollTop;
    const bottom = top + scrollDOM.clientHeight;
    let best: number | null = null;
    let least = Infinity;
    for (const number of lines) {
      const block = view.lineBlockAt(view.state.doc.line(number).from);
      if (block.top >= top && block.bottom <= bottom) return;
      const distance = Math.min(Math.abs(block.top - top), Math.abs(block.bottom - bottom));
      if (distance < least) {
        least = distance;
        best = number;
      }
    }
    if (best !== null) scrollTo(best);
  }

  /** Scroll a line to the end of the upper third. */
  function scrollTo(line: number) {
    scrollToLine(view, Math.max(1, Math.min(line, view.state.doc.lines)));
  }

  /** Return the visible pinned rows, in window coordinates. */
  function pinnedBoxes() {
    const rows = [...view.contentDOM.querySelectorAll(".mnb-pinned")];
    return merged(
      rows.map((row) => row.getBoundingClientRect()),
      view.scrollDOM.getBoundingClientRect(),
    );
  }

  /** Move the caret to the next (1) or previous (-1) linked line, or to the row of a folded part with such lines. */
  function walk(direction: 1 | -1) {
    const folds = paneFolds.now;
    const lines = [...new Set(linesWith(PINNED).map((line) => folds.hiddenAt(line)?.from ?? line))];
    if (lines.length === 0) return;
    const here = view.state.doc.lineAt(view.state.selection.main.head).number;
    const ahead = direction > 0 ? lines.find((line) => line > here) : lines.findLast((line) => line < here);
    const line = ahead ?? (direction > 0 ? lines[0]! : lines.at(-1)!);
    view.dispatch({ selection: { anchor: view.state.doc.line(line).from } });
    scrollTo(line);
  }

  /** Move the caret to a line, unfolded. */
  function caretTo(line: number) {
    paneFolds.reveal(line);
    view.dispatch({
      selection: { anchor: view.state.doc.line(Math.max(1, Math.min(line, view.state.doc.lines))).from },
    });
    scrollTo(line);
  }

  /** Request the explanation of the line of the caret. */
  function explain() {
    const anchor = anchorAt(view.state.doc.lineAt(view.state.selection.main.head).number);
    if (anchor?.kind !== "instruction") {
      store.outcome = "Put the caret on a line with an instruction.";
      return;
    }
    explained = anchor.index;
    void store.command("request_explanation", { stage, index: anchor.index });
  }

  function paintTicks() {
    ruler.paint(paneFolds.now, content.value?.lineCount ?? 1, linesWith(HOVER | FOUND), linesWith(PINNED));
  }

  function lineAtEvent(event: MouseEvent) {
    if (!content.value || content.value.lineCount === 0) return null;
    const block = view.lineBlockAtHeight(event.clientY - view.documentTop);
    return view.state.doc.lineAt(block.from).number;
  }

  function anchorAt(line: number | null): Anchor | null {
    const folded = line === null ? null : paneFolds.now.hiddenAt(line);
    if (folded) return folded.block ? { kind: "block", path: folded.block } : null;
    const instruction = line === null ? null : content.value?.at(line);
    return content.value && instruction
      ? { kind: "instruction", stage: stage, version: content.value.version, index: instruction.index }
      : null;
  }

  function hover(event: PointerEvent) {
    const line = lineAtEvent(event);
    const anchor = anchorAt(line);
    store.setHover(anchor ? [anchor] : []);
    const description = line === null ? null : describeLine(line);
    if (description && event.buttons === 0) tip.later(description, event.clientX, event.clientY);
    else tip.hide();
  }

  function click(event: MouseEvent) {
    const moved = pressed && Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) > 4;
    // A drag selects text to copy; it is not a click.
    if (moved) return;
    tip.hide();
    const label = (event.target as Element).closest<HTMLElement>(".mnb-fold");
    if (label) {
      paneFolds.toggleFrom(Number(label.dataset["mnbFold"]), label.dataset["mnbSpan"]);
      return;
    }
    const anchor = anchorAt(lineAtEvent(event));
    if (anchor) store.pin([anchor], event.shiftKey, stage);
    else if (!event.shiftKey) store.pin([], false, stage);
  }

  function key(event: KeyboardEvent, view: EditorView) {
    if (event.altKey) return false;
    const command = event.ctrlKey || event.metaKey;
    const line = view.state.doc.lineAt(view.state.selection.main.head).number;
    const letter = command ? "" : event.key.toLowerCase();
    if (letter === "z" && event.shiftKey) paneFolds.toggleAll();
    else if (letter === "z") paneFolds.toggleAt(line);
    else if (letter === "o") openOutline();
    else if (letter === "x" && !event.shiftKey) explain();
    else if (letter === "b") toggleOnly();
    else if (event.key === "Enter" && !command && paneFolds.now.hiddenAt(line)) paneFolds.toggleAt(line);
    else if (event.key === "Enter" && !command) {
      const anchor = anchorAt(line);
      if (anchor) store.pin([anchor], event.shiftKey, stage);
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
  function lineCost(source: string) {
    const { lineCosts, cost } = store;
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
  function describeLine(line: number) {
    const folded = paneFolds.now.hiddenAt(line);
    if (folded)
      return [foldLabel(folded, costs.value), `Lines ${grouped(folded.from)} to ${grouped(folded.to)}, folded`];
    const instruction = content.value?.at(line);
    if (!content.value || !instruction) return null;
    return describe(content.value, instruction, stage === "python" ? lineCost(instruction.source[0] ?? "") : []);
  }

  const pane = {
    stage,
    store,
    root,
    view,
    folds: paneFolds,
    destroy,
    get text() {
      return content.value;
    },
    get firstLine() {
      return firstLine.value;
    },
    get explanation() {
      return explanation.value;
    },
    set explanation(value) {
      explanation.value = value;
    },
    get linked() {
      return linked.value;
    },
    get costOf() {
      return costs.value;
    },
    get openOutline() {
      return openOutline;
    },
    set openOutline(value) {
      openOutline = value;
    },
    setText,
    paintStripes,
    hueOf,
    paintLinks,
    toggleOnly,
    reveal,
    pinnedBoxes,
    walk,
    caretTo,
    explain,
  };
  const bar = mount(createElement(PaneBar, { pane }));
  const card = mount(createElement(Explanation, { pane }));
  root.prepend(bar.root);
  root.append(card.root);
  return pane;
}

export type Pane = ReturnType<typeof createPane>;
