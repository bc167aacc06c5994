/** The Cost tab: a bar to select view, sources and figure; below it a table, or a picture drawn by the kernel. */

import { counted } from "../dom/format";
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { Chips, Presses, Radios } from "../controls/choice";
import type { Tip } from "../controls/tip";
import { copyFrom } from "../dom/clipboard";
import { Button, IconButton, useElapsed, useSize, useStart } from "../dom/view";
import type { CostTableData, Figure, CostPicture, Source } from "../kernel/contract";
import { lineage } from "../store/links";
import type { Store } from "../store/store";
import {
  FIGURES,
  FIGURE_TITLES,
  ROLES,
  SOURCES,
  SOURCE_TITLES,
  VIEWS,
  VIEW_TITLES,
  inOrder,
  notesOf,
  shownSources,
  toCsv,
} from "./figures";
import { createDrawing, PictureView } from "./picture";
import { TableView } from "./table";
import { WhatIf } from "./what-if";

const PROGRESS: Record<Source, string> = {
  analytic: "Tracing",
  lowered: "Lowering",
  compiled: "Compiling",
  predicted: "Compiling",
  measured: "Running the program",
};
/** Number of notes shown at first; the others can be expanded. */
const FIRST_NOTES = 2;
/** Picture widths are multiples of this, so that dragging a divider does not request hundreds of pictures. */
const STEP_PX = 80;
/** Most rows that are built while the table is hidden. */
const MOST_HIDDEN = 200;
const NOT_MEASURED = "Not measured yet. Press “Measure” to run the program.";

const titleOf = (path: string) => path.split("/").join(" / ");
const reasonPicture = (reason: string): CostPicture => ({ svg: "", text: "", reason });

function Notes({ notes }: { notes: readonly string[] }) {
  const lines = notes.map((note) => (
    <p key={note} class="mnb-note">
      {note}
    </p>
  ));
  const more = lines.length - FIRST_NOTES;
  return (
    <div class="mnb-cost-notes">
      {lines.slice(0, FIRST_NOTES)}
      {more > 0 && (
        <details class="mnb-words">
          <summary>{counted(more, "more note")}</summary>
          {lines.slice(FIRST_NOTES)}
        </details>
      )}
    </div>
  );
}

