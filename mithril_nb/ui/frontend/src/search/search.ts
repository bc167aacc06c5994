/** The search of a widget or page: a query, the number of its matches, and a list to step through. */

import { ICONS, attr, h, icon, text, uid } from "../dom/dom";
import type { StageText } from "../store/links";
import { type Found, type Hit, find } from "./found";
import { QueryError } from "./query";

const PER_STAGE = 8;
/** The most options drawn at once. */
const DRAWN = 60;
const EXAMPLES = "Words, kind:dot, block:head, role:backward, dtype:f64, flops>1e6, -kind:dot";

export interface SearchHost {
  /** Called when the field gets the focus. */
  begin?: () => void;
  stages: () => ReadonlyMap<string, StageText>;
  /** The kinds of blocks by path, for models without a program. */
  blocks: () => Readonly<Record<string, string>>;
  titleOf: (stage: string) => string;
  /** Mark the matches; null ends the search. */
  show: (found: Found | null) => void;
  /** Select a match, and bring it into view. */
  go: (hit: Hit, text: StageText | null) => void;
  goToLine: (stage: string, line: number) => void;
}

interface Result {
  where: string;
  label: string;
  go: () => void;
}

export class Search {
  readonly root: HTMLElement;
  readonly input: HTMLInputElement;
  private readonly id = uid("hits");
  private readonly list = h("div", { class: "mnb-options", role: "listbox", id: this.id, "aria-label": "Results" });
  private readonly count = h("div", { class: "mnb-menu-title", role: "status" });
  private readonly badge = h("span", { class: "mnb-search-count", "aria-hidden": "true" });
  private readonly box: HTMLElement;
  private results: Result[] = [];
  /** The blocks of the latest search. */
  private searched: Readonly<Record<string, string>> = {};
  private summary = "";
  private at = 0;
  /** Whether the result at `at` has been shown; then Enter shows the next. */
  private isShown = false;

  constructor(private readonly host: SearchHost) {
    this.input = h("input", {
      type: "search",
      class: "mnb-input",
      placeholder: "Search, kind:dot flops>1e6",
      title: EXAMPLES,
      "aria-label": "Search blocks, equations and stages",
      role: "combobox",
      "aria-expanded": "false",
      "aria-controls": this.id,
      autocomplete: "off",
      spellcheck: "false",
      "data-mnb-action": "search",
    });
    this.box = h("div", { class: "mnb-menu mnb-search-box", hidden: true }, this.count, this.list);
    this.root = h("div", { class: "mnb-search" }, icon(ICONS.search), this.input, this.badge, this.box);
    this.input.addEventListener("input", () => this.look());
    this.input.addEventListener("focus", () => {
      host.begin?.();
      this.open();
    });
    this.input.addEventListener("blur", () => setTimeout(() => this.close(), 150));
    this.input.addEventListener("keydown", (event) => this.key(event));
  }

  destroy(): void {
    this.close();
  }

  /** Search again, because the stages changed; the place among the results stays. */
  refresh(): void {
    if (!this.input.value.trim()) return;
    const {
      at,
      isShown,
      box: { hidden },
    } = this;
    this.look();
    [this.at, this.isShown] = [Math.min(at, Math.max(0, this.results.length - 1)), isShown];
    if (hidden) this.close();
    this.paint();
  }

  /** Search again if the blocks changed. */
  follow(): void {
    if (this.host.blocks() !== this.searched) this.refresh();
  }

  /** End the search; return whether there was one. */
  clear(): boolean {
    if (!this.input.value) return false;
    this.input.value = "";
    this.look();
    return true;
  }

  private open(): void {
    if (!this.input.value.trim()) return;
    this.box.hidden = false;
    attr(this.input, "aria-expanded", "true");
  }

  private close(): void {
    this.box.hidden = true;
    attr(this.input, "aria-expanded", "false");
  }

