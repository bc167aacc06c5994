/** A pane of a saved page, which needs no editor. */

import { grouped } from "../dom/format";
import { hasModifier } from "../dom/events";
import { RULES, type Rule, tokensFrom } from "../code/tokens";
import { h, keyed } from "../dom/dom";
import { getOrCreate } from "../dom/lists";
import type { CostText } from "../code/folds";
import type { HeatOf } from "../code/margin";
import { describe } from "../store/description";
import type { Anchor, Instruction, StageText } from "../store/links";
import { createFoldedPane, type FoldedPane } from "./folded-pane";
import type { SavedStage } from "./saved";
import { ScrolledRows } from "./scrolled";
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

export class TextPane extends ScrolledRows {
  readonly root: HTMLElement;
  private readonly text: StageText;
  private readonly lines: string[];
  private readonly rules: readonly Rule[];
  /** The token that is open at the start of each line, for languages with tokens over several lines. */
  private readonly opens: (Rule | null)[] | null;
  private readonly sight: HTMLElement;
  private readonly tall: HTMLElement;
  private readonly folded: FoldedPane;
  private naming = 0;
  /**
   * The numbers and stripes of the drawn lines: one sticky element, because one for each line takes too long to paint.
   */
  private readonly edge = h("div", { class: "edge", "aria-hidden": "true" });
  /** The bars of each array of shares, which thousands of lines of a kernel have in common. */
  private readonly bars = new WeakMap<Instruction["shares"], [string, number][]>();

  constructor(
    stage: SavedStage,
    private readonly selection: Selection,
    private readonly hues: Record<string, string>,
    private readonly lookOf: (line: string) => string = () => "",
    costOf: CostText = () => "",
    private readonly heatOf: HeatOf | null = null,
  ) {
    const { title, language, unavailable, text } = stage;
    const lines = text.text === "" ? [] : text.text.split("\n");
    const rows = h("div", { class: "rows" });
    const code = h("div", { class: "code v", tabindex: "0", role: "region", "aria-label": `${title}, text` });
    super(code, rows, lines.length, ROW);
    this.text = text;
    this.lines = lines;
    this.sight = h("div", { class: "sight" }, this.edge, rows);
    this.rules = RULES[language] ?? [];
    this.opens = this.rules.some((rule) => rule.end) ? [null] : null;
    const digits = String(this.lineCount).length;
    const wide = Math.min(
      MOST_CHARACTERS,
      lines.reduce((most, line) => Math.max(most, line.length), 0),
    );
    this.sight.style.setProperty("--w", String(digits));
    this.folded = createFoldedPane(
      text,
      title,
      costOf,
      () => this.fold(),
      (line) => this.go(line),
      () => this.pinnedBlock(),
    );
    this.folds = this.folded.now;
    this.tall = h(
      "div",
      {
        class: "tall",
        style:
          `height:${this.folds.rowCount(this.lineCount) * ROW}px;min-width:calc(${wide + digits}ch + ` +
          `${heatOf ? 148 : 60}px)`,
      },
      this.sight,
    );
    code.append(this.tall);
    const count = this.lineCount ? `${grouped(this.lineCount)} lines${heatOf ? ", FLOPs by line" : ""}` : "";
    this.root = h(
      "section",
      { class: "pane", "aria-label": title, "data-stage": text.stage },
      h("header", {}, h("b", {}, title), h("span", { class: "quiet" }, count), this.folded.root),
      unavailable === null ? null : h("p", { class: "gone" }, `not available: ${unavailable}`),
      this.lineCount ? this.ticks : null,
      this.lineCount ? code : null,
    );
    this.name();
    code.addEventListener("click", (event) => {
      const line = this.lineAt(event);
      if (!line || hasSelectedText()) return;
      const target = event.target as Element;
      const label = target.closest<HTMLElement>(".fold");
      if (label ? this.folded.toggle(line, label.dataset["span"]) : target.closest(".g") && this.folded.toggle(line))
        return;
      this.go(line);
      this.pinHere();
    });
    code.addEventListener("keydown", (event) => {
      if (hasModifier(event) || !this.folded.key(event.key, this.here || 1)) return;
      event.preventDefault();
    });
  }

  pinHere(): void {
    if (this.folds.hiddenAt(this.here)) this.folded.toggle(this.here);
    else this.selection.pin(this.anchorAt(this.here));
  }

  release(): void {
    this.selection.pin(null);
  }

  /** Return whether the pinned line, if any, is in this pane. */
  holds(anchors: readonly Anchor[]): boolean {
    return anchors.some((anchor) => anchor.kind === "instruction" && anchor.stage === this.text.stage);
  }

  /** Add the rows on paper, where nothing scrolls: as they are folded, up to `MOST_PRINTED`; or remove them. */
  print(isPrinted: boolean): void {
    this.root.querySelector(".printed")?.remove();
    if (!isPrinted) return;
    const count = this.folds.rowCount(this.lineCount);
    const rows = Array.from({ length: Math.min(count, MOST_PRINTED) }, (_, at) => {
      const line = this.folds.lineOf(at + 1);
      const row = this.row(line);
      row.prepend(h("span", { class: "n" }, line));
      return row;
    });
    const rest =
      count > MOST_PRINTED
        ? h("p", { class: "quiet" }, `${grouped(count - MOST_PRINTED)} more rows are not printed.`)
        : null;
    this.root.append(h("div", { class: "printed" }, ...rows, rest));
  }

  override draw(): void {
    super.draw();
    const signOf = (line: number) => this.folds.signAt(line);
    keyed(
      this.edge,
      [...this.drawn.keys()].sort((a, b) => a - b),
      (line) => `${line}${signOf(line)}`,
      (line) => this.margin(line, signOf(line)),
      () => {},
    );
  }

