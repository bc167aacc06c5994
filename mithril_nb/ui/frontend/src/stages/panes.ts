/** One to three stages side by side: selection, widths and states; requests their texts from the kernel. */

import { PINNED } from "../code/marks";
import { fullButton } from "../controls/full-screen";
import { OverflowRow } from "../controls/overflow-row";
import { Splitter, lengthOf } from "../controls/split";
import type { Tip } from "../controls/tip";
import { together } from "../dom/calls";
import { copyFrom } from "../dom/clipboard";
import { Clock } from "../dom/clock";
import { attr, h, iconButton, text } from "../dom/dom";
import { seconds } from "../dom/format";
import type { PackedStage, StageTextHead } from "../kernel/contract";
import { errorOf, unpackEquations, unpackStage } from "../kernel/messages";
import { type Links, StageText } from "../store/links";
import type { Store } from "../store/store";
import { Pane } from "./pane";
import { Traces } from "./traces";

interface Slot {
  pane: Pane;
  frame: HTMLElement;
  figures: HTMLElement;
  linked: HTMLElement;
  badge: HTMLElement;
  stop: HTMLElement;
  card: HTMLElement;
  short: HTMLButtonElement | null;
  clock: Clock;
  clockText: string | null;
  /** The error of the last requested text, and its version. */
  failure: { version: number; why: string } | null;
}

/** Stages with a short form, whose lines are linked too. */
const SHORTENED = new Set(["hlo"]);
const MOST_SHOWN = 3;

export class Panes {
  readonly root: HTMLElement;
  private readonly row = h("div", { class: "mnb-panes-row" });
  private readonly toggles = new OverflowRow("Stages shown", "panes.more");
  private readonly traces = new Traces();
  private direction: "x" | "y" = "x";
  private readonly slots = new Map<string, Slot>();
  private readonly requested = new Set<string>();
  /** The stages that the user stopped, and the version of the model then. */
  private readonly stopped = new Map<string, number>();
  /** Stages shown in short form. */
  private readonly inShort = new Set<string>();
  /** Stages that were visible at the last layout. */
  private shown: string[] = [];
  /** Names of the stages that have a button. */
  private toggleNames = "";
  readonly destroy: () => void;

  constructor(
    private readonly store: Store,
    private readonly tip: Tip,
    private readonly canStop = false,
  ) {
    this.root = h(
      "section",
      // A click between the controls focuses the section, so that keys that edit the graph do nothing here.
      { class: "mnb-panes", "aria-label": "Stages", tabindex: -1 },
      h("div", { class: "mnb-bar" }, h("span", { class: "mnb-bar-title" }, "Stages"), this.toggles.root),
      this.row,
      this.traces.root,
    );
    this.destroy = together(
      store.on("snapshot", () => this.update()),
      store.on("cost", () => this.slots.forEach(({ pane }) => pane.paintStripes())),
      store.on("panes", () => this.layout()),
      store.kernel.watch(() => this.update()),
      store.on("links", () => this.paintLinks()),
      store.kernel.receive(
        "stage",
        (head, packed) => this.take(head, packed),
        (why, head) => this.fail(head, why),
      ),
      () => {
        this.toggles.destroy();
        for (const slot of this.slots.values()) {
          slot.clock.stop();
          slot.pane.destroy();
        }
      },
    );
    this.layout();
  }

  /** Return the pane with the focus. */
  focused(): Pane | null {
    for (const { pane } of this.slots.values())
      if (pane.root.contains((pane.root.getRootNode() as Document | ShadowRoot).activeElement)) return pane;
    return null;
  }

  /** Show for a moment where the pinned lines of one pane are in others; by default in all others. */
  trace(from: string, to: readonly string[] = this.shown.filter((stage) => stage !== from)): void {
    // The second frame starts after the highlighted lines are drawn. Reading their places must not delay it.
    requestAnimationFrame(() =>
      requestAnimationFrame(() =>
        setTimeout(() => {
          const source = this.pane(from)?.pinnedBoxes() ?? [];
          for (const stage of to) this.traces.show(source, this.pane(stage)?.pinnedBoxes() ?? []);
        }),
      ),
    );
  }

  pane(stage: string): Pane | null {
    return this.slots.get(stage)?.pane ?? null;
  }

  /** Scroll the pinned lines into view, after the panes have got another size. */
  reveal(): void {
    for (const stage of this.shown) this.slots.get(stage)?.pane.reveal();
  }

  private names(): string[] {
    return Object.keys(this.store.snapshot.stages);
  }

