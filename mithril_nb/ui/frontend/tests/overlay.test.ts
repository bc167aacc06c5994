/** Values on the nodes of a graph: numbers, categories, bounds, unknowns, and the legend. */

import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { expect, test } from "vitest";
import { createOverlayLayer, createOverlayMenu, GraphOverlay, type OverlayValues } from "../src/graph/overlay";
import type { PaintState } from "../src/graph/painter";
import { EMPTY, type Scene, type SceneEdge, type SceneNode } from "../src/graph/scene";

const data: OverlayValues = {
  name: "flops",
  title: "FLOPs, with inner blocks",
  unit: "FLOP",
  total: 4000,
  categories: [],
  values: [2000, 500, "?", null, "?"],
  bounds: [1],
  texts: { 4: "Σ 3 FLOP" },
  notes: ["a note"],
};
const keys = ["a", "b", "c", "input", "d"];

test("numbers are bars with texts, unknown values are not 0", () => {
  const found = new GraphOverlay(data, keys);
  expect([...found.marks]).toEqual([
    ["a", { text: "2.00 kFLOP", level: 1 }],
    ["b", { text: "≥ 500 FLOP", level: 0.25 }],
    ["c", { text: "?" }],
    ["d", { text: "Σ 3 FLOP" }],
  ]);
  expect(keys.map((key) => found.describe(key))).toEqual([
    "FLOPs, with inner blocks: 2,000 FLOP, 50.0 %",
    "FLOPs, with inner blocks: ≥ 500 FLOP, 12.5 %",
    "FLOPs, with inner blocks: unknown",
    "",
    "FLOPs, with inner blocks: Σ 3 FLOP; of this node: unknown",
  ]);
  expect(found.heading).toBe("FLOPs, with inner blocks: 4.00 kFLOP in total");
  expect(found.legend.map(({ text, level }) => [text, level])).toEqual([
    ["500 FLOP", 0.25],
    ["2.00 kFLOP", 1],
    ["unknown", undefined],
  ]);
});

test("categories are hues with texts; negative numbers start at the least one", () => {
  const found = new GraphOverlay(
    { ...data, total: null, unit: "", categories: ["float32", "int32"], values: [0, 1, "?"], bounds: [], texts: {} },
    keys,
  );
  expect([...found.marks.values()]).toEqual([{ text: "float32", hue: 0 }, { text: "int32", hue: 1 }, { text: "?" }]);
  expect(found.describe("b")).toBe("FLOPs, with inner blocks: int32");
  const signed = new GraphOverlay({ ...data, total: null, values: [-2, 0, 2], bounds: [], texts: {} }, keys);
  expect([...signed.marks.values()].map(({ level }) => level)).toEqual([0, 0.5, 1]);
});

interface OverlayCase {
  data: OverlayValues;
  keys: string[];
  heading: string;
  legend: [text: string, level: number | null, hue: number | null][];
  shown: Record<string, [text: string, level: number | null, hue: number | null, description: string]>;
}
// Written by tests/viz/test_layout_parity.py: the overlays that Python draws.
const OVERLAYS = JSON.parse(
  readFileSync(resolve(import.meta.dirname, "../../../../tests/viz/golden/overlays.json"), "utf8"),
) as OverlayCase[];

test.each(OVERLAYS.map((one) => [one.data.name, one] as const))(
  "bars, colours, texts and legend are those of Python: %s",
  (_, { data, keys, heading, legend, shown }) => {
    const found = new GraphOverlay(data, keys);
    expect(found.heading).toBe(heading);
    expect(found.legend.map(({ text, level, hue }) => [text, level ?? null, hue ?? null])).toEqual(legend);
    const drawn = [...found.marks].map(([key, { text, level, hue }]) => [
      key,
      [text, level ?? null, hue ?? null, found.describe(key)],
    ]);
    expect(Object.fromEntries(drawn)).toEqual(shown);
  },
);

