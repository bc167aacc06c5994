/** The Train tab and the live-run widget: curves, figures, progress and controls of a run. */

import { numberOf, numberProblem } from "../controls/fields";
import { together } from "../dom/calls";
import { Clock } from "../dom/clock";
import { attr, choose, h, icon, ICONS, text } from "../dom/dom";
import { figure, fromSlider, seconds, short, si, toSlider } from "../dom/format";
import type { Connection, Kernel } from "../kernel/kernel";
import type { ProblemData, RunData } from "../kernel/contract";
import type { Curves } from "./curves";
import { Plot } from "./plot";

const RATE_MIN = 1e-6;
const RATE_MAX = 1;

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

const COMMANDS = ["train", "pause", "resume", "stop", "step_once", "set_learning_rate", "set_loss"];

const STATE_LABELS: Record<string, string> = {
  none: "not started",
  idle: "ready",
  running: "running",
  paused: "paused",
  stopped: "stopped",
  done: "done",
  failed: "failed",
  lost: "lost with the kernel",
};

/** Return the run to show: if the connection ended while it was running or paused, with another state and a message. */
function shownRun(run: RunData, connection: Connection): RunData {
  if (connection === "lost" && (run.state === "done" || run.state === "stopped")) {
    return {
      ...run,
      message: [run.message, "The trained parameters are lost with the kernel unless you saved them."]
        .filter(Boolean)
        .join(" "),
    };
  }
  if (run.state !== "running" && run.state !== "paused") return run;
  if (connection === "replaced") return { ...run, state: "replaced", message: "Replaced by a newer widget." };
  if (connection === "closed")
    return { ...run, state: "closed", message: "This widget was closed and does not follow the run any more." };
  // A run is a thread in the kernel, so it ends with the kernel.
  if (connection === "lost")
    return {
      ...run,
      state: "lost",
      message:
        `The run ended with the kernel at step ${run.step.toLocaleString("en-US")}. Unsaved parameters ` + `are lost.`,
    };
  return run;
}

/** Format a diagnostic, one part per line. */
function linesOf({ summary, facts, advice }: ProblemData): string {
  return [summary, ...facts.map(([name, fact]) => `${name}: ${fact}`), ...(advice ? [`Try: ${advice}`] : [])].join(
    "\n",
  );
}

export interface TrainOptions {
  kernel: Kernel;
  curves: Curves;
  run: () => RunData;
  /** True if this widget can start and step runs; a live-run widget can only pause, resume and stop. */
  canStart: boolean;
  /** The loss and the available losses; missing in a live-run widget, whose loss is fixed. */
  loss?: () => { loss?: string; losses?: string[] };
}

