/** The Train tab and the live-run widget: curves, figures, progress and controls of a run. */

import { uid } from "../dom/dom";
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo } from "preact/hooks";
import { FieldRow, TextControl, numberOf, numberProblem, useSlider } from "../controls/fields";
import { figure, grouped, seconds, short, si } from "../dom/format";
import { theme } from "../dom/theme";
import { Button, Holder, Icon, Select, useElapsed, useStart } from "../dom/view";
import type { KnobData, ProblemData, RunData, SettingField } from "../kernel/contract";
import type { Snapshot } from "../kernel/model";
import type { Connection, Kernel } from "../kernel/kernel";
import type { Curves } from "./curves";
import { createPlot } from "./plot";

/** The state before the first run. */
export const NO_RUN: RunData = {
  state: "none",
  epoch: 0,
  epochs: 0,
  step: 0,
  steps: 0,
  loss: null,
  accuracy: null,
  validation_loss: null,
  validation_accuracy: null,
  steps_per_s: null,
  left_s: null,
  learning_rate: null,
  learning_rate_is_relative: false,
  message: "",
  points: 0,
  is_current_model: true,
  knobs: [],
  marks: [],
  latest: null,
};

const [RATE_MIN, RATE_MAX] = [1e-6, 1];
/** Without a value: a schedule changes the rate, and must not take away an invalid text or its reason. */
const RATE = { name: "learning rate", type: "float", value: null };

const EPOCH_MEAN = "Mean over the batches of the current epoch. The curve shows each batch.";
const AT_END = "On the validation data, at the end of the last complete epoch";
const FIGURES: readonly (readonly [name: string, label: string, hint: string])[] = [
  ["loss", "epoch mean loss", EPOCH_MEAN],
  ["accuracy", "epoch mean accuracy", EPOCH_MEAN],
  ["speed", "steps/s", "Steps per second over the last two seconds, without compilation"],
  ["validation_loss", "validation loss", AT_END],
  ["validation_accuracy", "validation accuracy", AT_END],
  ["left", "time left", "Estimated time to the end of the run"],
];

const COMMANDS = [
  "train",
  "pause",
  "resume",
  "stop",
  "step_once",
  "set_learning_rate",
  "set_knob",
  "set_loss",
  "set_training",
];

const STATE_LABELS: Record<string, string> = { none: "not started", idle: "ready", lost: "lost with the kernel" };

/** Return the run to show: if the connection ended while it was running or paused, with another state and a message. */
function shownRun(run: RunData, connection: Connection) {
  const isActive = run.state === "running" || run.state === "paused";
  const messages: Record<string, string> = {
    replaced: "Replaced by a newer widget.",
    closed: "This widget was closed and does not follow the run any more.",
    // A run is a thread in the kernel, so it ends with the kernel.
    lost: `The run ended with the kernel at step ${grouped(run.step)}. Unsaved parameters are lost.`,
  };
  if (run.latest !== null) {
    // A loop may run in another process, which does not end with the kernel.
    const why = connection === "lost" ? "The kernel has ended. The run may continue in its own process." : "";
    const message = messages[connection] && (why || messages[connection]);
    return message && isActive ? { ...run, state: "closed" as const, message } : run;
  }
  if (isActive && connection in messages)
    return { ...run, state: connection as RunData["state"], message: messages[connection]! };
  if (connection !== "lost" || (run.state !== "done" && run.state !== "stopped")) return run;
  const lost = "The trained parameters are lost with the kernel unless you saved them.";
  return { ...run, message: [run.message, lost].filter(Boolean).join(" ") };
}

/** Format a problem, one part per line. */
function linesOf({ summary, facts, advice }: ProblemData) {
  return [summary, ...facts.map((fact) => fact.join(": ")), ...(advice ? [`Try: ${advice}`] : [])].join("\n");
}

interface TrainProps {
  kernel: Kernel;
  curves: Curves;
  run: () => RunData;
  /** True if this widget can start and step runs; a live-run widget can only pause, resume and stop. */
  canStart: boolean;
  /** The loss and the available losses; missing in a live-run widget, whose loss is fixed. */
  loss?: () => Pick<Snapshot, "loss" | "losses" | "loss_of" | "output" | "training">;
}

