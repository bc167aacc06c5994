/** What crosses the border to the kernel: the snapshot trait, the commands, the messages. */

export type Role = "forward" | "backward" | "update";
export type Origin = "tagged" | "inferred" | "kernel";
export type StageName = string;

export interface Port {
  name: string;
  x: number;
  y: number;
}

export interface GraphNode {
  path: string;
  name: string;
  kind: string;
  hue: number;
  x: number;
  y: number;
  w: number;
  h: number;
  label: string;
  shape: string;
  share: number | null;
  problem: number | null;
  group: boolean;
  expanded: boolean;
  repeat: number;
  inputs: Port[];
  outputs: Port[];
}

export interface GraphEdge {
  id: string;
  source: string;
  target: string;
  shape: string;
  points: [number, number][];
  problem: number | null;
}

export interface Graph {
  width: number;
  height: number;
  nodes: GraphNode[];
  edges: GraphEdge[];
}

export type FieldType = "int" | "float" | "bool" | "choice" | "ints" | "text";
export type FieldValue = number | string | boolean | number[] | null;

export interface Field {
  name: string;
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
  doc: string;
  formula: string;
  fields: Field[];
  inputs: { port: string; shape: string }[];
  outputs: { port: string; shape: string }[];
  params: { name: string; shape: string; count: number | null }[];
  children: string[];
}

export interface PaletteItem {
  kind: string;
  category: string;
  summary: string;
  formula: string;
}

/** A way of counting. */
export type Source = "analytic" | "lowered" | "compiled" | "measured";
export type Figure = "flops" | "bytes_accessed" | "transcendentals" | "params" | "time_s";
export type CostView = "table" | "treemap" | "roofline" | "memory" | "beside" | "what_if";
/** What one device sends to others: left out where it is 0. */
export type Communication = "payload_bytes" | "wire_bytes";
export type Quantity = Figure | Communication;
export type Figures = Record<Figure, number | null> & Partial<Record<Communication, number | null>>;

export interface CostRow extends Figures {
  block: string;
  label: string;
  hue: number;
  /** What of it is forward, backward and update. */
  roles?: Partial<Record<Role, Partial<Figures>>>;
  /** How many of its equations or instructions have no known figure: with any, the sum is a lower bound. */
  unknown?: Partial<Record<Quantity, number>>;
  /** What depends on sizes that have only names: a formula that fits a cell, and all of it. */
  formulas?: Partial<Record<Quantity, [short: string, whole: string]>>;
  /** Of a block that contains others: its total cost, with theirs. The figures above are its self cost. */
  total?: Figures & Pick<CostRow, "unknown" | "formulas">;
}

/** What a program costs by one way of counting: rows that add up to the total; the one of no block is what nobody caused. */
export interface Cost {
  source: Source;
  rows: CostRow[];
  total: CostRow;
  /** What each of the user's lines of Python costs, by `net.py:12`; what is missing is 0 or unknown. */
  lines?: Record<string, Partial<Figures>>;
  /** What is not known, and why. */
  notes: string[];
  stale: boolean;
}

/** How far the costs are that are made when somebody asks. */
export interface CostsInfo {
  sources: Partial<Record<Source, { state: StageState; message: string; version: number }>>;
  /** How far an answer is; and what can be another of the whole, as it was at a version: null before somebody asked. */
  what_if: { state: StageState; message: string; problem: Diagnostic | null; settings: Field[] | null; version: number };
}

/** What one equation or instruction costs, for a page. */
export interface CostDetail {
  id: string;
  opcode: string;
  role: Role | null;
  repeats: number | null;
  formula: string;
  /** What part of it is the block's: a fusion may be of several. */
  share: number;
  figures: Partial<Figures>;
}

/** Equations of a block that are counted alike. */
export interface FormulaTerm {
  formula: string;
  letters: [letter: string, value: number | string][];
  times: number | null;
  role: Role | null;
  opcodes: string[];
  flops: number | null;
  why: string;
}

/** By which formula the FLOPs of a block are counted. */
export interface BlockFormula {
  block: string;
  version: number;
  /** What fits a line, and all of it. */
  short: string;
  whole: string;
  terms: FormulaTerm[];
  /** What the letters of the terms mean. */
  legend: [letter: string, words: string][];
  left: number;
  left_flops: number | null;
  why: string;
  /** All of it as text. */
  text: string;
}

