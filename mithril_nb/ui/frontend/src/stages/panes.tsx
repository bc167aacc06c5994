/** One to three stages side by side: selection, widths and states; requests their texts from the kernel. */

import { FullButton } from "../controls/full-screen";
import { createOverflowRow } from "../controls/overflow-row";
import { createSplitter, lengthOf } from "../controls/split";
import type { Tip } from "../controls/tip";
import { together } from "../dom/calls";
import { copyFrom } from "../dom/clipboard";
import { attr, focusedAt, h } from "../dom/dom";
import { grouped, seconds } from "../dom/format";
import { Button, Holder, IconButton, mount, useElapsed } from "../dom/view";
import type { PackedStage, StageTextHead } from "../kernel/contract";
import { errorOf, unpackEquations, unpackStage } from "../kernel/messages";
import { type Links, StageText } from "../store/links";
import type { Store } from "../store/store";
import { signal } from "@preact/signals";
import { createPane, type Pane } from "./pane";
import { createTraces } from "./traces";

/** Stages with a short form, whose lines are linked too. */
const SHORTENED = new Set(["hlo"]);
const MOST_SHOWN = 3;

interface Slot {
  pane: Pane;
  frame: HTMLElement;
  destroy: () => void;
}

export function createPanes(store: Store, tip: Tip, canStop = false) {
  /** The stages that the user stopped, and the version of the model then. */
  const stopped = signal<ReadonlyMap<string, number>>(new Map());
  /** Stages shown in short form. */
  const shortStages = signal<ReadonlySet<string>>(new Set());
  /** The error of the last requested text of each stage, and its version. */
  const failures = signal<ReadonlyMap<string, { version: number; why: string }>>(new Map());
  const row = h("div", { class: "mnb-panes-row" });
  const toggles = createOverflowRow("Stages shown", "panes.more");
  const traces = createTraces();
  let axis: "x" | "y" = "x";
  const slots = new Map<string, Slot>();
  const requested = new Set<string>();
  /** Stages that were visible at the last layout. */
  let visible: string[] = [];
  /** Names of the stages that have a button. */
  let toggleNames = "";
  let pinsSeen: unknown = null;
  let matches: Pick<Links, "lines"> | null = null;
  const root = h(
    "section",
    // A click between the controls focuses the section, so that keys that edit the graph do nothing here.
    { class: "mnb-panes", "aria-label": "Stages", tabindex: -1 },
    h("div", { class: "mnb-bar" }, h("span", { class: "mnb-bar-title" }, "Stages"), toggles.root),
    row,
    traces.root,
  );
  const destroy = together(
    store.on("snapshot", update),
    store.on("cost", paintStripes),
    store.on("colours", paintStripes),
    store.on("panes", layout),
    store.kernel.watch(update),
    store.on("links", paintLinks),
    store.kernel.receive("stage", take, (why, head) => fail(head, why)),
    toggles.destroy,
    () => slots.forEach((slot) => slot.destroy()),
  );

  function paintStripes() {
    for (const { pane } of slots.values()) pane.paintStripes();
  }

  /** Return the pane with the focus. */
  function focused() {
    for (const { pane } of slots.values()) if (pane.root.contains(focusedAt(pane.root))) return pane;
    return null;
  }

  /** Show for a moment where the pinned lines of one pane are in others; by default in all others. */
  function trace(from: string, to: readonly string[] = visible.filter((stage) => stage !== from)) {
    // The second frame starts after the highlighted lines are drawn. Reading their places must not delay it.
    requestAnimationFrame(() =>
      requestAnimationFrame(() =>
        setTimeout(() => {
          const source = paneOf(from)?.pinnedBoxes() ?? [];
          for (const stage of to) traces.show(source, paneOf(stage)?.pinnedBoxes() ?? []);
        }),
      ),
    );
  }

  function paneOf(stage: string) {
    return slots.get(stage)?.pane ?? null;
  }

  /** Scroll the pinned lines into view, after the panes have got another size. */
  function reveal() {
    for (const stage of visible) paneOf(stage)?.reveal();
  }

  function names() {
    return Object.keys(store.snapshot.stages);
  }

  function layout() {
    const shown = store.panes.filter((stage) => names().includes(stage));
    for (const stage of visible) if (!shown.includes(stage)) leaveStage(stage);
    visible = shown;
    toggleNames = names().join();
    toggles.set(
      names().map((stage) =>
        h(
          "button",
          {
            type: "button",
            class: "mnb-toggle",
            "aria-pressed": String(shown.includes(stage)),
            "data-mnb-action": `pane.${stage}`,
            onclick: () => toggle(stage),
          },
          store.titleOf(stage),
        ),
      ),
    );
    const parts = shown.flatMap((stage, i) => [...(i > 0 ? [divider(shown[i - 1]!, stage)] : []), slot(stage).frame]);
    // Detached frames lose their scroll positions, so change the row only if needed.
    if (parts.length !== row.children.length || parts.some((part, i) => part !== row.children[i]))
      row.replaceChildren(...parts);
    applyWeights();
    update();
  }

  function toggle(stage: string) {
    const { panes } = store;
    const shown = panes.includes(stage) ? panes.filter((name) => name !== stage) : [...panes, stage].slice(-MOST_SHOWN);
    if (shown.length === 0) return;
    store.showPanes(names().filter((name) => shown.includes(name)));
    const closed = shown.includes(stage) ? panes.find((name) => !shown.includes(name)) : undefined;
    store.outcome = closed === undefined ? "" : `${store.titleOf(closed)} is closed: at most three stages are open.`;
    toggles.focus(
      toggles.root.querySelector<HTMLElement>(`[data-mnb-action="pane.${CSS.escape(stage)}"]`) ?? undefined,
    );
  }

  function divider(before: string, after: string): HTMLElement {
    const sum = () => weight(before) + weight(after);
    return createSplitter({
      axis: axis,
      label: `Size of ${store.titleOf(before)}`,
      get: () => weight(before) / sum(),
      set: (share) => {
        const both = sum();
        store.memory.set(`size of ${before}`, both * share);
        store.memory.set(`size of ${after}`, both * (1 - share));
        applyWeights();
      },
      length: () => [before, after].reduce((sum, stage) => sum + lengthOf(slot(stage).frame, axis), 0),
    }).root;
  }

  /** Lay out the stages side by side ("x") or below each other ("y"). */
  function turn(direction: "x" | "y") {
    if (direction === axis) return;
    axis = direction;
    attr(row, "data-mnb-direction", direction);
    row.replaceChildren();
    layout();
  }

  function weight(stage: string): number {
    return store.memory.get(`size of ${stage}`, 1);
  }

  function applyWeights() {
    for (const [stage, { frame }] of slots) frame.style.flexGrow = String(weight(stage));
  }

  function slot(stage: string) {
    const existing = slots.get(stage);
    if (existing) return existing;
    const pane = createPane(stage, store, tip);
    const text = store.texts.get(stage);
    if (text) {
      pane.setText(text);
      pane.paintLinks(store.hoverLinks, store.pinLinks, matches);
    }
    const { root, destroy } = mount(<StageFrame panes={panes} pane={pane} />);
    const slot = { pane, frame: root, destroy: together(destroy, pane.destroy) };
    slots.set(stage, slot);
    return slot;
  }

  /** Show the short or the whole form of a stage. */
  function toggleShort(stage: string) {
    const inShort = new Set(shortStages.value);
    if (!inShort.delete(stage)) inShort.add(stage);
    shortStages.value = inShort;
    setFailure(stage, null);
    if (store.texts.has(stage)) request(stage);
  }

  function update() {
    if (names().join() !== toggleNames) return layout();
    for (const stage of store.panes) {
      const pane = paneOf(stage);
      if (!pane) continue;
      requestOnce(stage);
      pane.paintStripes();
    }
  }

  /** Request a stage when it becomes visible, so that the kernel computes it, and again for each ready version. */
  function requestOnce(stage: string) {
    const { snapshot } = store;
    const info = snapshot.stages[stage];
    const have = store.texts.get(stage)?.version ?? -1;
    if (!info || isStopped(stage)) return;
    const fetch = info.version > have && info.version > 0;
    // Another view of this model hid the stage, but here it is still visible.
    const isLeft = info.state === "stale" && info.message === "";
    const key = fetch ? `${stage} ${info.version}` : isLeft ? `${stage} for ${snapshot.version}` : stage;
    if (requested.has(key)) return;
    requested.add(key).add(stage);
    request(stage, () => requested.delete(key));
  }

  /** Report that a stage is hidden: the kernel stops computing it, and it is requested again when shown. */
  function leaveStage(stage: string) {
    for (const key of [...requested]) if (key === stage || key.startsWith(`${stage} for `)) requested.delete(key);
    void store.kernel.send("leave_stage", { stage }); // no command of the user, so the status line stays
  }

  /** Request a text; `unanswered` is called if no reply comes. */
  function request(stage: string, unanswered: () => void = () => undefined) {
    const short = shortStages.value.has(stage);
    const version = store.snapshot.stages[stage]!.version;
    void store.kernel.send("request_stage", short ? { stage, short } : { stage }).then((reply) => {
      const why = errorOf(reply);
      if (why !== null) fail({ stage, version, short }, why);
      else if (!reply.ok) unanswered();
    });
  }

  /** Show an error instead of a text, unless a newer text arrived or another form was requested. */
  function fail({ stage, version, short }: StageTextHead, why: string) {
    const pane = paneOf(stage);
    if (pane && (short ?? false) === shortStages.value.has(stage) && (pane.text?.version ?? 0) <= version)
      setFailure(stage, { version, why });
  }

  function setFailure(stage: string, failure: { version: number; why: string } | null) {
    const others = [...failures.value].filter(([name]) => name !== stage);
    failures.value = new Map(failure ? [...others, [stage, failure]] : others);
  }

  /** Stop computing a stage of the current model. */
  function stop(stage: string) {
    stopped.value = new Map(stopped.value).set(stage, store.snapshot.version);
    leaveStage(stage);
    paneOf(stage)?.view.focus();
  }

  function isStopped(stage: string) {
    return stopped.value.get(stage) === store.snapshot.version;
  }

  function resume(stage: string) {
    stopped.value = new Map([...stopped.value].filter(([name]) => name !== stage));
    update();
  }

  function take(message: StageTextHead, packed: PackedStage) {
    const { stage, version } = message;
    const isShort = message.short ?? false;
    if (isShort !== shortStages.value.has(stage)) return;
    const newest = store.texts.get(stage);
    if (newest && newest.version > version) return;
    // The same text may arrive twice if it was requested again before it arrived.
    if (newest && newest.version === version && (newest.places !== null) === isShort) return;
    const raw = { ...unpackStage(packed), equations: unpackEquations(packed.equations) };
    const text = new StageText(stage, version, raw.text, raw);
    const pane = paneOf(stage);
    const other = pane?.text && (pane.text.places === null) !== (text.places === null);
    pane?.setText(text);
    setFailure(stage, null);
    store.takeText(text);
    update();
    if (other) pane.reveal();
  }

  /** Mark the lines of a search; null ends it. */
  function showFound(lines: Links["lines"] | null) {
    matches = lines && { lines };
    paintLinks();
  }

  function paintLinks() {
    const { panes, pins, pinnedIn, hoverLinks, pinLinks } = store;
    const visible = [...slots].filter(([stage]) => panes.includes(stage));
    for (const [, { pane }] of visible) pane.paintLinks(hoverLinks, pinLinks, matches);
    if (pinsSeen === pins) return;
    pinsSeen = pins;
    for (const { pane } of slots.values()) pane.folds.follow(store.selection);
    for (const [stage, { pane }] of visible) if (pinnedIn !== stage) pane.reveal();
    if (pinnedIn !== null && pins.length) trace(pinnedIn);
  }

  const panes = {
    store,
    canStop,
    root,
    destroy,
    get inShort() {
      return shortStages.value;
    },
    get failures() {
      return failures.value;
    },
    focused,
    trace,
    pane: paneOf,
    reveal,
    turn,
    toggleShort,
    stop,
    isStopped,
    resume,
    showFound,
  };
  layout();
  return panes;
}

