/** Messages between kernel and page. Generated from the records of the kernel by `tools/contract.py`. */

export type Role = "forward" | "backward" | "update";

export type Source = "analytic" | "lowered" | "compiled" | "predicted" | "measured";

export type State = "empty" | "loading" | "ready" | "stale" | "failed" | "unavailable";

export type FieldValue = number | string | boolean | number[] | null;

export type PassRow = [number, string, string, number | null, number | null, number | null];

export type MarkedLine = [number, string, "kept" | "new" | "changed" | "gone", string[], string, boolean];

export type SettingChange = [string, string, FieldValue];

export const FIGURES = ["flops", "bytes_accessed", "transcendentals", "params", "time_s", "predicted_s"] as const;
export type Figure = (typeof FIGURES)[number];

/** Figures that rules count: a block without a row has 0. */
export const COUNTED: readonly Figure[] = ["flops", "bytes_accessed", "transcendentals"];

/** Figures that are offered first. */
export const MAIN: readonly Figure[] = ["flops", "bytes_accessed"];

/** Data that one device sends to others; missing where it is 0. */
export const COMMUNICATION = ["payload_bytes", "wire_bytes"] as const;
export type Communication = (typeof COMMUNICATION)[number];

export type Quantity = Figure | Communication;

export type Figures = Record<Figure, number | null> & Partial<Record<Communication, number | null>>;

export const FIGURE_TITLES: Record<Quantity, [title: string, unit: string, hint: string]> = {
  flops: ["FLOPs", "FLOP", "Floating-point operations of one run of the program"],
  bytes_accessed: ["Bytes", "B", "Bytes read and written in one run of the program"],
  transcendentals: ["Transcendentals", "", "Calls of exp, log, tanh, ..."],
  params: ["Params", "", "Number of trainable values"],
  time_s: ["Time", "s", "Time in one run of the program"],
  predicted_s: ["Predicted time", "s", "Time in one run of the program on the device, predicted and not measured"],
  payload_bytes: [
    "Payload bytes",
    "B",
    "Bytes of the buffers that one device passes to collectives in one run of the program",
  ],
  wire_bytes: [
    "Wire bytes",
    "B",
    "Bytes that one device sends to others in one run of the program, by ring algorithms",
  ],
};

/** All data that a workbench shows. */
export interface WorkbenchSnapshot extends ProgramSnapshot, Description {
  program: string;
  programs: string[];
  /** Why another program is shown than the selected one. */
  program_note: string;
  /** The loss that training minimises, the losses available by name, the output it applies to, all outputs. */
  loss: string;
  losses: string[];
  /** By output, for a model that trains on several; "" if it does not train on the output. */
  loss_of: Record<string, string>;
  output: string;
  outputs: string[];
  shapes: Record<string, (number | string)[]>;
  /** Of the inputs. */
  dtypes: Record<string, string>;
  graph: ModelGraph;
  autosave: AutosaveData | null;
  can_undo: boolean;
  can_redo: boolean;
  undo_label: string;
  redo_label: string;
  run: RunData;
  values: FedSample;
  training: SettingField[];
  templates: TemplateData[];
}

/** What workbench and explorer show of a program, except texts and graphs of stages. */
export interface ProgramSnapshot {
  /** Counts the snapshots of a widget. */
  revision?: number;
  /** Counts the designs. */
  version: number;
  name: string;
  backend: string;
  selection: string[];
  notice: ProblemData | null;
  problems: ProblemData[];
  cost: CostTableData | null;
  costs: CostsInfo;
  device: DeviceChoice;
  overlay: OverlayChoice;
  stages: Record<string, StageState>;
  /** Title, progress label and language. */
  stage_kinds: Record<string, [string, string, string]>;
  passes: RequestState;
  status: StatusFigures;
}

/** A `Diagnostic` for a front end. */
export interface ProblemData {
  code: string;
  summary: string;
  facts: [string, string][];
  advice: string;
  block: string;
  port: string;
  edge: [string, string] | null;
  fix?: Fix | null;
}