/** The settings shown at once; the parameters of the optimizer follow folded. */
const MAIN = ["epochs", "batch_size", "optimizer", "schedule", "learning_rate", "warmup", "seed", "accuracy"];

function Settings({ kernel, settings }: { kernel: Kernel; settings: SettingField[] }) {
  const row = (field: SettingField) => {
    const key = `training ${field.name}`;
    return (
      <FieldRow
        key={field.name}
        field={field}
        send={(value) => kernel.latest(key, "set_training", { name: field.name, value })}
        isBusy={() => kernel.busy(key)}
      />
    );
  };
  const parameters = settings.filter(({ name }) => !MAIN.includes(name));
  const optimizer = settings.find(({ name }) => name === "optimizer");
  return (
    <div class="mnb-fields" role="group" aria-label="Settings of training" data-mnb-part="train.settings">
      {settings.filter(({ name }) => MAIN.includes(name)).map(row)}
      {parameters.length > 0 && (
        <details>
          <summary data-mnb-action="train.parameters">{`Parameters of ${optimizer?.value ?? "the optimizer"}`}</summary>
          <div class="mnb-fields">{parameters.map(row)}</div>
        </details>
      )}
    </div>
  );
}

/** The loss, or that of each output that the model trains on. */
function Losses({ kernel, settings }: { kernel: Kernel; settings: ReturnType<NonNullable<TrainProps["loss"]>> }) {
  const { loss, losses, loss_of: lossOf, output } = settings;
  const outputs = Object.keys(lossOf);
  const select = (title: string, action: string, values: string[], value: string, pick: (loss: string) => void) => (
    <label key={title} class="mnb-train-control">
      <span>{title}</span>
      <Select action={action} values={values} value={value} pick={pick} none="not trained" />
    </label>
  );
  if (outputs.length < 2)
    return select("loss", "train.loss", losses, loss, (name) => void kernel.send("set_loss", { loss: name }));
  const hasSeveral = Object.values(lossOf).some(Boolean);
  return (
    <>
      {outputs.map((name) => {
        const own = hasSeveral ? lossOf[name]! : name === output ? loss : "";
        const pick = (loss: string) => void kernel.send("set_loss", { loss, output: name });
        return select(`loss of ${name}`, `train.loss.${name}`, ["", ...losses], own, pick);
      })}
    </>
  );
}

/** Press the main button of a training panel; return true. */
export function toggleRun(panel: HTMLElement): true {
  panel.querySelector<HTMLElement>('[data-mnb-action="train.run"]')!.click();
  return true;
}

interface NumberControlProps {
  kernel: Kernel;
  title: string;
  label: string;
  value: number | null;
  /** The range of the logarithmic slider; null for a setting without one. */
  range: [number, number] | null;
  action: string;
  command: string;
  args?: object;
}

/** A number that can change while a run trains: a field, and a logarithmic slider. */
function NumberControl({ kernel, title, label, value, range, action, command, args }: NumberControlProps) {
  const id = useMemo(() => uid("rate"), []);
  const problem = useSignal("");
  /** The number that was sent last; shown until the kernel replies. */
  const chosen = useSignal<number | null>(null);
  const shown = kernel.busy(action) ? (chosen.value ?? value) : value;
  const isOff = value === null || kernel.isGone;
  const send = (number: number) => {
    chosen.value = number;
    kernel.latest(action, command, { ...args, value: number });
  };
  const slider = useSlider(shown, () => range ?? [0, 1], false, send);
  const parse = (text: string) => {
    problem.value = numberProblem(text, { type: "float", ...(range && { min: 0 }) });
    return problem.value ? undefined : numberOf(text);
  };
  const text = shown === null ? "" : short(shown);
  return (
    <>
      <label class="mnb-train-control" data-mnb-knob={title}>
        <span title={title}>{title}</span>
        {range ? (
          <input
            {...slider.attributes}
            aria-label={`${label}, logarithmic`}
            aria-valuetext={text || undefined}
            data-mnb-action={action}
            disabled={isOff}
          />
        ) : (
          <i />
        )}
        <TextControl
          field={RATE}
          value={shown}
          send={(number) => send(number as number)}
          problem={problem}
          control={{ id }}
          shown={text}
          parse={parse}
          attributes={{
            class: "mnb-input mnb-number",
            inputMode: "decimal",
            "aria-label": label,
            disabled: isOff,
          }}
        />
      </label>
      <p class="mnb-field-problem" id={`${id}-problem`} role="alert" hidden={!problem.value}>
        {problem.value}
      </p>
    </>
  );
}