export type Panes = ReturnType<typeof createPanes>;

/** The frame of a pane: its head, its text, and a message instead of the text or over it. */
function StageFrame({ panes, pane }: { panes: Panes; pane: Pane }) {
  const { store, canStop } = panes;
  const { stage, text, linked } = pane;
  const { kernel, snapshot } = store;
  const title = store.titleOf(stage);
  const info = snapshot.stages[stage];
  const known = panes.failures.get(stage);
  const failure = info?.state === "ready" && known?.version === info.version ? known : null;
  const state = failure ? "failed" : (info?.state ?? "unavailable");
  const isOld =
    text !== null &&
    (failure === null || text.version !== failure.version) &&
    (state === "unavailable" ? text.version !== info!.version : state !== "ready" || text.version < info!.version);
  const isWaited =
    (info?.state === "loading" && !kernel.isGone) ||
    (info?.state === "ready" && !text && !known && kernel.connection === "live");
  const clock = useElapsed(isWaited);
  const running = state === "loading" && clock ? `${store.verbOf(stage)}: ${clock}` : "";
  const badge = [running, isOld && "outdated"].filter(Boolean).join(" · ");
  const isStopped = panes.isStopped(stage) && state !== "ready";
  const hasLines = text !== null && text.lineCount > 0;

  /** Return the title and body of the message, or null. */
  const message = (): [title: string, body: string] | null => {
    if (isStopped) return [`${title} was stopped`, "A compilation that has begun ends in the background."];
    if (failure) return [`${title} could not be shown`, failure.why];
    if (state === "failed") return [`${title} could not be computed`, info!.message];
    if (state === "unavailable")
      return [hasLines ? `${title} ends here` : `${title} is not available`, info?.message ?? ""];
    const { problems } = snapshot;
    const where = problems.length === 1 ? "See the Problems tab." : `The Problems tab lists all ${problems.length}.`;
    if (state === "empty" && problems.length) return ["Nothing to show yet", `${problems[0]!.summary} ${where}`];
    if (state === "empty") return ["Nothing to show yet", info!.message || "The model has no blocks."];
    if (hasLines) return null;
    if (kernel.isGone) return [`${title} is not loaded`, "Not connected to the kernel, so it cannot be loaded."];
    if (state === "loading") return clock ? [running, ""] : null;
    return state === "ready" && clock ? [`Loading ${title}: ${clock}`, ""] : null;
  };
  const card = message();
  const look = isOld ? " mnb-stale" : state === "unavailable" && hasLines ? " mnb-partial" : "";
  return (
    <div
      class={`mnb-pane${look}`}
      role="region"
      aria-label={title}
      data-mnb-pane={stage}
      data-mnb-full={title}
      data-mnb-state={state}
      data-mnb-version={text?.version ?? ""}
    >
      <div class="mnb-pane-head">
        <b>{title}</b>
        <span class="mnb-pane-figures">
          {text &&
            !isOld &&
            `${grouped(text.lineCount)} lines${info?.elapsed_s != null ? ` · ${seconds(info.elapsed_s)}` : ""}`}
        </span>
        <span
          class="mnb-badge"
          role="status"
          title={isOld ? "This text is from before the last change" : undefined}
          hidden={!badge || (state === "loading" && !clock)}
        >
          {badge}
        </span>
        <Button
          class="mnb-toggle mnb-toggle-small"
          title={`Stop computing ${title}`}
          action={`stop.${stage}`}
          hidden={!canStop || isStopped || !running}
          onClick={() => panes.stop(stage)}
        >
          stop
        </Button>
        <span class="mnb-grow" />
        <span class="mnb-pane-linked" aria-live="polite">
          {linked > 0 && `${linked} linked`}
        </span>
        <Button
          class="mnb-toggle mnb-toggle-small"
          title="Explain the line of the caret: what it computes, where it comes from, its fate and cost (x)"
          action={`explain.${stage}`}
          hidden={!hasLines}
          onClick={() => pane.explain()}
        >
          explain
        </Button>
        {SHORTENED.has(stage) && (
          <Button
            class="mnb-toggle mnb-toggle-small"
            aria-pressed={panes.inShort.has(stage)}
            title="Short names, fusion bodies inline, no layouts"
            action={`short.${stage}`}
            onClick={() => panes.toggleShort(stage)}
          >
            short
          </Button>
        )}
        <IconButton
          icon="copy"
          label={`Copy the ${title} text`}
          action={`copy.${stage}`}
          onClick={(event) => void copyFrom(event.currentTarget, pane.text?.text ?? "")}
        />
        <FullButton label={title} action={stage} />
      </div>
      <Holder class="mnb-held" nodes={[pane.root]} />
      <div class={`mnb-pane-card ${state === "failed" ? "mnb-pane-card-error" : ""}`} hidden={!card}>
        <b>{card?.[0]}</b>
        {card?.[1] && <p>{card[1]}</p>}
        {isStopped && (
          <Button action={`again.${stage}`} onClick={() => panes.resume(stage)}>
            Compute
          </Button>
        )}
      </div>
    </div>
  );
}
