/** The What if view: change settings on a copy of the program, and compare its costs. */

import { focusedAt } from "../dom/dom";
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { Chips } from "../controls/choice";
import { Problem } from "../controls/diagnostic";
import { FieldRow } from "../controls/fields";
import type { Tip } from "../controls/tip";
import { percent } from "../dom/format";
import { Button, useElapsed, useStart } from "../dom/view";
import type { ComparedFigure, FieldValue, Figure, SettingChange, SettingField, WhatIfAnswer } from "../kernel/contract";
import type { Store } from "../store/store";
import { FIGURE_TITLES, VIEW_TITLES, formatFigure, formatExactly } from "./figures";
import { createDrawing, PictureView } from "./picture";

const TYPES = new Set(["int", "float", "bool", "choice", "ints"]);

/** Format a relative change: "×2.00", "+1.2 %". */
export function changeOf(before: number | null, after: number | null): string {
  if (before === null || after === null) return "–";
  if (before === after) return "same";
  if (before === 0) return "new";
  const ratio = after / before;
  return ratio >= 1.995 || ratio <= 0.5
    ? `×${Number(ratio.toPrecision(3))}`
    : `${ratio > 1 ? "+" : "−"}${percent(Math.abs(ratio - 1))}`;
}

function describeChange([path, name, value]: SettingChange, settings: readonly SettingField[]) {
  const label = path ? `${path}.${name}` : (settings.find((setting) => setting.name === name)?.label ?? name);
  return `${label} = ${String(value)}`;
}

function Row({ row, other }: { row: ComparedFigure; other: ComparedFigure | undefined }) {
  const isPeak = row.figure === "peak_bytes";
  const figure = (isPeak ? "bytes_accessed" : row.figure) as Figure;
  return (
    <tr data-mnb-whatif={row.figure}>
      <th scope="row">{isPeak ? "Peak memory" : FIGURE_TITLES[figure][0]}</th>
      {[row, ...(other ? [other] : [])].flatMap(({ before, after, reason }) => [
        ...[before, after].map((value) => (
          <td class="mnb-num" title={value === null ? reason : formatExactly(figure, value)}>
            {formatFigure(figure, value)}
          </td>
        )),
        <td class="mnb-num" title={reason}>
          {changeOf(before, after)}
        </td>,
      ])}
    </tr>
  );
}