function RateControl({ kernel, run }: { kernel: Kernel; run: RunData }) {
  return (
    <NumberControl
      kernel={kernel}
      title={run.learning_rate_is_relative ? "learning rate ×" : "learning rate"}
      label="Learning rate"
      value={run.learning_rate}
      range={run.learning_rate_is_relative ? [0.01, 100] : [RATE_MIN, RATE_MAX]}
      action="train.rate"
      command="set_learning_rate"
    />
  );
}

function KnobControl({ kernel, knob, off }: { kernel: Kernel; knob: KnobData; off: boolean }) {
  const { name, value, log, start } = knob;
  return (
    <NumberControl
      kernel={kernel}
      title={name}
      label={name}
      value={off ? null : value}
      range={log ? [start / 1000, start * 1000] : null}
      action={`train.knob.${name}`}
      command="set_knob"
      args={{ name }}
    />
  );
}

/** The steps to take, and a button that takes them. */
function Steps({ kernel, off }: { kernel: Kernel; off: boolean }) {
  const id = useMemo(() => uid("steps"), []);
  const count = useSignal(10);
  const problem = useSignal("");
  const parse = (text: string) => {
    problem.value = numberProblem(text, { type: "int", min: 1 });
    return problem.value ? undefined : numberOf(text);
  };
  return (
    <label class="mnb-train-control" title={problem.value || undefined}>
      <span>steps</span>
      <Button action="train.steps" off={off} onClick={() => void kernel.send("step_once", { steps: count.value })}>
        <Icon name="step" />
        {`Take ${grouped(count.value)}`}
      </Button>
      <TextControl
        field={{ name: "steps", type: "int", value: count.value }}
        value={count.value}
        send={(value) => void (count.value = value as number)}
        problem={problem}
        control={{ id }}
        shown={String(count.value)}
        parse={parse}
        attributes={{ class: "mnb-input mnb-number", inputMode: "numeric", "aria-label": "Steps to take" }}
      />
    </label>
  );
}

/** Metrics of a loop that have a curve. */
const MOST_METRICS = 6;
/** Latest changes that are listed; the curves show all. */
const MOST_MARKS = 10;

/** The metrics of a loop that have a plot: a validation metric is in that of the training metric. */
function metricsOf({ latest }: RunData): string[] | null {
  const names = Object.keys(latest ?? {});
  return latest && names.filter((name) => !names.some((other) => name === `validation_${other}`));
}

/** The curves of loss and accuracy, or of the metrics of a loop. */
function Plots(props: { curves: Curves; run: RunData; isLog: boolean; weight: number; canStart: boolean }) {
  const { curves, run, isLog, weight, canStart } = props;
  const metrics = metricsOf(run);
  const names = (metrics ?? ["loss", "accuracy"]).slice(0, MOST_METRICS);
  const key = names.join("\n");
  const plots = useMemo(
    () => names.map((name) => createPlot(name, name.endsWith("accuracy"), metrics === null)),
    [key],
  );
  useLayoutEffect(() => () => plots.forEach(({ destroy }) => destroy()), [plots]);
  const rows = useSignal(0);
  useStart(() => curves.on(() => void rows.value++));
  const has = curves.rows > 0;
  useLayoutEffect(() => {
    const column = (name: string) => curves.columns.get(name) ?? [];
    plots.forEach((plot, i) => {
      const [train, validation] = [column(names[i]!), column(`validation_${names[i]}`)];
      const isLoss = names[i]!.includes("loss");
      const data = { x: column("step"), train, validation, marks: run.marks };
      plot.set(data, isLog && isLoss ? "log" : "linear", weight);
      plot.root.hidden = !has || (!isLoss && ![train, validation].some((line) => line.some((value) => value !== null)));
    });
  }, [rows.value, isLog, weight, plots, run.marks.length]);
  useLayoutEffect(() => plots.forEach(({ recreate }) => recreate()), [theme.value]);
  const left = (metrics?.length ?? 0) - names.length;
  return (
    <div class={metrics ? "mnb-train-plots mnb-several" : "mnb-train-plots"}>
      <Holder key={key} class="mnb-train-curves" nodes={plots.map(({ root }) => root)} />
      <p class="mnb-hint mnb-train-hint" hidden={has && left <= 0}>
        {has
          ? `and ${left} more metrics`
          : canStart
            ? "Curves appear after the first step."
            : "The run has no points yet."}
      </p>
    </div>
  );
}

