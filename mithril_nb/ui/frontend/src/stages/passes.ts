/** The Passes tab: the changes of each XLA pass in order, and the history of the pinned instruction. */

import { signal } from "@preact/signals";
import { createElement } from "preact";
import { Radios } from "../controls/choice";
import { StepList } from "../controls/step-list";
import { together } from "../dom/calls";
import { Clock } from "../dom/clock";
import { attr, h, text } from "../dom/dom";
import { followFields, mount } from "../dom/view";
import type { DiffHead, HistoryHead, PassRow, PassesHead, RequestState } from "../kernel/contract";
import type { Store } from "../store/store";
import { DiffView } from "./diff-view";
import { PassSearch } from "./pass-search";

const TRACED = new Set(["jaxpr", "stablehlo", "hlo_before", "hlo"]);

export class PassesTab {
  readonly root: HTMLElement;
  private readonly list = new StepList("Passes that changed the program, in order", (number) => this.request(number));
  private readonly hint = h("p", { class: "mnb-hint" });
  private readonly compile: HTMLButtonElement;
  private readonly history = h("p", { class: "mnb-pass-history", role: "status" });
  private readonly title = h("b", {});
  private readonly figures = h("span", { class: "mnb-pane-figures" });
  private readonly problem = h("p", { class: "mnb-hint", role: "status", hidden: true });
  private readonly diff: HTMLElement;
  private readonly body: HTMLElement;
  private readonly view = new DiffView();
  private readonly search: PassSearch;
  private readonly arrangement = signal("unified");
  private readonly changedOnly: HTMLButtonElement;
  private readonly tools: HTMLElement;
  private readonly clock: Clock;
  rows: PassRow[] = [];
  /** Design version of the rows. */
  private version = 0;
  private requested = "";
  /** The reason the latest list cannot be shown. */
  private failure: string | null = null;
  readonly destroy: () => void;

  constructor(private readonly store: Store) {
    followFields(this, "rows");
    this.compile = h(
      "button",
      {
        type: "button",
        class: "mnb-button mnb-primary",
        "data-mnb-action": "passes.compile",
        onclick: () => store.command("request_passes"),
      },
      "Compile and read the passes",
    );
    this.diff = h(
      "div",
      { class: "mnb-pass-diff" },
      h("div", { class: "mnb-pane-head" }, this.title, this.figures),
      this.problem,
      this.view.root,
    );
    this.search = new PassSearch(
      store,
      () => this.version,
      () => this.fill(),
      (number) => this.goTo(number),
    );
    const choices = [
      { value: "unified", title: "Unified" },
      { value: "beside", title: "Side by side" },
    ];
    const pick = (value: string): void => {
      store.memory.set("diff", value);
      this.arrange();
    };
    const Arrangement = () => Radios({ label: "Diff", action: "diff", choices, value: this.arrangement.value, pick });
    const arrangement = mount(createElement(Arrangement, {}));
    this.changedOnly = h(
      "button",
      {
        type: "button",
        class: "mnb-toggle",
        title: "Hide passes that changed only names or the order of instructions",
        "data-mnb-action": "passes.changed",
        onclick: () => {
          store.memory.set("changed passes", !this.isChangedOnly);
          this.fill();
        },
      },
      "Changed only",
    );
    this.tools = h(
      "div",
      { class: "mnb-pass-tools" },
      this.search.root,
      h("span", { class: "mnb-grow" }),
      this.changedOnly,
      arrangement.root,
    );
    this.body = h("div", { class: "mnb-pass-body" }, this.list.root, this.diff);
    this.root = h(
      "div",
      { class: "mnb-passes", "data-mnb-part": "passes" },
      this.hint,
      this.compile,
      this.tools,
      this.history,
      this.body,
    );
    this.arrange();
    this.clock = new Clock(
      (elapsed) =>
        elapsed &&
        text(
          this.hint,
          `${this.info.state === "ready" ? "Loading the passes" : "Compiling and reading the passes"}: ${elapsed}`,
        ),
    );
    this.destroy = together(
      store.on("snapshot", () => this.update()),
      store.on("tab", () => this.update()),
      store.on("links", () => this.requestHistory()),
      store.kernel.watch(() => this.update()),
      store.kernel.receive(
        "passes",
        (head, rows) => this.take(head, rows),
        (why) => this.fail(why),
      ),
      store.kernel.receive(
        "diff",
        (head, diff) => this.takeDiff(head, diff),
        (why, head) => this.failDiff(head, why),
      ),
      store.kernel.receive(
        "pass_matches",
        (head, matches) => this.search.take(head, matches),
        (why) => this.search.fail(why),
      ),
      store.kernel.on("instruction_history", (message: HistoryHead) => this.receiveHistory(message)),
      () => this.clock.stop(),
      () => this.search.destroy(),
      () => this.view.destroy(),
    );
    this.update();
  }

