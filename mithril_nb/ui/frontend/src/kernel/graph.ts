/** A graph in levels as the kernel sends it, to be laid out here: `viz/diagrams/nested.py` in TypeScript. */

export interface Box {
  key: string;
  name: string;
  kind: string;
  w: number;
  h: number;
  title_w: number;
  /** Key of the box around this box; `""` at the top. */
  parent: string;
  is_group: boolean;
  hue: number;
  path: string;
  label: string;
  shape: string;
  repeat: number;
  share: number | null;
  problem: number | null;
  counts: number[];
  blocks: string[];
  equations: string[];
  inputs: string[];
  outputs: string[];
}

export interface Flow {
  source: string;
  target: string;
  out: string;
  into: string;
  roles: number[];
  shapes: number[];
  problem: number | null;
  /** Key of the loop if the data is for its next round, else `""`. */
  loop: string;
}

export type Columns<T> = { [K in keyof T]?: unknown[] };

/** The graph as the kernel sends it: columns without those of default values; parents and ends are indices of boxes. */
export interface PackedGraph {
  title: string;
  is_model: boolean;
  roles: string[];
  shapes: string[];
  idle: [string, string][];
  boxes: Columns<Box>;
  flows: Columns<Flow>;
  /** Data that flows between the rounds of equal parts, which is not drawn. */
  rounds?: Columns<Flow>;
}

/** The graph of a workbench, with the keys of its open groups and the positions that the user chose, by path. */
export interface ModelGraph extends PackedGraph {
  opened: string[];
  /** Relative to the frame of the group around the block. */
  moved: Record<string, [x: number, y: number]>;
}

export const NO_GRAPH: ModelGraph = {
  title: "",
  is_model: true,
  roles: [],
  shapes: [],
  idle: [],
  boxes: {},
  flows: {},
  opened: [],
  moved: {},
};