/** A button that mends a problem, and the command that it sends. */
export interface Fix {
  label: string;
  command: string;
  args: Record<string, unknown>;
  /** What the model is after it. */
  hint: string;
}

/** The cost of a program by one source. The rows add up to the total; the row of block "" is unattributed. */
export interface CostTableData {
  source: Source;
  rows: CostTableRow[];
  total: CostTableRow;
  /** Of each line of user Python, by `net.py:12`; missing lines are 0 or unknown. */
  lines: Record<string, CostOfLine>;
  /** On unknown figures. */
  notes: string[];
  stale: boolean;
}

/** The cost of a block without the blocks inside it. */
export interface CostTableRow extends CostTotal {
  /** "" for the unattributed part. */
  block: string;
  label: string;
  hue: number;
  roles?: Partial<Record<Role, CostOfRole>>;
  /** With the blocks inside, for a block that contains others. */
  total?: CostTotal;
}

/** The figures of a block or a program; communication of 0 bytes is missing. */
export interface CostTotal extends Figures {
  /** By figure, the number of equations without it; if above 0, the sum is a lower bound. */
  unknown?: Record<string, number>;
  /** Formulas of figures that depend on symbolic sizes, short and whole. */
  formulas?: Record<string, [string, string]>;
}

/** The figures in one part of the training step that are known and not 0. */
export interface CostOfRole extends Partial<Figures> {}

/** The figures of a line of Python that are known and not 0. */
export interface CostOfLine extends Partial<Figures> {
  /** By figure, the number of equations for which it is unknown. */
  unknown?: Record<string, number>;
}

/** The state of the costs that are computed on request. */
export interface CostsInfo {
  sources: Partial<Record<Source, RequestState>>;
  what_if: WhatIfState;
}

/** The state of something that is computed on request. */
export interface RequestState {
  state: State;
  /** Why there is no result, or what is being done. */
  message: string;
  /** Of the design that has the result; 0 without one. */
  version: number;
}

/** The state of the answer, and the settings of the whole program at a version. */
export interface WhatIfState extends RequestState {
  problem: ProblemData | null;
  /** Null before the first request. */
  settings: SettingField[] | null;
}

/** A setting with its current value. */
export interface SettingField extends FormField {
  /** If it differs from the name. */
  label?: string;
  value: FieldValue;
  /** Text for a choice without a value. */
  unset?: string;
}

/** A field of a form. */
export interface FormField {
  name: string;
  /** "int", "float", "bool", "choice", "ints" or "text". */
  type: string;
  min: number | null;
  max: number | null;
  choices: string[] | null;
  doc: string;
  optional: boolean;
}

/** The device that the program is compiled for, and those to choose from. */
export interface DeviceChoice {
  name: string;
  /** That of the code. */
  first: string;
  /** This machine. */
  local: string;
  choices: DeviceEntry[];
  /** Why no other device can be chosen; "" if one can. */
  fixed: string;
  missing: MissingCompiler | null;
  is_compiling: boolean;
  /** Whether the program fits, and how it was compiled. */
  facts: string[];
}

/** A device that the machine need not have. */
export interface DeviceEntry {
  name: string;
  title: string;
  memory_bytes: number | null;
  topologies: string[];
  /** Size of the compiler to install first; 0 if it is installed. */
  needs_bytes: number;
}

/** A device that was chosen, and whose compiler is not installed. */
export interface MissingCompiler {
  device: string;
  problem: ProblemData;
  /** False if the installed JAX names no compiler. */
  can_install: boolean;
  /** What pip does; "" while nothing is installed. */
  progress: string;
  /** Of the download. */
  share: number | null;
}

/** The overlay that is shown, and those to choose from. */
export interface OverlayChoice {
  /** "" for none. */
  name: string;
  /** Whether the number of a block excludes the blocks inside it, also in the table of costs. */
  own: boolean;
  /** Name and title. */
  choices: [string, string][];
}

/** State of a stage. */
export interface StageState {
  state: State;
  /** Of the design that the text belongs to; 0 without a text. */
  version: number;
  /** To compute the text. */
  elapsed_s: number | null;
  lines: number;
  /** Why the stage is not ready. */
  message: string;
}

