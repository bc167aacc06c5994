// @vitest-environment node
import { describe, expect, test } from "vitest";
import { createGrid } from "../src/drawing/grid";
import type { Colours } from "../src/drawing/colours";
import { createLettering, oneLine } from "../src/drawing/lettering";
import { type Rect, bend, between, distanceTo, middle, piecesIn, pointAlong } from "../src/drawing/lines";
import { syntheticScene } from "../dev/synthetic";
import { planMotion } from "../src/graph/motion";
import { createPainter, STILL } from "../src/graph/painter";
import { drawBox } from "../src/graph/boxes";
import { SceneIndex, type SceneNode } from "../src/graph/scene";
import { FakeContext } from "./fake-context";

/** Pseudo-random numbers from 0 to 1, equal in every run. */
function random(seed: number): () => number {
  return () => (seed = (seed * 48271) % 2147483647) / 2147483647;
}

describe("a grid", () => {
  test.each([1, 2, 3, 4, 5, 6])("finds exactly the rectangles in a part (%s)", (seed) => {
    const next = random(seed);
    const rect = (most: number): Rect => ({
      x: next() * 1000 - 500,
      y: next() * 4000,
      w: next() * next() * most,
      h: next() * next() * most,
    });
    const rects = Array.from({ length: 400 }, () => rect(seed % 2 ? 90 : 3000));
    const grid = createGrid(rects);
    for (let round = 0; round < 60; round++) {
      const part = rect(900);
      const meets = ({ x, y, w, h }: Rect): boolean =>
        x <= part.x + part.w && x + w >= part.x && y <= part.y + part.h && y + h >= part.y;
      expect(grid.find(part)).toEqual(rects.flatMap((one, i) => (meets(one) ? [i] : [])));
    }
  });
  test("may be empty, and ignores lines without points", () => {
    expect(createGrid([]).find({ x: -1e9, y: -1e9, w: 2e9, h: 2e9 })).toEqual([]);
    expect(
      createGrid([
        { x: 0, y: 0, w: -1, h: -1 },
        { x: 5, y: 5, w: 0, h: 0 },
      ]).find({ x: 0, y: 0, w: 10, h: 10 }),
    ).toEqual([1]);
  });
});