  get count(): string {
    return this.rows.length ? String(this.rows.length) : "";
  }

  private get info(): RequestState {
    return this.store.snapshot.passes ?? { state: "empty", message: "", version: 0 };
  }

  private update(): void {
    const { state, version } = this.info;
    const isLost = this.store.kernel.isGone;
    // Passes are not saved with the notebook; the kernel sends them again to a reloaded page.
    const isFetched = state !== "ready" || this.version === version || this.failure !== null;
    this.body.hidden = this.rows.length === 0 || state === "unavailable" || state === "failed" || this.failure !== null;
    this.tools.hidden = this.body.hidden;
    this.hint.hidden = state === "ready" && isFetched && this.rows.length > 0 && this.failure === null;
    this.compile.hidden = state !== "empty" && state !== "stale" && state !== "failed";
    this.clock.run(!isLost && (state === "loading" || !isFetched));
    const message = this.messageFor(isFetched, isLost);
    if (message !== null) text(this.hint, message);
    attr(this.root, "data-mnb-state", this.failure === null ? state : "failed");
    if (this.store.tab === "passes") this.requestHistory();
  }

  /** Return the message for a missing or stale list; null while the clock is shown. */
  private messageFor(isFetched: boolean, isLost: boolean): string | null {
    const { state, message } = this.info;
    if (state === "unavailable") return `The passes are not available: ${message}`;
    if (state === "failed") return `The passes could not be read: ${message}`;
    if (this.failure !== null) return `The passes could not be shown. ${this.failure}`;
    if (state === "stale" && this.rows.length > 0) return "The model has changed since these passes were read.";
    if (isLost) return "Not connected to the kernel, so passes cannot be loaded.";
    if (state === "loading" || !isFetched) return null;
    if (state === "ready") return "No pass changed anything.";
    return (
      "XLA rewrites the program in about a hundred passes. This tab lists the passes that changed it, with " +
      "a diff of each. The program must be compiled first."
    );
  }

  /** Store a list of passes. After a new list, the kernel sends the diff of pass `number`. */
  private take({ version, number }: PassesHead, rows: PassRow[]): void {
    this.rows = rows;
    this.failure = null;
    const isNew = version !== this.version;
    this.version = version;
    this.fill();
    this.update();
    this.store.emit("passes");
    if (isNew && this.rows.length) {
      performance.mark("mnb:diff:start");
      this.list.mark(number);
      this.search.repeat();
    }
  }

  private get isChangedOnly(): boolean {
    return this.store.memory.get("changed passes", false);
  }

  private arrange(): void {
    const value = this.store.memory.get<string>("diff", "unified") === "beside" ? "beside" : "unified";
    this.arrangement.value = value;
    this.view.arrange(value === "beside");
  }

  /** Fill the list with the passes, or with those that match the search. */
  private fill(): void {
    const most = Math.log1p(Math.max(1, ...this.rows.map((row) => sizeOf(row) ?? 0)));
    this.list.fill(
      this.rows.map((row, number) => {
        const [, name, pipeline, added, removed, rewritten] = row;
        const size = sizeOf(row);
        const matches = this.search.matches(number);
        return {
          name,
          columns: [
            pipeline,
            matches !== null
              ? `${matches} ${matches === 1 ? "match" : "matches"}`
              : size === null
                ? ""
                : `+${added} −${removed} ~${rewritten}`,
          ],
          title:
            size === null
              ? pipeline
              : `${name}, in ${pipeline}: ${added} added, ${removed} removed, ${rewritten} rewritten`,
          // Logarithmic, so that one change and a thousand changes are both visible.
          share: size ? Math.log1p(size) / most : 0,
        };
      }),
    );
    const { isChangedOnly } = this;
    attr(this.changedOnly, "aria-pressed", String(isChangedOnly));
    // A pass that is not counted yet may have changes.
    this.list.filter(
      (number) => this.search.matches(number) !== 0 && !(isChangedOnly && sizeOf(this.rows[number]!) === 0),
    );
    this.view.find(this.search.query, this.search.lineIn(this.list.at));
  }

