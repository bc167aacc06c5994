/** Graphs as SVG: well-formed, escaped, with the texts and the legend of the picture. */

import { expect, test } from "vitest";
import { readColours } from "../src/drawing/colours";
import { SvgContext } from "../src/drawing/svg-context";
import { GraphOverlay } from "../src/graph/overlay";
import { createPainter, PLAIN } from "../src/graph/painter";
import { SceneIndex, type SceneNode } from "../src/graph/scene";

const node = (key: string, x: number): SceneNode => ({
  key,
  parent: "",
  path: key,
  name: key,
  kind: "Linear",
  hue: 1,
  x,
  y: 0,
  w: 160,
  h: 60,
  label: "",
  shape: "8",
  share: null,
  problem: null,
  group: false,
  expanded: false,
  repeat: 1,
  inputs: [],
  outputs: [],
});
const parse = (text: string): Document => new DOMParser().parseFromString(text, "image/svg+xml");

test("paths, circles, transforms and opacity", () => {
  const c = new SvgContext(null);
  c.save();
  c.translate(10, 20);
  c.scale(2, 2);
  c.globalAlpha = 0.5;
  c.beginPath();
  c.roundRect(0, 0, 10, 4, 9);
  c.fill();
  c.restore();
  c.beginPath();
  c.arc(5, 5, 2);
  c.setLineDash([2, 1]);
  c.stroke();
  const paths = [...parse(c.toText(20, 20, "#fff", "a")).querySelectorAll("path")];
  expect(
    paths.map((path) => [
      path.getAttribute("transform"),
      path.getAttribute("opacity"),
      path.getAttribute("stroke-dasharray"),
    ]),
  ).toEqual([
    ["matrix(2 0 0 2 10 20)", "0.5", null],
    [null, null, "2 1"],
  ]);
  expect(paths[1]!.getAttribute("d")).toBe("M7 5A2 2 0 1 1 3 5A2 2 0 1 1 7 5Z");
});

test("hostile texts are valid XML, and the legend has rows for all its parts and notes", () => {
  const hostile = `\u202e<b>&\0\x1b\uffff\ud800\n${"x".repeat(5000)}`;
  const painter = createPainter();
  painter.show(
    new SceneIndex({
      title: "",
      width: 100,
      height: 80,
      nodes: [node(hostile, 0)],
      edges: [],
      is_model: true,
      roles: [],
    }),
  );
  const categories = Array.from({ length: 12 }, (_, at) => `category ${at} ${hostile}`);
  const overlay = new GraphOverlay(
    {
      name: "x",
      title: hostile,
      unit: "",
      total: null,
      categories,
      values: [0, "?"],
      bounds: [],
      texts: {},
      notes: ["a note", hostile],
    },
    [hostile, "b"],
  );
  const text = painter.toSvg(
    readColours(document.body),
    { ...PLAIN, overlay: overlay.marks, legend: overlay },
    hostile,
  );
  const found = parse(text);
  expect(found.querySelector("parsererror")).toBeNull();
  expect(text).not.toMatch(/[\0-\x08\x0b-\x1f\u202e\uffff]/);
  const root = found.documentElement;
  const [width, height] = ["width", "height"].map((name) => Number(root.getAttribute(name)));
  const texts = [...found.querySelectorAll("text")];
  expect(texts.filter((one) => one.textContent!.startsWith("category"))).toHaveLength(12 + 1);
  expect(texts.map((one) => one.textContent)).toContain("a note");
  for (const one of texts) {
    const [x, y, size] = ["x", "y", "font-size"].map((name) => Number(one.getAttribute(name)));
    expect(y!).toBeLessThan(height!);
    if (one.getAttribute("text-anchor") === "start")
      expect(x! + one.textContent!.length * 0.6 * size!).toBeLessThanOrEqual(width! + 1);
  }
});

test("a graph with an overlay and hostile names stays data", () => {
  const hostile = `<script>alert("x")</script>&'`;
  const painter = createPainter();
  const nodes = [node("a", 0), node(hostile, 200)];
  painter.show(new SceneIndex({ title: "", width: 400, height: 80, nodes, edges: [], is_model: true, roles: [] }));
  const overlay = new GraphOverlay(
    {
      name: "x",
      title: hostile,
      unit: "FLOP",
      total: null,
      categories: [],
      values: [2000, "?"],
      bounds: [],
      texts: {},
      notes: [],
    },
    ["a", hostile],
  );
  const text = painter.toSvg(
    readColours(document.body),
    { ...PLAIN, overlay: overlay.marks, legend: overlay },
    hostile,
  );
  const found = parse(text);
  expect(found.querySelector("parsererror")).toBeNull();
  expect(found.querySelectorAll("script, a, image, use, [id], [href], [onload]").length).toBe(0);
  expect(text).not.toContain("<script");
  const texts = [...found.querySelectorAll("text")].map((one) => one.textContent);
  expect(texts).toEqual(expect.arrayContaining(["2.00 kFLOP", "?", "unknown", hostile]));
  expect(found.querySelector("title")!.textContent).toBe(hostile);
});