export function CostTab({ store, tip }: { store: Store; tip: Tip }) {
  const { snapshot, kernel, received, defaultSource } = store;
  const { view, figure } = store.cost;
  const { version, cost } = snapshot;
  const info = snapshot.costs.sources;
  const root = useRef<HTMLDivElement>(null);
  const open = useRef<HTMLButtonElement>(null);
  const width = useSignal(0);
  /** The versions of requested costs, by source. */
  const requested = useRef(new Map<Source, number>());
  /** Sources whose costs could not be decoded, with the error. */
  const undecoded = useSignal<ReadonlyMap<Source, string>>(new Map());
  /** Blocks whose memory is split into their inner blocks. */
  const opened = useSignal<readonly string[]>([]);
  /** The key of the requested picture, what the kernel does for it, and the latest picture with its view. */
  const asked = useRef("");
  const activity = useSignal<string | null>(null);
  const drawn = useSignal<CostPicture | null>(null);
  const drawnView = useSignal<string | undefined>(undefined);
  const paints = useSignal(0);
  void paints.value; // the blocks of a new picture can be opened

  const sources = shownSources(view, store.sources);
  const costs = sources.flatMap((source) => store.costBy(source) ?? []);
  const isTable = view === "table";
  const isPicture = !isTable && view !== "what_if";
  const hasCost = cost !== null;
  const isMeasuring = info.measured?.state === "loading";
  const hasInside = (block: string) => cost?.rows.some((row) => row.block.startsWith(`${block}/`)) ?? false;
  const canOpen = (block: string) => view === "memory" && !opened.value.includes(block) && hasInside(block);
  const openBlocks = (blocks: readonly string[]) => {
    // Closing a block also closes the open blocks inside it.
    opened.value = blocks.filter((block) =>
      lineage(block).every((around) => blocks.includes(around) || !opened.value.includes(around)),
    );
  };
  const latest = useRef(openBlocks);
  latest.current = (blocks) =>
    blocks.every((block) => opened.value.includes(block) || canOpen(block)) && openBlocks(blocks);
  const drawing = useMemo(() => createDrawing(store, tip, (block) => latest.current([...opened.value, block])), []);

  useSize(root, () => {
    const steps = Math.floor(root.current!.clientWidth / STEP_PX) * STEP_PX;
    if (steps) width.value = steps;
  });
  const takePicture = (key: string, picture: CostPicture) => {
    if (key !== asked.current) return;
    activity.value = null;
    drawn.value = picture;
    drawnView.value = store.cost.view;
  };
  useStart(() => {
    const leave = [
      kernel.receive(
        "cost",
        ({ source, version }, table) => {
          asked.current = "";
          undecoded.value = new Map([...undecoded.value].filter(([other]) => other !== source));
          store.takeCost(source, version, table);
        },
        (why, { source }) => void (undecoded.value = new Map(undecoded.value).set(source, why)),
      ),
      kernel.receive(
        "cost_picture",
        ({ key }, picture) => takePicture(key, picture),
        (why, { key }) => takePicture(key, reasonPicture(why)),
      ),
      drawing.destroy,
    ];
    return () => leave.forEach((end) => end());
  });

  // Requests
  const canAsk = store.tab === "cost" && !kernel.isGone && cost !== null && !cost.stale;
  useLayoutEffect(() => {
    const kept = opened.value.filter(hasInside);
    if (kept.length < opened.value.length) opened.value = kept;
    if (!canAsk) return;
    for (const source of sources) {
      const isKnown = source === defaultSource || received.get(source)?.version === version;
      const isMeasured = source !== "measured" || info.measured?.state === "ready";
      if (isKnown || !isMeasured || requested.current.get(source) === version) continue;
      requested.current.set(source, version);
      kernel.latest(`cost ${source}`, "request_cost", { source });
    }
  });
  const needsMeasure = sources.includes("measured") && !info.measured?.version;
  const blocks = view === "memory" ? opened.value : [];
  const of = view === "memory" ? blocks : view === "roofline" ? null : figure;
  const key = JSON.stringify([view, sources, of, width.value, version, info.measured?.version ?? 0]);
  useLayoutEffect(() => {
    if (!isPicture || !canAsk || needsMeasure || key === asked.current) return;
    asked.current = key;
    const slowest = inOrder(sources).at(-1)!;
    const isReady = slowest === "measured" || slowest === defaultSource || received.get(slowest)?.version === version;
    activity.value = isReady ? "Drawing" : PROGRESS[slowest];
    const args = { key, view, sources, figure, width: width.value || 900, opened: blocks };
    kernel.latest("cost picture", "request_cost_picture", args);
  });

  // States
  const states = sources.map((source) => [source, info[source]] as const);
  const isBad = (state: string | undefined) => state === "failed" || state === "unavailable";
  const pending = states.find(
    ([source, state]) =>
      state?.state === "loading" ||
      (source !== defaultSource &&
        source !== "measured" &&
        requested.current.get(source) === version &&
        !received.has(source) &&
        !undecoded.value.has(source) &&
        !isBad(state?.state)),
  );
  const isWaiting = pending !== undefined && !kernel.isGone && isTable;
  const elapsed = useElapsed(isWaiting);
  const messages = states.flatMap(([source, state]) => {
    const [title] = SOURCE_TITLES[source];
    const verb = state?.state === "failed" ? "failed" : "are not available";
    return [
      view !== "what_if" && isBad(state?.state) && `${title} costs ${verb}: ${state!.message}`,
      undecoded.value.has(source) && `${title} costs: ${undecoded.value.get(source)}`,
    ];
  });
  if (isTable && sources.includes("measured") && !received.has("measured") && info.measured?.state === "empty")
    messages.push(NOT_MEASURED);
  if (kernel.isGone && sources.some((source) => source !== defaultSource && !received.has(source)))
    messages.push(`Not connected to the kernel, so only ${defaultSource} costs can be shown.`);
  const notes = costs.flatMap((table) =>
    notesOf(table, figure).map((note) => (sources.length > 1 ? `${SOURCE_TITLES[table.source][0]}: ${note}` : note)),
  );
  const jaxpr = snapshot.stages["jaxpr"];
  // HLO and StableHLO text have no jaxpr.
  const hint =
    info.analytic?.state !== "unavailable" && isBad(jaxpr?.state)
      ? `Costs need the jaxpr, which failed: ${jaxpr!.message}`
      : "Costs appear once the model can run.";
  const isOld = sources.some((source) => store.isOld(source));

  const press = (source: Source) => {
    // Pictures with one source show the last pressed one; pictures with two show the last two.
    const previous: readonly Source[] = isTable ? store.sources : view === "beside" ? sources : [];
    const others = previous.filter((other) => other !== source);
    const isOff = previous.includes(source) && previous.length > 1;
    // Only a predicted time differs from compiled costs.
    const of: { figure?: Figure } = source === "predicted" && !isOff ? { figure: "predicted_s" } : {};
    store.showCost({ sources: isOff ? others : [...others, source], ...of });
  };
  const measure = () => {
    void store.command("measure");
    // Only measured costs have times, so show them alone.
    store.showCost({ sources: ["measured"], figure: "time_s" });
  };

  // While the table is hidden, it is built only if it is small.
  const shown = useRef<{ costs: CostTableData[]; figure: Figure }>({ costs: [], figure });
  const isSmall = costs.every(({ rows }) => rows.length <= MOST_HIDDEN);
  if (isTable && (store.tab === "cost" || isSmall)) shown.current = { costs, figure };
  const hasRoles = costs.some(({ rows }) => rows.some(({ roles }) => roles?.backward?.flops || roles?.update?.flops));
  const why =
    kernel.isGone && !asked.current
      ? "Not connected to the kernel, so pictures cannot be loaded."
      : canAsk && needsMeasure
        ? NOT_MEASURED
        : null;
  const reason = useMemo(() => (why === null ? null : reasonPicture(why)), [why]);
  const picture = reason ?? drawn.value;

  // Blocks that open
  const selected = store.pins.flatMap((pin) => (pin.kind === "block" ? lineage(pin.path) : []));
  const toOpen = selected.find((block) => drawing.blocks.has(block) && canOpen(block)) ?? null;
  const hasInsides = view === "memory" && hasCost && !!picture?.svg;
  const chips = useRef<HTMLDivElement>(null);
  const openSelected = () => {
    openBlocks([...opened.value, toOpen!]);
    (chips.current!.firstElementChild!.lastElementChild as HTMLElement).focus();
  };
  return (
    <div
      class={isOld ? "mnb-costs mnb-stale" : "mnb-costs"}
      data-mnb-part="cost"
      data-mnb-drawn={drawnView.value}
      ref={root}
    >
      <div class="mnb-cost-bar">
        <Radios
          label="View"
          action="cost.view"
          choices={VIEWS.map((value) => ({ value, title: VIEW_TITLES[value] }))}
          value={view}
          pick={(view) => store.showCost({ view })}
        />
        <Presses
          label="Sources of costs"
          action="cost.source"
          choices={SOURCES.map((value) => {
            const [title, about] = SOURCE_TITLES[value];
            const reason = isBad(info[value]?.state) && info[value]!.message;
            return { value, title, hint: reason ? `Not available: ${reason}` : about };
          })}
          pressed={sources}
          pick={press}
          hidden={view === "what_if"}
        />
        <select
          class="mnb-input mnb-cost-figure"
          aria-label="Figure"
          data-mnb-action="cost.figure"
          hidden={view === "memory" || view === "roofline"}
          value={figure}
          onChange={(event) => store.showCost({ figure: event.currentTarget.value as Figure })}
        >
          {FIGURES.map((name) => (
            <option key={name} value={name}>
              {FIGURE_TITLES[name][0]}
            </option>
          ))}
        </select>
        <Button
          class="mnb-button mnb-cost-measure"
          action="cost.measure"
          title={
            "Run the program 20 times on this machine with JAX's profiler. Inputs given only as shapes get " +
            "placeholder values."
          }
          hidden={info.measured === undefined}
          off={isMeasuring || !hasCost}
          onClick={measure}
        >
          {isMeasuring ? "Measuring…" : received.has("measured") ? "Measure again" : "Measure"}
        </Button>
        <IconButton
          icon="copy"
          label="Copy the table as CSV"
          action="cost.csv"
          hidden={!isTable || !hasCost}
          onClick={(event) => void copyFrom(event.currentTarget, toCsv(costs, figure))}
        />
        <span class="mnb-badge" role="status" hidden={!isOld}>
          {"from before the last change"}
        </span>
      </div>
      <p class="mnb-hint" hidden={hasCost}>
        {hint}
      </p>
      <p class="mnb-hint mnb-cost-waiting" role="status" hidden={!isWaiting}>
        {isWaiting && elapsed && `${PROGRESS[pending[0]]}: ${elapsed}`}
      </p>
      <div class="mnb-cost-problems">
        {messages.filter(Boolean).map((message, i) => (
          <p key={i} class="mnb-note">
            {message}
          </p>
        ))}
      </div>
      <TableView store={store} {...shown.current} hidden={!isTable || !hasCost} />
      <span class="mnb-cost-legend" hidden={!isTable || !hasRoles}>
        {ROLES.map((role) => (
          <span key={role}>
            <b class={`mnb-role-${role}`} />
            {role}
          </span>
        ))}
      </span>
      <div class="mnb-cost-inside" hidden={!hasInsides} ref={chips}>
        <Chips
          label="Open blocks"
          verb="Close"
          chips={opened.value.map((block) => ({ key: block, label: titleOf(block) }))}
          remove={(block) => openBlocks(opened.value.filter((other) => other !== block))}
          home={() =>
            open.current!.hidden ? root.current!.querySelector<HTMLElement>('[aria-checked="true"]') : open.current
          }
        />
        <button
          type="button"
          class="mnb-toggle"
          data-mnb-action="cost.open_block"
          title="Split the block into its inner blocks (or double-click it)"
          hidden={toOpen === null}
          ref={open}
          onClick={openSelected}
        >
          {toOpen !== null && `Open ${titleOf(toOpen)}`}
        </button>
        <span class="mnb-muted" hidden={toOpen !== null || ![...drawing.blocks].some(canOpen)}>
          {"Select a block to split it into its inner blocks."}
        </span>
      </div>
      <PictureView
        drawing={drawing}
        drawn={picture}
        activity={activity.value}
        hidden={!isPicture || !hasCost}
        done={() => void paints.value++}
      />
      <WhatIf store={store} tip={tip} hidden={view !== "what_if" || !hasCost} />
      <Notes notes={[...new Set([...(snapshot.device?.facts ?? []), ...(view === "what_if" ? [] : notes)])]} />
    </div>
  );
}
