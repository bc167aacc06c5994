/** The connection to the kernel: commands with replies, messages by type, and the connection state. */

import type { Messages, ReplyHead } from "./contract";
import { followFields } from "../dom/view";
import { decodeJson } from "./messages";
import type { WidgetModel } from "./model";

/**
 * "lost": the kernel of the widget ended or restarted. "closed": only the widget ended. "replaced": a newer run of the
 * cell created another widget.
 */
export type Connection = "live" | "waiting" | "lost" | "closed" | "replaced";

/** If a command has no reply within this time, the kernel counts as busy or gone. */
export const PATIENCE_MS = 5000;

/** A command that waits for the user to rest is sent after this time without another one. */
const REST_MS = 150;

/** Commands without an effect on the model or the run: if one cannot be sent, the user loses nothing. */
const QUIET =
  /^(hello|select|expand|collapse|tidy|dismiss|request_.*|leave_.*|show_.*|(open|close)_node|what_if|choose_device)$/;

const DEAD = ["none", "dead", "terminating"];
/** When a restart closes the comms, the kernel has neither of these. */
const ALIVE = ["idle", "busy"];

interface Pending {
  name: string;
  since: number;
  resolve: (reply: ReplyHead) => void;
}

type MessageListener<K extends keyof Messages> = (head: Messages[K][0], buffers: DataView[]) => void;
/** `isEdit` is true if the command affects the model or the run. */
type ReplyListener = (name: string, reply: ReplyHead, isEdit: boolean) => void;

/**
 * Return the kernel status of JupyterLab's widget manager, "none" without a kernel; null in hosts that do not report
 * it.
 */
function kernelStatus(model: WidgetModel) {
  const manager = model.widget_manager as { kernel?: { status?: unknown } | null } | undefined;
  if (!manager || !("kernel" in manager)) return null;
  const status = manager.kernel?.status ?? "none";
  return typeof status === "string" ? status : null;
}

export class Kernel {
  connection: Connection = "live";
  /** The command that has waited longest, if longer than PATIENCE_MS. */
  waiting: { name: string; since: number } | null = null;
  /** Commands that were not run because no kernel is connected, latest last. */
  dropped: string[] = [];
  private isClosed = false;
  private nextId = 1;
  private readonly pending = new Map<number, Pending>();
  private readonly inFlight = new Map<string, { next: (() => void) | null }>();
  private readonly resting = new Map<string, { timer: ReturnType<typeof setTimeout>; send: () => void }>();
  private readonly listeners = new Map<string, Set<MessageListener<any>>>();
  /** Messages are decoded one after the other, so that they arrive in order. */
  private decoded: Promise<unknown> = Promise.resolve();
  private readonly watchers = new Set<() => void>();
  private readonly replied = new Set<ReplyListener>();
  private timer: ReturnType<typeof setInterval> | null = null;
  private commSuspect = false;
  private hasReceived = false;
  private readonly onCustom = (message: any, buffers: DataView[]) => this.hear(message, buffers ?? []);
  private readonly onClosed = () => {
    this.isClosed = true;
    this.lose();
  };
  private readonly onCommLive = () => {
    // Neither the event nor the model's proxy shows whether the comm opened or closed, so send a command to find out.
    this.commSuspect = true;
    void this.send("request_curves", {});
  };

  constructor(private readonly model: WidgetModel) {
    followFields(this, "connection", "waiting", "dropped");
    model.on("msg:custom", this.onCustom);
    model.on("comm:close", this.onClosed);
    model.on("comm_live_update", this.onCommLive);
  }

  destroy() {
    // What the user did just before the view closes is sent.
    for (const key of new Set([...this.resting.keys(), ...this.inFlight.keys()])) this.flush(key);
    this.model.off("msg:custom", this.onCustom);
    this.model.off("comm:close", this.onClosed);
    this.model.off("comm_live_update", this.onCommLive);
    if (this.timer !== null) clearInterval(this.timer);
    this.timer = null;
    this.pending.clear();
    this.inFlight.clear();
  }

  /** Send a command. The promise always resolves; `ok` is false if it failed or got no reply. */
  send(name: string, args: Record<string, unknown>): Promise<ReplyHead> {
    const id = this.nextId++;
    if (this.isGone && !QUIET.test(name)) {
      this.drop([name]);
      // A reply from the kernel restores the connection; dropped commands are not sent again.
      if (!this.isClosed) void this.send("hello", {});
      return Promise.resolve({ id, ok: false, error: null });
    }
    return new Promise((resolve) => {
      this.pending.set(id, { name, since: performance.now(), resolve });
      this.timer ??= setInterval(() => this.check(), 500);
      try {
        this.model.send({ type: "command", id, name, args });
      } catch {
        // A closed comm may throw on send.
        this.lose();
      }
    });
  }

