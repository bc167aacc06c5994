/** Where the view is: a minimap, and the groups around the focused node. */

import { h } from "../dom/dom";
import type { Colours } from "../drawing/colours";
import type { Rect } from "../drawing/lines";
import type { OverviewState } from "./overview";
import type { Painter } from "./painter";
import type { SceneIndex, SceneNode } from "./scene";

/** Smaller graphs need no minimap. */
const LEAST_NODES = 50;
const LATER_MS = 120;
const SIZE = { w: 160, h: 104 };

/** A small picture of the whole graph with the visible part; a press or drag moves the view. */
export class Minimap {
  readonly root: HTMLCanvasElement;
  private picture: HTMLCanvasElement | null = null;
  private of: readonly unknown[] = [];
  private scale = 1;
  private ready: SceneIndex | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly painter: Painter,
    private readonly moveTo: (x: number, y: number) => void,
    private readonly redraw: () => void,
  ) {
    this.root = h("canvas", { class: "mnb-minimap", "aria-hidden": "true", hidden: true }) as HTMLCanvasElement;
    const move = (event: PointerEvent): void => {
      const box = this.root.getBoundingClientRect();
      const { bounds } = this.painter;
      this.moveTo(
        bounds.x + ((event.clientX - box.left) / Math.max(1, box.width)) * bounds.w,
        bounds.y + ((event.clientY - box.top) / Math.max(1, box.height)) * bounds.h,
      );
    };
    this.root.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      event.stopPropagation();
      this.root.setPointerCapture(event.pointerId);
      move(event);
    });
    this.root.addEventListener("pointermove", (event) => event.buttons && move(event));
  }

  draw(part: Rect, ratio: number, colours: Colours, state: OverviewState): void {
    const { bounds, index } = this.painter;
    this.root.hidden = index.scene.nodes.length < LEAST_NODES || bounds.w <= 0 || bounds.h <= 0;
    if (this.root.hidden) return;
    if (this.ready === index)
      this.refresh([index, colours, state.overlay, state.dimmed, state.isOld, ratio], ratio, colours, state);
    else this.timer ??= setTimeout(() => this.getReady(), LATER_MS);
    const c = this.root.getContext("2d");
    if (!c || !this.picture) return;
    const { width, height } = this.root;
    c.clearRect(0, 0, width, height);
    c.drawImage(this.picture, 0, 0);
    const unit = this.scale * ratio;
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

  destroy(): void {
    clearTimeout(this.timer);
  }

  /** The graph itself is drawn first, then its small picture. */
  private getReady(): void {
    this.timer = undefined;
    this.ready = this.painter.index;
    this.redraw();
  }

  /** Draw the picture of the graph if it has changed. */
  private refresh(of: readonly unknown[], ratio: number, colours: Colours, state: OverviewState): void {
    if (this.picture && of.every((one, i) => one === this.of[i])) return;
    const { bounds, index, overview } = this.painter;
    this.scale = Math.min(SIZE.w / bounds.w, SIZE.h / bounds.h);
    const [width, height] = [Math.max(12, bounds.w * this.scale), Math.max(12, bounds.h * this.scale)];
    Object.assign(this.root.style, { width: `${width}px`, height: `${height}px` });
    this.picture = document.createElement("canvas");
    for (const canvas of [this.root, this.picture])
      Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const c = this.picture.getContext("2d");
    if (c) {
      c.setTransform(
        this.scale * ratio,
        0,
        0,
        this.scale * ratio,
        -bounds.x * this.scale * ratio,
        -bounds.y * this.scale * ratio,
      );
      overview.blit(c, index.scene, bounds, colours, state);
    }
    this.of = of;
  }
}

/** The groups around the focused node, outermost first, as buttons. */
export class Crumbs {
  readonly root = h("nav", { class: "mnb-crumbs", "aria-label": "Groups around the node", hidden: true });
  private shown = "";

  constructor(
    private readonly goTo: (key: string) => void,
    private readonly goToAll: () => void,
  ) {}

  show(groups: readonly SceneNode[]): void {
    const shown = JSON.stringify(groups.map(({ key, name }) => [key, name]));
    if (shown === this.shown) return;
    this.shown = shown;
    this.root.hidden = groups.length === 0;
    const button = (label: string, go: () => void): HTMLElement =>
      h("button", { type: "button", class: "mnb-crumb", title: label, onclick: go }, label);
    this.root.replaceChildren(
      ...(groups.length ? [button("Whole graph", this.goToAll)] : []),
      ...groups.flatMap(({ key, name }) => [
        h("span", { "aria-hidden": "true" }, "›"),
        button(name, () => this.goTo(key)),
      ]),
    );
  }
}