  private key(event: KeyboardEvent): void {
    const { length } = this.results;
    if (event.key === "ArrowDown") this.move(Math.min(this.at + 1, length - 1));
    else if (event.key === "ArrowUp") this.move(Math.max(this.at - 1, 0));
    else if (event.key === "Enter" && length) {
      if (this.isShown || event.shiftKey) this.move((this.at + (event.shiftKey ? length - 1 : 1)) % length);
      this.go(this.at);
    } else if (event.key === "Escape") {
      if (!this.clear()) return;
    } else if (event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
  }

  private move(at: number): void {
    if (at < 0) return;
    [this.at, this.isShown] = [at, false];
    this.open();
    this.paint();
  }

  private go(at: number): void {
    [this.at, this.isShown] = [at, true];
    this.results[at]?.go();
    this.paint();
  }

  private look(): void {
    const query = this.input.value.trim();
    [this.at, this.isShown, this.results] = [0, false, []];
    attr(this.input, "aria-invalid", null);
    if (!query) {
      this.host.show(null);
      this.summary = "";
      this.close();
      return this.paint();
    }
    try {
      this.searched = this.host.blocks();
      const found = find(query, this.host.stages(), this.searched);
      this.results = found.hits.map((hit) => this.resultOf(hit, found));
      const cut = this.addLines(found);
      this.host.show(found);
      const { length } = this.results;
      this.summary =
        length === 0
          ? `Nothing found. ${EXAMPLES}`
          : `${counted(length)}${cut ? `, with the first ${PER_STAGE} lines of each stage` : ""}`;
    } catch (error) {
      if (!(error instanceof QueryError)) throw error;
      this.host.show(null);
      this.summary = `${error.message} Try: ${error.advice}`;
      attr(this.input, "aria-invalid", "true");
    }
    this.open();
    this.paint();
  }

  private resultOf(hit: Hit, { text: stage }: Found): Result {
    const go = (): void => this.host.go(hit, stage);
    if (hit.kind === "block")
      return { label: hit.path, where: this.host.blocks()[hit.path] ?? stage?.kinds?.[hit.path] ?? "block", go };
    const { instruction, blocks } = hit;
    return {
      label: `${instruction.opcode}  ${blocks[0] ?? ""}`,
      where: `${this.host.titleOf(stage!.stage)} ${instruction.line}`,
      go,
    };
  }

  /**
   * Add the lines of text with every word of a query of words, except the lines of matches; return whether there are
   * more.
   */
  private addLines(found: Found): boolean {
    const words = found.terms.map(({ key, value, isNegated }) =>
      key === "" && !isNegated ? String(value).toLowerCase() : null,
    );
    if (words.some((word) => word === null)) return false;
    let isCut = false;
    for (const stage of this.host.stages().values()) {
      let count = 0;
      stage.text.split("\n").forEach((line, i) => {
        const lower = line.toLowerCase();
        if (
          !words.every((word) => lower.includes(word!)) ||
          found.lines.get(stage.stage)?.has(stage.owner[i + 1] ?? -1)
        )
          return;
        if ((count += 1) > PER_STAGE) isCut = true;
        else
          this.results.push({
            where: `${this.host.titleOf(stage.stage)} ${i + 1}`,
            label: line.trim(),
            go: () => this.host.goToLine(stage.stage, i + 1),
          });
      });
    }
    return isCut;
  }

  private paint(): void {
    const { results, at, isShown } = this;
    const position = `${(at + 1).toLocaleString("en-US")} of ${results.length.toLocaleString("en-US")}`;
    const summary = isShown ? position : this.summary;
    text(this.count, summary);
    attr(this.count, "title", summary);
    text(this.badge, !this.input.value.trim() ? "" : isShown ? position : String(results.length));
    const first = Math.max(0, Math.min(at - DRAWN / 2, results.length - DRAWN));
    this.list.replaceChildren(
      ...results.slice(first, first + DRAWN).map(({ label, where }, i) => this.option(first + i, label, where)),
    );
    const option = this.list.querySelector('[aria-selected="true"]');
    option?.scrollIntoView?.({ block: "nearest" });
    attr(this.input, "aria-activedescendant", results.length ? `${this.id}-${at}` : null);
  }

  private option(at: number, label: string, where: string): HTMLElement {
    const press = (event: Event): void => {
      event.preventDefault();
      this.go(at);
    };
    return h(
      "div",
      {
        class: "mnb-option",
        role: "option",
        id: `${this.id}-${at}`,
        "aria-selected": String(at === this.at),
        "aria-posinset": at + 1,
        "aria-setsize": this.results.length,
        onpointerdown: press,
      },
      h("span", { class: "mnb-hit-label", title: label }, label),
      h("small", { title: where }, where),
    );
  }
}

function counted(count: number): string {
  return `${count.toLocaleString("en-US")} ${count === 1 ? "match" : "matches"}`;
}
