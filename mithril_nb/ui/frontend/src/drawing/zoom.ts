/** Pan and zoom of a plane in a frame: one pointer pans, two pinch, the wheel zooms. */

import { zoomOf } from "../dom/dom";

export interface View {
  x: number;
  y: number;
  k: number;
}

export interface ZoomOptions {
  /** Return whether a press pans. */
  pans: (event: PointerEvent) => boolean;
  /** Return whether the wheel zooms instead of scrolling the page. */
  wheels: (event: WheelEvent) => boolean;
  changed: (view: View, byUser: boolean) => void;
  /** Return the nearest view that a user may reach. */
  kept?: (view: View) => View;
}

export const LEAST = 0.1;
const MOST = 3;

export class Zoom {
  view: View = { x: 0, y: 0, k: 1 };
  /** The smallest scale: large pictures must fit into the frame. */
  least = LEAST;
  private readonly pointers = new Map<number, { x: number; y: number }>();

  constructor(
    private readonly frame: HTMLElement,
    private readonly options: ZoomOptions,
  ) {
    frame.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    frame.addEventListener("pointerdown", (event) => this.down(event));
    frame.addEventListener("pointermove", (event) => this.move(event));
    for (const type of ["pointerup", "pointercancel"] as const)
      frame.addEventListener(type, (event) => this.pointers.delete(event.pointerId));
  }

  /** Convert a point of the frame to plane coordinates. */
  invert(x: number, y: number): { x: number; y: number } {
    return { x: (x - this.view.x) / this.view.k, y: (y - this.view.y) / this.view.k };
  }

  set(view: View): void {
    this.view = view;
    this.options.changed(view, false);
  }

  /** Zoom about a point of the frame, by default the centre. */
  by(factor: number, x = this.frame.clientWidth / 2, y = this.frame.clientHeight / 2): void {
    const k = Math.min(MOST, Math.max(this.least, this.view.k * factor));
    const at = this.invert(x, y);
    this.become({ x: x - at.x * k, y: y - at.y * k, k });
  }

  private place(event: MouseEvent): { x: number; y: number } {
    const box = this.frame.getBoundingClientRect();
    const zoom = zoomOf(this.frame);
    return { x: (event.clientX - box.left) / zoom, y: (event.clientY - box.top) / zoom };
  }

  private wheel(event: WheelEvent): void {
    if (!this.options.wheels(event)) return;
    event.preventDefault();
    const { x, y } = this.place(event);
    const unit = event.deltaMode === 1 ? 0.05 : event.deltaMode === 2 ? 1 : 0.002;
    // A trackpad pinch arrives as a wheel event with Ctrl, in finer steps.
    this.by(Math.pow(2, -event.deltaY * unit * (event.ctrlKey ? 5 : 1)), x, y);
  }

  private down(event: PointerEvent): void {
    if (event.button !== 0 || !this.options.pans(event)) return;
    this.frame.setPointerCapture(event.pointerId);
    this.pointers.set(event.pointerId, this.place(event));
  }

  private move(event: PointerEvent): void {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const now = this.place(event);
    const other = [...this.pointers].find(([id]) => id !== event.pointerId)?.[1];
    this.pointers.set(event.pointerId, now);
    if (other) {
      const factor =
        Math.hypot(now.x - other.x, now.y - other.y) / Math.max(1, Math.hypot(before.x - other.x, before.y - other.y));
      this.by(factor, other.x, other.y);
      return;
    }
    this.become({ ...this.view, x: this.view.x + now.x - before.x, y: this.view.y + now.y - before.y });
  }

  private become(view: View): void {
    this.view = this.options.kept?.(view) ?? view;
    this.options.changed(this.view, true);
  }
}
