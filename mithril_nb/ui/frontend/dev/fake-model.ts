/** A fake anywidget model without a kernel: records the sent commands and replies as a session would. */

import type { PassRow } from "../src/kernel/contract";
import type { RawStage } from "../src/kernel/messages";
import type { Snapshot, WidgetModel } from "../src/kernel/model";

export interface Fixture {
  snapshot: Snapshot;
  stages: Record<string, RawStage>;
}

const PASSES: PassRow[] = [
  [0, "algsimp", "simplification", 3, 1, 0],
  [1, "fusion", "fusion", 9, 20, 4],
];

type Listener = (...args: any[]) => void;

export interface Sent {
  type: string;
  id: number;
  name: string;
  args: Record<string, any>;
}

/** Encode a stage as the kernel does: columns of indices into tables of distinct values. */
export function columnsOf(raw: RawStage): unknown {
  const table = (values: unknown[]): [number[], unknown[]] => {
    const places = new Map<string, number>();
    const distinct: unknown[] = [];
    const column = values.map((value) => {
      const key = JSON.stringify(value ?? null);
      if (!places.has(key)) places.set(key, distinct.push(value ?? null) - 1);
      return places.get(key)!;
    });
    return [column, distinct];
  };
  const columns: Record<string, unknown> = {
    step: raw.instructions.map((one, i) => one[0] - (raw.instructions[i - 1]?.[0] ?? 0)),
    lines: raw.instructions.map((one) => one[1]),
  };
  const tables: Record<string, unknown> = {};
  for (const [i, name] of ["opcode", "equations", "shares", "role", "origin", "transforms", "source"].entries()) {
    [columns[name], tables[name]] = table(raw.instructions.map((one) => one[i + 2] ?? (i > 4 ? [] : null)));
  }
  for (const [i, name] of ["library", "dtypes", "flops", "bytes", "memory"].entries()) {
    if (raw.instructions.some((one) => one[i + 9] !== undefined))
      [columns[name], tables[name]] = table(raw.instructions.map((one) => one[i + 9]));
  }
  const rows = Object.entries(raw.equations);
  const [primitive, primitives] = table(rows.map(([, one]) => one.primitive));
  const [block, blocks] = table(rows.map(([, one]) => one.block));
  const [role, roles] = table(rows.map(([, one]) => one.role));
  const equations = {
    id: rows.map(([id]) => id),
    primitive,
    block,
    role,
    source: rows.map(([, one]) => one.source),
    tables: { primitive: primitives, block: blocks, role: roles },
  };
  const shown = raw.shown && {
    line: raw.shown.map(([line]) => line),
    instructions: raw.shown.map(([, indices]) => indices),
  };
  return {
    text: raw.text,
    columns,
    tables,
    equations,
    ...(raw.kinds ? { kinds: raw.kinds } : {}),
    ...(shown ? { shown } : {}),
  };
}

export async function gzip(text: string): Promise<DataView> {
  const stream = new Blob([text]).stream().pipeThrough(new CompressionStream("gzip"));
  return new DataView(await new Response(stream).arrayBuffer());
}

export class FakeModel implements WidgetModel {
  readonly sent: Sent[] = [];
  widget_manager?: unknown;
  /** True if commands get replies. */
  alive = true;
  private readonly listeners = new Map<string, Set<Listener>>();

  constructor(readonly traits: Record<string, any>) {}

  get(name: string): unknown {
    return this.traits[name];
  }

  on(event: string, listener: Listener): void {
    const set = this.listeners.get(event) ?? new Set();
    this.listeners.set(event, set.add(listener));
  }

  off(event: string, listener: Listener): void {
    this.listeners.get(event)?.delete(listener);
  }

  /** Number of attached listeners over all events. */
  get listening(): number {
    return [...this.listeners.values()].reduce((sum, set) => sum + set.size, 0);
  }

  emit(event: string, ...args: any[]): void {
    for (const listener of [...(this.listeners.get(event) ?? [])]) listener(...args);
  }

  set(name: string, value: unknown, { silent } = { silent: false }): void {
    this.traits[name] = value;
    if (!silent) this.emit(`change:${name}`);
  }

  message(content: unknown, buffers: DataView[] = []): void {
    this.emit("msg:custom", content, buffers);
  }

  send(content: any): void {
    this.sent.push(content);
    if (this.alive) queueMicrotask(() => this.answer(content));
  }

  names(): string[] {
    return this.sent.map((command) => command.name);
  }

  protected answer(command: Sent): void {
    this.message({ type: "reply", id: command.id, ok: true, error: null });
  }
}

/** A fake model that also runs some commands on the data of the fixture. */
export class FakeSession extends FakeModel {
  private number = 0;

