/** A small picture of a whole scene: for the minimap, and for zooms at which each node is about a pixel. */

import { push } from "../dom/lists";
import type { Colours } from "../drawing/colours";
import type { Rect } from "../drawing/lines";
import { DIM, OLD, type Overlay, rectangleColour } from "./boxes";
import type { Scene, SceneNode } from "./scene";

/** The parts of `PaintState` that the picture shows. */
export interface OverviewState {
  overlay: ReadonlyMap<string, Overlay>;
  dimmed: ReadonlySet<string>;
  isOld: boolean;
}

const LARGEST = { side: 8192, area: 6e6, scale: 0.25 };

export function createOverview() {
  let drawn: HTMLCanvasElement | null = null;
  let drawnColours: Colours | null = null;
  let drawnState: OverviewState | null = null;

  function clear() {
    drawn = null;
  }

  /** Return the pixels of the picture per unit of a scene. */
  function scaleOf({ w, h }: Rect) {
    return Math.min(LARGEST.scale, LARGEST.side / Math.max(1, w, h), Math.sqrt(LARGEST.area / Math.max(1, w * h)));
  }

  /** Draw the whole scene into `bounds`, in the coordinates of the context. */
  function blit(c: CanvasRenderingContext2D, scene: Scene, bounds: Rect, colours: Colours, state: OverviewState) {
    const canvas = picture(scene, bounds, colours, state);
    if (canvas) c.drawImage(canvas, bounds.x, bounds.y, bounds.w, bounds.h);
  }

  function picture(scene: Scene, bounds: Rect, colours: Colours, state: OverviewState) {
    const { overlay, dimmed, isOld } = state;
    if (
      drawn &&
      drawnColours === colours &&
      drawnState?.overlay === overlay &&
      drawnState.dimmed === dimmed &&
      drawnState.isOld === isOld
    )
      return drawn;
    if (bounds.w <= 0 || bounds.h <= 0) return null;
    const scale = scaleOf(bounds);
    const canvas = document.createElement("canvas");
    canvas.width = Math.max(1, Math.ceil(bounds.w * scale));
    canvas.height = Math.max(1, Math.ceil(bounds.h * scale));
    const c = canvas.getContext("2d");
    if (!c) return null;
    c.scale(canvas.width / bounds.w, canvas.height / bounds.h);
    c.translate(-bounds.x, -bounds.y);
    const byColour = new Map<string, SceneNode[]>();
    for (const node of scene.nodes) {
      if (node.expanded) {
        c.globalAlpha = 0.12;
        c.fillStyle = rectangleColour(colours, node, undefined);
        c.fillRect(node.x, node.y, node.w, node.h);
        continue;
      }
      push(byColour, rectangleColour(colours, node, overlay.get(node.key)), node);
    }
    const plain = isOld && overlay.size ? OLD : 1;
    for (const [colour, nodes] of byColour) {
      c.fillStyle = colour;
      for (const { key, x, y, w, h } of nodes) {
        const alpha = dimmed.has(key) ? DIM : plain;
        if (c.globalAlpha !== alpha) c.globalAlpha = alpha;
        c.fillRect(x, y, w, h);
      }
    }
    [drawn, drawnColours, drawnState] = [canvas, colours, { overlay, dimmed, isOld }];
    return canvas;
  }

  return { clear, scaleOf, blit };
}