export function WhatIf({ store, tip, hidden }: { store: Store; tip: Tip; hidden: boolean }) {
  const { snapshot, selection, kernel } = store;
  const { version, cost } = snapshot;
  const info = snapshot.costs.what_if;
  const settings = info.settings ?? [];
  const root = useRef<HTMLDivElement>(null);
  const main = useRef<HTMLDivElement>(null);
  const drawing = useMemo(() => createDrawing(store, tip, () => {}), []);
  const changes = useSignal<ReadonlyMap<string, SettingChange>>(new Map());
  /** Fields with invalid text. */
  const invalid = useSignal<ReadonlySet<string>>(new Set());
  /** Counts resets, which restore the text of all fields. */
  const resets = useSignal(0);
  /** The latest answer, and the latest answer without a problem, which stays on screen. */
  const answer = useSignal<WhatIfAnswer | null>(null);
  const valid = useSignal<WhatIfAnswer | null>(null);
  const decodeError = useSignal("");
  const sent = useRef("");
  const requestedVersion = useRef(0);
  const path = selection[0] ?? "";
  const fields = store.fieldsOf(path).filter((field) => TYPES.has(field.type));
  const isEmpty = changes.value.size === 0;
  const list = [...changes.value.values()];
  const isLate = answer.value !== null && JSON.stringify(answer.value.changes) !== JSON.stringify(list);

  const set = (next: ReadonlyMap<string, SettingChange>): void => void (changes.value = next);
  const remove = (...keys: string[]): void => set(new Map([...changes.value].filter(([key]) => !keys.includes(key))));
  const change = (of: string, name: string, value: FieldValue) => {
    const key = `${of} ${name}`;
    const now = (of ? store.fieldsOf(of) : settings).find((field) => field.name === name)?.value;
    if (JSON.stringify(now) === JSON.stringify(value)) remove(key);
    else set(new Map(changes.value).set(key, [of, name, value]));
  };
  const send = (compile: boolean) => {
    const { figure } = store.cost;
    const key = JSON.stringify([version, figure, list]);
    if (kernel.isGone || (key === sent.current && !compile) || cost?.stale) return;
    sent.current = key;
    const width = Math.floor((main.current!.clientWidth || 720) / 40) * 40;
    kernel.latest("what if", "what_if", { key, changes: list, figure, compile, width });
  };
  /** Return the control of a change, or the first control. */
  const control = (key = "") => {
    const [of, name] = [key.slice(0, key.indexOf(" ")), key.slice(key.indexOf(" ") + 1)];
    const row =
      key && root.current!.querySelector(`[data-mnb-of="${CSS.escape(of)}"] [data-mnb-field="${CSS.escape(name)}"]`);
    return (row || root.current!).querySelector<HTMLElement>("input, select");
  };

  useStart(() => {
    const leave = kernel.receive(
      "what_if",
      ({ key }, found) => {
        if (key !== sent.current) return;
        answer.value = found;
        decodeError.value = "";
        if (found.problem === null) valid.value = found;
      },
      (why, { key }) => void (key === sent.current && (decodeError.value = why)),
    );
    return () => {
      leave();
      drawing.destroy();
    };
  });
  useLayoutEffect(() => {
    if (hidden) return;
    const gone = [...changes.value].flatMap(([key, [of]]) => (of && !snapshot.blocks[of] ? [key] : []));
    if (gone.length) remove(...gone);
    if (isEmpty && sent.current) {
      sent.current = decodeError.value = "";
      answer.value = valid.value = null;
    }
    // The settings of the whole program are requested once per version, while the tab is shown.
    const isKnown = info.version === version || requestedVersion.current === version;
    if (!isKnown && cost !== null && !cost.stale && store.tab === "cost") {
      requestedVersion.current = version;
      kernel.latest("settings", "request_settings", {});
    }
    if (!isEmpty) send(false);
  });
  // A pressed button that gets hidden passes the focus on.
  const buttons = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const active = focusedAt(root.current!);
    if (buttons.current!.contains(active) && (active as HTMLElement).hidden)
      (buttons.current!.querySelector<HTMLElement>("button:not([hidden])") ?? control())?.focus();
  });

  const canEdit = snapshot.palette.length > 0;
  const hint =
    info.state === "unavailable" || (fields.length > 0 && settings.length > 0)
      ? ""
      : info.settings === null
        ? "Loading settings…"
        : canEdit
          ? path
            ? "This block has no settings to change."
            : "Select a block to change its settings too."
          : settings.length
            ? ""
            : "This program has no settings to change here.";
  const problem =
    info.state === "unavailable" ? info.problem : isEmpty || isLate ? null : (answer.value?.problem ?? null);
  const isBlocked = invalid.value.size > 0 || problem !== null || decodeError.value !== "";
  const isOld = !isEmpty && (isBlocked || isLate);
  const isRunning = info.state === "loading" && !kernel.isGone;
  const elapsed = useElapsed(isRunning);
  const shown = isEmpty ? null : valid.value;
  const message = isRunning
    ? elapsed && `${info.message || "Computing"}: ${elapsed}`
    : kernel.isGone
      ? "Not connected to the kernel, so nothing can be computed."
      : info.state === "unavailable"
        ? "The cost of other settings is not available:"
        : decodeError.value ||
          (isEmpty
            ? "Change a setting to see its effect on the costs. The model stays unchanged."
            : isOld
              ? ""
              : shown?.how);
  const form = (of: string, rows: readonly SettingField[]) => (
    <div class="mnb-fields" data-mnb-of={of}>
      {rows.map((field) => {
        const key = `${of} ${field.name}`;
        const changed = changes.value.get(key);
        return (
          <FieldRow
            key={`${key} ${field.type} ${resets.value}`}
            field={changed ? { ...field, value: changed[2] } : field}
            send={(value) => change(of, field.name, value)}
            judge={(why) => {
              const keys = new Set(invalid.value);
              if (why ? keys.has(key) : !keys.delete(key)) return;
              invalid.value = why ? keys.add(key) : keys;
            }}
          />
        );
      })}
    </div>
  );
  const compiled = shown?.compiled;
  const heads = ["before", "after", "change", ...(compiled ? ["compiled before", "after", "change"] : [])];
  return (
    <div class="mnb-whatif" aria-label={VIEW_TITLES.what_if} hidden={hidden} ref={root}>
      <div class="mnb-whatif-side">
        {form("", settings)}
        <h4 hidden={!fields.length}>{path.split("/").join(" / ")}</h4>
        {form(path || " ", path ? fields : [])}
        <p class="mnb-hint" hidden={!hint}>
          {hint}
        </p>
        <Chips
          label="Changes"
          verb="Remove"
          chips={[...changes.value].map(([key, one]) => ({ key, label: describeChange(one, settings) }))}
          remove={remove}
          home={control}
        />
        <div class="mnb-row mnb-wrap" ref={buttons}>
          <Button
            class="mnb-button mnb-primary"
            action="whatif.apply"
            title="Apply these changes to the model; can be undone"
            hidden={!canEdit || isEmpty}
            off={isBlocked}
            onClick={() => void kernel.send("apply_what_if", { changes: list }).then(({ ok }) => ok && set(new Map()))}
          >
            {"Apply to the model"}
          </Button>
          <Button
            action="whatif.compile"
            title="Compile the program with and without the changes"
            hidden={
              isEmpty || info.state === "loading" || !answer.value || !!answer.value.compiled || !!answer.value.problem
            }
            onClick={() => send(true)}
          >
            {"Compile both"}
          </Button>
          <Button
            action="whatif.reset"
            hidden={isEmpty && invalid.value.size === 0}
            onClick={() => {
              resets.value++;
              invalid.value = new Set();
              set(new Map());
            }}
          >
            Reset
          </Button>
        </div>
      </div>
      <div class="mnb-whatif-main" ref={main}>
        <p class="mnb-hint" role="status" data-mnb-part="what-if">
          {message}
        </p>
        <div class="mnb-notice mnb-step-problem" hidden={!problem}>
          {problem && <Problem problem={problem} />}
        </div>
        <p class="mnb-badge" role="status" hidden={!isBlocked || !shown}>
          {shown && `Costs for ${shown.changes.map((one) => describeChange(one, settings)).join(", ")}`}
        </p>
        <table class={`mnb-table mnb-whatif-table${isOld ? " mnb-old" : ""}`} hidden={!shown}>
          <thead>
            <tr>
              <th scope="col">
                <span class="mnb-offscreen">Figure</span>
              </th>
              {heads.map((title, i) => (
                <th key={i} scope="col" class="mnb-num">
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown?.rows.map((row, i) => (
              <Row key={row.figure} row={row} other={compiled?.[i]} />
            ))}
          </tbody>
        </table>
        <PictureView
          drawing={drawing}
          drawn={valid.value?.picture ?? null}
          activity={null}
          isOld={isOld}
          hidden={!shown}
        />
      </div>
    </div>
  );
}