  constructor(readonly fixture: Fixture) {
    super({ snapshot: fixture.snapshot });
  }

  get snapshot(): Snapshot {
    return this.traits["snapshot"] as Snapshot;
  }

  change(part: Partial<Snapshot>): void {
    this.set("snapshot", { ...this.snapshot, ...part });
  }

  protected override answer(command: Sent): void {
    const { name, args } = command;
    if (name === "request_stage") void this.sendStage(args["stage"]);
    if (name === "request_curves") this.sendCurves(this.snapshot.run.points);
    if (name === "select") this.change({ selection: args["paths"] });
    if (name === "dismiss") this.change({ notice: null });
    if (name === "set_program") this.change({ program: args["program"] });
    if (name === "pause") this.change({ run: { ...this.snapshot.run, state: "paused" } });
    if (name === "resume" || name === "train") this.change({ run: { ...this.snapshot.run, state: "running" } });
    if (name === "stop") this.change({ run: { ...this.snapshot.run, state: "stopped" } });
    if (name === "set_attribute") this.setAttribute(args["path"], args["name"], args["value"]);
    if (name === "expand" || name === "collapse") this.open(args["path"], name === "expand");
    if (name === "move") this.move(args["places"]);
    if (name === "request_passes") void this.sendPasses();
    if (name === "request_diff") void this.sendDiff(args["number"]);
    if (name === "request_explanation")
      this.message({
        type: "explanation",
        stage: args["stage"],
        index: args["index"],
        version: this.snapshot.stages[args["stage"]]!.version,
        code: "b = tanh a",
        clauses: [
          ["what", "Hyperbolic tangent of each element.", "help text of the operation"],
          ["cost", "12 calls of exp, log, sqrt or the like.", "cost('analytic')"],
        ],
      });
    if (name === "request_instruction_history")
      this.message({
        type: "instruction_history",
        stage: args["stage"],
        index: args["index"],
        events: [["appeared in", "fusion", 1]],
        fused: [],
        became: "",
      });
    super.answer(command);
  }

  async sendStage(stage: string): Promise<void> {
    const raw = this.fixture.stages[stage];
    if (raw)
      this.message({ type: "stage", stage, version: this.snapshot.stages[stage]!.version }, [
        await gzip(JSON.stringify(columnsOf(raw))),
      ]);
  }

  async sendPasses(): Promise<void> {
    const { version } = this.snapshot;
    this.message({ type: "passes", version, number: this.number }, [await gzip(JSON.stringify(PASSES))]);
    this.change({ passes: { state: "ready", message: "", version } });
    await this.sendDiff(this.number);
  }

  async sendDiff(number: number): Promise<void> {
    this.number = number;
    const version = this.snapshot.passes!.version;
    this.message({ type: "diff", version, number, cut: number === 1 }, [
      await gzip(JSON.stringify(`@@ %main\n-  %gone\n+  %come ${number} of ${version}\n`)),
    ]);
  }

  /** Send the curves of a run whose loss decreases, with deterministic noise. */
  sendCurves(points: number): void {
    const columns = ["step", "loss", "accuracy", "validation_loss", "validation_accuracy"];
    const all = new Float64Array(points * columns.length).fill(NaN);
    let noise = 7;
    for (let i = 0; i < points; i++) {
      noise = (noise * 16807) % 2147483647;
      const jitter = noise / 2147483647 - 0.5;
      const loss = 2.3 * Math.exp(-i / 45) + 0.25 + 0.12 * jitter;
      all[i] = i + 1;
      all[points + i] = loss;
      all[2 * points + i] = Math.min(1, Math.max(0, 1 - loss / 2.6 + 0.04 * jitter));
      if (i % 45 === 44) {
        all[3 * points + i] = loss * 1.08;
        all[4 * points + i] = Math.max(0, 0.985 - loss / 2.7);
      }
    }
    this.message({ type: "curves", from: 0, columns }, [new DataView(all.buffer)]);
  }

  private setAttribute(path: string, name: string, value: any): void {
    const block = this.snapshot.blocks[path]!;
    const values = { ...block.values, [name]: value };
    this.change({
      version: this.snapshot.version + 1,
      blocks: { ...this.snapshot.blocks, [path]: { ...block, values } },
    });
  }

  private open(key: string, isOpen: boolean): void {
    const { graph } = this.snapshot;
    this.change({
      graph: { ...graph, opened: [...graph.opened.filter((one) => one !== key), ...(isOpen ? [key] : [])] },
    });
  }

  private move(places: [string, number, number][]): void {
    const { graph } = this.snapshot;
    const moved = Object.fromEntries(places.map(([path, x, y]) => [path, [x, y] as [number, number]]));
    this.change({ graph: { ...graph, moved: { ...graph.moved, ...moved } } });
  }
}
