import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import { FakeModel } from "../dev/fake-model";
import { type Change, applyChange, followSnapshot } from "../src/kernel/changes";

// Read as text: a module would treat the key "__proto__" differently.
const cases = JSON.parse(readFileSync(join(import.meta.dirname, "../fixtures/changes.json"), "utf8")) as [
  unknown,
  unknown,
  Change,
][];

test.each(cases)("%j becomes %j", (old, next, change) => {
  const before = JSON.stringify(old);
  expect(JSON.stringify(applyChange(old, change))).toBe(JSON.stringify(next));
  expect(JSON.stringify(old), "the old value is unchanged").toBe(before);
  expect(({} as Record<string, unknown>)["x"], "no prototype is changed").toBeUndefined();
});

test("unchanged parts are shared", () => {
  const old = { graph: { nodes: [{ x: 1 }, { x: 2 }] }, blocks: { a: {} } };
  const next = applyChange(old, { graph: { nodes: { 1: { x: [3] } } } }) as typeof old;
  expect(next.blocks).toBe(old.blocks);
  expect(next.graph.nodes[0]).toBe(old.graph.nodes[0]);
  expect(next.graph.nodes[1]).toEqual({ x: 3 });
});

describe("a model that follows the kernel", () => {
  const follow = (snapshot: unknown): FakeModel => {
    const model = new FakeModel({ snapshot });
    followSnapshot({ model });
    return model;
  };
  const send = (model: FakeModel, from: number, change: Record<string, Change>): void =>
    model.message({ type: "snapshot_change", from, to: from + 1, change: { revision: [from + 1], ...change } });
  const requests = (model: FakeModel): unknown[] => model.sent.map(({ name, args }) => [name, args["revision"]]);

  test("reports its revision, then applies each change once", () => {
    const model = follow({ revision: 4, name: "a", blocks: { x: 1 } });
    const seen = vi.fn();
    model.on("change:snapshot", seen);
    send(model, 4, { name: ["b"] });
    send(model, 5, { blocks: { x: [2] } });
    expect(model.get("snapshot")).toEqual({ revision: 6, name: "b", blocks: { x: 2 } });
    send(model, 4, { name: ["old"] }); // a host may replay messages
    expect(model.get("snapshot")).toEqual({ revision: 6, name: "b", blocks: { x: 2 } });
    expect(seen).toHaveBeenCalledTimes(2);
    expect(requests(model)).toEqual([["request_snapshot", 4]]);
  });

  afterEach(() => void vi.useRealTimers());

  test("requests the snapshot once if it missed a message", () => {
    vi.useFakeTimers();
    const model = follow({ revision: 4, name: "a" });
    send(model, 7, { name: ["b"] });
    send(model, 8, { name: ["c"] });
    expect(model.get("snapshot")).toEqual({ revision: 4, name: "a" });
    model.set("snapshot", { revision: 9, name: "c" }); // the kernel sends the whole snapshot
    send(model, 9, { name: ["d"] });
    expect(model.get("snapshot")).toEqual({ revision: 10, name: "d" });
    send(model, 12, {});
    expect(requests(model)).toEqual([
      ["request_snapshot", 4],
      ["request_snapshot", 4],
      ["request_snapshot", 10],
    ]);
    vi.advanceTimersByTime(2100); // the request was lost
    send(model, 13, {});
    expect(requests(model)).toHaveLength(4);
  });

  test("shows its snapshot if no kernel is connected", () => {
    const model = new FakeModel({ snapshot: { revision: 4 } });
    model.send = () => {
      throw new Error("the comm is closed");
    };
    expect(() => followSnapshot({ model })).not.toThrow();
  });

  test("releases its snapshot at the end, and its views keep theirs", () => {
    const model = new FakeModel({ snapshot: { revision: 4 } });
    const end = followSnapshot({ model });
    const seen = vi.fn();
    model.on("change:snapshot", seen);
    end();
    expect(model.get("snapshot")).toEqual({});
    expect(seen).not.toHaveBeenCalled();
  });

  test("ignores other messages, and requests a snapshot that it does not have", () => {
    const model = follow({});
    model.message(null);
    model.message({ type: "run", run: {} });
    send(model, 3, { name: ["b"] });
    expect(model.get("snapshot")).toEqual({});
    expect(requests(model)[0]).toEqual(["request_snapshot", null]);
  });
});
