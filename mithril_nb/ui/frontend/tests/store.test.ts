import { beforeEach, describe, expect, test, vi } from "vitest";
import fixture from "../fixtures/mlp.json";
import { type Fixture, FakeModel } from "../dev/fake-model";
import { Kernel } from "../src/kernel/kernel";
import { StageText } from "../src/store/links";
import { Store } from "../src/store/store";

const { snapshot, stages } = fixture as unknown as Fixture;

describe("a store", () => {
  let model: FakeModel;
  let store: Store;
  const take = (stage: string, version = 1): void =>
    store.takeText(new StageText(stage, version, stages[stage]!.text, stages[stage]!));
  const selected = (): unknown[] =>
    model.sent.filter((command) => command.name === "select").map((command) => command.args["paths"]);
  beforeEach(() => {
    model = new FakeModel({});
    store = new Store(structuredClone(snapshot), new Kernel(model));
  });
  const settled = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));

  test("links without the kernel, and sends the selection once the user rests", () => {
    vi.useFakeTimers();
    take("jaxpr");
    model.alive = false;
    for (const path of ["gelu_0", "linear_1", "linear_0"]) {
      store.pinBlocks([path]);
      vi.advanceTimersByTime(100);
    }
    expect(store.pinLinks.lines.get("jaxpr")!.size).toBeGreaterThan(3);
    expect(model.sent).toEqual([]);
    vi.advanceTimersByTime(100);
    expect(selected()).toEqual([["linear_0"]]);
    vi.useRealTimers();
  });

  test("sends the selection before a command that may need it", () => {
    store.pinBlocks(["linear_0"]);
    store.command("add_block", { kind: "Relu" });
    expect(model.names()).toEqual(["select", "add_block"]);
  });

  test("gives fields the values of a block, else the defaults of its kind", () => {
    const field = {
      name: "width",
      type: "int",
      min: 1,
      max: null,
      choices: null,
      doc: "",
      optional: false,
      default: 8,
    };
    const kinds = {
      Linear: { doc: "", formula: "", family: "Layers", hue: 0, fields: [field, { ...field, name: "__proto__" }] },
    };
    const block = { ...snapshot.blocks["linear_0"]!, kind: "Linear" };
    store.takeSnapshot({
      ...snapshot,
      kinds,
      blocks: { a: { ...block, values: {} }, b: { ...block, values: { width: null as never } } },
    });
    expect(store.fieldsOf("a").map(({ value }) => value)).toEqual([8, 8]);
    expect(store.fieldsOf("b")[0]!.value).toBeNull();
    expect(store.fieldsOf("no such block")).toEqual([]);
  });

  test("adds and removes by Shift, clears by Escape", () => {
    store.pinBlocks(["linear_0"]);
    store.pinBlocks(["linear_1"], true);
    expect(store.selection).toEqual(["linear_0", "linear_1"]);
    store.pinBlocks(["linear_0"], true);
    expect(store.selection).toEqual(["linear_1"]);
    expect(store.release()).toBe(true);
    expect(store.selection).toEqual([]);
    expect(store.release()).toBe(false);
  });

  test("selects the blocks of a pinned instruction", () => {
    take("jaxpr");
    const index = store.texts.get("jaxpr")!.ofBlock("(loss)")[0]!;
    store.pin([{ kind: "instruction", stage: "jaxpr", version: 1, index }]);
    expect(store.selection).toEqual([]);
    expect(store.pinLinks.blocks.has("(loss)")).toBe(true);
    const linear = store.texts.get("jaxpr")!.ofBlock("linear_1")[0]!;
    store.pin([{ kind: "instruction", stage: "jaxpr", version: 1, index: linear }]);
    expect(store.selection).toEqual(["linear_1"]);
  });

  test("follows a selection made in Python", () => {
    store.takeSnapshot({ ...snapshot, selection: ["gelu_0"] });
    expect(store.selection).toEqual(["gelu_0"]);
    expect(selected()).toEqual([]);
  });

  test("ignores the echo of its own selection", async () => {
    take("jaxpr");
    const index = store.texts.get("jaxpr")!.ofBlock("linear_1")[0]!;
    store.pin([{ kind: "instruction", stage: "jaxpr", version: 1, index }]);
    await settled();
    store.takeSnapshot({ ...snapshot, selection: ["linear_1"] });
    expect(store.pins[0]!.kind).toBe("instruction");
    model.alive = false;
    store.pinBlocks(["linear_0"]);
    store.pinBlocks(["gelu_0"]);
    store.takeSnapshot({ ...snapshot, selection: ["linear_0"] });
    expect(store.selection).toEqual(["gelu_0"]);
  });

  test("drops pins on removed blocks", () => {
    store.pinBlocks(["gelu_0", "linear_0"]);
    const { gelu_0: _gone, ...blocks } = snapshot.blocks;
    store.takeSnapshot({ ...snapshot, version: 2, blocks, selection: ["gelu_0", "linear_0"] });
    expect(store.selection).toEqual(["linear_0"]);
  });

  test("keeps the blocks of a pin when the text is replaced", () => {
    take("jaxpr");
    const index = store.texts.get("jaxpr")!.ofBlock("linear_1")[0]!;
    store.pin([{ kind: "instruction", stage: "jaxpr", version: 1, index }]);
    take("jaxpr", 2);
    expect(store.pins).toEqual([{ kind: "block", path: "linear_1" }]);
  });

  test("emits only changes of the hover", () => {
    const heard = vi.fn();
    store.on("links", heard);
    store.setHover([{ kind: "block", path: "linear_0" }]);
    store.setHover([{ kind: "block", path: "linear_0" }]);
    store.setHover([]);
    expect(heard).toHaveBeenCalledTimes(2);
  });

  test("selects the location of a problem", () => {
    store.goTo({
      code: "ShapeError",
      summary: "",
      facts: [],
      advice: "",
      block: "linear_0",
      port: "",
      edge: ["input", "linear_0.input"],
    });
    expect(store.selection).toEqual(["linear_0"]);
  });
});
