/** A pane of a saved page, which needs no editor. */

import { grouped } from "../dom/format";
import { hasModifier } from "../dom/events";
import { RULES, type Rule, tokensFrom } from "../code/tokens";
import { h, keyed } from "../dom/dom";
import { getOrCreate } from "../dom/lists";
import type { CostText } from "../code/folds";
import type { HeatOf } from "../code/margin";
import { describe } from "../store/description";
import type { Anchor, Instruction } from "../store/links";
import { createFoldedPane } from "./folded-pane";
import type { SavedStage } from "./saved";
import { createRows } from "./scrolled";
import { type Look, type Selection, hasSelectedText } from "./selection";

const ROW = 18;
const MOST_CHARACTERS = 2000;
const NAMING_MS = 100;
/** Rows of a pane on paper: about 40 pages. */
const MOST_PRINTED = 3000;
/** CSS class of each coloured token, as in viz/highlight.py. */
const CLASSES: Record<string, string> = { op: "f", meta: "k", type: "t", number: "m", string: "s", comment: "c" };
const ORIGINS: Record<string, string> = { inferred: " i", kernel: " k" };
const ROLES: Record<string, string> = { backward: " rb", update: " ru" };

export function createTextPane(
  { title, language, unavailable, text }: SavedStage,
  selection: Selection,
  hues: Record<string, string>,
  lookOf: (line: string) => string = () => "",
  costOf: CostText = () => "",
  heatOf: HeatOf | null = null,
) {
  const lines = text.text === "" ? [] : text.text.split("\n");
  const { length } = lines;
  const rules = RULES[language] ?? [];
  /** The token that is open at the start of each line, for languages with tokens over several lines. */
  const opens: (Rule | null)[] | null = rules.some((rule) => rule.end) ? [null] : null;
  let naming = 0;
  /**
   * The numbers and stripes of the drawn lines: one sticky element, because one for each line takes too long to paint.
   */
  const edge = h("div", { class: "edge", "aria-hidden": "true" });
  /** The bars of each array of shares, which thousands of lines of a kernel have in common. */
  const bars = new WeakMap<Instruction["shares"], [string, number][]>();
  const list = h("div", { class: "rows" });
  const code = h("div", { class: "code v", tabindex: "0", role: "region", "aria-label": `${title}, text` });
  const sight = h("div", { class: "sight" }, edge, list);
  const digits = String(length).length;
  const wide = Math.min(
    MOST_CHARACTERS,
    lines.reduce((most, line) => Math.max(most, line.length), 0),
  );
  sight.style.setProperty("--w", String(digits));
  const folded = createFoldedPane(text, title, costOf, fold, (line) => rows.go(line), pinnedBlock);
  let folds = folded.now;
  const rows = createRows(code, list, length, ROW, {
    folds: () => folds,
    keyOf,
    row,
    leaveRoom: (above) => void (sight.style.transform = `translateY(${above}px)`),
    linked: (look) =>
      selection.links[look].lines.get(text.stage)?.size
        ? lines.flatMap((_, at) => (isLinked(look, at + 1) ? [at + 1] : []))
        : [],
    isLinked,
    hover,
    pin: (line) => (folds.hiddenAt(line) ? void folded.toggle(line) : selection.pin(anchorAt(line))),
    release: () => selection.pin(null),
    // Name the block of the first visible line, ten times a second at most: a new name lays out the header.
    moved: () =>
      (naming ||= window.setTimeout(() => {
        naming = 0;
        name();
      }, NAMING_MS)),
    drawn: (lines) =>
      keyed(
        edge,
        lines,
        (line) => `${line}${folds.signAt(line)}`,
        (line) => margin(line, folds.signAt(line)),
        () => {},
      ),
  });
  const tall = h(
    "div",
    {
      class: "tall",
      style: `height:${folds.rowCount(length) * ROW}px;min-width:calc(${wide + digits}ch + ${heatOf ? 148 : 60}px)`,
    },
    sight,
  );
  code.append(tall);
  const count = length ? `${grouped(length)} lines${heatOf ? ", FLOPs by line" : ""}` : "";
  const root = h(
    "section",
    { class: "pane", "aria-label": title, "data-stage": text.stage },
    h("header", {}, h("b", {}, title), h("span", { class: "quiet" }, count), folded.root),
    unavailable === null ? null : h("p", { class: "gone" }, `not available: ${unavailable}`),
    length ? rows.ticks : null,
    length ? code : null,
  );
  name();
  code.addEventListener("click", (event) => {
    const line = rows.lineAt(event);
    if (!line || hasSelectedText()) return;
    const target = event.target as Element;
    const label = target.closest<HTMLElement>(".fold");
    if (label ? folded.toggle(line, label.dataset["span"]) : target.closest(".g") && folded.toggle(line)) return;
    rows.go(line);
    rows.pinHere();
  });
  code.addEventListener("keydown", (event) => {
    if (hasModifier(event) || !folded.key(event.key, rows.here || 1)) return;
    event.preventDefault();
  });

  /** Return whether the pinned line, if any, is in this pane. */
  function holds(anchors: readonly Anchor[]) {
    return anchors.some((anchor) => anchor.kind === "instruction" && anchor.stage === text.stage);
  }

  /** Add the rows on paper, where nothing scrolls: as they are folded, up to `MOST_PRINTED`; or remove them. */
  function print(isPrinted: boolean) {
    root.querySelector(".printed")?.remove();
    if (!isPrinted) return;
    const count = folds.rowCount(length);
    const printed = Array.from({ length: Math.min(count, MOST_PRINTED) }, (_, at) => {
      const line = folds.lineOf(at + 1);
      const printed = row(line);
      printed.prepend(h("span", { class: "n" }, line));
      return printed;
    });
    const rest =
      count > MOST_PRINTED
        ? h("p", { class: "quiet" }, `${grouped(count - MOST_PRINTED)} more rows are not printed.`)
        : null;
    root.append(h("div", { class: "printed" }, ...printed, rest));
  }

  function name() {
    folded.follow(folds.lineOf(rows.top));
  }

  function keyOf(line: number) {
    const spans = folds.spans.some(({ from }) => from === line);
    return `${line}${folds.hiddenAt(line) ? " folded" : ""}${spans ? " short" : ""}`;
  }

  /** Draw again with other lines folded; the first visible line stays where it is. */
  function fold() {
    const row = Math.floor(code.scrollTop / ROW);
    const rest = code.scrollTop - row * ROW;
    const first = folds.lineOf(row + 1);
    folds = folded.now;
    const hidden = folds.hiddenAt(rows.here);
    if (hidden) rows.here = hidden.from;
    tall.style.height = `${folds.rowCount(length) * ROW}px`;
    code.scrollTop = (folds.rowOf(first) - 1) * ROW + rest;
    rows.draw();
    name();
    rows.follow(false);
  }

  function pinnedBlock() {
    const [pin] = selection.anchors.pin;
    if (pin?.kind === "block") return pin.path;
    const stage = pin?.kind === "instruction" ? selection.stages.get(pin.stage) : undefined;
    return stage && pin?.kind === "instruction" ? stage.mainBlock(stage.instructions[pin.index]!) : null;
  }

  function paint() {
    rows.paint();
    for (const margin of edge.children)
      margin.classList.toggle("here", (margin as HTMLElement).dataset["line"] === String(rows.here));
  }

  function hover(line: number) {
    const instruction = line ? text.at(line) : null;
    if (instruction) rows.drawn.get(line)?.setAttribute("title", describe(text, instruction).join("\n"));
    if (!instruction || !isLinkedAs(instruction)) return selection.hover(anchorAt(line));
    // While a kernel's lines move below the pointer, each is hovered. Its links to other stages may be tens of
    // thousands.
    selection.anchors.on = [anchorAt(line)!];
    selection.links.on.lines.set(text.stage, new Set([instruction.index]));
    paint();
  }

  /** Return whether the hovered part is another instruction with the same links: a line of the same kernel. */
  function isLinkedAs({ equations, shares }: Instruction) {
    const [over] = selection.anchors.on;
    if (over?.kind !== "instruction" || over.stage !== text.stage) return false;
    const before = text.instructions[over.index];
    return before?.equations === equations && before.shares === shares;
  }

  function isLinked(look: Look, line: number) {
    const index = text.owner[line] ?? -1;
    return index >= 0 && selection.links[look].lines.get(text.stage)?.has(index) === true;
  }

  function anchorAt(line: number): Anchor | null {
    const instruction = text.at(line);
    return instruction && { kind: "instruction", stage: text.stage, version: text.version, index: instruction.index };
  }

  /** Create the number and the stripe of a line. */
  function margin(line: number, sign: string) {
    const instruction = text.at(line);
    const stripe = h("span", { class: "s" });
    if (instruction) {
      stripe.className += (ORIGINS[instruction.origin ?? ""] ?? "") + (ROLES[instruction.role ?? ""] ?? "");
      stripe.append(
        h(
          "span",
          {},
          ...barsOf(instruction.shares).map(([look, share]) => h("i", { class: look, style: `flex-grow:${share}` })),
        ),
      );
    }
    const cost = heatOf?.(line);
    const heat =
      heatOf &&
      h("span", { class: "heat", style: `--level:${Math.round((cost?.level ?? 0) * 100)}%` }, cost?.text ?? "");
    return h(
      "div",
      { class: "margin", "data-line": line },
      h("span", { class: "n" }, line),
      h("span", { class: "g" }, sign),
      heat,
      stripe,
    );
  }

  function row(line: number) {
    const whole = lines[line - 1]!;
    const label = folded.labelOf(line);
    const pieces = label === null ? folded.piecesOf(line, whole) : [h("span", { class: "fold" }, label)];
    if (pieces) return h("div", { class: "l" }, h("span", { class: "x" }, ...pieces));
    const rest =
      whole.length > MOST_CHARACTERS
        ? h("span", { class: "c" }, ` … ${whole.length - MOST_CHARACTERS} more characters`)
        : null;
    return h(
      "div",
      { class: `l ${lookOf(whole)}` },
      h("span", { class: "x" }, ...coloured(line, whole.slice(0, MOST_CHARACTERS)), rest),
    );
  }

  /** Return one bar for each hue: a fusion may have thousands of blocks. */
  function barsOf(shares: Instruction["shares"]) {
    return getOrCreate(bars, shares, () => {
      const found = new Map<string, number>();
      for (const [block, share] of shares) {
        const hue = hues[block] ?? "hx";
        found.set(hue, (found.get(hue) ?? 0) + share);
      }
      return [...found];
    });
  }

  /** Return a line in pieces, those of coloured tokens as elements. */
  function coloured(line: number, text: string) {
    while (opens && opens.length < line) opens.push(tokensFrom(rules, lines[opens.length - 1]!, opens.at(-1)!).open);
    const found: (string | HTMLElement)[] = [];
    let at = 0;
    for (const token of tokensFrom(rules, text, opens?.[line - 1] ?? null).found) {
      const look = CLASSES[token.name];
      if (!look) continue;
      found.push(text.slice(at, token.from), h("span", { class: look }, text.slice(token.from, token.to)));
      at = token.to;
    }
    return [...found, text.slice(at)];
  }

  return { root, rows, holds, print, paint };
}

export type TextPane = ReturnType<typeof createTextPane>;