export interface Diagnostic {
  code: string;
  summary: string;
  facts: [string, string][];
  advice: string;
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

/** The last three are states of the page, by its connection, for a run that was running or paused at the end of it. */
export type RunState = "none" | "idle" | "running" | "paused" | "stopped" | "done" | "failed" | "lost" | "closed" | "replaced";

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
  /** Whether the model is still as it was when the run was started. */
  is_current_model?: boolean;
}

export interface StatusFigures {
  trace_s: number | null;
  lower_s: number | null;
  /** Of the optimized module without machine code, if it was made so. */
  optimize_s?: number | null;
  compile_s: number | null;
  flops: number | null;
  bytes: number | null;
  attributed: number | null;
}

/** Edits that an earlier run of the cell saved. */
export interface SavedEdits {
  edits: number;
  /** Seconds since 1970. */
  saved_at: number;
  /** The latest edits, oldest first. */
  labels: string[];
  source: string;
  /** A unified diff from the source of the code's model. */
  difference: string;
  can_restore: boolean;
  /** How many edits the next older version has; null if there is none. */
  older?: number | null;
}

export interface Autosave {
  offer: SavedEdits | null;
  path: string;
  /** Why the file cannot be written; empty if it can. */
  problem: string;
  /** How many edits the user has made in the widget. */
  edits: number;
}

export interface Snapshot {
  version: number;
  name: string;
  backend: string;
  program: string;
  programs: string[];
  /** Why another program is shown than the chosen one, or "". */
  program_note?: string;
  /** The loss that training makes small, of those that have a name; the output that it takes, of those there are. */
  loss?: string;
  losses?: string[];
  output?: string;
  outputs?: string[];
  shapes: Record<string, (number | string)[]>;
  graph: Graph;
  blocks: Record<string, BlockDetails>;
  palette: PaletteItem[];
  cost: Cost | null;
  problems: Diagnostic[];
  notice: Diagnostic | null;
  autosave?: Autosave | null;
  stages: Record<StageName, StageInfo>;
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
  /** Of a program whose transforms are stepped through: whether their numbers agree, step by step. */
  transforms?: { state: StageState; message: string; compared: [agrees: boolean | null, said: string][] } | null;
  /** What has to be done for each stage: "trace", "lower" or "compile". */
  needs?: Record<StageName, string>;
  graph_stage?: StageName;
  graph_stages?: StageName[];
}

/** [line, lines, opcode, equation ids, [block, share][], role, origin, transforms, lines of Python, lines of libraries], lines counted from 1. */
export type RawInstruction = [number, number, string, string[], [string, number][], Role | null, Origin | null, string[]?, string[]?, string[]?];

export interface RawStage {
  text: string;
  instructions: RawInstruction[];
  equations: Record<string, Equation>;
  /** What each operation does, in a line of plain words, for those of which there is something to say. */
  help?: [opcode: string, text: string][];
  /** For a text in short: the instructions of each line, the one that it shows first. Their own lines are of the full text. */
  shown?: [line: number, instructions: number[]][];
}

export interface Equation {
  primitive: string;
  block: string;
  role: Role | null;
  source: string;
}

/** What is seen of a graph: the picture comes as SVG. */
export interface SeenNode {
  key: string;
  /** What stands in `data-node` of the picture. */
  mark: string;
  name: string;
  blocks: string[];
  equations: string[];
  opens: boolean;
  opened: boolean;
}

/** Number, name, pipeline; instructions added, removed, rewritten, null while nobody has counted them. */
export type PassRow = [number, string, string, number | null, number | null, number | null];

export interface PassesInfo {
  state: StageState;
  message: string;
  /** Version of the design that they were read of. */
  version: number;
}

/** What one pass did; `cut` if the text is only the first part of it. */
export interface DiffHead {
  version: number;
  number: number;
  cut: boolean;
}

export type Mark = "kept" | "new" | "changed" | "gone";

/** An equation on one side of a transform: those that it came from, or that came from it, stand on the other side. */
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
  said: [what: string, name: string, number: number][];
  fused: number[];
  became: string;
}

export interface Reply {
  type: "reply";
  id: number;
  ok: boolean;
  error: Diagnostic | null;
}

/** The part of anywidget's model that we use. */
export interface WidgetModel {
  get(name: string): unknown;
  on(event: string, callback: (...args: any[]) => void): void;
  off(event: string, callback: (...args: any[]) => void): void;
  send(content: unknown, callbacks?: unknown, buffers?: unknown): void;
  widget_manager?: unknown;
}