  /** Send with at most one command per key in flight; meanwhile, only the newest further command is kept. */
  latest(key: string, name: string, args: Record<string, unknown>, onReply?: (reply: ReplyHead) => void) {
    const flight = this.inFlight.get(key);
    if (flight) {
      flight.next = () => this.latest(key, name, args, onReply);
      return;
    }
    const entry: { next: (() => void) | null } = { next: null };
    this.inFlight.set(key, entry);
    void this.send(name, args).then((reply) => {
      onReply?.(reply);
      if (this.inFlight.get(key) !== entry) return;
      this.inFlight.delete(key);
      entry.next?.();
    });
  }

  /** Send with `latest` once no further command of this key follows for REST_MS. */
  afterRest(key: string, name: string, args: Record<string, unknown>, onReply?: (reply: ReplyHead) => void) {
    clearTimeout(this.resting.get(key)?.timer);
    const send = () => {
      this.resting.delete(key);
      this.latest(key, name, args, onReply);
    };
    this.resting.set(key, { timer: setTimeout(send, REST_MS), send });
  }

  /** Send the waiting command of this key, if any, because the next command needs its effect. */
  flush(key: string) {
    const rests = this.resting.get(key);
    if (rests) {
      clearTimeout(rests.timer);
      rests.send();
    }
    const next = this.inFlight.get(key)?.next;
    if (!next) return;
    this.inFlight.delete(key);
    next();
  }

  /** Return whether a command of this key waits to be sent, or for its reply. */
  busy(key: string) {
    return this.inFlight.has(key) || this.resting.has(key);
  }

  on<K extends keyof Messages>(type: K, listener: MessageListener<K>): () => void {
    const set = this.listeners.get(type) ?? new Set();
    this.listeners.set(type, set.add(listener));
    return () => set.delete(listener);
  }

  /** Call `take` with each message of a type and its decoded data, or `fail` with the error. */
  receive<K extends keyof Messages>(
    type: K,
    take: (head: Messages[K][0], data: Messages[K][1]) => void,
    fail: (why: string, head: Messages[K][0]) => void,
  ): () => void {
    return this.on(type, (head, [buffer]) => {
      this.decoded = this.decoded.then(async () => {
        try {
          take(head, buffer && (await decodeJson<any>(buffer)));
        } catch (error) {
          const reason = error instanceof Error ? error.message : String(error);
          fail(`The message from the kernel could not be shown: ${reason}. Run the cell again to load it.`, head);
        }
      });
    });
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

  /** Mark the kernel as connected; called for everything that it sends. */
  receivedMessage() {
    this.commSuspect = false;
    this.hasReceived = true;
    if (this.connection === "replaced") return;
    if (this.connection !== "live" || this.waiting) {
      this.waiting = null;
      this.dropped = [];
      this.isClosed = false;
      this.setConnection("live");
    }
  }

  /** True if no command can be run. */
  get isGone() {
    return this.connection === "lost" || this.connection === "closed" || this.connection === "replaced";
  }

  /** Handle a closed comm: the kernel ended, or only the widget. */
  private lose() {
    this.setConnection(ALIVE.includes(kernelStatus(this.model) ?? "") ? "closed" : "lost");
  }

  private drop(names: string[]) {
    this.dropped = [...this.dropped, ...names.filter((name) => !QUIET.test(name))].slice(-5);
    for (const watcher of this.watchers) watcher();
  }

  private hear(message: any, buffers: DataView[]) {
    if (message === null || typeof message !== "object") return;
    if (message.type === "replaced") {
      this.isClosed = true;
      this.setConnection("replaced");
      return;
    }
    this.receivedMessage();
    if (message.type === "reply") {
      const pending = this.pending.get(message.id);
      this.pending.delete(message.id);
      pending?.resolve(message as ReplyHead);
      if (pending)
        for (const listener of this.replied) listener(pending.name, message as ReplyHead, !QUIET.test(pending.name));
      return;
    }
    for (const listener of this.listeners.get(message.type) ?? []) listener(message, buffers);
  }

  private check() {
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
    // An idle kernel may still run the command, because handlers run in a separate subshell. But an idle kernel that
    // never sent anything has no such widget, as in a notebook that was saved with widgets and reopened.
    const gone =
      this.isClosed || this.commSuspect || DEAD.includes(status ?? "") || (status === "idle" && !this.hasReceived);
    this.waiting = { name: oldest.name, since: oldest.since };
    if (!gone) {
      this.setConnection("waiting");
      return;
    }
    this.setConnection("lost");
  }

  private setConnection(connection: Connection) {
    // Keep the first state: a restarted kernel soon reports "idle".
    const isKept =
      this.connection === "replaced" || (this.isGone && (connection === "lost" || connection === "closed"));
    if (!isKept) this.connection = connection;
    if (this.isGone) {
      this.waiting = null;
      const waiting = [...this.pending];
      this.pending.clear();
      this.inFlight.clear();
      for (const [id, { resolve }] of waiting) resolve({ id, ok: false, error: null });
      this.drop(waiting.map(([, { name }]) => name));
      return;
    }
    for (const watcher of this.watchers) watcher();
  }
}
