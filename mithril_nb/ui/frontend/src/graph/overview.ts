/** A small picture of a whole scene: for the minimap, and for zooms at which each node is about a pixel. */

import type { Colours } from "../drawing/colours";
import type { Rect } from "../drawing/lines";
import { type Overlay, rectangleColour } from "./boxes";
import type { Scene, SceneNode } from "./scene";

const LONGEST_SIDE = 2048;
const LARGEST_SCALE = 0.25;

export class Overview {
  private canvas: HTMLCanvasElement | null = null;
  private colours: Colours | null = null;
  private overlay: ReadonlyMap<string, Overlay> | null = null;

  clear(): void {
    this.canvas = null;
  }

  /** Draw the whole scene into `bounds`, in the coordinates of the context. */
  blit(c: CanvasRenderingContext2D, scene: Scene, bounds: Rect, colours: Colours, overlay: ReadonlyMap<string, Overlay>): void {
    const canvas = this.picture(scene, bounds, colours, overlay);
    if (canvas) c.drawImage(canvas, bounds.x, bounds.y, bounds.w, bounds.h);
  }

  private picture(scene: Scene, bounds: Rect, colours: Colours, overlay: ReadonlyMap<string, Overlay>): HTMLCanvasElement | null {
    if (this.canvas && this.colours === colours && this.overlay === overlay) return this.canvas;
    if (bounds.w <= 0 || bounds.h <= 0) return null;
    const scale = Math.min(LARGEST_SCALE, LONGEST_SIDE / bounds.w, LONGEST_SIDE / bounds.h);
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
      const colour = rectangleColour(colours, node, overlay.get(node.key));
      const some = byColour.get(colour);
      if (some) some.push(node);
      else byColour.set(colour, [node]);
    }
    c.globalAlpha = 1;
    for (const [colour, nodes] of byColour) {
      c.fillStyle = colour;
      for (const { x, y, w, h } of nodes) c.fillRect(x, y, w, h);
    }
    [this.canvas, this.colours, this.overlay] = [canvas, colours, overlay];
    return canvas;
  }
}
