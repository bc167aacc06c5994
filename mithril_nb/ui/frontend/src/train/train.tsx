/** The Train tab and the live-run widget: curves, figures, progress and controls of a run. */

import { uid } from "../dom/dom";
import { useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo } from "preact/hooks";
import { FieldRow, TextControl, numberOf, numberProblem, useSlider } from "../controls/fields";
import { figure, grouped, seconds, short, si } from "../dom/format";
import { theme } from "../dom/theme";
import { Button, Holder, Icon, Select, useElapsed, useStart } from "../dom/view";
import type { ProblemData, RunData, SettingField } from "../kernel/contract";
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
};

const [RATE_MIN, RATE_MAX] = [1e-6, 1];
/** Without a value: a schedule changes the rate, and must not take away an invalid text or its reason. */
const RATE = { name: "learning rate", type: "float", value: null };

const EPOCH_MEAN = "Mean over the batches of the current epoch. The curve shows each batch.";
const AT_END = "On the validation data, at the end of the last complete epoch";
const FIGURES: readonly [name: string, label: string, hint: string][] = [
  ["loss", "epoch mean loss", EPOCH_MEAN],
  ["accuracy", "epoch mean accuracy", EPOCH_MEAN],
  ["speed", "steps/s", "Steps per second over the last two seconds, without compilation"],
  ["validation_loss", "validation loss", AT_END],
  ["validation_accuracy", "validation accuracy", AT_END],
  ["left", "time left", "Estimated time to the end of the run"],
];

const COMMANDS = ["train", "pause", "resume", "stop", "step_once", "set_learning_rate", "set_loss", "set_training"];

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

function RateControl({ kernel, run }: { kernel: Kernel; run: RunData }) {
  const id = useMemo(() => uid("rate"), []);
  const problem = useSignal("");
  /** The rate that was sent last; shown until the kernel replies. */
  const chosen = useSignal<number | null>(null);
  const range: [number, number] = run.learning_rate_is_relative ? [0.01, 100] : [RATE_MIN, RATE_MAX];
  const rate = kernel.busy("rate") ? (chosen.value ?? run.learning_rate) : run.learning_rate;
  const isOff = rate === null || kernel.isGone;
  const send = (value: number) => {
    chosen.value = value;
    kernel.latest("rate", "set_learning_rate", { value });
  };
  const slider = useSlider(rate, () => range, false, send);
  const parse = (text: string) => {
    problem.value = numberProblem(text, { type: "float", min: 0 });
    return problem.value ? undefined : numberOf(text);
  };
  const text = rate === null ? "" : short(rate);
  return (
    <>
      <label class="mnb-train-control">
        <span>{run.learning_rate_is_relative ? "learning rate ×" : "learning rate"}</span>
        <input
          {...slider.attributes}
          aria-label="Learning rate, logarithmic"
          aria-valuetext={text || undefined}
          data-mnb-action="train.rate"
          disabled={isOff}
        />
        <TextControl
          field={RATE}
          value={rate}
          send={(value) => send(value as number)}
          problem={problem}
          control={{ id }}
          shown={text}
          parse={parse}
          attributes={{
            class: "mnb-input mnb-number",
            inputMode: "decimal",
            "aria-label": "Learning rate",
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

/** The curves of loss and accuracy. */
function Plots(props: { curves: Curves; isLog: boolean; weight: number; canStart: boolean }) {
  const { curves, isLog, weight, canStart } = props;
  const [loss, accuracy] = useMemo(() => [createPlot("loss", false), createPlot("accuracy", true)] as const, []);
  const rows = useSignal(0);
  useStart(() => {
    const leave = curves.on(() => void rows.value++);
    return () => [leave, loss.destroy, accuracy.destroy].forEach((end) => end());
  });
  const has = curves.rows > 0;
  useLayoutEffect(() => {
    const column = (name: string) => curves.columns.get(name) ?? [];
    const [x, share, validation] = ["step", "accuracy", "validation_accuracy"].map(column) as [any, any, any];
    const scale = isLog ? "log" : "linear";
    loss.set({ x, train: column("loss"), validation: column("validation_loss") }, scale, weight);
    accuracy.set({ x, train: share, validation }, "linear", weight);
    loss.root.hidden = !has;
    accuracy.root.hidden = !has || ![...share, ...validation].some((value) => value !== null);
  }, [rows.value, isLog, weight]);
  useLayoutEffect(() => {
    loss.recreate();
    accuracy.recreate();
  }, [theme.value]);
  return (
    <div class="mnb-train-plots">
      <Holder class="mnb-train-curves" nodes={[loss.root, accuracy.root]} />
      <p class="mnb-hint mnb-train-hint" hidden={has}>
        {canStart ? "Curves appear after the first step." : "The run has no points yet."}
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
  };
}

export function Train({ kernel, curves, run: latest, canStart, loss }: TrainProps) {
  const run = shownRun(latest(), kernel.connection);
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
  const hasEnded = state === "stopped" || state === "failed";
  // The run trains another model or loss than the workbench shows.
  const isOld = canStart && latest().is_current_model === false;
  const [label, command] =
    state === "running"
      ? ["Pause", "pause"]
      : isOld
        ? ["Train this model", "train"]
        : state === "paused" || hasEnded
          ? ["Resume", "resume"]
          : [state === "done" ? "Train again" : "Train", "train"];
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
          {canStart && (
            <Button
              action="train.step"
              off={isGone || state === "running"}
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
                ? `${status} · epoch ${run.epoch} of ${run.epochs} · step ${step} of ${steps}`
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
          {FIGURES.map(([name, title, hint]) => (
            <div key={name} class={name === "loss" || name === "accuracy" ? "mnb-large" : ""} title={hint}>
              <dt>{title}</dt>
              <dd data-mnb-figure={name} title={String(figures[name]![1] ?? "")}>
                {figures[name]![0]}
              </dd>
            </div>
          ))}
        </dl>
        {loss && <Losses kernel={kernel} settings={loss()} />}
        <RateControl kernel={kernel} run={run} />
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
      </div>
      <Plots curves={curves} isLog={isLog.value} weight={weight.value} canStart={canStart} />
    </div>
  );
}