/** Times of the steps in seconds, and the share of FLOPs attributed to blocks; null if unknown. */
export interface StatusFigures {
  trace_s: number | null;
  lower_s: number | null;
  /** Without code generation. */
  optimize_s: number | null;
  compile_s: number | null;
  attributed: number | null;
}

/** The part of a snapshot that only an edit changes. */
export interface Description {
  blocks: Record<string, BlockDetails>;
  kinds: Record<string, KindDetails>;
  palette: PaletteEntry[];
  initializers: string[];
  source: string;
}

/** The part of the inspector's data that differs between blocks of one kind. */
export interface BlockDetails extends BlockSummary {
  /** Of the fields that differ from their defaults. */
  values: Record<string, FieldValue>;
  inputs: PortData[];
  outputs: PortData[];
  params: ParameterData[];
  children: string[];
  /** Of plugins: label and text. */
  facts: [string, string][];
}

/** A block of an explored program. */
export interface BlockSummary {
  path: string;
  name: string;
  kind: string;
  hue: number;
}

/** A port with its shape. */
export interface PortData {
  port: string;
  shape: string;
}

/** A parameter or a state of a block. */
export interface ParameterData {
  /** Of the array in the model. */
  name: string;
  port: string;
  shape: string;
  count: number | null;
  /** Null for a state, which training updates in its own way. */
  is_trainable: boolean | null;
  /** Chosen by the user, or "". */
  initializer: string;
  /** Name of the initializer that is used. */
  usual: string;
  /** The other ports that read the same array. */
  shared: string[];
}

/** The part of the inspector's data that is the same for all blocks of a kind. */
export interface KindDetails {
  doc: string;
  formula: string;
  family: string;
  /** Of the family. */
  hue: number;
  fields: KindField[];
}

/** A field of a kind of blocks. */
export interface KindField extends FormField {
  default: FieldValue;
}

/** A kind of blocks in the palette. */
export interface PaletteEntry {
  kind: string;
  /** The family, which is also its colour on the canvas. */
  category: string;
  hue: number;
  is_common: boolean;
  summary: string;
  formula: string;
  /** Other names of the block, such as "dense fc". */
  words: string;
  /** Why a file of *My blocks* cannot be used. */
  problem?: string;
}

/** The graph of a workbench, with the keys of its open groups. */
export interface ModelGraph extends PackedGraph {
  opened: string[];
  /** By path, relative to the frame of the group around the block. */
  moved: Record<string, [number, number]>;
}

/** A graph in columns without those of default values; parents and ends are indices of boxes. */
export interface PackedGraph {
  title: string;
  is_model: boolean;
  roles: string[];
  shapes: string[];
  idle: [string, string][];
  boxes: Record<string, unknown[]>;
  flows: Record<string, unknown[]>;
  /** Data between the rounds of equal parts, which is not drawn. */
  rounds?: Record<string, unknown[]>;
}

/** The offer, and the state of the file. */
export interface AutosaveData {
  offer: AutosaveOffer | null;
  path: string;
  /** Why the file cannot be written. */
  problem: string;
  /** Number of edits made in the widget. */
  edits: number;
}

/** Edits saved by an earlier run of the cell. */
export interface AutosaveOffer {
  edits: number;
  /** Seconds since 1970. */
  saved_at: number;
  /** The latest edits, oldest first. */
  labels: string[];
  /** Unified diff from the source of the model in the cell. */
  difference: string;
  can_restore: boolean;
  /** Number of edits in the next older version. */
  older: number | null;
}

/** The state of a run. */
export interface RunData {
  /** The page sets the last three when the connection ends while the run is running or paused. */
  state: "none" | "idle" | "running" | "paused" | "stopped" | "done" | "failed" | "lost" | "closed" | "replaced";
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
  /** Whether the model has not changed since the run started. */
  is_current_model: boolean;
  knobs: KnobData[];
  /** Step and text of changed knobs, and of losses that are not finite. */
  marks: [number, string][];
  /** Latest metrics of a loop of `ml.track`; `None` for `ml.fit`. */
  latest: Record<string, number | null> | null;
}

