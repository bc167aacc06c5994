/** The search across the diffs of all passes: the kernel finds the lines, and the keys step through them. */

import { Clock } from "../dom/clock";
import { attr, h, iconButton, text } from "../dom/dom";
import { errorOf } from "../kernel/messages";
import type { MatchesHead, Messages, ReplyHead } from "../kernel/contract";
import type { Store } from "../store/store";

const PAUSE_MS = 250;
const GONE = "Not connected to the kernel, so passes cannot be searched.";

export class PassSearch {
  readonly root: HTMLElement;
  /** The text, or "" without a search. */
  query = "";
  private readonly input: HTMLInputElement;
  private readonly count = h("span", { class: "mnb-pass-found", role: "status" });
  private readonly steps: HTMLButtonElement[];
  private readonly clock = new Clock((elapsed) => elapsed && text(this.count, `Searching: ${elapsed}`));
  private timer: ReturnType<typeof setTimeout> | undefined;
  /** The lines of the matching passes; null until the kernel has answered. */
  private found: ReadonlyMap<number, readonly number[]> | null = null;
  private list: [number: number, line: number][] = [];
  private total = 0;
  private at = -1;

  /** `changed` is called for new matches, and `go` to show a match. `version` is that of the listed passes. */
  constructor(
    private readonly store: Store,
    private readonly version: () => number,
    private readonly changed: () => void,
    private readonly go: (number: number, line: number) => void,
  ) {
    this.input = h("input", {
      type: "search",
      class: "mnb-input mnb-pass-search",
      placeholder: "Search all passes",
      "aria-label": "Search the diffs of all passes. Enter: next match; Shift Enter: previous one",
      autocomplete: "off",
      spellcheck: "false",
      "data-mnb-action": "passes.search",
    });
    this.steps = [
      iconButton("up", "Previous match (Shift Enter)", "passes.previous", () => this.step(-1)),
      iconButton("down", "Next match (Enter)", "passes.next", () => this.step(1)),
    ];
    this.root = h(
      "div",
      { class: "mnb-row", role: "search", "aria-label": "Passes" },
      this.input,
      ...this.steps,
      this.count,
    );
    this.input.addEventListener("input", () => {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.search(), this.input.value.trim() ? PAUSE_MS : 0);
    });
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") {
        clearTimeout(this.timer);
        if (this.input.value.trim() !== this.query) this.search();
        else this.step(event.shiftKey ? -1 : 1);
      } else if (event.key === "Escape" && this.input.value) {
        this.input.value = "";
        this.search();
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
    this.paint();
  }

  destroy(): void {
    clearTimeout(this.timer);
    this.clock.stop();
  }

  /** Return the number of matches in a pass, or null without a search. */
  matches(number: number): number | null {
    return this.query && this.found ? (this.found.get(number)?.length ?? 0) : null;
  }

  /** Return the line of the current match if it is in a pass, else 0. */
  lineIn(number: number): number {
    const match = this.list[this.at];
    return match?.[0] === number ? match[1] : 0;
  }

  /** Search again, because the passes were read again. */
  repeat(): void {
    if (this.query) this.search();
  }

  /** Move to the first match of a pass that was selected otherwise, so that the next step continues from there. */
  enter(number: number): void {
    if (this.list[this.at]?.[0] === number) return;
    const first = this.list.findIndex(([one]) => one === number);
    if (first < 0) return;
    this.at = first;
    this.paint();
  }

  take({ version, text: query, total }: MatchesHead, found: Messages["pass_matches"][1]): void {
    if (query !== this.query) return;
    if (version !== this.version()) return this.clock.run(false); // the search is repeated when the new passes are read
    this.found = new Map(found);
    this.list = found.flatMap(([number, lines]) => lines.map((line): [number, number] => [number, line]));
    this.total = total;
    this.at = -1;
    this.clock.run(false);
    this.paint();
    this.changed();
  }

  fail(why: string): void {
    this.clock.run(false);
    text(this.count, why);
  }

  private search(): void {
    this.query = this.input.value.trim();
    this.found = null;
    [this.list, this.at] = [[], -1];
    const { kernel } = this.store;
    const isSent = this.query !== "" && !kernel.isGone;
    this.clock.run(isSent);
    const { query } = this;
    const replied = (reply: ReplyHead): void => {
      if (!reply.ok && query === this.query) this.fail(errorOf(reply) ?? GONE);
    };
    if (isSent) kernel.latest("search_passes", "search_passes", { text: query }, replied);
    this.paint();
    this.changed();
  }

  private step(by: 1 | -1): void {
    if (!this.list.length) return;
    // Before the first step, no match is current.
    this.at = this.at < 0 ? (by > 0 ? 0 : this.list.length - 1) : (this.at + by + this.list.length) % this.list.length;
    this.paint();
    this.go(...this.list[this.at]!);
  }

  private paint(): void {
    const { list, total, query, found } = this;
    for (const button of this.steps) attr(button, "aria-disabled", list.length ? null : "true");
    const passes = found?.size ?? 0;
    const cut = total > list.length ? `, the first ${list.length.toLocaleString("en-US")} listed` : "";
    const whole =
      `${total.toLocaleString("en-US")} ${total === 1 ? "match" : "matches"} in ${passes} ` +
      `${passes === 1 ? "pass" : "passes"}${cut}`;
    if (!query) text(this.count, "");
    else if (!found) text(this.count, this.store.kernel.isGone ? GONE : "");
    else
      text(
        this.count,
        list.length === 0 ? "No matches" : this.at < 0 ? whole : `${(this.at + 1).toLocaleString("en-US")} of ${whole}`,
      );
  }
}