  private layout(): void {
    const shown = this.store.panes.filter((stage) => this.names().includes(stage));
    for (const stage of this.shown) if (!shown.includes(stage)) this.leaveStage(stage);
    this.shown = shown;
    this.toggleNames = this.names().join();
    this.toggles.set(
      this.names().map((stage) =>
        h(
          "button",
          {
            type: "button",
            class: "mnb-toggle",
            "aria-pressed": String(shown.includes(stage)),
            "data-mnb-action": `pane.${stage}`,
            onclick: () => this.toggle(stage),
          },
          this.store.titleOf(stage),
        ),
      ),
    );
    const parts: Element[] = [];
    shown.forEach((stage, i) => {
      if (i > 0) parts.push(this.divider(shown[i - 1]!, stage));
      parts.push(this.slot(stage).frame);
    });
    // Detached frames lose their scroll positions, so change the row only if needed.
    if (parts.length !== this.row.children.length || parts.some((part, i) => part !== this.row.children[i]))
      this.row.replaceChildren(...parts);
    this.applyWeights();
    this.update();
  }

  private toggle(stage: string): void {
    const { panes } = this.store;
    const shown = panes.includes(stage) ? panes.filter((name) => name !== stage) : [...panes, stage].slice(-MOST_SHOWN);
    if (shown.length === 0) return;
    this.store.showPanes(this.names().filter((name) => shown.includes(name)));
    const closed = shown.includes(stage) ? panes.find((name) => !shown.includes(name)) : undefined;
    this.store.report(
      closed === undefined ? "" : `${this.store.titleOf(closed)} is closed: at most three stages are open.`,
    );
    this.toggles.focus(
      this.toggles.root.querySelector<HTMLElement>(`[data-mnb-action="pane.${CSS.escape(stage)}"]`) ?? undefined,
    );
  }

  private divider(before: string, after: string): HTMLElement {
    const sum = (): number => this.weight(before) + this.weight(after);
    return new Splitter({
      axis: this.direction,
      label: `Size of ${this.store.titleOf(before)}`,
      get: () => this.weight(before) / sum(),
      set: (share) => {
        const both = sum();
        this.store.memory.set(`size of ${before}`, both * share);
        this.store.memory.set(`size of ${after}`, both * (1 - share));
        this.applyWeights();
      },
      length: () => [before, after].reduce((sum, stage) => sum + lengthOf(this.slot(stage).frame, this.direction), 0),
    }).root;
  }

  /** Lay out the stages side by side ("x") or below each other ("y"). */
  turn(direction: "x" | "y"): void {
    if (direction === this.direction) return;
    this.direction = direction;
    attr(this.row, "data-mnb-direction", direction);
    this.row.replaceChildren();
    this.layout();
  }

  private weight(stage: string): number {
    return this.store.memory.get(`size of ${stage}`, 1);
  }

  private applyWeights(): void {
    for (const [stage, slot] of this.slots) slot.frame.style.flexGrow = String(this.weight(stage));
  }

  private slot(stage: string): Slot {
    const existing = this.slots.get(stage);
    if (existing) return existing;
    const pane = new Pane(stage, this.store, this.tip);
    const figures = h("span", { class: "mnb-pane-figures" });
    const linked = h("span", { class: "mnb-pane-linked", "aria-live": "polite" });
    const badge = h("span", { class: "mnb-badge", hidden: true, role: "status" });
    const card = h("div", { class: "mnb-pane-card", hidden: true });
    const stop = h(
      "button",
      {
        type: "button",
        class: "mnb-toggle mnb-toggle-small",
        title: `Stop computing ${this.store.titleOf(stage)}`,
        "data-mnb-action": `stop.${stage}`,
        hidden: true,
        onclick: () => this.stop(stage),
      },
      "stop",
    );
    const copy: HTMLButtonElement = iconButton(
      "copy",
      `Copy the ${this.store.titleOf(stage)} text`,
      `copy.${stage}`,
      () => void copyFrom(copy, pane.text?.text ?? ""),
    );
    const short = SHORTENED.has(stage)
      ? h(
          "button",
          {
            type: "button",
            class: "mnb-toggle mnb-toggle-small",
            "aria-pressed": String(this.inShort.has(stage)),
            title: "Short names, fusion bodies inline, no layouts",
            "data-mnb-action": `short.${stage}`,
            onclick: () => this.toggleShort(stage),
          },
          "short",
        )
      : null;
    const frame = h(
      "div",
      {
        class: "mnb-pane",
        "data-mnb-pane": stage,
        "data-mnb-full": this.store.titleOf(stage),
        role: "region",
        "aria-label": this.store.titleOf(stage),
      },
      h(
        "div",
        { class: "mnb-pane-head" },
        h("b", {}, this.store.titleOf(stage)),
        figures,
        badge,
        stop,
        h("span", { class: "mnb-grow" }),
        linked,
        short,
        copy,
        fullButton(this.store.titleOf(stage), stage),
      ),
      pane.root,
      card,
    );
    const slot: Slot = {
      pane,
      frame,
      figures,
      linked,
      badge,
      stop,
      card,
      short,
      clockText: null,
      failure: null,
      clock: new Clock((elapsed) => {
        slot.clockText = elapsed;
        this.paintState(stage, slot);
      }),
    };
    this.slots.set(stage, slot);
    const text = this.store.texts.get(stage);
    if (text) {
      pane.setText(text);
      pane.paintLinks(this.store.hoverLinks, this.store.pinLinks, this.found);
    }
    return slot;
  }