/** A setting that can change while a run trains. */
export interface KnobData {
  name: string;
  value: number;
  /** Whether it is positive, and has a logarithmic slider. */
  log: boolean;
  start: number;
}

/** The sample that the model is fed with. */
export interface FedSample {
  is_shown: boolean;
  /** Index in the data, or seed of the random input. */
  sample: number;
  /** Number of samples; null for random inputs. */
  samples: number | null;
  /** Whether the user replaced numbers of the sample. */
  own: boolean;
  gradients: boolean;
  /** Why there are no values. */
  message: string;
  /** Counts the computed values. */
  version: number;
}

/** A template in the menu of a workbench. */
export interface TemplateData {
  name: string;
  title: string;
  summary: string;
  /** Of its picture: kind, column and row. */
  blocks: [string, number, number][];
  /** By index of the blocks. */
  wires: [number, number][];
}

/** All data that an explorer shows. */
export interface ExplorerSnapshot extends ProgramSnapshot {
  blocks: Record<string, BlockSummary>;
  graph_stage: string;
  graph_stages: string[];
  transforms: ComparedTransforms | null;
  tour: MomentData[];
}

/** The state of the comparison of transforms. */
export interface ComparedTransforms {
  state: State;
  message: string;
  /** For each step: whether the results agree, and a description. */
  compared: [boolean | null, string][];
}

/** A moment for a front end. `equations` are those of the selected line. */
export interface MomentData {
  stages: string[];
  block: string;
  equations: string[];
  caption: string;
  is_hidden: boolean;
}

/** The reply to the command with this id. */
export interface ReplyHead {
  id: number;
  ok: boolean;
  error: ProblemData | null;
}

/** A stage: instructions as columns of indices into tables of distinct values; `step` is the distance in lines. */
export interface PackedStage {
  text: string;
  columns: Record<string, number[]>;
  tables: Record<string, unknown[]>;
  equations: PackedEquations;
  /** Descriptions of operations by opcode. */
  help?: [string, string][];
  /** Regular expressions that occur in the text, with descriptions, in which $1 is the first group. */
  patterns?: [string, string][];
  shown?: ShownLines;
  /** In the first stage, which is searched: the kind of each block, by path. */
  kinds?: Record<string, string>;
}

/** The equations of a stage in columns; `tables` has the values of the columns of indices. */
export interface PackedEquations {
  id: string[];
  primitive: number[];
  block: number[];
  role: number[];
  source: string[];
  tables: Record<string, unknown[]>;
}

/** For a shortened text: the instructions on each line, the displayed one first. */
export interface ShownLines {
  line: number[];
  instructions: number[][];
}

/** A text of a stage; the data are a `PackedStage`. */
export interface StageTextHead {
  stage: string;
  version: number;
  /** Whether the text is the short form of optimized HLO. */
  short: boolean;
}

/** The graph of a stage, with the keys of its open groups. */
export interface GraphOfStage extends PackedGraph {
  opened: string[];
}

/** The stage of a graph, or of shares of the cost in the order of its boxes. */
export interface StageHead {
  stage: string;
}

/** An `Overlay`. Columns are in the order of `keys`. */
export interface OverlayData {
  name: string;
  title: string;
  unit: string;
  total: number | null;
  categories: string[];
  /** A number, the index of a category, "?" if unknown; null without a value. */
  values: (number | string | null)[];
  /** Indices of the values that are lower bounds. */
  bounds: number[];
  /** Texts that differ from the number, by index. */
  texts: Record<string, string>;
  notes: string[];
  keys: string[];
  /** Null if the overlay has only one convention. */
  own: boolean | null;
}

/** Identifies an overlay. */
export interface OverlayHead {
  /** "" for the graph of a model. */
  stage: string;
  name: string;
  own: boolean;
  /** Why there is no overlay. */
  problem: string;
  /** The model has errors or cannot be traced: old values are outdated. */
  is_stale: boolean;
}

/** The state of the run. */
export interface RunHead {
  run: RunData;
}

/** Rows of the training history; the data are columns of float64. */
export interface CurvesHead {
  from: number;
  columns: string[];
}

