/** The view of a graph: pictures as lists of drawn texts, elements, keys and the pointer. */

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { syntheticScene } from "../dev/synthetic";
import type { Scene, SceneNode } from "../src/graph/scene";
import { createGraphView, type GraphOptions, type GraphView } from "../src/graph/view";
import { FakeContext } from "./fake-context";

const SIZE = { width: 900, height: 520 };
const HOSTILE = [
  "<img src=x onerror=alert(1)>",
  "a\nb\u2028c",
  "\u202egnp.exe",
  "x".repeat(5000),
  "</script><script>alert(1)</script>",
  "\ud800",
];
const frame = (): Promise<unknown> =>
  new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));

/** A chain of four nodes; the third is an open group with two nodes, and the last two are fed by the first. */
function small(change: (node: SceneNode) => SceneNode = (node) => node): Scene {
  const node = (key: string, x: number, y: number, more: Partial<SceneNode> = {}): SceneNode =>
    change({
      key,
      path: key,
      parent: "",
      name: key.split("/").pop()!,
      kind: "Linear",
      hue: 1,
      x,
      y,
      w: 150,
      h: 52,
      label: "64 → 10",
      shape: "(32, 10)",
      share: 0.25,
      problem: null,
      group: false,
      expanded: false,
      repeat: 1,
      inputs: [],
      outputs: [],
      ...more,
    });
  const edge = (source: string, target: string, points: [number, number][]): Scene["edges"][number] => ({
    id: `${source} -> ${target}`,
    source,
    target,
    shape: "",
    points,
    curve: false,
    problem: null,
  });
  const nodes = [
    node("one", 20, 20, { repeat: 12, group: true }),
    node("two", 220, 20),
    node("three", 20, 120, { group: true, expanded: true, w: 400, h: 120 }),
    node("three/a", 40, 160, { parent: "three" }),
    node("three/b", 240, 160, { parent: "three" }),
    node("four", 460, 120),
  ];
  const edges = [
    edge("one", "two", [
      [170, 46],
      [220, 46],
    ]),
    edge("one", "four", [
      [170, 60],
      [535, 60],
      [535, 120],
    ]),
    edge("two", "three/a", [
      [220, 60],
      [100, 100],
      [100, 160],
    ]),
    edge("three/a", "three/b", [
      [190, 186],
      [240, 186],
    ]),
  ];
  return { title: "small", width: 640, height: 260, nodes, edges, is_model: true, roles: [] };
}

