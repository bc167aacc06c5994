/** Where the view is: a minimap, and the groups around the focused node. */

import { handled } from "../dom/events";
import { h } from "../dom/dom";
import type { Colours } from "../drawing/colours";
import type { Rect } from "../drawing/lines";
import type { OverviewState } from "./overview";
import type { Painter } from "./painter";
import type { SceneIndex, SceneNode } from "./scene";

const LATER_MS = 120;
const SIZE = { w: 160, h: 104 };
/** Height of a frame in which the minimap has its full size: in a low frame it would cover the graph. */
const ROOMY_PX = 640;
/** Distance of the minimap from the edges of the frame, and its border. */
const INSET = 8;

/** A small picture of the whole graph with the visible part; a press or drag moves the view. */
export function createMinimap(painter: Painter, moveTo: (x: number, y: number) => void, redraw: () => void) {
  let picture: HTMLCanvasElement | null = null;
  let drawnFrom: readonly unknown[] = [];
  let ready: SceneIndex | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const root = h("canvas", { class: "mnb-minimap", "aria-hidden": "true", hidden: true }) as HTMLCanvasElement;
  const move = (event: PointerEvent) => {
    const box = root.getBoundingClientRect();
    const { bounds } = painter;
    moveTo(
      bounds.x + ((event.clientX - box.left) / Math.max(1, box.width)) * bounds.w,
      bounds.y + ((event.clientY - box.top) / Math.max(1, box.height)) * bounds.h,
    );
  };
  root.addEventListener("pointerdown", (event) => {
    handled(event);
    root.setPointerCapture(event.pointerId);
    move(event);
  });
  root.addEventListener("pointermove", (event) => event.buttons && move(event));

  /** Return the size of the minimap, with its distance from the edges, in a frame of a height. */
  function sizeIn(height: number) {
    const { bounds } = painter;
    const scale = Math.min(1, height / ROOMY_PX) * Math.min(SIZE.w / bounds.w, SIZE.h / bounds.h);
    return { scale, w: Math.max(12, bounds.w * scale) + INSET, h: Math.max(12, bounds.h * scale) + INSET };
  }

  /** Draw the minimap if a part of the graph is out of view, at a scale, and if it covers no node. */
  function draw(part: Rect, k: number, ratio: number, colours: Colours, state: OverviewState) {
    const { bounds, index } = painter;
    const size = sizeIn(part.h * k);
    const [w, h] = [size.w / k, size.h / k];
    const under = { x: part.x + part.w - w, y: part.y + part.h - h, w, h };
    const isIn =
      part.x <= bounds.x &&
      part.y <= bounds.y &&
      part.x + part.w >= bounds.x + bounds.w &&
      part.y + part.h >= bounds.y + bounds.h;
    root.hidden = isIn || bounds.w <= 0 || bounds.h <= 0 || painter.nodesIn(under).some(({ expanded }) => !expanded);
    if (root.hidden) return;
    root.style.top = `${part.h * k - size.h}px`;
    if (ready === index) refresh(size, ratio, colours, state);
    else timer ??= setTimeout(getReady, LATER_MS);
    const c = root.getContext("2d");
    if (!c || !picture) return;
    const { width, height } = root;
    c.clearRect(0, 0, width, height);
    c.drawImage(picture, 0, 0);
    const unit = size.scale * ratio;
    c.strokeStyle = colours.accent;
    c.lineWidth = 1.5 * ratio;
    const [x, y] = [Math.max(0, (part.x - bounds.x) * unit), Math.max(0, (part.y - bounds.y) * unit)];
    c.strokeRect(
      x + ratio,
      y + ratio,
      Math.max(4, Math.min(width, (part.x + part.w - bounds.x) * unit) - x - 2 * ratio),
      Math.max(4, Math.min(height, (part.y + part.h - bounds.y) * unit) - y - 2 * ratio),
    );
  }

  function destroy() {
    clearTimeout(timer);
  }

  /** The graph itself is drawn first, then its small picture. */
  function getReady() {
    timer = undefined;
    ready = painter.index;
    redraw();
  }

  /** Draw the picture of the graph if it has changed. */
  function refresh(
    { scale, w, h: tall }: ReturnType<typeof sizeIn>,
    ratio: number,
    colours: Colours,
    state: OverviewState,
  ) {
    const of = [painter.index, colours, state.overlay, state.dimmed, state.isOld, ratio, scale];
    if (picture && of.every((one, i) => one === drawnFrom[i])) return;
    const { bounds, index, overview } = painter;
    const [width, height] = [w - INSET, tall - INSET];
    Object.assign(root.style, { width: `${width}px`, height: `${height}px` });
    picture = document.createElement("canvas");
    for (const canvas of [root, picture])
      Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const c = picture.getContext("2d");
    if (c) {
      c.setTransform(scale * ratio, 0, 0, scale * ratio, -bounds.x * scale * ratio, -bounds.y * scale * ratio);
      overview.blit(c, index.scene, bounds, colours, state);
    }
    drawnFrom = of;
  }

  return { root, sizeIn, draw, destroy };
}

/** The groups around the focused node, outermost first, as buttons. */
export function createCrumbs(goTo: (key: string) => void, goToAll: () => void) {
  const root = h("nav", { class: "mnb-crumbs", "aria-label": "Groups around the node", hidden: true });
  let shownGroups = "";

  function show(groups: readonly SceneNode[]) {
    const shown = JSON.stringify(groups.map(({ key, name }) => [key, name]));
    if (shown === shownGroups) return;
    shownGroups = shown;
    root.hidden = groups.length === 0;
    const button = (label: string, go: () => void): HTMLElement =>
      h("button", { type: "button", class: "mnb-crumb", title: label, onclick: go }, label);
    root.replaceChildren(
      ...(groups.length ? [button("Whole graph", goToAll)] : []),
      ...groups.flatMap(({ key, name }) => [h("span", { "aria-hidden": "true" }, "›"), button(name, () => goTo(key))]),
    );
  }

  return { root, show };
}