/** The source of costs, and the version of the design; the data are a `CostTableData`. */
export interface CostHead {
  source: Source;
  version: number;
}

/** The most expensive equations or instructions of a block. */
export interface CostDetails {
  rows: CostDetail[];
  /** Number of further rows. */
  left: number;
}

/** The cost of one equation or instruction. */
export interface CostDetail {
  id: string;
  opcode: string;
  role: Role | null;
  repeats: number | null;
  formula: string;
  /** Attributed to the block; a fusion may belong to several blocks. */
  share: number;
  figures: CostOfRole;
}

/** The block whose most expensive rows follow as `CostDetails`. */
export interface CostRowsHead {
  source: Source;
  block: string;
  figure: string;
}

/** A picture as data. */
export interface CostPicture {
  svg: string;
  /** The same numbers. */
  text: string;
  /** Why there is no picture. */
  reason: string;
}

/** The key that the client has chosen for a request. */
export interface KeyHead {
  key: string;
}

/** The formula for the FLOPs of a block, including all blocks inside it. */
export interface BlockFormula {
  /** Path of the block. */
  block: string;
  /** Version of the design. */
  version: number;
  /** The first summands of `whole`, as many as fit into one line. */
  short: string;
  /** The formula from `Cost.formula`; `""` if there is none. */
  whole: string;
  /** Groups of equations with one formula: those with unknown FLOPs first, then the most expensive first. */
  terms: FormulaTerm[];
  /** Pairs of a letter in the terms and its meaning. */
  legend: [string, string][];
  /** Number of terms not shown. */
  left: number;
  /** FLOPs of the terms not shown; `None` if unknown. */
  left_flops: number | null;
  /** Reason if the formula or its terms are missing, or `""`. */
  why: string;
  /** The formula, terms and legend. */
  text: string;
}

/** Equations of a block that share one formula. */
export interface FormulaTerm {
  /** FLOPs of one equation, with letters for sizes, as in `"2·M·N·K"`; `""` if unknown. */
  formula: string;
  /** Pairs of a letter and its value. */
  letters: [string, number | string][];
  /** How often these equations run, in total; `None` if unknown. */
  times: number | null;
  /** Part of the training step: `"forward"`, `"backward"` or `"update"`; `None` if the block has only one. */
  role: string | null;
  /** Opcodes of the equations. */
  opcodes: string[];
  /** Total FLOPs of the equations; `None` if unknown. */
  flops: number | null;
  /** Reason if the FLOPs are unknown, or `""`. */
  why: string;
}

/** The block whose FLOP formula follows as a `BlockFormula`. */
export interface FormulaHead {
  block: string;
  version: number;
}

/** The costs with other settings. */
export interface WhatIfAnswer {
  changes: SettingChange[];
  /** How the costs were computed. */
  how: string;
  rows: ComparedFigure[];
  /** The same figures from the compiler; null until requested. */
  compiled: ComparedFigure[] | null;
  problem: ProblemData | null;
  picture: CostPicture;
}

/** A figure before and after a change of settings. */
export interface ComparedFigure {
  /** A figure of costs, or "peak_bytes". */
  figure: string;
  before: number | null;
  after: number | null;
  /** Why it is unknown. */
  reason: string;
}

/** The passes of a version of the design; the data are `PassRow`s. */
export interface PassesHead {
  /** 0 before the passes were read. */
  version: number;
  /** Of the pass whose diff was requested last. */
  number: number;
}

/** The changes of one pass; the data are a text: `-` and `+` lines under the name of each computation. */
export interface DiffHead {
  version: number;
  number: number;
  /** Whether the text is truncated. */
  cut: boolean;
}

/** The answer to a search in all diffs; the data are the number and the matching lines, from 1, of each pass. */
export interface MatchesHead {
  version: number;
  text: string;
  /** Number of matching lines; the data may have fewer. */
  total: number;
}

/** The passes that changed an instruction. */
export interface HistoryHead {
  stage: string;
  index: number;
  /** Event, name and number of a pass. */
  events: [string, string, number][];
  /** Indices of the fusions of the optimized HLO that contain the instruction. */
  fused: number[];
  /** Outcomes that no pass caused. */
  became: string;
}