  private toggleShort(stage: string): void {
    const isShort = !this.inShort.has(stage);
    if (isShort) this.inShort.add(stage);
    else this.inShort.delete(stage);
    const slot = this.slots.get(stage)!;
    slot.failure = null;
    attr(slot.short!, "aria-pressed", String(isShort));
    if (this.store.texts.has(stage)) this.request(stage);
    this.update();
  }

  private update(): void {
    const names = this.names().join();
    if (names !== this.toggleNames) {
      this.layout();
      return;
    }
    for (const stage of this.store.panes) {
      const slot = this.slots.get(stage);
      if (!slot) continue;
      this.requestOnce(stage);
      const state = this.store.snapshot.stages[stage]?.state;
      slot.clock.run(
        (state === "loading" && !this.store.kernel.isGone) ||
          (state === "ready" && !slot.pane.text && !slot.failure && this.store.kernel.connection === "live"),
      );
      this.paintState(stage, slot);
      slot.pane.paintStripes();
    }
  }

  /** Request a stage when it becomes visible, so that the kernel computes it, and again for each ready version. */
  private requestOnce(stage: string): void {
    const { snapshot } = this.store;
    const info = snapshot.stages[stage];
    const have = this.store.texts.get(stage)?.version ?? -1;
    if (!info || this.isStopped(stage)) return;
    const fetch = info.version > have && info.version > 0;
    // Another view of this model hid the stage, but here it is still visible.
    const isLeft = info.state === "stale" && info.message === "";
    const key = fetch ? `${stage} ${info.version}` : isLeft ? `${stage} for ${snapshot.version}` : stage;
    if (this.requested.has(key)) return;
    this.requested.add(key).add(stage);
    this.request(stage, () => this.requested.delete(key));
  }

  /** Report that a stage is hidden: the kernel stops computing it, and it is requested again when shown. */
  private leaveStage(stage: string): void {
    for (const key of [...this.requested])
      if (key === stage || key.startsWith(`${stage} for `)) this.requested.delete(key);
    void this.store.kernel.send("leave_stage", { stage }); // no command of the user, so the status line stays
  }

  /** Request a text; `unanswered` is called if no reply comes. */
  private request(stage: string, unanswered: () => void = () => undefined): void {
    const short = this.inShort.has(stage);
    const version = this.store.snapshot.stages[stage]!.version;
    void this.store.kernel.send("request_stage", short ? { stage, short } : { stage }).then((reply) => {
      const why = errorOf(reply);
      if (why !== null) this.fail({ stage, version, short }, why);
      else if (!reply.ok) unanswered();
    });
  }

  /** Show an error instead of a text, unless a newer text arrived or another form was requested. */
  private fail({ stage, version, short }: StageTextHead, why: string): void {
    const slot = this.slots.get(stage);
    if (!slot || (short ?? false) !== this.inShort.has(stage) || (slot.pane.text?.version ?? 0) > version) return;
    slot.failure = { version, why };
    this.update();
  }

  /** Stop computing a stage of the current model. */
  private stop(stage: string): void {
    this.stopped.set(stage, this.store.snapshot.version);
    this.leaveStage(stage);
    this.slots.get(stage)?.pane.view.focus();
    this.update();
  }

  private isStopped(stage: string): boolean {
    return this.stopped.get(stage) === this.store.snapshot.version;
  }

  private take(message: StageTextHead, packed: PackedStage): void {
    if ((message.short ?? false) !== this.inShort.has(message.stage)) return;
    const newest = this.store.texts.get(message.stage);
    if (newest && newest.version > message.version) return;
    // The same text may arrive twice if it was requested again before it arrived.
    if (newest && newest.version === message.version && (newest.places !== null) === (message.short ?? false)) return;
    const raw = { ...unpackStage(packed), equations: unpackEquations(packed.equations) };
    const text = new StageText(message.stage, message.version, raw.text, raw);
    const slot = this.slots.get(message.stage);
    const pane = slot?.pane;
    const other = pane?.text && (pane.text.places === null) !== (text.places === null);
    pane?.setText(text);
    if (slot) slot.failure = null;
    this.store.takeText(text);
    this.update();
    if (other) pane.reveal();
  }