/** The figures of a run: rounded text, and exact value. */
function figuresOf(run: RunData, isActive: boolean): Record<string, [string, unknown]> {
  const share = (value: number | null) => (value === null ? "–" : `${(100 * value).toFixed(1)} %`);
  return {
    loss: [figure(run.loss), run.loss],
    validation_loss: [figure(run.validation_loss), run.validation_loss],
    accuracy: [share(run.accuracy), run.accuracy],
    validation_accuracy: [share(run.validation_accuracy), run.validation_accuracy],
    speed: [run.steps_per_s === null ? "–" : si(run.steps_per_s), run.steps_per_s],
    left: [isActive ? seconds(run.left_s) : "–", null],
    ...Object.fromEntries(Object.entries(run.latest ?? {}).map(([name, value]) => [name, [figure(value), value]])),
  };
}

/** The figures that a run shows: name, title, hint. */
function shownFigures(run: RunData): typeof FIGURES {
  if (run.latest === null) return FIGURES;
  const metrics = Object.keys(run.latest).map((name) => [name, name, `Latest ${name}`] as const);
  return [...metrics.slice(0, 2 * MOST_METRICS), ...FIGURES.filter(([name]) => name === "speed" || name === "left")];
}

export function Train({ kernel, curves, run: latest, canStart, loss }: TrainProps) {
  const run = shownRun({ ...NO_RUN, ...latest() }, kernel.connection);
  const { state } = run;
  const { isGone } = kernel;
  /** The error of the latest command of this panel, beside its buttons: the notice above may be out of view. */
  const error = useSignal<ProblemData | null>(null);
  const isStarting = useSignal(false);
  const isLog = useSignal(true);
  const weight = useSignal(0);
  // Starting may compile, so show a clock until the kernel replies.
  const waited = useElapsed(isStarting.value);
  const compiled = useElapsed(state === "running" && run.step === 0);
  useStart(() =>
    kernel.onReply((name, reply, isEdit) => {
      if (reply.error ? COMMANDS.includes(name) : reply.ok && isEdit) error.value = reply.error;
    }),
  );
  const start = (command: string, args = {}) => {
    isStarting.value = true;
    void kernel.send(command, args).then(() => (isStarting.value = false));
  };
  const isActive = state === "running" || state === "paused";
  /** A loop ends with its script, which starts it again. */
  const isLoop = run.latest !== null;
  const hasEnded = !isLoop && (state === "stopped" || state === "failed");
  // The run trains another model or loss than the workbench shows.
  const isOld = canStart && latest().is_current_model === false;
  const [label, command] =
    state === "running"
      ? ["Pause", "pause"]
      : isOld
        ? ["Train this model", "train"]
        : state === "paused" || hasEnded
          ? ["Resume", "resume"]
          : [state === "done" && !isLoop ? "Train again" : isLoop ? "Resume" : "Train", "train"];
  const epochs = Number(loss?.().training.find(({ name }) => name === "epochs")?.value ?? 1);
  const done = run.steps > 0 ? Math.min(1, run.step / run.steps) : 0;
  const status =
    (STATE_LABELS[state] ?? state) + (run.is_current_model === false ? ", with an earlier model or settings" : "");
  const [step, steps] = [grouped(run.step), grouped(run.steps)];
  const figures = figuresOf(run, isActive);
  return (
    <div class="mnb-train" data-mnb-part="train" data-mnb-run={state} tabIndex={-1}>
      <div class="mnb-train-side">
        <div class="mnb-row mnb-wrap">
          <Button
            class="mnb-button mnb-primary"
            action="train.run"
            off={isGone || !(isActive || hasEnded || canStart)}
            onClick={() => start(command!)}
          >
            <Icon name={state === "running" ? "pause" : "play"} />
            {label}
          </Button>
          <Button
            action="train.restart"
            hidden={!(hasEnded || (isOld && state === "paused")) || !canStart}
            off={isGone}
            onClick={() => start(isOld ? "resume" : "train")}
          >
            <Icon name="play" />
            {isOld ? "Resume the earlier model" : "Train from scratch"}
          </Button>
          {canStart && (
            <Button
              action="train.continue"
              hidden={isOld || (state !== "done" && state !== "stopped")}
              off={isGone}
              onClick={() => start("resume", { epochs })}
            >
              <Icon name="play" />
              {`${epochs} more ${epochs === 1 ? "epoch" : "epochs"}`}
            </Button>
          )}
          {(canStart || isLoop) && (
            <Button
              action="train.step"
              off={isGone || state === "running" || (isLoop && !isActive)}
              onClick={() => void kernel.send("step_once", {})}
            >
              <Icon name="step" />
              {"One step"}
            </Button>
          )}
          <Button action="train.stop" off={!isActive} onClick={() => void kernel.send("stop", {})}>
            <Icon name="stop" />
            Stop
          </Button>
        </div>
        <p class="mnb-command-error" role="alert" hidden={error.value === null}>
          {error.value && linesOf(error.value)}
        </p>
        <div class="mnb-progress-row">
          <div
            class="mnb-progress"
            role="progressbar"
            aria-label="Progress"
            aria-valuemin={0}
            aria-valuemax={100}
            aria-valuenow={Math.round(100 * done)}
          >
            <i style={{ width: `${100 * done}%` }} />
          </div>
          <span class="mnb-run-state" role="status">
            {waited || compiled
              ? waited
                ? `waiting for the kernel: ${waited}`
                : `first step, with compilation: ${compiled}`
              : run.steps > 0
                ? `${status}${run.epochs ? ` · epoch ${run.epoch} of ${run.epochs}` : ""} · step ${step} of ${steps}`
                : isLoop
                  ? `${status} · step ${step}`
                  : status}
          </span>
        </div>
        <p
          class={state === "failed" || state === "lost" ? "mnb-inline-problem" : "mnb-inline-problem mnb-plain"}
          role="alert"
          hidden={!run.message}
        >
          {run.message}
        </p>
        <dl class="mnb-run-figures">
          {shownFigures(run).map(([name, title, hint]) => (
            <div key={name} class={name === "loss" || name === "accuracy" ? "mnb-large" : ""} title={hint}>
              <dt>{title}</dt>
              <dd data-mnb-figure={name} title={String(figures[name]![1] ?? "")}>
                {figures[name]![0]}
              </dd>
            </div>
          ))}
        </dl>
        {loss && <Losses kernel={kernel} settings={loss()} />}
        {!isLoop && <RateControl kernel={kernel} run={run} />}
        {run.knobs.map((knob) => (
          <KnobControl key={knob.name} kernel={kernel} knob={knob} off={!isActive} />
        ))}
        {isLoop && <Steps kernel={kernel} off={isGone || state !== "paused"} />}
        {loss && <Settings kernel={kernel} settings={loss().training} />}
        <label class="mnb-train-control">
          <span>smoothing</span>
          <input
            type="range"
            class="mnb-slider"
            min={0}
            max={99}
            step={1}
            value={Math.round(100 * weight.value)}
            aria-label="Smoothing"
            aria-valuetext={`${Math.round(100 * weight.value)} %`}
            data-mnb-action="train.smooth"
            onInput={(event) => void (weight.value = Number(event.currentTarget.value) / 100)}
          />
          <Button
            class="mnb-toggle"
            aria-pressed={isLog.value}
            action="train.log"
            onClick={() => void (isLog.value = !isLog.value)}
          >
            {"log loss"}
          </Button>
        </label>
        {run.marks.length > 0 && (
          <ol class="mnb-run-marks" aria-label="Changes while the run trained">
            {run.marks.slice(-MOST_MARKS).map(([at, text], i) => (
              <li key={i}>{`step ${grouped(at)}: ${text}`}</li>
            ))}
          </ol>
        )}
      </div>
      <Plots curves={curves} run={run} isLog={isLog.value} weight={weight.value} canStart={canStart} />
    </div>
  );
}
