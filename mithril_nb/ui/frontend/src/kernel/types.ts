/** Types of the data exchanged with the kernel: the snapshot trait, commands and messages. */

import type { ModelGraph } from "./graph";

export type Role = "forward" | "backward" | "update";
export type Origin = "tagged" | "inferred" | "kernel";
export type StageName = string;

export type FieldType = "int" | "float" | "bool" | "choice" | "ints" | "text";
export type FieldValue = number | string | boolean | number[] | null;

export interface Field {
  name: string;
  /** Text of the label, if it differs from the name. */
  label?: string;
  type: FieldType;
  value: FieldValue;
  min?: number | null;
  max?: number | null;
  choices?: string[] | null;
  doc?: string;
  optional?: boolean;
}

export interface BlockDetails {
  path: string;
  name: string;
  kind: string;
  hue: number;
  /** The values of the fields that differ from their defaults. */
  values?: Record<string, FieldValue>;
  inputs: { port: string; shape: string }[];
  outputs: { port: string; shape: string }[];
  params: { name: string; shape: string; count: number | null }[];
  children: string[];
  /** Facts of plugins: pairs of label and text. */
  facts?: [name: string, value: string][];
}

/** The data that depends only on the kind of a block. */
export interface KindDetails {
  doc: string;
  formula: string;
  fields: (Omit<Field, "value"> & { default: FieldValue })[];
}

export interface PaletteItem {
  kind: string;
  category: string;
  summary: string;
  formula: string;
  /** Other names of the block, such as "dense fc". */
  words: string;
}

/** The source of a cost figure. */
export type Source = "analytic" | "lowered" | "compiled" | "measured";
export type Figure = "flops" | "bytes_accessed" | "transcendentals" | "params" | "time_s";
export type CostView = "table" | "treemap" | "roofline" | "memory" | "beside" | "what_if";
/** Data that one device sends to others; missing where it is 0. */
export type Communication = "payload_bytes" | "wire_bytes";
export type Quantity = Figure | Communication;
export type Figures = Record<Figure, number | null> & Partial<Record<Communication, number | null>>;

export interface CostRow extends Figures {
  block: string;
  label: string;
  hue: number;
  /** The parts of the cost in the forward pass, backward pass and update. */
  roles?: Partial<Record<Role, Partial<Figures>>>;
  /** Number of equations or instructions without a figure; if above 0, the sum is a lower bound. */
  unknown?: Partial<Record<Quantity, number>>;
  /** Formulas of figures that depend on symbolic sizes: one short enough for a cell, and the full one. */
  formulas?: Partial<Record<Quantity, [short: string, whole: string]>>;
  /** The cost with the blocks inside, for a block that contains others. The figures above are the cost without them. */
  total?: Figures & Pick<CostRow, "unknown" | "formulas">;
}

/** The cost of a program by one source. The rows add up to the total; the row with block "" is unattributed. */
export interface Cost {
  source: Source;
  rows: CostRow[];
  total: CostRow;
  /** The cost of each line of user Python, by `net.py:12`; missing lines are 0 or unknown. */
  lines?: Record<string, Partial<Figures> & Pick<CostRow, "unknown">>;
  /** The unknown figures, with reasons. */
  notes: string[];
  stale: boolean;
}

/** The state of the costs that are computed on request. */
export interface CostsInfo {
  sources: Partial<Record<Source, { state: StageState; message: string; version: number }>>;
  /** The state of the comparison, and the settings of the whole program at a version; null before the first request. */
  what_if: {
    state: StageState;
    message: string;
    problem: Diagnostic | null;
    settings: Field[] | null;
    version: number;
  };
}

/** The cost of one equation or instruction. */
export interface CostDetail {
  id: string;
  opcode: string;
  role: Role | null;
  repeats: number | null;
  formula: string;
  /** Share attributed to the block; a fusion may belong to several blocks. */
  share: number;
  figures: Partial<Figures>;
}

/** Equations of a block that share one cost formula. */
export interface FormulaTerm {
  formula: string;
  letters: [letter: string, value: number | string][];
  times: number | null;
  role: Role | null;
  opcodes: string[];
  flops: number | null;
  why: string;
}

/** The FLOP formula of a block. */
export interface BlockFormula {
  block: string;
  version: number;
  /** The formula shortened to one line, and in full. */
  short: string;
  whole: string;
  terms: FormulaTerm[];
  /** The meaning of each letter in the terms. */
  legend: [letter: string, meaning: string][];
  left: number;
  left_flops: number | null;
  why: string;
  /** The formula, terms and legend as text. */
  text: string;
}

export interface Diagnostic {
  code: string;
  summary: string;
  facts: [string, string][];
  advice: string;
  /** The command that mends the problem, for a button. */
  fix?: { label: string; command: string; args: Record<string, unknown> } | null;
  kind?: string;
  block?: string | null;
  port?: string | null;
  edge?: [string, string] | null;
}

export type StageState = "ready" | "loading" | "stale" | "failed" | "unavailable" | "empty";

export interface StageInfo {
  state: StageState;
  version: number;
  elapsed_s: number | null;
  lines: number;
  message: string;
}

/** The front end sets the last three when the connection ends while the run is running or paused. */
export type RunState =
  "none" | "idle" | "running" | "paused" | "stopped" | "done" | "failed" | "lost" | "closed" | "replaced";

export interface Run {
  state: RunState;
  epoch: number;
  epochs: number;
  step: number;
  steps: number;
  loss: number | null;
  accuracy: number | null;
  validation_loss: number | null;
  validation_accuracy: number | null;
  steps_per_s: number | null;
  left_s: number | null;
  learning_rate: number | null;
  learning_rate_is_relative: boolean;
  message: string;
  points: number;
  /** True if the model has not changed since the run started. */
  is_current_model?: boolean;
}

