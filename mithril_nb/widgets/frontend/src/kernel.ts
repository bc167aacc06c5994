/** The wire to the kernel: commands with replies, messages by type, and the knowledge of whether anyone is there. */

import type { Reply, WidgetModel } from "./types";

/**
 * "lost": the kernel of the widget ended or restarted. "closed": only the widget ended. "replaced": a newer run of the cell
 * made another widget.
 */
export type Connection = "live" | "waiting" | "lost" | "closed" | "replaced";

/** A command without a reply after this long means that the kernel is busy or gone. */
export const PATIENCE_MS = 5000;

/** Commands that only look: when one of them cannot be sent, the user has lost nothing. */
const QUIET = /^(hello|select|expand|collapse|tidy|dismiss|request_.*|want_.*|leave_.*|show_.*|open_node|close_node|what_if)$/;

const DEAD = ["none", "dead", "terminating"];
/** A kernel that restarts has none of these when the comms close. */
const ALIVE = ["idle", "busy"];

interface Pending {
  name: string;
  since: number;
  resolve: (reply: Reply) => void;
}

type MessageListener = (message: any, buffers: DataView[]) => void;
/** `isEdit`: whether the command does more than look. */
type ReplyListener = (name: string, reply: Reply, isEdit: boolean) => void;

/** What JupyterLab's widget manager knows of its kernel, "none" if there is none; null in hosts that say nothing. */
function kernelStatus(model: WidgetModel): string | null {
  const manager = model.widget_manager as { kernel?: { status?: unknown } | null } | undefined;
  if (!manager || !("kernel" in manager)) return null;
  const status = manager.kernel?.status ?? "none";
  return typeof status === "string" ? status : null;
}

export class Kernel {
  connection: Connection = "live";
  /** The command that waits longest, once it has waited longer than PATIENCE_MS. */
  waiting: { name: string; since: number } | null = null;
  /** Commands that were not done because no kernel is connected, latest last. */
  refused: string[] = [];
  private isClosed = false;
  private nextId = 1;
  private readonly pending = new Map<number, Pending>();
  private readonly inFlight = new Map<string, { next: (() => void) | null }>();
  private readonly listeners = new Map<string, Set<MessageListener>>();
  private readonly watchers = new Set<() => void>();
  private readonly replied = new Set<ReplyListener>();
  private timer: ReturnType<typeof setInterval> | null = null;
  private commSuspect = false;
  private everHeard = false;
  private readonly onCustom = (message: any, buffers: DataView[]): void => this.receive(message, buffers ?? []);
  private readonly onClosed = (): void => {
    this.isClosed = true;
    this.lose();
  };
  private readonly onCommLive = (): void => {
    // The event does not say which way the comm changed, and the model's proxy does not show it: ask the kernel.
    this.commSuspect = true;
    void this.send("request_curves", {});
  };

  constructor(private readonly model: WidgetModel) {
    model.on("msg:custom", this.onCustom);
    model.on("comm:close", this.onClosed);
    model.on("comm_live_update", this.onCommLive);
  }

  destroy(): void {
    this.model.off("msg:custom", this.onCustom);
    this.model.off("comm:close", this.onClosed);
    this.model.off("comm_live_update", this.onCommLive);
    if (this.timer !== null) clearInterval(this.timer);
    this.timer = null;
    this.pending.clear();
    this.inFlight.clear();
  }

  /** Send a command. The promise always resolves; `ok` is false if it failed or nobody answered. */
  send(name: string, args: Record<string, unknown>): Promise<Reply> {
    const id = this.nextId++;
    if (this.isGone && !QUIET.test(name)) {
      this.refuse([name]);
      // A kernel that answers after all brings the connection back; what was refused stays undone.
      if (!this.isClosed) void this.send("hello", {});
      return Promise.resolve({ type: "reply", id, ok: false, error: null });
    }
    return new Promise((resolve) => {
      this.pending.set(id, { name, since: performance.now(), resolve });
      this.timer ??= setInterval(() => this.check(), 500);
      try {
        this.model.send({ type: "command", id, name, args });
      } catch {
        // A comm that is closed may throw on send: the badge says so, and nothing is lost.
        this.lose();
      }
    });
  }