  private paintState(stage: string, slot: Slot): void {
    const info = this.store.snapshot.stages[stage];
    const have = slot.pane.text;
    const failure = info?.state === "ready" && slot.failure?.version === info.version ? slot.failure : null;
    const state = failure ? "failed" : (info?.state ?? "unavailable");
    const isSameVersion = failure !== null && have?.version === failure.version;
    const old =
      have !== null &&
      !isSameVersion &&
      (state === "stale" ||
        state === "loading" ||
        state === "failed" ||
        (state === "unavailable" && have.version !== info!.version) ||
        state === "empty" ||
        (state === "ready" && have.version < info!.version));
    attr(slot.frame, "data-mnb-state", state);
    attr(slot.frame, "data-mnb-version", have?.version ?? "");
    slot.frame.classList.toggle("mnb-stale", old);
    text(
      slot.figures,
      have && !old
        ? `${have.lineCount.toLocaleString("en-US")} ` +
            `lines${info?.elapsed_s != null ? ` · ${seconds(info.elapsed_s)}` : ""}`
        : "",
    );
    const running = state === "loading" && slot.clockText ? `${this.store.verbOf(stage)}: ${slot.clockText}` : "";
    const badge = [running, old ? "previous model" : ""].filter(Boolean).join(" · ");
    slot.badge.hidden = badge === "" || (state === "loading" && slot.clockText === null);
    text(slot.badge, badge);
    attr(slot.badge, "title", old ? "This text is from the previous model" : null);
    const isStopped = this.isStopped(stage) && state !== "ready";
    slot.stop.hidden = !this.canStop || isStopped || !running;
    const message: [string, string] | null = isStopped
      ? [`${this.store.titleOf(stage)} was stopped`, "A compilation that has begun ends in the background."]
      : failure
        ? [`${this.store.titleOf(stage)} could not be shown`, failure.why]
        : this.messageFor(stage, state, info?.message ?? "", slot.clockText, have !== null && have.lineCount > 0);
    slot.card.hidden = message === null;
    slot.frame.classList.toggle("mnb-partial", state === "unavailable" && have !== null && have.lineCount > 0 && !old);
    if (message) {
      slot.card.className = `mnb-pane-card ${state === "failed" ? "mnb-pane-card-error" : ""}`;
      const [title, body] = message;
      const again = h(
        "button",
        {
          type: "button",
          class: "mnb-button",
          "data-mnb-action": `again.${stage}`,
          onclick: () => this.stopped.delete(stage) && this.update(),
        },
        "Compute",
      );
      slot.card.replaceChildren(h("b", {}, title), ...(body ? [h("p", {}, body)] : []), ...(isStopped ? [again] : []));
    }
    this.paintCount(slot);
  }

  /** Return the title and body of the message shown instead of the text or over it, or null. */
  private messageFor(
    stage: string,
    state: string,
    message: string,
    clock: string | null,
    have: boolean,
  ): [string, string] | null {
    const title = this.store.titleOf(stage);
    if (state === "failed") return [`${title} could not be computed`, message];
    if (state === "unavailable") return [have ? `${title} ends here` : `${title} is not available`, message];
    const { problems } = this.store.snapshot;
    if (state === "empty" && problems.length)
      return [
        "Nothing to show yet",
        `${problems[0]!.summary} ` +
          `${problems.length === 1 ? "See the Problems tab." : `The Problems tab lists all ${problems.length}.`}`,
      ];
    if (state === "empty") return ["Nothing to show yet", message || "The model has no blocks."];
    if (have) return null;
    if (this.store.kernel.isGone)
      return [`${title} is not loaded`, "Not connected to the kernel, so it cannot be loaded."];
    if (state === "loading") return clock ? [`${this.store.verbOf(stage)}: ${clock}`, ""] : null;
    if (state === "ready") return clock ? [`Loading ${title}: ${clock}`, ""] : null;
    return null;
  }

  /** Mark the lines of a search; null ends it. */
  showFound(lines: Links["lines"] | null): void {
    this.found = lines && { lines };
    this.paintLinks();
  }

  private paintLinks(): void {
    const { store } = this;
    for (const [stage, slot] of this.slots) {
      if (!store.panes.includes(stage)) continue;
      slot.pane.paintLinks(store.hoverLinks, store.pinLinks, this.found);
      this.paintCount(slot);
    }
    if (this.pinsSeen === store.pins) return;
    this.pinsSeen = store.pins;
    for (const { pane } of this.slots.values()) pane.followSelection();
    for (const [stage, slot] of this.slots)
      if (store.panes.includes(stage) && store.pinnedIn !== stage) slot.pane.reveal();
    if (store.pinnedIn !== null && store.pins.length) this.trace(store.pinnedIn);
  }

  private pinsSeen: unknown = null;
  private found: Pick<Links, "lines"> | null = null;

  private paintCount(slot: Slot): void {
    const count = slot.pane.lines(PINNED).length;
    text(slot.linked, count === 0 ? "" : `${count} linked`);
  }
}