export class Train {
  readonly root: HTMLElement;
  readonly #loss = new Plot("loss", false);
  readonly #accuracy = new Plot("accuracy", true);
  readonly #state = h("span", { class: "mnb-run-state", role: "status" });
  readonly #bar = h("i");
  readonly #progress = h(
    "div",
    { class: "mnb-progress", role: "progressbar", "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100 },
    this.#bar,
  );
  readonly #figures = h("dl", { class: "mnb-run-figures" });
  readonly #message = h("p", { class: "mnb-inline-problem", hidden: true, role: "alert" });
  /** The error of the latest command of this panel, beside its buttons: the notice above may be out of view. */
  readonly #error = h("p", { class: "mnb-command-error", hidden: true, role: "alert" });
  readonly #run: HTMLButtonElement;
  readonly #restart: HTMLButtonElement;
  readonly #step: HTMLButtonElement;
  readonly #stop: HTMLButtonElement;
  readonly #rate: HTMLInputElement;
  readonly #rateText: HTMLInputElement;
  readonly #rateLabel = h("span");
  readonly #restartLabel = document.createTextNode("");
  readonly #hint = h("p", { class: "mnb-hint mnb-train-hint" });
  readonly #values = new Map<string, HTMLElement>();
  readonly #starting = new Clock((elapsed) => {
    this.#wait = elapsed;
    this.update();
  });
  readonly #lossMenu = h("select", { class: "mnb-input", "data-mnb-action": "train.loss" });
  #wait: string | null = null;
  #scale: "linear" | "log" = "log";
  #weight = 0;
  readonly destroy: () => void;

  constructor(private readonly options: TrainOptions) {
    const { kernel } = options;
    this.#run = h("button", {
      type: "button",
      class: "mnb-button mnb-primary",
      "data-mnb-action": "train.run",
      onclick: () => this.toggle(),
    });
    this.#restart = h(
      "button",
      {
        type: "button",
        class: "mnb-button",
        "data-mnb-action": "train.restart",
        onclick: () => this.#send(this.#isOld ? "resume" : "train"),
      },
      icon(ICONS.play),
      this.#restartLabel,
    );
    this.#step = h(
      "button",
      {
        type: "button",
        class: "mnb-button",
        "data-mnb-action": "train.step",
        onclick: () => void kernel.send("step_once", {}),
      },
      icon(ICONS.step),
      "One step",
    );
    this.#stop = h(
      "button",
      {
        type: "button",
        class: "mnb-button",
        "data-mnb-action": "train.stop",
        onclick: () => void kernel.send("stop", {}),
      },
      icon(ICONS.stop),
      "Stop",
    );
    this.#rate = h("input", {
      type: "range",
      class: "mnb-slider",
      min: 0,
      max: 1000,
      step: 1,
      "aria-label": "Learning rate, logarithmic",
      "data-mnb-action": "train.rate",
    });
    this.#rateText = h("input", {
      type: "text",
      inputmode: "decimal",
      class: "mnb-input mnb-number",
      "aria-label": "Learning rate",
      autocomplete: "off",
    });
    this.#lossMenu.addEventListener("change", () => void kernel.send("set_loss", { loss: this.#lossMenu.value }));
    this.#rate.addEventListener("input", () => {
      const value = fromSlider(Number(this.#rate.value), ...this.#rateRange(), false);
      this.#rateText.value = short(value);
      attr(this.#rate, "aria-valuetext", short(value));
      kernel.latest("rate", "set_learning_rate", { value });
    });
    const rateProblem = h("p", { class: "mnb-field-problem", role: "alert", hidden: true });
    const commitRate = (): void => {
      const raw = this.#rateText.value.trim();
      const problem = numberProblem(raw, { type: "float", min: 0 });
      text(rateProblem, problem);
      rateProblem.hidden = problem === "";
      attr(this.#rateText, "aria-invalid", problem ? "true" : null);
      if (!rateProblem.isConnected) this.#rateText.parentElement?.after(rateProblem);
      if (!problem) kernel.latest("rate", "set_learning_rate", { value: numberOf(raw) });
    };
    this.#rateText.addEventListener("change", commitRate);
    this.#rateText.addEventListener("keydown", (event) => {
      if (event.key === "Enter") commitRate();
    });
    const log = h(
      "button",
      { type: "button", class: "mnb-toggle", "aria-pressed": "true", "data-mnb-action": "train.log" },
      "log loss",
    );
    log.addEventListener("click", () => {
      this.#scale = this.#scale === "log" ? "linear" : "log";
      attr(log, "aria-pressed", String(this.#scale === "log"));
      this.#draw();
    });
    const smoothing = h("input", {
      type: "range",
      class: "mnb-slider",
      min: 0,
      max: 99,
      step: 1,
      value: 0,
      "aria-label": "Smoothing",
      "data-mnb-action": "train.smooth",
    });
    smoothing.addEventListener("input", () => {
      this.#weight = Number(smoothing.value) / 100;
      attr(smoothing, "aria-valuetext", `${smoothing.value} %`);
      this.#draw();
    });
    for (const [name, label, hint] of FIGURES) {
      const value = h("dd", { "data-mnb-figure": name });
      this.#values.set(name, value);
      this.#figures.append(
        h(
          "div",
          { class: name === "loss" || name === "accuracy" ? "mnb-large" : "", title: hint },
          h("dt", {}, label),
          value,
        ),
      );
    }
    this.root = h(
      "div",
      { class: "mnb-train", "data-mnb-part": "train", tabindex: -1 },
      h(
        "div",
        { class: "mnb-train-side" },
        h(
          "div",
          { class: "mnb-row mnb-wrap" },
          this.#run,
          this.#restart,
          options.canStart ? this.#step : null,
          this.#stop,
        ),
        this.#error,
        h("div", { class: "mnb-progress-row" }, this.#progress, this.#state),
        this.#message,
        this.#figures,
        options.loss ? h("label", { class: "mnb-train-control" }, h("span", {}, "loss"), this.#lossMenu) : null,
        h("label", { class: "mnb-train-control" }, this.#rateLabel, this.#rate, this.#rateText),
        h("label", { class: "mnb-train-control" }, h("span", {}, "smoothing"), smoothing, log),
      ),
      h("div", { class: "mnb-train-plots" }, this.#loss.root, this.#accuracy.root, this.#hint),
    );
    this.destroy = together(
      options.curves.on(() => this.#draw()),
      kernel.onReply((name, { ok, error }, isEdit) => {
        if (error ? COMMANDS.includes(name) : ok && isEdit) this.#showError(error);
      }),
      () => this.#starting.stop(),
      () => this.#loss.destroy(),
      () => this.#accuracy.destroy(),
    );
    this.update();
    this.#draw();
  }

  /** Start, pause or resume the run, as the main button shows: a new run trains the model that is shown. */
  toggle(): void {
    if (!this.#run.hasAttribute("aria-disabled"))
      this.#send(({ Pause: "pause", Resume: "resume" } as const)[this.#run.dataset["label"]!] ?? "train");
  }

  /** Whether the run trains another model or loss than the workbench shows. */
  get #isOld(): boolean {
    return this.options.canStart && this.options.run().is_current_model === false;
  }

  #send(command: "pause" | "resume" | "train"): void {
    // Starting may compile, so show a clock until the kernel replies.
    this.#starting.run(true);
    void this.options.kernel.send(command, {}).then(() => this.#starting.run(false));
  }

  #showError(reason: ProblemData | null): void {
    this.#error.hidden = reason === null;
    text(this.#error, reason ? linesOf(reason) : "");
  }

  /** Update the colours of the plots after a theme change. */
  recolour(): void {
    this.#loss.recreate();
    this.#accuracy.recreate();
  }

  update(): void {
    const { connection, isGone } = this.options.kernel;
    const run = shownRun(this.options.run(), connection);
    const { state } = run;
    const isActive = state === "running" || state === "paused";
    const hasEnded = state === "stopped" || state === "failed";
    const isOld = this.#isOld;
    const label =
      state === "running"
        ? "Pause"
        : isOld
          ? "Train this model"
          : state === "paused" || hasEnded
            ? "Resume"
            : state === "done"
              ? "Train again"
              : "Train";
    this.#restart.hidden = !(hasEnded || (isOld && state === "paused")) || !this.options.canStart;
    this.#restartLabel.data = isOld ? "Resume the earlier model" : "Train from scratch";
    if (this.#run.dataset["label"] !== label) {
      this.#run.dataset["label"] = label;
      this.#run.replaceChildren(icon(state === "running" ? ICONS.pause : ICONS.play), label);
    }
    const enable = (button: HTMLButtonElement, isEnabled: boolean): void =>
      attr(button, "aria-disabled", isEnabled ? null : "true");
    enable(this.#run, !isGone && (isActive || hasEnded || this.options.canStart));
    enable(this.#restart, !isGone);
    enable(this.#step, !isGone && state !== "running");
    enable(this.#stop, isActive);
    attr(this.root, "data-mnb-run", state);
    const done = run.steps > 0 ? Math.min(1, run.step / run.steps) : 0;
    this.#bar.style.width = `${100 * done}%`;
    attr(this.#progress, "aria-valuenow", Math.round(100 * done));
    const status = (STATE_LABELS[state] ?? state) + (run.is_current_model === false ? ", earlier model" : "");
    text(
      this.#state,
      this.#wait
        ? `waiting for the kernel: ${this.#wait}`
        : run.steps > 0
          ? `${status} · epoch ${run.epoch} of ${run.epochs} · step ${run.step.toLocaleString("en-US")} of ` +
            `${run.steps.toLocaleString("en-US")}`
          : status,
    );
    this.#message.hidden = run.message === "";
    this.#message.classList.toggle("mnb-plain", state !== "failed" && state !== "lost");
    text(this.#message, run.message);
    const share = (value: number | null): string => (value === null ? "–" : `${(100 * value).toFixed(1)} %`);
    this.#setFigure("loss", figure(run.loss), String(run.loss ?? ""));
    this.#setFigure("validation_loss", figure(run.validation_loss), String(run.validation_loss ?? ""));
    this.#setFigure("accuracy", share(run.accuracy), String(run.accuracy ?? ""));
    this.#setFigure("validation_accuracy", share(run.validation_accuracy), String(run.validation_accuracy ?? ""));
    this.#setFigure("speed", run.steps_per_s === null ? "–" : si(run.steps_per_s), String(run.steps_per_s ?? ""));
    this.#setFigure("left", isActive ? seconds(run.left_s) : "–", "");
    this.#paintRate(run);
    const { loss = "", losses = [] } = this.options.loss?.() ?? {};
    choose(this.#lossMenu, losses, loss);
  }

  #setFigure(name: string, value: string, title: string): void {
    const element = this.#values.get(name)!;
    text(element, value);
    attr(element, "title", title || null);
  }

  #rateRange(): [number, number] {
    return this.options.run().learning_rate_is_relative ? [0.01, 100] : [RATE_MIN, RATE_MAX];
  }

  #paintRate(run: RunData): void {
    text(this.#rateLabel, run.learning_rate_is_relative ? "learning rate ×" : "learning rate");
    const active = (this.root.getRootNode() as Document | ShadowRoot).activeElement;
    const rate = run.learning_rate;
    this.#rate.disabled = this.#rateText.disabled = rate === null || this.options.kernel.isGone;
    if (rate === null || this.options.kernel.busy("rate")) return;
    if (active !== this.#rate) this.#rate.value = String(toSlider(rate, ...this.#rateRange()));
    attr(this.#rate, "aria-valuetext", short(rate));
    if (active !== this.#rateText) this.#rateText.value = short(rate);
  }

  #draw(): void {
    const { curves } = this.options;
    const column = (name: string): (number | null)[] => curves.columns.get(name) ?? [];
    const x = column("step");
    this.#loss.set({ x, train: column("loss"), validation: column("validation_loss") }, this.#scale, this.#weight);
    this.#accuracy.set(
      { x, train: column("accuracy"), validation: column("validation_accuracy") },
      "linear",
      this.#weight,
    );
    const has = curves.rows > 0;
    this.#hint.hidden = has;
    this.#loss.root.hidden = !has;
    this.#accuracy.root.hidden =
      !has || !["accuracy", "validation_accuracy"].some((name) => column(name).some((value) => value !== null));
    text(this.#hint, this.options.canStart ? "Curves appear after the first step." : "The run has no points yet.");
  }
}