describe("the view of a graph", () => {
  let view: GraphView;
  let drawn: FakeContext;
  const calls = {
    select: vi.fn(),
    toggle: vi.fn(),
    selectEdge: vi.fn(),
    clear: vi.fn(),
    hover: vi.fn(),
    open: vi.fn(),
  };
  const mount = (options: Partial<GraphOptions> = {}): void => {
    view?.root.remove();
    view?.destroy();
    view = createGraphView({
      label: "Blocks",
      describe: ({ kind, name }) => ({ name: `${kind} ${name}`, tip: [name] }),
      ...calls,
      ...options,
    });
    vi.spyOn(view.board, "clientWidth", "get").mockReturnValue(SIZE.width);
    vi.spyOn(view.board, "clientHeight", "get").mockReturnValue(SIZE.height);
    document.body.append(view.root);
  };
  const items = (): HTMLElement[] => [...view.root.querySelectorAll<HTMLElement>("[role=treeitem]")];
  const item = (key: string): HTMLElement => view.elementOf(key)!;
  const focused = (): string | undefined => (document.activeElement as HTMLElement).dataset["mnbNode"];
  const press = (key: string, more: KeyboardEventInit = {}): void =>
    void (document.activeElement ?? view.board).dispatchEvent(
      new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }),
    );
  /** Return the place of a point of the scene on the screen. */
  const onScreen = (x: number, y: number): { clientX: number; clientY: number } => {
    const origin = view.toScene(0, 0);
    return { clientX: (x - origin.x) * view.scale, clientY: (y - origin.y) * view.scale };
  };
  const mouse = (type: string, x: number, y: number, more: MouseEventInit = {}): void =>
    void view.board.dispatchEvent(new MouseEvent(type, { bubbles: true, button: 0, ...onScreen(x, y), ...more }));
  const clickAt = (x: number, y: number): void =>
    ["pointerdown", "pointerup", "click"].forEach((type) => mouse(type, x, y));
  const draw = async (): Promise<string[]> => {
    await frame();
    await new Promise((resolve) => setTimeout(resolve, 200)); // after motion
    drawn.clear();
    view.paint({});
    await frame();
    return drawn.texts;
  };

  beforeEach(() => {
    drawn = new FakeContext();
    vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockImplementation(
      (() => drawn.context) as unknown as typeof HTMLCanvasElement.prototype.getContext,
    );
    for (const call of Object.values(calls)) call.mockClear();
    mount();
  });
  afterEach(() => {
    view.root.remove();
    view.destroy();
    vi.restoreAllMocks();
  });

  test("draws all texts near, names only farther away, and rectangles far away", async () => {
    view.show(small());
    view.zoomBy(1 / view.scale);
    expect(await draw()).toEqual(
      expect.arrayContaining(["Linear ×12", "one", "64 → 10", "(32, 10)", "25.0 %", "three", "a", "b"]),
    );
    view.zoomBy(0.45 / view.scale);
    expect(await draw()).toEqual(["three", "one ×12", "two", "a", "b", "four"]);
    view.zoomBy(0.15 / view.scale);
    expect(await draw()).toEqual([]);
    expect(drawn.rectangles).toBeGreaterThanOrEqual(5);
  });

  test("after Fit, the whole graph stays visible in a smaller frame, and below what covers the frame", () => {
    let top = 0;
    mount({ covered: () => ({ left: 0, top }) });
    const resize = (width: number, height: number, cover = 0): void => {
      top = cover;
      vi.spyOn(view.board, "clientWidth", "get").mockReturnValue(width);
      vi.spyOn(view.board, "clientHeight", "get").mockReturnValue(height);
      view.resized();
    };
    view.show(small());
    resize(400, 400); // for which the graph would be wrapped into rows shorter than it is
    vi.spyOn(performance, "now").mockReturnValue(1e6); // the first sizes of a frame lay out the graph again
    view.fit();
    for (const [width, height, cover] of [
      [300, 400, 0],
      [250, 150, 0],
      [250, 150, 40],
    ] as const) {
      resize(width, height, cover);
      const [start, end] = [view.toScene(0, cover), view.toScene(width, height)];
      const isWhole = start.x <= 20 && start.y <= 20 && end.x >= 620 && end.y >= 240;
      expect(isWhole, `${width} × ${height}, ${cover} px covered`).toBe(true);
    }
  });

  test("draws only the visible part", async () => {
    view.show(syntheticScene(10_000));
    view.zoomBy(1 / view.scale);
    const names = (await draw()).filter((text) => text.startsWith("layer"));
    expect(names.length).toBeGreaterThan(5);
    expect(names.length).toBeLessThan(100);
  });

  test("keeps few elements for 10,000 nodes, and always the focused one", async () => {
    view.show(syntheticScene(10_000));
    expect(items().length).toBeGreaterThan(20);
    expect(items().length).toBeLessThanOrEqual(151);
    view.focus("/layer_5000");
    expect([focused(), item("/layer_5000").getAttribute("aria-label")]).toEqual([
      "/layer_5000",
      "block layer_5000/dense",
    ]);
    view.fit();
    await new Promise((resolve) => setTimeout(resolve, 120));
    expect(items().map((one) => one.dataset["mnbNode"])).toEqual(["/layer_5000"]);
    press("ArrowDown");
    expect(focused()).toBe("/layer_5001");
    expect(document.querySelectorAll("*").length).toBeLessThan(3000);
  });

  test("is a tree with levels, positions and one stop in the tab order", () => {
    view.show(small());
    const facts = items().map((one) =>
      ["data-mnb-node", "aria-level", "aria-posinset", "aria-setsize", "aria-expanded", "tabindex"]
        .map((name) => one.getAttribute(name))
        .join(" "),
    );
    expect(facts).toEqual([
      "one 1 1 4 false 0",
      "two 1 2 4  -1",
      "three 1 3 4 true -1",
      "three/a 2 1 2  -1",
      "three/b 2 2 2  -1",
      "four 1 4 4  -1",
    ]);
    expect(view.board.getAttribute("role")).toBe("tree");
  });

  test("moves the focus in reading order, along edges, and to the group", () => {
    view.show(small());
    view.focus("one");
    const walk = (...keys: [string, KeyboardEventInit?][]): (string | undefined)[] =>
      keys.map(([key, more]) => (press(key, more), focused()));
    const along = { shiftKey: true };
    expect(walk(["ArrowDown"], ["ArrowDown"], ["ArrowRight"], ["ArrowLeft"], ["End"], ["Home"])).toEqual([
      "two",
      "three",
      "three/a",
      "three",
      "four",
      "one",
    ]);
    expect(
      walk(
        ["ArrowRight", along],
        ["ArrowDown", along],
        ["ArrowUp", along],
        ["ArrowRight", along],
        ["ArrowLeft", along],
      ),
    ).toEqual(["two", "four", "two", "three/a", "two"]);
    expect(walk(["Home"], ["ArrowUp"], ["ArrowLeft"])).toEqual(["one", "one", "one"]);
  });

  test("selects, opens and closes by keys", () => {
    view.show(small());
    view.focus("one");
    press("Enter");
    expect(calls.select).toHaveBeenLastCalledWith(expect.objectContaining({ key: "one" }), false);
    view.paint({ selected: new Set(["one"]) });
    expect([item("one").getAttribute("aria-selected"), item("one").dataset["mnbLinked"]]).toEqual(["true", "pinned"]);
    press("Enter");
    press("ArrowRight");
    view.focus("three");
    press("ArrowLeft");
    expect(calls.toggle.mock.calls.map(([node]) => node.key)).toEqual(["one", "one", "three"]);
    press(" ", { shiftKey: true });
    expect(calls.select).toHaveBeenLastCalledWith(expect.objectContaining({ key: "three" }), true);
    const before = view.scale;
    press("+");
    expect(view.scale).toBeGreaterThan(before);
    press("0");
    expect(view.scale).toBeCloseTo(before, 5);
  });

  test("clicks find boxes, edges in front of frames, frames and the background", () => {
    view.show(small());
    clickAt(300, 40);
    clickAt(100, 230);
    clickAt(215, 187);
    clickAt(300, 500);
    expect(calls.select.mock.calls.map(([node]) => node.key)).toEqual(["two", "three"]);
    expect(calls.selectEdge.mock.calls.map(([edge]) => edge.id)).toEqual(["three/a -> three/b"]);
    expect(calls.clear).toHaveBeenCalledTimes(1);
  });

  test("a drag pans, or moves a movable node, and does not click", () => {
    const move = vi.fn((_: SceneNode, x: number, y: number) => ({ x: x + 3, y }));
    const drag = { isMovable: ({ key }: SceneNode) => key === "two", move, drop: vi.fn(), cancel: vi.fn() };
    mount({ drag });
    view.show(small());
    const before = view.toScene(0, 0);
    for (const [x, y] of [
      [40, 40],
      [300, 40],
    ] as const) {
      const from = onScreen(x, y);
      mouse("pointerdown", x, y, { buttons: 1 });
      mouse("pointermove", 0, 0, { buttons: 1, clientX: from.clientX + 30, clientY: from.clientY + 10 });
      mouse("pointerup", 0, 0, { clientX: from.clientX + 30, clientY: from.clientY + 10 });
      mouse("click", 0, 0, { clientX: from.clientX + 30, clientY: from.clientY + 10 });
    }
    const k = view.scale;
    expect(view.toScene(0, 0).x - before.x).toBeCloseTo(-30 / k, 5);
    expect(drag.drop).toHaveBeenCalledTimes(1);
    expect(drag.drop.mock.calls[0]![1]).toBeCloseTo(220 + 30 / k + 3, 5);
    expect(calls.select).not.toHaveBeenCalled();
  });

  test("the opened group stays in its place, and others move there smoothly", async () => {
    view.show(small());
    await frame();
    const before = onScreen(20, 120);
    view.show(
      small((node) => ({ ...node, x: node.x + 100, y: node.y + 40 })),
      { anchor: "three" },
    );
    expect(onScreen(120, 160).clientX).toBeCloseTo(before.clientX, 5);
    expect(onScreen(120, 160).clientY).toBeCloseTo(before.clientY, 5);
  });

  test("keeps the focus when its node disappears", () => {
    view.show(small());
    view.focus("two");
    const scene = small();
    view.show({ ...scene, nodes: scene.nodes.filter(({ key }) => key !== "two"), edges: [] });
    expect(focused()).toBe("three");
  });

  test("shows the groups around the focused node", () => {
    view.show(small());
    const crumbs = view.root.querySelector<HTMLElement>("nav")!;
    expect(crumbs.hidden).toBe(true);
    view.focus("three/b");
    expect([...crumbs.querySelectorAll("button")].map((button) => button.textContent)).toEqual([
      "Whole graph",
      "three",
    ]);
    crumbs.querySelectorAll("button")[1]!.click();
    expect([focused(), crumbs.hidden]).toEqual(["three", true]);
  });

  test("gives controls only to nodes in question", () => {
    mount({ decorate: (parts) => parts.append(document.createElement("i")) });
    view.show(small());
    const decorated = (): string[] =>
      items()
        .filter((one) => one.querySelector("i"))
        .map((one) => one.dataset["mnbNode"]!);
    expect(decorated()).toEqual([]);
    mouse("pointermove", 300, 40);
    expect(decorated()).toEqual(["two"]);
    expect(calls.hover).toHaveBeenLastCalledWith(expect.objectContaining({ key: "two" }));
    view.paint({ selected: new Set(["four"]) });
    view.focus("three");
    mouse("pointermove", 700, 500);
    expect(decorated()).toEqual(["three", "four"]);
    item("three").querySelector<HTMLElement>(".mnb-node-chevron")!.click();
    expect(calls.toggle).toHaveBeenCalledWith(expect.objectContaining({ key: "three" }));
    expect(calls.select).not.toHaveBeenCalled();
  });

  test("a part that has the focus is removed once", async () => {
    mount({ decorate: (parts) => parts.append(document.createElement("button")) });
    view.show(small());
    view.paint({ selected: new Set(["one"]) });
    const parts = item("one").querySelector<HTMLElement>(".mnb-node-parts")!;
    parts.querySelector("button")!.focus();
    let removals = 0;
    parts.remove = () => {
      removals += 1;
      // As Chromium: the events of the lost focus arrive during the removal.
      (document.activeElement as HTMLElement).blur();
      if (!parts.parentNode) throw new DOMException("The node to be removed is no longer a child of this node.");
      parts.parentNode.removeChild(parts);
    };
    view.focus("two");
    view.paint({ selected: new Set() });
    await frame();
    expect([removals, item("one").querySelector(".mnb-node-parts")]).toEqual([1, null]);
  });

  test("dims, colours and marks problems", async () => {
    view.show(small((node) => (node.key === "two" ? { ...node, problem: 0 } : node)));
    view.paint({ dimmed: new Set(["four"]), overlay: new Map([["one", { level: 0.5, text: "1.2 ms" }]]) });
    expect(await draw()).toContain("1.2 ms");
    expect(drawn.alphaOf("four")).toBeLessThan(0.5);
    expect(drawn.alphaOf("two")).toBe(1);
  });

  test("shows matches and dimmed nodes of large graphs, also far away", async () => {
    const scene = syntheticScene(13_000);
    view.show(scene);
    view.fit();
    await frame();
    drawn.clear();
    const last = scene.nodes.at(-1)!.key;
    view.paint({
      matches: new Map([[last, 1]]),
      dimmed: new Set(scene.nodes.map(({ key }) => key).filter((key) => key !== last)),
    });
    await frame();
    expect(drawn.rims).toBeGreaterThan(0);
    expect(drawn.faint).toBeGreaterThan(12_000);
  });

  test("draws values of an earlier model faintly", async () => {
    view.show(small());
    view.zoomBy(1 / view.scale);
    view.paint({ overlay: new Map([["one", { level: 0.5, text: "1.2 ms" }]]), isOld: true });
    await draw();
    expect(drawn.alphaOf("1.2 ms")).toBeLessThan(0.5);
    expect(drawn.alphaOf("one")).toBe(1);
  });

  test("a minimap appears where it covers no node, if the graph is not whole in view", async () => {
    const minimap = (): HTMLCanvasElement => view.root.querySelector<HTMLCanvasElement>(".mnb-minimap")!;
    view.show(small());
    await frame();
    expect(minimap().hidden).toBe(true);
    view.show(syntheticScene(2000));
    await frame();
    expect(minimap().hidden).toBe(true);
    const [node] = small().nodes;
    const nodes = Array.from({ length: 30 }, (_, at) => ({ ...node!, key: `${at}`, x: 9 * at, y: 100 * at }));
    view.show({ ...small(), nodes, edges: [], width: 430, height: 3000 });
    await frame();
    expect([minimap().hidden, minimap().getAttribute("aria-hidden")]).toEqual([false, "true"]);
    const before = view.toScene(0, 0);
    vi.spyOn(minimap(), "getBoundingClientRect").mockReturnValue({
      left: 0,
      top: 0,
      width: 160,
      height: 100,
    } as DOMRect);
    minimap().dispatchEvent(new MouseEvent("pointerdown", { clientX: 150, clientY: 90 }));
    expect(view.toScene(0, 0).y).toBeGreaterThan(before.y + 1000);
  });

  test.each(HOSTILE)("shows the name %# as text", async (name) => {
    view.show(small((node) => ({ ...node, name, label: name, shape: name, kind: name })));
    view.zoomBy(1 / view.scale);
    const texts = await draw();
    expect(texts.length).toBeGreaterThan(5);
    for (const text of texts) expect([text.length < 320, /[\n\u2028\u202e\ud800]/.test(text)]).toEqual([true, false]);
    expect(view.root.querySelectorAll("img, script")).toHaveLength(0);
    expect(item("two").getAttribute("aria-label")).toBe(`${name} ${name}`);
  });

  test("makes a PNG of the whole graph", async () => {
    HTMLCanvasElement.prototype.toBlob = function toBlob(done): void {
      done(new Blob([`${this.width} × ${this.height}`]));
    };
    view.show(small());
    expect(await (await view.toPng(2)).text()).toBe("1236 × 496");
  });
});
