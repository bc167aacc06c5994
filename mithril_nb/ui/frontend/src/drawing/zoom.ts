/** Pan and zoom of a plane in a frame: one pointer pans, two pinch, the wheel zooms. */

import { zoomOf } from "../dom/dom";

export interface View {
  x: number;
  y: number;
  k: number;
}

interface ZoomOptions {
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

export function createZoom(frame: HTMLElement, options: ZoomOptions) {
  let view: View = { x: 0, y: 0, k: 1 };
  /** The smallest scale: large pictures must fit into the frame. */
  let least = LEAST;
  const pointers = new Map<number, { x: number; y: number }>();
  frame.addEventListener("wheel", wheel, { passive: false });
  frame.addEventListener("pointerdown", down);
  frame.addEventListener("pointermove", move);
  for (const type of ["pointerup", "pointercancel"] as const)
    frame.addEventListener(type, (event) => pointers.delete(event.pointerId));

  /** Convert a point of the frame to plane coordinates. */
  function invert(x: number, y: number) {
    return { x: (x - view.x) / view.k, y: (y - view.y) / view.k };
  }

  function set(next: View) {
    view = next;
    options.changed(view, false);
  }

  /** Zoom about a point of the frame, by default the centre. */
  function by(factor: number, x = frame.clientWidth / 2, y = frame.clientHeight / 2) {
    const k = Math.min(MOST, Math.max(least, view.k * factor));
    const at = invert(x, y);
    become({ x: x - at.x * k, y: y - at.y * k, k });
  }

  function place(event: MouseEvent) {
    const box = frame.getBoundingClientRect();
    const zoom = zoomOf(frame);
    return { x: (event.clientX - box.left) / zoom, y: (event.clientY - box.top) / zoom };
  }

  function wheel(event: WheelEvent) {
    if (!options.wheels(event)) return;
    event.preventDefault();
    const { x, y } = place(event);
    const unit = event.deltaMode === 1 ? 0.05 : event.deltaMode === 2 ? 1 : 0.002;
    // A trackpad pinch arrives as a wheel event with Ctrl, in finer steps.
    by(Math.pow(2, -event.deltaY * unit * (event.ctrlKey ? 5 : 1)), x, y);
  }

  function down(event: PointerEvent) {
    if (event.button > 1 || !options.pans(event)) return;
    frame.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, place(event));
  }

  function move(event: PointerEvent) {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const now = place(event);
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    pointers.set(event.pointerId, now);
    if (other) {
      const factor =
        Math.hypot(now.x - other.x, now.y - other.y) / Math.max(1, Math.hypot(before.x - other.x, before.y - other.y));
      by(factor, other.x, other.y);
      return;
    }
    become({ ...view, x: view.x + now.x - before.x, y: view.y + now.y - before.y });
  }

  function become(next: View) {
    view = options.kept?.(next) ?? next;
    options.changed(view, true);
  }

  return {
    get view() {
      return view;
    },
    set view(value) {
      view = value;
    },
    get least() {
      return least;
    },
    set least(value) {
      least = value;
    },
    invert,
    set,
    by,
  };
}