describe("texts", () => {
  const lettering = createLettering(new FakeContext().context, "sans-serif");
  test.each([
    ["short", 60, "short"],
    ["block_0_attention_query", 60, "block_…ery"],
    ["block_0_attention_value", 60, "block_…lue"],
    ["abc", 12, "a…"],
    ["abc", 3, ""],
  ])("%s in %s px is %s", (text, room, expected) => expect(lettering.fit(text, 10, room)).toBe(expected));
  test("are one line, without control characters or changes of direction", () => {
    expect(oneLine("a\n\tb\u2028c\x1b\u202ed\ud800")).toBe("a⏎b⏎c\\x1b\\u202ed\\ud800");
    expect(oneLine("α→β 🙂")).toBe("α→β 🙂");
  });
  test("of thousands of characters keep their ends", () => {
    const long = `start${"x".repeat(5000)}end`;
    expect(lettering.fit(long, 10, 120)).toMatch(/^startx+…x+end$/);
  });
  test("of a short name are whole beside a long shape", () => {
    const drawn = new FakeContext();
    const node = {
      key: "input:input",
      path: "",
      name: "input",
      kind: "input",
      label: "",
      shape: "(128, 1024) float32",
      x: 0,
      y: 0,
      w: 104,
      h: 30,
      expanded: false,
      repeat: 1,
      share: null,
      problem: null,
      hue: 0,
      inputs: [],
      outputs: [],
    } as unknown as SceneNode;
    drawBox(
      {
        c: drawn.context,
        colours: new Proxy({}, { get: () => "#000" }) as Colours,
        lettering: createLettering(drawn.context, "sans-serif"),
        k: 1,
        isModel: true,
        hasRoles: false,
        isOld: false,
      },
      node,
      node,
      undefined,
    );
    expect(drawn.texts[0]).toBe("input");
    expect(drawn.texts[1]).toMatch(/^\(.*….*$/);
  });
  test("fit into their room", () => {
    const next = random(7);
    for (let round = 0; round < 200; round++) {
      const [text, room] = ["name_of_a_block".repeat(1 + Math.floor(next() * 4)), next() * 300];
      expect(lettering.width(lettering.fit(text, 11, room), 11)).toBeLessThanOrEqual(room + 0.5);
    }
  });
});

describe("lines", () => {
  const corner = {
    points: [
      [0, 0],
      [8, 0],
      [8, 40],
      [10, 40],
    ] as [number, number][],
    curve: false,
  };
  test("have a middle, a distance and points along them", () => {
    expect(middle(corner)).toEqual([8, 20]);
    expect(middle({ points: [], curve: true })).toEqual([0, 0]);
    expect(middle(bend(0, 0, 100, 0))[0]).toBeCloseTo(50);
    expect(pointAlong(corner.points, 0.16)).toEqual([8, 0]);
    expect(distanceTo(corner, 11, 20)).toBe(3);
    expect(distanceTo(bend(0, 0, 100, 0), 50, 4)).toBeCloseTo(4);
  });
  test("are cut to the view", () => {
    const part = { x: -10, y: -10, w: 30, h: 30 };
    expect(piecesIn(corner, part)).toEqual([
      {
        points: [
          [0, 0],
          [8, 0],
          [8, 20],
        ],
        isEnd: false,
      },
    ]);
    expect(
      piecesIn(
        {
          points: [
            [-100, 5],
            [100, 5],
            [100, 15],
            [0, 15],
          ],
          curve: false,
        },
        part,
      ),
    ).toEqual([
      {
        points: [
          [-10, 5],
          [20, 5],
        ],
        isEnd: false,
      },
      {
        points: [
          [20, 15],
          [0, 15],
        ],
        isEnd: true,
      },
    ]);
    expect(
      piecesIn(
        {
          points: [
            [-100, 50],
            [100, 50],
          ],
          curve: false,
        },
        part,
      ),
    ).toEqual([]);
  });
  test("move between equal forms only", () => {
    expect(between(corner, { ...corner, points: corner.points.map(([x, y]) => [x + 10, y]) }, 0.5)!.points[0]).toEqual([
      5, 0,
    ]);
    expect(between(corner, bend(0, 0, 1, 1), 0.5)).toBeNull();
  });
});

describe("motion", () => {
  test("starts where nodes are on the screen, and ends in their places", () => {
    const scene = syntheticScene(20);
    const painter = createPainter();
    const old = {
      index: new SceneIndex({ ...scene, nodes: scene.nodes.slice(1) }),
      view: { x: 100, y: 50, k: 0.5 },
      moved: STILL,
      keys: scene.nodes.map(({ key }) => key),
    };
    painter.show(new SceneIndex(scene));
    const motion = planMotion(old, painter, { x: 0, y: 0, k: 1 }, { x: 0, y: 0, w: 9000, h: 900 }, 1000)!;
    const [first, second] = scene.nodes as [(typeof scene.nodes)[0], (typeof scene.nodes)[0]];
    const start = motion.at(1000)!.nodes;
    expect(start.get(second.key)).toEqual({
      x: second.x * 0.5 + 100,
      y: second.y * 0.5 + 50,
      w: second.w / 2,
      h: second.h / 2,
    });
    expect(start.get(first.key)).toEqual({ x: first.x, y: first.y, w: first.w, h: first.h, opacity: 0 });
    expect(motion.at(1149)!.nodes.get(second.key)!.x).toBeCloseTo(second.x, 1);
    expect(motion.at(1150)).toBeNull();
  });
  test("does not happen if nothing moves", () => {
    const painter = createPainter();
    painter.show(new SceneIndex(syntheticScene(20)));
    const view = { x: 0, y: 0, k: 1 };
    expect(
      planMotion(
        { index: painter.index, view, moved: STILL, keys: [] },
        painter,
        view,
        { x: 0, y: 0, w: 900, h: 900 },
        0,
      ),
    ).toBeNull();
  });
});