export interface StatusFigures {
  trace_s: number | null;
  lower_s: number | null;
  /** Time to optimise the module without code generation; null if XLA compiled it in full. */
  optimize_s?: number | null;
  compile_s: number | null;
  attributed: number | null;
}

/** Edits saved by an earlier run of the cell. */
export interface SavedEdits {
  edits: number;
  /** Seconds since 1970. */
  saved_at: number;
  /** The latest edits, oldest first. */
  labels: string[];
  source: string;
  /** Unified diff from the source of the model in the cell. */
  difference: string;
  can_restore: boolean;
  /** Number of edits in the next older version; null if there is none. */
  older?: number | null;
}

export interface Autosave {
  offer: SavedEdits | null;
  path: string;
  /** The reason the file cannot be written, or "". */
  problem: string;
  /** Number of edits made in the widget. */
  edits: number;
}

export interface Snapshot {
  /** Counts the snapshots of a widget; `version` counts the designs. */
  revision?: number;
  version: number;
  name: string;
  backend: string;
  program: string;
  programs: string[];
  /** The reason a different program is shown than the selected one, or "". */
  program_note?: string;
  /** The loss that training minimises, the losses available by name, the output it applies to, and all outputs. */
  loss?: string;
  losses?: string[];
  output?: string;
  outputs?: string[];
  shapes: Record<string, (number | string)[]>;
  graph: ModelGraph;
  blocks: Record<string, BlockDetails>;
  /** The kinds of the blocks. */
  kinds?: Record<string, KindDetails>;
  palette: PaletteItem[];
  cost: Cost | null;
  problems: Diagnostic[];
  notice: Diagnostic | null;
  autosave?: Autosave | null;
  stages: Record<StageName, StageInfo>;
  /** Title, progress label and language of each stage. */
  stage_kinds: Record<StageName, [title: string, verb: string, language: string]>;
  source: string;
  selection: string[];
  can_undo: boolean;
  can_redo: boolean;
  undo_label: string;
  redo_label?: string;
  run: Run;
  status: StatusFigures;
  passes?: PassesInfo;
  costs?: CostsInfo;
  overlay?: { name: string; own: boolean; choices: [name: string, title: string][] };
  /** For a program with transforms: the numerical comparison of each step. */
  transforms?: { state: StageState; message: string; compared: [agrees: boolean | null, description: string][] } | null;
  graph_stage?: StageName;
  graph_stages?: StageName[];
}

/**
 * [line, lines, opcode, equation ids, [block, share][], role, origin, transforms, lines of Python, lines of libraries],
 * lines counted from 1. In the first stage also dtypes, FLOPs, accessed bytes and bytes of the results.
 */
export type RawInstruction = [
  number,
  number,
  string,
  string[],
  [string, number][],
  Role | null,
  Origin | null,
  string[]?,
  string[]?,
  string[]?,
  string[]?,
  (number | null)?,
  (number | null)?,
  (number | null)?,
];

export interface RawStage {
  text: string;
  instructions: RawInstruction[];
  equations: Record<string, Equation>;
  /** One-line descriptions of operations that have one. */
  help?: [opcode: string, text: string][];
  /** In the first stage: the kind of each block, by path. */
  kinds?: Record<string, string>;
  /**
   * For a shortened text: the instructions on each line, the displayed one first. `instructions` gives their lines in
   * the full text.
   */
  shown?: [line: number, instructions: number[]][];
}

export interface Equation {
  primitive: string;
  block: string;
  role: Role | null;
  source: string;
}

/** Number, name, pipeline; instructions added, removed, rewritten (null if not counted yet). */
export type PassRow = [number, string, string, number | null, number | null, number | null];

export interface PassesInfo {
  state: StageState;
  message: string;
  /** Version of the design whose passes were read. */
  version: number;
}

/** The changes of one pass; `cut` is true if the text is truncated. */
export interface DiffHead {
  version: number;
  number: number;
  cut: boolean;
}

/** The answer to a search in all diffs; the data lists the number and the matching lines of each pass. */
export interface PassMatches {
  version: number;
  text: string;
  /** Number of matching lines; the data may have fewer. */
  total: number;
}

export type Mark = "kept" | "new" | "changed" | "gone";

/** An equation on one side of a transform; `others` are the related equations on the other side. */
export type MarkedLine = [line: number, id: string, mark: Mark, others: string[], note: string, isInferred: boolean];

export interface TransformSide {
  text: string;
  marks: MarkedLine[];
}

export interface TransformStep {
  name: string;
  explanation: string;
  problem: Diagnostic | null;
  before: TransformSide | null;
  after: TransformSide | null;
}

export interface InstructionHistory {
  stage: StageName;
  index: number;
  events: [event: string, pass: string, number: number][];
  fused: number[];
  became: string;
}

export interface Reply {
  type: "reply";
  id: number;
  ok: boolean;
  error: Diagnostic | null;
}

/** The part of anywidget's model that the front end uses. */
export interface WidgetModel {
  get(name: string): unknown;
  set(name: string, value: unknown, options?: { silent: boolean }): void;
  on(event: string, callback: (...args: any[]) => void): void;
  off(event: string, callback: (...args: any[]) => void): void;
  send(content: unknown, callbacks?: unknown, buffers?: unknown): void;
  widget_manager?: unknown;
}

/** The arguments that a host passes to a widget that it shows. */
export interface Mounted {
  model: WidgetModel;
  el: HTMLElement;
}
