/** The parameters of a block in the inspector, and the inputs of the model while no block is selected. */

import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { FieldRow } from "../controls/fields";
import { exact, figure, grouped, si } from "../dom/format";
import { Button, IconButton, Select, useStart } from "../dom/view";
import type { BlockDetails, ParameterData, ParameterStatistics, ParametersHead } from "../kernel/contract";
import type { Store } from "../store/store";
import { ShapeField } from "../shell/header";
import { isWithin } from "../store/links";

/** Return the parameters in a block, which training may change: each array once, without states. */
export function trainableIn(blocks: Readonly<Record<string, BlockDetails>>, path: string): ParameterData[] {
  const inside = Object.values(blocks).filter((block) => isWithin(block.path, path));
  const params = inside.flatMap((block) => block.params.filter(({ is_trainable }) => is_trainable !== null));
  return [...new Map(params.map((param) => [param.name, param])).values()];
}

/** Return the number of values, and how many of them are frozen. */
function totalOf(params: readonly ParameterData[]) {
  const sum = (chosen: readonly ParameterData[]) =>
    chosen.some(({ count }) => count === null) ? null : chosen.reduce((total, { count }) => total + count!, 0);
  const frozen = params.filter(({ is_trainable }) => !is_trainable);
  const state = !frozen.length ? "" : frozen.length === params.length ? " · frozen" : ` · ${si(sum(frozen))} frozen`;
  return { text: si(sum(params)) + state, title: exact(sum(params), "values") };
}

const NO_HEAD: ParametersHead = { names: [], block: "", steps: [], norms: {} };

/** Return statistics of trained parameters by name, which follow the epochs of a run, and the norms over time. */
function useStatistics({ kernel, snapshot }: Store, block: string, names: string[], inside: string[]) {
  const latest = useSignal<[ParametersHead, ParameterStatistics[]]>([NO_HEAD, []]);
  const { state, epoch, is_current_model } = snapshot.run;
  useStart(() =>
    kernel.receive(
      "parameters",
      (head, rows) => void (latest.value = [head, rows]),
      () => void (latest.value = [NO_HEAD, []]),
    ),
  );
  useLayoutEffect(() => {
    if (is_current_model && state !== "none" && state !== "idle")
      kernel.latest("parameters", "request_parameters", { names, inside, block });
    else latest.value = [NO_HEAD, []];
  }, [block, inside.join("\n"), state, epoch, is_current_model]);
  const [head, rows] = latest.value[0].block === block ? latest.value : [NO_HEAD, []];
  return { head, trained: Object.fromEntries(rows.map((row) => [row.name, row])) };
}

/** A norm of a block over the steps of a run, on a logarithmic axis, or a statistic of its output on a linear axis. */
function NormOverTime({ title, values, steps }: { title: string; values: (number | null)[]; steps: number[] }) {
  const isLog = !title.startsWith("activation");
  const heights = values.map((value) => (!isLog || value === null ? value : value > 0 ? Math.log(value) : null));
  const known = heights.filter((value) => value !== null);
  if (!known.length) return null;
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const [first, last] = [steps[0]!, steps.at(-1)!];
  let isDown = false;
  const path = heights.map((value, i) => {
    const command = value !== null && isDown ? "L" : "M";
    isDown = value !== null;
    if (value === null) return "";
    const x = (94 * (steps[i]! - first)) / Math.max(1, last - first);
    return `${command}${(1 + x).toFixed(1)} ${(18 - (16 * (value - low)) / (high - low || 1)).toFixed(1)}`;
  });
  const [least, most] = isLog ? [Math.exp(low), Math.exp(high)] : [low, high];
  const range = `from ${figure(least)} to ${figure(most)}${isLog ? ", logarithmic" : ""}`;
  const span = `steps ${grouped(first)} to ${grouped(last)}, ${range}`;
  return (
    <div class="mnb-row mnb-muted" title={span} data-mnb-norm={title}>
      <span class="mnb-grow">{`${title} ${figure(values.at(-1) ?? null)}`}</span>
      <svg
        class="mnb-spark"
        viewBox="0 0 96 20"
        width="96"
        height="20"
        role="img"
        aria-label={`${title} over time: ${span}`}
      >
        <path d={path.join("")} style="fill:none;stroke:currentColor" />
      </svg>
    </div>
  );
}