  /** Name the block of the first visible line, ten times a second at most: a new name lays out the header. */
  protected override moved(): void {
    this.naming ||= window.setTimeout(() => {
      this.naming = 0;
      this.name();
    }, NAMING_MS);
  }

  private name() {
    this.folded.follow(this.folds.lineOf(this.top));
  }

  protected override keyOf(line: number): string {
    const spans = this.folds.spans.some(({ from }) => from === line);
    return `${line}${this.folds.hiddenAt(line) ? " folded" : ""}${spans ? " short" : ""}`;
  }

  /** Draw again with other lines folded; the first visible line stays where it is. */
  private fold() {
    const row = Math.floor(this.frame.scrollTop / ROW);
    const rest = this.frame.scrollTop - row * ROW;
    const first = this.folds.lineOf(row + 1);
    this.folds = this.folded.now;
    const hidden = this.folds.hiddenAt(this.here);
    if (hidden) this.here = hidden.from;
    this.tall.style.height = `${this.folds.rowCount(this.lineCount) * ROW}px`;
    this.frame.scrollTop = (this.folds.rowOf(first) - 1) * ROW + rest;
    this.draw();
    this.name();
    this.follow(false);
  }

  private pinnedBlock() {
    const [pin] = this.selection.anchors.pin;
    if (pin?.kind === "block") return pin.path;
    const stage = pin?.kind === "instruction" ? this.selection.stages.get(pin.stage) : undefined;
    return stage && pin?.kind === "instruction" ? stage.mainBlock(stage.instructions[pin.index]!) : null;
  }

  override paint(): void {
    super.paint();
    for (const margin of this.edge.children)
      margin.classList.toggle("here", (margin as HTMLElement).dataset["line"] === String(this.here));
  }

  protected hover(line: number): void {
    const instruction = line ? this.text.at(line) : null;
    if (instruction) this.drawn.get(line)?.setAttribute("title", describe(this.text, instruction).join("\n"));
    if (!instruction || !this.isLinkedAs(instruction)) return this.selection.hover(this.anchorAt(line));
    // While a kernel's lines move below the pointer, each is hovered. Its links to other stages may be tens of
    // thousands.
    this.selection.anchors.on = [this.anchorAt(line)!];
    this.selection.links.on.lines.set(this.text.stage, new Set([instruction.index]));
    this.paint();
  }

  /** Return whether the hovered part is another instruction with the same links: a line of the same kernel. */
  private isLinkedAs({ equations, shares }: Instruction) {
    const [over] = this.selection.anchors.on;
    if (over?.kind !== "instruction" || over.stage !== this.text.stage) return false;
    const before = this.text.instructions[over.index];
    return before?.equations === equations && before.shares === shares;
  }

  protected leaveRoom(above: number): void {
    this.sight.style.transform = `translateY(${above}px)`;
  }

  protected linked(look: Look): readonly number[] {
    const found = this.selection.links[look].lines.get(this.text.stage);
    return found?.size ? this.lines.flatMap((_, at) => (this.isLinked(look, at + 1) ? [at + 1] : [])) : [];
  }

  protected isLinked(look: Look, line: number): boolean {
    const index = this.text.owner[line] ?? -1;
    return index >= 0 && this.selection.links[look].lines.get(this.text.stage)?.has(index) === true;
  }

  private anchorAt(line: number): Anchor | null {
    const instruction = this.text.at(line);
    return (
      instruction && {
        kind: "instruction",
        stage: this.text.stage,
        version: this.text.version,
        index: instruction.index,
      }
    );
  }

  /** Create the number and the stripe of a line. */
  private margin(line: number, sign: string): HTMLElement {
    const instruction = this.text.at(line);
    const stripe = h("span", { class: "s" });
    if (instruction) {
      stripe.className += (ORIGINS[instruction.origin ?? ""] ?? "") + (ROLES[instruction.role ?? ""] ?? "");
      stripe.append(
        h(
          "span",
          {},
          ...this.barsOf(instruction.shares).map(([look, share]) =>
            h("i", { class: look, style: `flex-grow:${share}` }),
          ),
        ),
      );
    }
    const cost = this.heatOf?.(line);
    const heat =
      this.heatOf &&
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

  protected row(line: number): HTMLElement {
    const whole = this.lines[line - 1]!;
    const label = this.folded.labelOf(line);
    if (label !== null) return h("div", { class: "l" }, h("span", { class: "x" }, h("span", { class: "fold" }, label)));
    const short = this.folded.piecesOf(line, whole);
    if (short) return h("div", { class: "l" }, h("span", { class: "x" }, ...short));
    const rest =
      whole.length > MOST_CHARACTERS
        ? h("span", { class: "c" }, ` … ${whole.length - MOST_CHARACTERS} more characters`)
        : null;
    return h(
      "div",
      { class: `l ${this.lookOf(whole)}` },
      h("span", { class: "x" }, ...this.pieces(line, whole.slice(0, MOST_CHARACTERS)), rest),
    );
  }

  /** Return one bar for each hue: a fusion may have thousands of blocks. */
  private barsOf(shares: Instruction["shares"]) {
    return getOrCreate(this.bars, shares, () => {
      const found = new Map<string, number>();
      for (const [block, share] of shares)
        found.set(this.hues[block] ?? "hx", (found.get(this.hues[block] ?? "hx") ?? 0) + share);
      return [...found];
    });
  }

  /** Return a line in pieces, those of coloured tokens as elements. */
  private pieces(line: number, text: string) {
    const { opens, rules } = this;
    while (opens && opens.length < line)
      opens.push(tokensFrom(rules, this.lines[opens.length - 1]!, opens.at(-1)!).open);
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
}
