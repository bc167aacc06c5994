/** A page that shows a synthetic graph, and measures how fast it is drawn. `?nodes=1000`, `?groups=100`, `?dark`. */

import type { Scene } from "../src/graph/scene";
import { createGraphView, type GraphView } from "../src/graph/view";
import { styleFor } from "../src/dom/styles";
import { syntheticScene } from "./synthetic";

const frame = (): Promise<number> => new Promise((resolve) => requestAnimationFrame(resolve));

/** Return the frame times in ms while `move` is called once per frame. */
async function frames(count: number, move: (at: number) => void): Promise<number[]> {
  const times: number[] = [];
  let last = await frame();
  for (let at = 0; at < count; at++) {
    move(at);
    const now = await frame();
    times.push(now - last);
    last = now;
  }
  return times.sort((a, b) => a - b);
}

const summary = (times: number[]): { fps: number; p95_ms: number } => ({
  fps: (1000 * times.length) / times.reduce((sum, time) => sum + time, 0),
  p95_ms: times[Math.floor(times.length * 0.95)]!,
});

/** Show a scene and measure the first paint, panning and zooming, with the pointer and the wheel as a user has them. */
async function measure(scene: Scene): Promise<Record<string, unknown>> {
  view.show({ ...scene, nodes: [], edges: [] });
  await frame();
  await frame();
  const start = performance.now();
  view.show(scene);
  await frame();
  await frame();
  const first_paint_ms = performance.now() - start;
  const { board } = view;
  const box = board.getBoundingClientRect();
  const wheel = (deltaY: number): boolean =>
    board.dispatchEvent(
      new WheelEvent("wheel", {
        deltaY,
        ctrlKey: true,
        clientX: box.x + 300,
        clientY: box.y + 200,
        bubbles: true,
        cancelable: true,
      }),
    );
  const point = (type: string, at: number): boolean =>
    board.dispatchEvent(
      new PointerEvent(type, {
        pointerId: 1,
        button: 0,
        buttons: 1,
        clientX: box.x + 850 - ((at * 9) % 800),
        clientY: box.y + 500 - ((at * 6) % 480),
        bubbles: true,
      }),
    );
  const capture = board.setPointerCapture;
  board.setPointerCapture = () => {}; // there is no such pointer
  const found: Record<string, unknown> = { first_paint_ms, dom_nodes: document.querySelectorAll("*").length };
  for (const zoom of [1, 0.3, 0.08, 0]) {
    if (zoom) view.zoomBy(zoom / view.scale);
    else view.fit();
    await frame();
    point("pointerdown", 0);
    const pan = await frames(90, (at) => void point("pointermove", at));
    point("pointerup", 90);
    found[`pan at ${zoom || "fit"}`] = { ...summary(pan), scale: view.scale };
  }
  found["zoom"] = summary(await frames(120, (at) => void wheel(at < 60 ? -60 : 60)));
  board.setPointerCapture = capture;
  await new Promise((resolve) => setTimeout(resolve, 200));
  view.zoomBy(1 / view.scale);
  await new Promise((resolve) => setTimeout(resolve, 200));
  found["dom_nodes_after"] = document.querySelectorAll("*").length;
  return found;
}

const query = new URLSearchParams(location.search);
if (query.has("dark")) document.body.dataset["jpThemeLight"] = "false";
const host = document.querySelector<HTMLElement>("#graph")!;
styleFor(host);
const root = host.appendChild(document.createElement("div"));
root.className = "mnb-root";
root.dataset["mnbTheme"] = query.has("dark") ? "dark" : "light";
root.style.cssText = "width: 900px; height: 520px; display: flex";
const selected = new Set<string>();
const view: GraphView = createGraphView({
  label: "Synthetic graph",
  describe: (node) => ({ name: `${node.kind} ${node.name}`, tip: [node.name] }),
  select: (node) => {
    selected.clear();
    view.paint({ selected: new Set([node.key]) });
  },
});
root.append(view.root);
Object.assign(globalThis, { view, syntheticScene, measure });
if (query.has("nodes")) view.show(syntheticScene(Number(query.get("nodes")), Number(query.get("groups") ?? 0)));
