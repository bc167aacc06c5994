/** The search of a widget or page: a query, the number of its matches, and a list to step through. */

import { batch } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { Options } from "../controls/options";
import { uid } from "../dom/dom";
import { handled } from "../dom/events";
import { counted, grouped } from "../dom/format";
import { Icon, followFields, mount } from "../dom/view";
import type { StageText } from "../store/links";
import { type Found, type Hit, find } from "./found";
import { QueryError } from "./query";

const PER_STAGE = 8;
const EXAMPLES = "Words, kind:dot, block:head, role:backward, dtype:f64, flops>1e6, -kind:dot";

interface SearchHost {
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
  readonly destroy: () => void;
  text = "";
  results: Result[] = [];
  summary = "";
  isInvalid = false;
  isOpen = false;
  at = 0;
  /** Whether the result at `at` has been shown; then Enter shows the next. */
  isShown = false;
  /** The blocks of the latest search. */
  private searched: Readonly<Record<string, string>> = {};

  constructor(readonly host: SearchHost) {
    followFields(this, "text", "results", "summary", "isInvalid", "isOpen", "at", "isShown");
    ({ root: this.root, destroy: this.destroy } = mount(<SearchView search={this} />));
    this.input = this.root.querySelector("input")!;
  }

  /** Search again, because the stages changed; the place among the results stays. */
  refresh() {
    if (!this.text.trim()) return;
    const { at, isShown, isOpen } = this;
    batch(() => {
      this.look();
      [this.at, this.isShown, this.isOpen] = [Math.min(at, Math.max(0, this.results.length - 1)), isShown, isOpen];
    });
  }

  /** Search again if the blocks changed. */
  follow() {
    if (this.host.blocks() !== this.searched) this.refresh();
  }

  /** End the search; return whether there was one. */
  clear() {
    const had = this.text !== "";
    if (had) this.search("");
    return had;
  }

  search(text: string) {
    batch(() => {
      this.text = text;
      this.look();
    });
  }

  move(at: number) {
    if (at < 0) return;
    batch(() => ([this.at, this.isShown, this.isOpen] = [at, false, true]));
  }

  go(at: number) {
    batch(() => ([this.at, this.isShown] = [at, true]));
    this.results[at]?.go();
  }

  private look() {
    const query = this.text.trim();
    [this.at, this.isShown, this.results, this.isInvalid, this.summary] = [0, false, [], false, ""];
    this.isOpen = query !== "";
    if (!query) return this.host.show(null);
    try {
      this.searched = this.host.blocks();
      const found = find(query, this.host.stages(), this.searched);
      const [lines, isCut] = this.linesWith(found);
      this.results = [...found.hits.map((hit) => this.resultOf(hit, found)), ...lines];
      this.host.show(found);
      const { length } = this.results;
      const cut = isCut ? `, with the first ${PER_STAGE} lines of each stage` : "";
      this.summary = length ? counted(length, "match") + cut : `Nothing found. ${EXAMPLES}`;
    } catch (error) {
      if (!(error instanceof QueryError)) throw error;
      this.host.show(null);
      this.summary = `${error.message} Try: ${error.advice}`;
      this.isInvalid = true;
    }
  }

  private resultOf(hit: Hit, { text: stage }: Found): Result {
    const go = () => this.host.go(hit, stage);
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
   * Return the lines of text with every word of a query of words, except the lines of matches, and whether there are
   * more.
   */
  private linesWith(found: Found): [lines: Result[], isCut: boolean] {
    const words = found.terms.map(({ key, value, isNegated }) =>
      key === "" && !isNegated ? String(value).toLowerCase() : null,
    );
    if (words.some((word) => word === null)) return [[], false];
    let isCut = false;
    const results = [...this.host.stages().values()].flatMap(({ stage, text, owner }) => {
      const lines = text.split("\n").flatMap((line, i): Result[] => {
        const lower = line.toLowerCase();
        if (!words.every((word) => lower.includes(word!)) || found.lines.get(stage)?.has(owner[i + 1] ?? -1)) return [];
        const where = `${this.host.titleOf(stage)} ${i + 1}`;
        return [{ where, label: line.trim(), go: () => this.host.goToLine(stage, i + 1) }];
      });
      isCut ||= lines.length > PER_STAGE;
      return lines.slice(0, PER_STAGE);
    });
    return [results, isCut];
  }
}

function SearchView({ search }: { search: Search }) {
  const id = useMemo(() => uid("hits"), []);
  const { text, results, at, isShown, isOpen } = search;
  const { length } = results;
  const hasQuery = text.trim() !== "";
  const position = `${grouped(at + 1)} of ${grouped(length)}`;
  const summary = isShown ? position : search.summary;
  const press = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") search.move(Math.min(at + 1, length - 1));
    else if (event.key === "ArrowUp") search.move(Math.max(at - 1, 0));
    else if (event.key === "Enter" && length) {
      if (isShown || event.shiftKey) search.move((at + (event.shiftKey ? length - 1 : 1)) % length);
      search.go(search.at);
    } else if (event.key === "Escape" ? !search.clear() : event.key !== "Enter") return;
    handled(event);
  };
  return (
    <div class="mnb-search">
      <Icon name="search" />
      <input
        type="search"
        class="mnb-input"
        placeholder="Search"
        title={EXAMPLES}
        aria-label="Search blocks, equations and stages"
        role="combobox"
        list={undefined}
        aria-expanded={isOpen}
        aria-controls={id}
        aria-activedescendant={length ? `${id}-${at}` : undefined}
        aria-invalid={search.isInvalid ? "true" : undefined}
        autocomplete="off"
        spellcheck={false}
        data-mnb-action="search"
        value={text}
        onInput={(event) => search.search(event.currentTarget.value)}
        onFocus={() => {
          search.host.begin?.();
          search.isOpen = hasQuery;
        }}
        onBlur={() => setTimeout(() => (search.isOpen = false), 150)}
        onKeyDown={press}
      />
      <span class="mnb-search-count" aria-hidden="true">
        {!hasQuery ? "" : isShown ? position : length}
      </span>
      <div class="mnb-menu mnb-search-box" hidden={!isOpen}>
        <div class="mnb-menu-title" role="status" title={summary}>
          {summary}
        </div>
        <Options
          id={id}
          label="Results"
          options={results.map(({ label, where }) => ({ label, title: label, detail: where }))}
          at={at}
          pick={(at) => search.go(at)}
        />
      </div>
    </div>
  );
}