  /** Send with at most one command of this key in flight; while one is, only the newest further one is kept. */
  latest(key: string, name: string, args: Record<string, unknown>, answered?: (reply: Reply) => void): void {
    const flight = this.inFlight.get(key);
    if (flight) {
      flight.next = () => this.latest(key, name, args, answered);
      return;
    }
    const own: { next: (() => void) | null } = { next: null };
    this.inFlight.set(key, own);
    void this.send(name, args).then((reply) => {
      answered?.(reply);
      if (this.inFlight.get(key) !== own) return;
      this.inFlight.delete(key);
      own.next?.();
    });
  }

  /** Send the command of this key that is held back, if there is one: the next command needs its effect. */
  flush(key: string): void {
    const next = this.inFlight.get(key)?.next;
    if (!next) return;
    this.inFlight.delete(key);
    next();
  }

  /** Whether a command of this key still waits for its reply. */
  busy(key: string): boolean {
    return this.inFlight.has(key);
  }

  on(type: string, listener: MessageListener): () => void {
    const set = this.listeners.get(type) ?? new Set();
    this.listeners.set(type, set.add(listener));
    return () => set.delete(listener);
  }

  /** Call `listener` with each reply of the kernel. */
  onReply(listener: ReplyListener): () => void {
    this.replied.add(listener);
    return () => this.replied.delete(listener);
  }

  /** Call `watcher` when `connection` or `waiting` changes. */
  watch(watcher: () => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }

  /** Anything that arrives from the kernel shows that it lives. */
  heard(): void {
    this.commSuspect = false;
    this.everHeard = true;
    if (this.connection === "replaced") return;
    if (this.connection !== "live" || this.waiting) {
      this.waiting = null;
      this.refused = [];
      this.isClosed = false;
      this.setConnection("live");
    }
  }

  /** Whether no command can be done. */
  get isGone(): boolean {
    return this.connection === "lost" || this.connection === "closed" || this.connection === "replaced";
  }

  /** The comm is closed: together with the kernel, or alone. */
  private lose(): void {
    this.setConnection(ALIVE.includes(kernelStatus(this.model) ?? "") ? "closed" : "lost");
  }

  private refuse(names: string[]): void {
    this.refused = [...this.refused, ...names.filter((name) => !QUIET.test(name))].slice(-5);
    for (const watcher of this.watchers) watcher();
  }

  private receive(message: any, buffers: DataView[]): void {
    if (message === null || typeof message !== "object") return;
    if (message.type === "replaced") {
      this.isClosed = true;
      this.setConnection("replaced");
      return;
    }
    this.heard();
    if (message.type === "reply") {
      const pending = this.pending.get(message.id);
      this.pending.delete(message.id);
      pending?.resolve(message as Reply);
      if (pending) for (const listener of this.replied) listener(pending.name, message as Reply, !QUIET.test(pending.name));
      return;
    }
    for (const listener of this.listeners.get(message.type) ?? []) listener(message, buffers);
  }

  private check(): void {
    const now = performance.now();
    let oldest: Pending | null = null;
    for (const pending of this.pending.values()) if (!oldest || pending.since < oldest.since) oldest = pending;
    if (!oldest) {
      if (this.timer !== null) clearInterval(this.timer);
      this.timer = null;
      return;
    }
    if (now - oldest.since < PATIENCE_MS) return;
    const status = kernelStatus(this.model);
    // An idle kernel may still be at work on this: handlers run in a subshell of their own. But one that is idle and
    // never said a word does not know this widget, as in a notebook that was saved with its widgets and opened again.
    const gone = this.isClosed || this.commSuspect || DEAD.includes(status ?? "") || (status === "idle" && !this.everHeard);
    this.waiting = { name: oldest.name, since: oldest.since };
    if (!gone) {
      this.setConnection("waiting");
      return;
    }
    this.setConnection("lost");
  }

  private setConnection(connection: Connection): void {
    // The first reason stays: a kernel that restarted is idle again soon.
    const isKept = this.connection === "replaced" || (this.isGone && (connection === "lost" || connection === "closed"));
    if (!isKept) this.connection = connection;
    if (this.isGone) {
      this.waiting = null;
      const dropped = [...this.pending];
      this.pending.clear();
      this.inFlight.clear();
      for (const [id, { resolve }] of dropped) resolve({ type: "reply", id, ok: false, error: null });
      this.refuse(dropped.map(([, { name }]) => name));
      return;
    }
    for (const watcher of this.watchers) watcher();
  }
}