/** The explanation of a line of a stage, in the version of its latest text. */
export interface ExplanationHead {
  stage: string;
  index: number;
  version: number;
  code: string;
  /** Kind, statement, and the datum that it is made from. */
  clauses: [string, string, string][];
}

/** One transform. */
export interface TransformStepData {
  name: string;
  explanation: string;
  problem: ProblemData | null;
  before: TransformSide | null;
  after: TransformSide | null;
}

/** A jaxpr before or after a transform. */
export interface TransformSide {
  text: string;
  marks: MarkedLine[];
}

/** The steps of transforms follow as `TransformStepData`; `left_out` are transforms that are not shown. */
export interface TransformsHead {
  left_out: string[];
}

/** The format of a file, which is the data of the message, or why it could not be made. */
export interface ExportHead {
  format: string;
  problem: string;
}

/** The connection; the data are the shape of the output by kind of block, without the kinds that do not fit. */
export interface FitsHead {
  source: string;
}

/** What an edit would change. Numbers are differences; null if unknown. */
export interface Preview {
  /** Of the output of the added block, "" if unknown; null if the edit adds or selects no block. */
  shape: string | null;
  /** Why the edit fails, or a problem of the model after it; "" for none. */
  problem: string;
  params: number | null;
  /** Of one run of the program. */
  flops: number | null;
  /** Memory at the peak, estimated without compiling. */
  peak_bytes: number | null;
  /** False while FLOPs and memory are being counted. */
  is_counted: boolean;
}

/** One array. */
export interface ValuePicture {
  title: string;
  svg: string;
  /** Describes the picture. */
  about: string;
  /** Statistics. */
  rows: [string, string][];
}

/** The block whose values were requested; `""` for the inputs and outputs of the model. */
export interface ValueHead {
  block: string;
  version: number;
  /** By name, without the large ones. */
  inputs: Record<string, EditedInput>;
}

/** An input of the model that the user can draw or type. */
export interface EditedInput {
  shape: number[];
  /** Row by row. */
  numbers: number[];
}

/** Statistics of a parameter after training. */
export interface ParameterStatistics {
  name: string;
  mean: string;
  std: string;
  /** Of the values between equal steps from the least to the greatest. */
  counts: number[];
}

/** The parameters whose statistics were requested. */
export interface ParametersHead {
  names: string[];
  /** Path of the block whose values over time were requested. */
  block: string;
  /** Of the norms. */
  steps: number[];
  /** Of all parameters in the block, and of its output, by title, at each step. */
  norms: Record<string, (number | null)[]>;
}

/** Head and data by kind of message. */
export interface Messages {
  reply: [head: ReplyHead, data: undefined];
  stage: [head: StageTextHead, data: PackedStage];
  graph: [head: StageHead, data: GraphOfStage];
  graph_shares: [head: StageHead, data: (number | null)[]];
  overlay: [head: OverlayHead, data: OverlayData];
  run: [head: RunHead, data: undefined];
  curves: [head: CurvesHead, data: ArrayBuffer];
  cost: [head: CostHead, data: CostTableData];
  cost_rows: [head: CostRowsHead, data: CostDetails];
  cost_picture: [head: KeyHead, data: CostPicture];
  formula: [head: FormulaHead, data: BlockFormula];
  what_if: [head: KeyHead, data: WhatIfAnswer];
  passes: [head: PassesHead, data: PassRow[]];
  diff: [head: DiffHead, data: string];
  pass_matches: [head: MatchesHead, data: [number, number[]][]];
  instruction_history: [head: HistoryHead, data: undefined];
  explanation: [head: ExplanationHead, data: undefined];
  transforms: [head: TransformsHead, data: TransformStepData[]];
  export: [head: ExportHead, data: string];
  fits: [head: FitsHead, data: Record<string, string>];
  preview: [head: KeyHead, data: Preview];
  value: [head: ValueHead, data: ValuePicture[]];
  parameters: [head: ParametersHead, data: ParameterStatistics[]];
}