  /** Show the current match of the search, which is in pass `number`. */
  private goTo(number: number): void {
    if (number === this.list.at) this.view.find(this.search.query, this.search.lineIn(number));
    else this.list.select(number);
  }

  private fail(why: string): void {
    this.failure = why;
    this.update();
  }

  private request(number: number): void {
    this.search.enter(number);
    performance.mark("mnb:diff:start");
    this.store.kernel.latest("diff", "request_diff", { number });
  }

  private takeDiff({ version, number, cut }: DiffHead, diff: string): void {
    if (version !== this.version || number !== this.list.at) return;
    this.paintDiff(number, diff === "" ? "only names or the order changed" : lengthOf(diff, cut, number), diff);
    attr(this.root, "data-mnb-shown", number);
    requestAnimationFrame(
      () => performance.getEntriesByName("mnb:diff:start").length && performance.measure("mnb:diff", "mnb:diff:start"),
    );
  }

  private failDiff({ version, number }: DiffHead, why: string): void {
    if (version === this.version && number === this.list.at) this.paintDiff(number, "", "", why);
  }

  private paintDiff(number: number, figures: string, diff: string, why: string | null = null): void {
    const [, name, pipeline] = this.rows[number]!;
    text(this.title, name);
    text(this.figures, [pipeline, figures].filter(Boolean).join(" · "));
    text(this.problem, why ?? "");
    this.problem.hidden = why === null;
    attr(this.diff, "data-mnb-state", why === null ? "ready" : "failed");
    this.view.take(diff);
    this.view.find(this.search.query, this.search.lineIn(number));
  }

  /** Request the history of the pinned instruction once, if the passes are loaded. */
  private requestHistory(): void {
    const pin = this.store.pins.find((one) => one.kind === "instruction" && TRACED.has(one.stage));
    if (pin?.kind !== "instruction" || this.body.hidden || pin.version !== this.version) {
      this.requested = "";
      this.history.hidden = this.body.hidden;
      text(this.history, "Pin a line of jaxpr, StableHLO or HLO to see which passes changed it.");
      return;
    }
    const key = `${pin.stage} ${pin.index} ${this.version}`;
    if (key === this.requested) return;
    this.requested = key;
    this.store.kernel.latest("instruction_history", "request_instruction_history", {
      stage: pin.stage,
      index: pin.index,
    });
  }

  private receiveHistory({ stage, index, events, fused, became }: HistoryHead): void {
    if (`${stage} ${index} ${this.version}` !== this.requested) return;
    const hlo = this.store.texts.get("hlo");
    const parts: (Node | string)[] = [
      h(
        "b",
        {},
        `${this.store.texts.get(stage)?.instructions[index]?.opcode ?? "Instruction"} in ${this.store.titleOf(stage)}`,
      ),
      events.length ? " " : ` ${became || "is unchanged from start to end"}.`,
    ];
    events.forEach(([event, name, number], i) =>
      parts.push(
        `${i ? ", " : ""}${event} `,
        h(
          "button",
          { type: "button", class: "mnb-link", onclick: () => this.list.select(number) },
          `${number + 1}. ${name}`,
        ),
      ),
    );
    if (events.length && became) parts.push(`, ${became}`);
    if (fused.length) {
      const places = fused.map((place) => hlo?.linesOf(place)?.[0]).filter((line) => line !== undefined);
      const fusions = stage.startsWith("hlo")
        ? `, fused into ${fused.length === 1 ? "a fusion" : `${fused.length} fusions`}`
        : "";
      parts.push(`${fusions}${places.length ? ` (HLO line ${places.slice(0, 3).join(", ")})` : ""}`);
    }
    this.history.hidden = false;
    this.history.replaceChildren(...parts);
  }
}

function sizeOf([, , , added, removed, rewritten]: PassRow): number | null {
  return added === null || removed === null || rewritten === null ? null : added + removed + rewritten;
}

/** Format the length of a diff. For a truncated diff, name the attribute with the full one. */
function lengthOf(diff: string, isCut: boolean, number: number): string {
  const lines = `${(diff.split("\n").length - 1).toLocaleString("en-US")} lines`;
  return isCut ? `the first ${lines}; full diff in inspection.passes[${number}].diff` : lines;
}
