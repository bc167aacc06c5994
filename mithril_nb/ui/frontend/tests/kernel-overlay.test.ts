/** The overlay that the kernel computes: replies to earlier choices, and values of an earlier model. */

import { expect, test } from "vitest";
import { type Fixture, FakeModel, gzip } from "../dev/fake-model";
import fixture from "../fixtures/mlp.json";
import type { PaintState } from "../src/graph/painter";
import type { GraphView } from "../src/graph/view";
import { Kernel } from "../src/kernel/kernel";
import { decodeJson } from "../src/kernel/messages";
import { createKernelOverlay } from "../src/stages/kernel-overlay";
import { Store } from "../src/store/store";

const { snapshot } = fixture as unknown as Fixture;
const choices: [string, string][] = [
  ["flops", "FLOPs"],
  ["memory", "memory"],
  ["own values: mine", "mine"],
];

function open(name: string) {
  const model = new FakeModel({});
  const choose = (name: string): void =>
    store.takeSnapshot({ ...store.snapshot, overlay: { name, own: false, choices } });
  const store = new Store(structuredClone(snapshot), new Kernel(model));
  choose(name);
  const states: Partial<PaintState>[] = [];
  const view = {
    root: document.createElement("div"),
    paint: (state: Partial<PaintState>) => states.push(state),
  } as unknown as GraphView;
  const overlay = createKernelOverlay(store, view, () => true);
  const reply = async (name: string, head: object = {}): Promise<void> => {
    const data = {
      name: name.split(":")[0],
      title: name,
      unit: "FLOP",
      total: null,
      categories: [],
      values: [1],
      bounds: [],
      texts: {},
      notes: [],
      keys: ["a"],
    };
    const buffers = "is_stale" in head || "problem" in head ? [] : [await gzip(JSON.stringify(data))];
    model.message({ type: "overlay", stage: "", name, own: false, problem: "", is_stale: false, ...head }, buffers);
    for (const buffer of buffers) await decodeJson(buffer); // as long as the overlay needs, on a busy machine too
    await new Promise((resolve) => setTimeout(resolve, 30));
  };
  const isOld = (): boolean => states.findLast((state) => state.isOld !== undefined)?.isOld ?? false;
  return { store, choose, overlay, reply, isOld, legend: overlay.layer.legend };
}

test("a reply to an earlier choice is dropped, and the shown values are marked until the reply", async () => {
  const { choose, reply, isOld, legend } = open("flops");
  await reply("flops");
  expect(isOld()).toBe(false);
  choose("memory");
  expect([isOld(), legend.textContent]).toEqual([true, expect.stringContaining("computing")]);
  choose("flops");
  await reply("memory");
  await reply("flops", { own: true });
  await reply("memory", { problem: "XLA failed" });
  expect([isOld(), legend.querySelector("b")!.textContent]).toEqual([false, "flops"]);
});

test("values of an earlier model are marked; own values need no costs", async () => {
  const { store, choose, reply, isOld, legend } = open("flops");
  await reply("flops");
  store.takeSnapshot({ ...store.snapshot, cost: { ...store.snapshot.cost!, stale: true } });
  await reply("flops", { is_stale: true });
  expect([isOld(), legend.querySelector("b")!.textContent, legend.textContent]).toEqual([
    true,
    "flops",
    expect.stringContaining("from the previous model"),
  ]);
  choose("memory");
  await reply("memory", { is_stale: true });
  expect(legend.textContent).toContain("Costs return once the errors are fixed.");
  choose("own values: mine");
  await reply("own values: mine");
  expect([isOld(), legend.querySelector("b")!.textContent]).toEqual([false, "own values: mine"]);
});
