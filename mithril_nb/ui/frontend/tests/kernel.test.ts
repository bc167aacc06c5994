// @vitest-environment node
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { FakeModel } from "../dev/fake-model";
import { Kernel, PATIENCE_MS } from "../src/kernel/kernel";

/** A model that replies only through reply(). */
class Slow extends FakeModel {
  protected override answer(): void {}
  reply(index: number, ok = true): void {
    this.message({ type: "reply", id: this.sent[index]!.id, ok, error: null });
  }
}

describe("a kernel", () => {
  let model: Slow;
  let kernel: Kernel;
  beforeEach(() => {
    vi.useFakeTimers();
    model = new Slow({});
    kernel = new Kernel(model);
  });
  afterEach(() => {
    kernel.destroy();
    vi.useRealTimers();
  });

  test("numbers commands and resolves each with its reply", async () => {
    const first = kernel.send("undo", {});
    const second = kernel.send("rename", { path: "a", name: "b" });
    expect(model.sent).toEqual([
      { type: "command", id: 1, name: "undo", args: {} },
      { type: "command", id: 2, name: "rename", args: { path: "a", name: "b" } },
    ]);
    model.reply(1, false);
    model.reply(0, true);
    expect((await second).ok).toBe(false);
    expect((await first).ok).toBe(true);
  });

  test("sends only the newest queued command of a key", async () => {
    for (const value of [1, 2, 3, 4]) kernel.latest("width", "set_attribute", { value });
    expect(model.sent.map((command) => command.args["value"])).toEqual([1]);
    expect(kernel.busy("width")).toBe(true);
    model.reply(0);
    await vi.advanceTimersByTimeAsync(0);
    expect(model.sent.map((command) => command.args["value"])).toEqual([1, 4]);
    model.reply(1);
    await vi.advanceTimersByTimeAsync(0);
    expect(kernel.busy("width")).toBe(false);
    expect(model.sent).toHaveLength(2);
  });

  test("keeps keys separate", () => {
    kernel.latest("a", "x", {});
    kernel.latest("b", "y", {});
    expect(model.names()).toEqual(["x", "y"]);
  });

  test("is waiting if the kernel status is unknown", async () => {
    const watcher = vi.fn();
    kernel.watch(watcher);
    void kernel.send("undo", {});
    await vi.advanceTimersByTimeAsync(PATIENCE_MS - 600);
    expect(kernel.connection).toBe("live");
    await vi.advanceTimersByTimeAsync(1200);
    expect(kernel.connection).toBe("waiting");
    expect(kernel.waiting?.name).toBe("undo");
    expect(watcher).toHaveBeenCalled();
    model.reply(0);
    expect(kernel.connection).toBe("live");
    expect(kernel.waiting).toBeNull();
  });

  test("waits if busy, is lost if idle and never heard from", async () => {
    (model as any).widget_manager = { kernel: { status: "busy" } };
    const reply = kernel.send("undo", {});
    await vi.advanceTimersByTimeAsync(PATIENCE_MS + 1000);
    expect(kernel.connection).toBe("waiting");
    (model as any).widget_manager = { kernel: { status: "idle" } };
    await vi.advanceTimersByTimeAsync(1000);
    expect(kernel.connection).toBe("lost");
    expect((await reply).ok).toBe(false);
  });

  test("waits for an idle kernel that sent messages before", async () => {
    (model as any).widget_manager = { kernel: { status: "idle" } };
    kernel.receivedMessage();
    void kernel.send("train", {});
    await vi.advanceTimersByTimeAsync(PATIENCE_MS + 1000);
    expect(kernel.connection).toBe("waiting");
  });

  test.each([{ kernel: null }, { kernel: { status: "dead" } }])("is lost without a kernel: %o", async (manager) => {
    (model as any).widget_manager = manager;
    kernel.receivedMessage();
    void kernel.send("undo", {});
    await vi.advanceTimersByTimeAsync(PATIENCE_MS + 1000);
    expect(kernel.connection).toBe("lost");
  });

  test("is lost if its comm changed and no reply came", async () => {
    (model as any).widget_manager = { kernel: { status: "idle" } };
    kernel.receivedMessage();
    model.emit("comm_live_update");
    await vi.advanceTimersByTimeAsync(PATIENCE_MS + 1000);
    expect(kernel.connection).toBe("lost");
  });

  test("is lost when the comm closes, live at the next message", () => {
    model.emit("comm:close");
    expect(kernel.connection).toBe("lost");
    model.message({ type: "curves" });
    expect(kernel.connection).toBe("live");
  });

  test.each([
    [{ kernel: { status: "idle" } }, "closed"],
    [{ kernel: { status: "busy" } }, "closed"],
    [{ kernel: { status: "unknown" } }, "lost"],
    [{ kernel: { status: "starting" } }, "lost"],
    [{ kernel: { status: "restarting" } }, "lost"],
    [{ kernel: { status: "autorestarting" } }, "lost"],
    [{ kernel: { status: "dead" } }, "lost"],
    [{ kernel: null }, "lost"],
    [{}, "lost"],
  ])("with %o, a closed comm means %s", (manager, connection) => {
    (model as any).widget_manager = manager;
    model.emit("comm:close");
    expect([kernel.connection, kernel.isGone]).toEqual([connection, true]);
  });

  test.each(["closed", "lost", "replaced"])("stays %s, and every command resolves", async (connection) => {
    const manager = { kernel: { status: connection === "lost" ? "unknown" : "idle" } };
    (model as any).widget_manager = manager;
    kernel.receivedMessage();
    if (connection === "replaced") model.message({ type: "replaced" });
    model.emit("comm:close");
    for (const status of ["idle", "dead"]) {
      manager.kernel.status = status;
      const reply = kernel.send("select", {});
      await vi.advanceTimersByTimeAsync(PATIENCE_MS + 1000);
      expect([kernel.connection, kernel.waiting, (await reply).ok]).toEqual([connection, null, false]);
    }
  });

  test("is lost if sending throws, and commands still resolve", async () => {
    vi.spyOn(model, "send").mockImplementation(() => {
      throw new Error("Cannot send");
    });
    expect((await kernel.send("undo", {})).ok).toBe(false);
    expect(kernel.connection).toBe("lost");
  });

  test("passes messages with buffers to listeners by type", () => {
    const listener = vi.fn();
    const leave = kernel.on("stage", listener);
    const buffer = new DataView(new ArrayBuffer(4));
    model.message({ type: "stage", stage: "hlo" }, [buffer]);
    model.message({ type: "other" });
    leave();
    model.message({ type: "stage" });
    expect(listener.mock.calls).toEqual([[{ type: "stage", stage: "hlo" }, [buffer]]]);
  });

  test("removes all listeners, and sends what waits", () => {
    for (const paths of [["a"], ["b"]]) kernel.afterRest("select", "select", { paths });
    for (const value of [1, 2, 3]) kernel.latest("width", "set_attribute", { value });
    kernel.destroy();
    vi.runAllTimers();
    expect(model.sent.map(({ args }) => Object.values(args)[0])).toEqual([1, ["b"], 3]);
    expect(model.listening).toBe(0);
  });
});