test("the legend keeps hostile texts as data", () => {
  const states: Partial<PaintState>[] = [];
  const layer = createOverlayLayer({ root: document.createElement("div"), paint: (state) => states.push(state) });
  layer.show(
    new GraphOverlay({ ...data, title: "<img src=x>", categories: ["<script>"], values: [0], notes: [] }, keys),
  );
  expect(layer.legend.querySelector("img, script")).toBeNull();
  expect(layer.legend.textContent).toContain("<script>");
  expect(states.at(-1)!.overlay!.get("a")).toEqual({ text: "<script>", hue: 0 });
  expect(layer.describe("a", { name: "block a", tip: ["a"] })).toEqual({
    name: "block a, <img src=x>: <script>",
    tip: ["a", "<img src=x>: <script>"],
  });
  layer.show(null);
  expect([layer.legend.hidden, states.at(-1)!.overlay!.size]).toEqual([true, 0]);
});

test("without values, the legend explains the roles and the returning gradient", () => {
  const states: Partial<PaintState>[] = [];
  const layer = createOverlayLayer({ root: document.createElement("div"), paint: (state) => states.push(state) });
  const node = (...counts: number[]) => ({ counts }) as unknown as SceneNode;
  const scene = (...nodes: SceneNode[]): Scene => ({
    ...EMPTY,
    is_model: false,
    roles: ["forward", "backward", "<b>"],
    nodes,
    edges: [{ returns: true } as SceneEdge],
  });
  layer.explain(scene(node(1, 0, 0)));
  expect(layer.legend.hidden).toBe(true);
  layer.explain(scene(node(1, 0, 0), node(0, 2, 0), node(0, 0, 1)));
  const texts = (): (string | null)[] => [...layer.legend.children].map((part) => part.textContent);
  expect(texts()).toEqual(["bars: instructions", "forward", "backward", "<b>", "gradient flows back"]);
  expect(states.at(-1)!.legend!.legend.map(({ role }) => role)).toEqual([0, 1, 2, "returns"]);
  layer.show(new GraphOverlay({ ...data, notes: [] }, keys));
  layer.explain(scene(node(1, 1, 0)));
  expect(texts()[0]).toBe("FLOPs, with inner blocks: 4.00 kFLOP in total");
  layer.show(null);
  expect(texts()).toEqual(["bars: instructions", "forward", "backward", "gradient flows back"]);
});

test("the arrow keys pass a slow overlay; Enter or leaving the menu chooses it", () => {
  const sent: string[] = [];
  const menu = createOverlayMenu((name) => sent.push(name));
  const update = (): void =>
    menu.update(
      {
        name: "flops",
        own: false,
        choices: [
          ["flops", "FLOPs"],
          ["memory", "memory"],
          ["role", "role"],
        ],
      },
      false,
    );
  update();
  const [values] = [...menu.root.querySelectorAll("select")];
  const arrow = (name: string): void => {
    values!.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown" }));
    values!.value = name;
    values!.dispatchEvent(new Event("change"));
  };
  arrow("memory");
  update();
  expect([sent, values!.value]).toEqual([[], "memory"]);
  arrow("role");
  values!.dispatchEvent(new Event("blur"));
  expect(sent).toEqual(["role"]);
  arrow("memory");
  values!.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
  arrow("memory");
  values!.dispatchEvent(new Event("blur"));
  values!.dispatchEvent(new PointerEvent("pointerdown"));
  values!.value = "memory";
  values!.dispatchEvent(new Event("change"));
  expect(sent).toEqual(["role", "memory", "memory", "memory"]);
});

test("the menus send the overlay and the convention, and remember both", () => {
  const sent: [string, boolean][] = [];
  const menu = createOverlayMenu((name, own) => sent.push([name, own]));
  menu.update(
    {
      name: "flops",
      own: false,
      choices: [
        ["flops", "FLOPs"],
        ["role", "role"],
      ],
    },
    true,
  );
  const [values, convention] = [...menu.root.querySelectorAll("select")];
  expect([values!.value, convention!.value, convention!.hidden]).toEqual(["flops", "inner", false]);
  convention!.value = "own";
  convention!.dispatchEvent(new Event("change"));
  values!.value = "";
  values!.dispatchEvent(new Event("change"));
  expect(sent).toEqual([
    ["flops", true],
    ["", true],
  ]);
  menu.update({ name: "", own: true, choices: [] }, false);
  expect(convention!.hidden).toBe(true);
});