function Trained({ mean, std, counts }: ParameterStatistics) {
  const most = Math.max(1, ...counts);
  const bars = counts.map((count, x) => `M${4 * x} 20v${(-20 * count) / most}h3V20z`);
  return (
    <div class="mnb-row mnb-muted" title="Mean, standard deviation and histogram of the trained values">
      <span class="mnb-grow">{`mean ${mean}, std ${std}`}</span>
      <svg class="mnb-spark" viewBox="0 0 96 20" width="96" height="20" role="img" aria-label="Histogram of the values">
        <path d={bars.join("")} />
      </svg>
    </div>
  );
}

export function Parameters({ store, path }: { store: Store; path: string }) {
  const { blocks, initializers } = store.snapshot;
  const { params = [] } = blocks[path] ?? {};
  const all = trainableIn(blocks, path);
  const { head, trained } = useStatistics(
    store,
    path,
    params.map(({ name }) => name),
    all.map(({ name }) => name),
  );
  if (!params.length && !all.length && !head.steps.length) return null;
  const total = totalOf(all);
  const lock = (names: string[], isFrozen: boolean, what: string) => (
    <IconButton
      icon={isFrozen ? "lock" : "unlock"}
      label={isFrozen ? `Frozen: training does not change ${what}. Unfreeze` : `Freeze ${what}`}
      action={`freeze.${what}`}
      aria-pressed={isFrozen}
      onClick={() => void store.command("set_trainable", { names, is_trainable: isFrozen })}
    />
  );
  return (
    <div class="mnb-parameters" role="group" aria-label="Parameters">
      {all.length > 0 && (
        <div class="mnb-row" title={total.title}>
          <b>parameters</b>
          <span class="mnb-grow">{total.text}</span>
          {lock(
            [path],
            all.every(({ is_trainable }) => !is_trainable),
            "all",
          )}
        </div>
      )}
      {Object.entries(head.norms).map(([title, values]) => (
        <NormOverTime key={title} title={title} values={values} steps={head.steps} />
      ))}
      {params.map((param) => {
        const { name, port, shape, count, is_trainable: isTrained, initializer, usual, shared } = param;
        const choices = [...new Set([...initializers, "normal(0.02)", initializer].filter(Boolean))];
        return (
          <div key={name}>
            <div class="mnb-row" title={`${name}: ${exact(count, "values")}`}>
              <span>{port}</span>
              <code class="mnb-grow">{`${shape}  ${si(count)}`}</code>
              {isTrained !== null && lock([`${path}.${port}`], !isTrained, port)}
            </div>
            {trained[name] && <Trained {...trained[name]} />}
            {isTrained === false && <p class="mnb-muted">Frozen: training does not change it.</p>}
            {shared.length > 0 && (
              <p class="mnb-muted">
                {`Shared with ${shared.join(", ")} `}
                <Button
                  class="mnb-button mnb-quiet"
                  action={`unshare.${port}`}
                  onClick={() => void store.command("unshare", { target: `${path}.${port}` })}
                >
                  Unshare
                </Button>
              </p>
            )}
            {usual && (
              <FieldRow
                field={{
                  name: "starts as",
                  type: "choice",
                  value: initializer || null,
                  choices,
                  optional: true,
                  unset: initializer ? "default" : `${usual} (default)`,
                  doc: `How ${name} starts, before training`,
                }}
                send={(value) =>
                  void store.command("set_initializer", { parameter: `${path}.${port}`, initializer: value ?? "" })
                }
              />
            )}
          </div>
        );
      })}
    </div>
  );
}

/** Dtypes of inputs; integers are indices or tokens. */
export const DTYPES = ["float32", "bfloat16", "float16", "float64", "int32", "int64", "uint8", "bool"];

export function Inputs({ store }: { store: Store }) {
  const { dtypes } = store.snapshot;
  return (
    <div class="mnb-parameters" role="group" aria-label="Inputs of the model">
      {Object.entries(dtypes).map(([name, dtype]) => (
        <div key={name} class="mnb-row mnb-wrap">
          <ShapeField store={store} port={name} />
          <Select
            aria-label={`Dtype of ${name}`}
            action={`dtype.${name}`}
            values={[...new Set([dtype, ...DTYPES])]}
            value={dtype}
            pick={(dtype) => void store.command("set_dtype", { name, dtype })}
          />
        </div>
      ))}
    </div>
  );
}
