/** A pane of a saved page. It draws only its visible lines, and needs no editor. */

import { RULES, type Rule, tokensFrom } from "../code/tokens";
import { h } from "../dom/dom";
import { describe } from "../store/description";
import type { Anchor, StageText } from "../store/links";
import type { SavedStage } from "./saved";
import { type Look, type Selection, hasSelectedText, walkByKeys } from "./selection";

const ROW = 18;
const MOST_CHARACTERS = 2000;
/** CSS class of each coloured token, as in viz/highlight.py. */
const CLASSES: Record<string, string> = { op: "f", meta: "k", type: "t", number: "m", string: "s", comment: "c" };
const ORIGINS: Record<string, string> = { inferred: " i", kernel: " k" };
const ROLES: Record<string, string> = { backward: " rb", update: " ru" };

export class TextPane {
  readonly root: HTMLElement;
  here = 0;
  readonly lineCount: number;
  private readonly text: StageText;
  private readonly lines: string[];
  private readonly rules: readonly Rule[];
  /** The token that is open at the start of each line, for languages with tokens over several lines. */
  private readonly opens: (Rule | null)[] | null;
  private readonly code = h("div", { class: "code v", tabindex: "0", role: "region" });
  private readonly sight = h("div", { class: "sight" });
  private readonly ticks = h("div", { class: "ticks" });
  private rows = new Map<number, HTMLElement>();
  private over = 0;

