/** The Passes tab: the changes of each XLA pass in order, and the history of the pinned instruction. */

import { type Signal, useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { Radios } from "../controls/choice";
import { type Step, StepList } from "../controls/step-list";
import { counted } from "../dom/format";
import { Button, Holder, useElapsed, useStart } from "../dom/view";
import type { HistoryHead, PassRow } from "../kernel/contract";
import type { Store } from "../store/store";
import { createDiffView } from "./diff-view";
import { NO_MATCHES, type PassMatches, PassSearch, countIn, entered, lineIn } from "./pass-search";

const TRACED = new Set(["jaxpr", "stablehlo", "hlo_before", "hlo"]);
const ARRANGEMENTS = [
  { value: "unified", title: "Unified" },
  { value: "beside", title: "Side by side" },
] as const;

/** The diff of a pass, or why it cannot be shown. */
interface ShownDiff {
  number: number;
  figures: string;
  diff: string;
  why?: string;
}

function sizeOf([, , , added, removed, rewritten]: PassRow) {
  return added === null || removed === null || rewritten === null ? null : added + removed + rewritten;
}

/** Format the length of a diff. For a truncated diff, name the attribute with the full one. */
function lengthOf(diff: string, isCut: boolean, number: number) {
  if (diff === "") return "only names or the order changed";
  const lines = counted(diff.split("\n").length - 1, "line");
  return isCut ? `the first ${lines}; full diff in inspection.passes[${number}].diff` : lines;
}

/** Return the steps of the list: the passes that match the search, and with `isChangedOnly` only those with changes. */
function stepsOf(rows: readonly PassRow[], matches: PassMatches, isChangedOnly: boolean): Step[] {
  const most = Math.log1p(Math.max(1, ...rows.map((row) => sizeOf(row) ?? 0)));
  return rows.map((row, number) => {
    const [, name, pipeline, added, removed, rewritten] = row;
    const size = sizeOf(row);
    const count = countIn(matches, number);
    const changes = size === null ? "" : `+${added} −${removed} ~${rewritten}`;
    return {
      name,
      columns: [pipeline, count === null ? changes : counted(count, "match")],
      title:
        size === null
          ? pipeline
          : `${name}, in ${pipeline}: ${added} added, ${removed} removed, ${rewritten} rewritten`,
      // Logarithmic, so that one change and a thousand changes are both visible.
      share: size ? Math.log1p(size) / most : 0,
      // A pass that is not counted yet may have changes.
      hidden: count === 0 || (isChangedOnly && size === 0),
    };
  });
}

interface HistoryProps {
  store: Store;
  history: HistoryHead | null;
  select: (number: number) => void;
}

/** What the passes did with the pinned instruction. */
function History({ store, history, select }: HistoryProps) {
  if (!history) return <>{"Pin a line of jaxpr, StableHLO or HLO to see which passes changed it."}</>;
  const { stage, index, events, fused, became } = history;
  const hlo = store.texts.get("hlo");
  const opcode = store.texts.get(stage)?.instructions[index]?.opcode ?? "Instruction";
  const places = fused.map((place) => hlo?.linesOf(place)?.[0]).filter((line) => line !== undefined);
  const fusions = fused.length === 1 ? "a fusion" : `${fused.length} fusions`;
  return (
    <>
      <b>{`${opcode} in ${store.titleOf(stage)}`}</b>
      {events.length ? " " : ` ${became || "is unchanged from start to end"}.`}
      {events.map(([event, name, number], i) => [
        `${i ? ", " : ""}${event} `,
        <Button class="mnb-link" onClick={() => select(number)}>
          {`${number + 1}. ${name}`}
        </Button>,
      ])}
      {events.length > 0 && became && `, ${became}`}
      {fused.length > 0 && stage.startsWith("hlo") && `, fused into ${fusions}`}
      {places.length > 0 && ` (HLO line ${places.slice(0, 3).join(", ")})`}
    </>
  );
}

/** `rows` receives the passes. */
export function PassesTab({ store, rows }: { store: Store; rows: Signal<PassRow[]> }) {
  const { kernel, memory } = store;
  const { state, message, version } = store.snapshot.passes ?? { state: "empty", message: "", version: 0 };
  /** Version of the rows. */
  const listed = useSignal(0);
  /** The reason the latest list cannot be shown. */
  const failure = useSignal<string | null>(null);
  const at = useSignal(-1);
  const shown = useSignal<ShownDiff | null>(null);
  const matches = useSignal(NO_MATCHES);
  const isBeside = useSignal(memory.get<string>("diff", "unified") === "beside");
  const isChangedOnly = useSignal(memory.get<boolean>("changed passes", false));
  const history = useSignal<HistoryHead | null>(null);
  /** The instruction whose history was requested. */
  const requested = useRef("");
  const view = useMemo(() => createDiffView(), []);
  const find = () => view.find(matches.value.query, lineIn(matches.value, shown.value?.number ?? -1));
  const select = (number: number) => {
    at.value = number;
    matches.value = entered(matches.value, number);
    performance.mark("mnb:diff:start");
    kernel.latest("diff", "request_diff", { number });
  };
  const takeDiff = (of: number, diff: ShownDiff) => {
    const isCurrent = of === listed.value && diff.number === at.value;
    if (isCurrent) shown.value = diff;
    return isCurrent;
  };
  useStart(() => {
    const leave = [
      kernel.receive(
        "passes",
        // After a new list, the kernel sends the diff of pass `number`.
        ({ version, number }, list) => {
          const isNew = version !== listed.value && list.length > 0;
          [rows.value, failure.value, listed.value] = [list, null, version];
          if (!isNew) return;
          performance.mark("mnb:diff:start");
          at.value = number;
        },
        (why) => void (failure.value = why),
      ),
      kernel.receive(
        "diff",
        ({ version, number, cut }, diff) => {
          if (!takeDiff(version, { number, diff, figures: lengthOf(diff, cut, number) })) return;
          requestAnimationFrame(
            () =>
              performance.getEntriesByName("mnb:diff:start").length &&
              performance.measure("mnb:diff", "mnb:diff:start"),
          );
        },
        (why, { version, number }) => void takeDiff(version, { number, diff: "", figures: "", why }),
      ),
      kernel.on("instruction_history", (head) => {
        if (`${head.stage} ${head.index} ${listed.value}` === requested.current) history.value = head;
      }),
      () => view.destroy(),
    ];
    return () => leave.forEach((end) => end());
  });

  // Passes are not saved with the notebook; the kernel sends them again to a reloaded page.
  const isFetched = state !== "ready" || listed.value === version || failure.value !== null;
  const hasRows = rows.value.length > 0;
  const isHidden = !hasRows || state === "unavailable" || state === "failed" || failure.value !== null;
  const elapsed = useElapsed(!kernel.isGone && (state === "loading" || !isFetched));
  const pin = store.pins.find((one) => one.kind === "instruction" && TRACED.has(one.stage));
  const key =
    pin?.kind === "instruction" && !isHidden && pin.version === listed.value
      ? `${pin.stage} ${pin.index} ${listed.value}`
      : "";
  useLayoutEffect(() => {
    requested.current = key;
    if (!key) history.value = null;
    else if (pin?.kind === "instruction") {
      const { stage, index } = pin;
      kernel.latest("instruction_history", "request_instruction_history", { stage, index });
    }
  }, [key]);
  useLayoutEffect(() => view.arrange(isBeside.value), [isBeside.value]);
  useLayoutEffect(() => {
    view.take(shown.value?.diff ?? "");
    find();
  }, [shown.value]);
  useLayoutEffect(find, [matches.value]);

  /** Return the message for a missing or stale list. */
  const hint = () => {
    if (state === "unavailable") return `The passes are not available: ${message}`;
    if (state === "failed") return `The passes could not be read: ${message}`;
    if (failure.value !== null) return `The passes could not be shown. ${failure.value}`;
    if (state === "stale" && hasRows) return "The model has changed since these passes were read.";
    if (kernel.isGone) return "Not connected to the kernel, so passes cannot be loaded.";
    if (state === "loading" || !isFetched)
      return elapsed && `${state === "ready" ? "Loading the passes" : "Compiling and reading the passes"}: ${elapsed}`;
    if (state === "ready") return "No pass changed anything.";
    return (
      "XLA rewrites the program in about a hundred passes. This tab lists the passes that changed it, with " +
      "a diff of each. The program must be compiled first."
    );
  };
  const { number = -1, figures, why } = shown.value ?? {};
  const [, name, pipeline] = rows.value[number] ?? [];
  return (
    <div
      class="mnb-passes"
      data-mnb-part="passes"
      data-mnb-state={failure.value === null ? state : "failed"}
      data-mnb-shown={shown.value && why === undefined ? number : undefined}
    >
      <p class="mnb-hint" hidden={state === "ready" && isFetched && hasRows && failure.value === null}>
        {hint()}
      </p>
      <Button
        class="mnb-button mnb-primary"
        action="passes.compile"
        hidden={state !== "empty" && state !== "stale" && state !== "failed"}
        onClick={() => void store.command("request_passes")}
      >
        {"Compile and read the passes"}
      </Button>
      <div class="mnb-pass-tools" hidden={isHidden}>
        <PassSearch
          store={store}
          version={listed.value}
          matches={matches.value}
          take={(found) => void (matches.value = found)}
          go={(number) => number !== at.value && select(number)}
        />
        <span class="mnb-grow" />
        <Button
          class="mnb-toggle"
          title="Hide passes that changed only names or the order of instructions"
          aria-pressed={isChangedOnly.value}
          action="passes.changed"
          onClick={() => memory.set("changed passes", (isChangedOnly.value = !isChangedOnly.value))}
        >
          {"Changed only"}
        </Button>
        <Radios
          label="Diff"
          action="diff"
          choices={ARRANGEMENTS}
          value={isBeside.value ? "beside" : "unified"}
          pick={(value) => {
            memory.set("diff", value);
            isBeside.value = value === "beside";
          }}
        />
      </div>
      <p class="mnb-pass-history" role="status" hidden={isHidden}>
        <History store={store} history={history.value} select={select} />
      </p>
      <div class="mnb-pass-body" hidden={isHidden}>
        <StepList
          label="Passes that changed the program, in order"
          steps={stepsOf(rows.value, matches.value, isChangedOnly.value)}
          at={at.value}
          select={select}
        />
        <div class="mnb-pass-diff" data-mnb-state={shown.value ? (why === undefined ? "ready" : "failed") : undefined}>
          <div class="mnb-pane-head">
            <b>{name}</b>
            <span class="mnb-pane-figures">{[pipeline, figures].filter(Boolean).join(" · ")}</span>
          </div>
          <p class="mnb-hint" role="status" hidden={why === undefined}>
            {why}
          </p>
          <Holder class="mnb-held" nodes={[view.root]} />
        </div>
      </div>
    </div>
  );
}