  constructor(
    stage: SavedStage,
    private readonly selection: Selection,
    private readonly hues: Record<string, string>,
    private readonly lookOf: (line: string) => string = () => "",
  ) {
    const { title, language, unavailable, text } = stage;
    this.text = text;
    this.lines = text.text === "" ? [] : text.text.split("\n");
    this.lineCount = this.lines.length;
    this.rules = RULES[language] ?? [];
    this.opens = this.rules.some((rule) => rule.end) ? [null] : null;
    const digits = String(this.lineCount).length;
    const wide = Math.min(MOST_CHARACTERS, this.lines.reduce((most, line) => Math.max(most, line.length), 0));
    this.sight.style.setProperty("--w", String(digits));
    const tall = h("div", { class: "tall", style: `height:${this.lineCount * ROW}px;min-width:calc(${wide + digits}ch + 48px)` }, this.sight);
    this.code.setAttribute("aria-label", `${title}, text`);
    this.code.append(tall);
    const count = this.lineCount ? `${this.lineCount.toLocaleString("en")} lines` : "";
    this.root = h(
      "section",
      { class: "pane", "aria-label": title, "data-stage": text.stage },
      h("header", {}, h("b", {}, title), h("span", { class: "quiet" }, count)),
      unavailable === null ? null : h("p", { class: "gone" }, `not available: ${unavailable}`),
      this.lineCount ? this.code : null,
      this.lineCount ? this.ticks : null,
    );
    this.code.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.code);
    const lineAt = (event: Event): number => Number((event.target as Element).closest<HTMLElement>(".l")?.dataset["line"] ?? 0);
    this.code.addEventListener("mouseover", (event) => this.hover(lineAt(event)));
    this.code.addEventListener("mouseleave", () => this.hover(0));
    this.code.addEventListener("click", (event) => {
      const line = lineAt(event);
      if (!line || hasSelectedText()) return;
      this.go(line);
      this.pinHere();
    });
    walkByKeys(this.code, this);
  }

  pinHere(): void {
    this.selection.pin(this.anchorAt(this.here));
  }

  release(): void {
    this.selection.pin(null);
  }

  isPinned(line: number): boolean {
    return this.isLinked("pin", line);
  }

  /** Return whether the pinned line, if any, is in this pane. */
  holds(anchor: Anchor | null): boolean {
    return anchor?.kind === "instruction" && anchor.stage === this.text.stage;
  }

  go(line: number): void {
    this.here = line;
    const top = (line - 1) * ROW;
    const { scrollTop, clientHeight } = this.code;
    if (top < scrollTop) this.code.scrollTop = top;
    else if (top > scrollTop + clientHeight - 2 * ROW) this.code.scrollTop = top - clientHeight + 2 * ROW;
    this.selection.hover(this.anchorAt(line));
  }

  /** Draw the visible lines. */
  draw(): void {
    const first = Math.max(1, Math.floor(this.code.scrollTop / ROW) - 7);
    const last = Math.min(this.lineCount, first + Math.ceil(this.code.clientHeight / ROW) + 15);
    this.sight.style.transform = `translateY(${(first - 1) * ROW}px)`;
    this.rows = new Map();
    for (let line = first; line <= last; line++) this.rows.set(line, this.row(line));
    this.sight.replaceChildren(...this.rows.values());
    this.paint();
  }

  paint(): void {
    for (const [line, row] of this.rows) {
      row.classList.toggle("on", this.isLinked("on", line));
      row.classList.toggle("pin", this.isLinked("pin", line));
      row.classList.toggle("here", line === this.here);
    }
  }

  /** Mark the pinned lines beside the scrollbar; if none is visible, scroll to the nearest one. */
  follow(mayScroll: boolean): void {
    const found = this.lines.map((_, at) => at + 1).filter((line) => this.isPinned(line));
    const places = new Set(found.map((line) => Math.round(((line - 1) / this.lineCount) * 200)));
    this.ticks.replaceChildren(...[...places].map((place) => h("i", { style: `top:${place / 2}%` })));
    const top = this.code.scrollTop / ROW + 1;
    const end = top + this.code.clientHeight / ROW - 1;
    if (!mayScroll || !found.length || found.some((line) => line >= top && line < end)) return;
    const near = found.reduce((best, line) => (Math.abs(line - top) < Math.abs(best - top) ? line : best));
    this.code.scrollTop = (near - 1) * ROW - this.code.clientHeight / 4;
  }

  private hover(line: number): void {
    if (line === this.over) return;
    this.over = line;
    this.selection.hover(this.anchorAt(line));
  }

  private anchorAt(line: number): Anchor | null {
    const instruction = this.text.at(line);
    return instruction && { kind: "instruction", stage: this.text.stage, version: this.text.version, index: instruction.index };
  }

  private isLinked(look: Look, line: number): boolean {
    const index = this.text.owner[line] ?? -1;
    return index >= 0 && this.selection.links[look].lines.get(this.text.stage)?.has(index) === true;
  }

  private row(line: number): HTMLElement {
    const instruction = this.text.at(line);
    const whole = this.lines[line - 1]!;
    const stripe = h("span", { class: "s" });
    if (instruction) {
      stripe.className += (ORIGINS[instruction.origin ?? ""] ?? "") + (ROLES[instruction.role ?? ""] ?? "");
      stripe.append(h("span", {}, ...instruction.shares.map(([block, share]) => h("i", { class: this.hues[block] ?? "hx", style: `flex-grow:${share}` }))));
    }
    const rest = whole.length > MOST_CHARACTERS ? h("span", { class: "c" }, ` … ${whole.length - MOST_CHARACTERS} more characters`) : null;
    return h(
      "div",
      { class: `l ${this.lookOf(whole)}`, "data-line": line, title: instruction && describe(this.text, instruction).join("\n") },
      h("span", { class: "n" }, line),
      stripe,
      h("span", { class: "x" }, ...this.pieces(line, whole.slice(0, MOST_CHARACTERS)), rest),
    );
  }

  /** Return a line in pieces, those of coloured tokens as elements. */
  private pieces(line: number, text: string): (string | HTMLElement)[] {
    const { opens, rules } = this;
    while (opens && opens.length < line) opens.push(tokensFrom(rules, this.lines[opens.length - 1]!, opens.at(-1)!).open);
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
