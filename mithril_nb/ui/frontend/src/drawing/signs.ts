/** Small signs of a picture: the patterns of roles, the sign of a problem, the chevron of a group. */

import { type Colours, hueOf } from "./colours";

const CELL_H = 7;

/** Draw one role's pattern: forward is solid, backward hatched, update dotted. */
export function drawRole(
  c: CanvasRenderingContext2D,
  colours: Colours,
  x: number,
  y: number,
  width: number,
  role: number,
  hue: number,
): void {
  const colour = hueOf(colours, hue);
  if (role === 0) {
    c.fillStyle = colour;
    c.fillRect(x, y, width, CELL_H);
    return;
  }
  c.strokeStyle = colour;
  c.lineWidth = 1;
  c.strokeRect(x + 0.5, y + 0.5, width - 1, CELL_H - 1);
  c.save();
  c.beginPath();
  if (role === 1) {
    c.lineWidth = 1.4;
    for (let at = 1; at < Math.max(2, Math.floor(width) - 5); at += 4) {
      c.moveTo(x + at, y + CELL_H - 1);
      c.lineTo(x + at + 5, y + 1);
    }
  } else {
    c.lineWidth = 2.2;
    c.lineCap = "round";
    c.setLineDash([0.1, 4]);
    c.moveTo(x + 3.5, y + CELL_H / 2);
    c.lineTo(x + width - 3, y + CELL_H / 2);
  }
  c.stroke();
  c.restore();
}

/** Draw the shares of the roles as a bar of patterns. */
export function drawCells(
  c: CanvasRenderingContext2D,
  colours: Colours,
  x: number,
  bottom: number,
  width: number,
  counts: readonly number[],
  hue: number,
): void {
  const used = counts.flatMap((count, role) => (count ? [role] : []));
  const total = used.reduce((sum, role) => sum + counts[role]!, 0);
  // Each part is at least 8 px, so that its pattern is visible.
  const spare = width - 2 * (used.length - 1) - 8 * used.length;
  for (const role of used) {
    const length = 8 + (spare * counts[role]!) / total;
    drawRole(c, colours, x, bottom - CELL_H, length, role, hue);
    x += length + 2;
  }
}

/** Draw a wire whose gradient flows back: an open arrow at its start. */
export function drawReturn(c: CanvasRenderingContext2D, colours: Colours, x: number, y: number, w: number): void {
  c.strokeStyle = colours.wire;
  c.lineWidth = 1.5;
  c.beginPath();
  c.moveTo(x + w, y);
  c.lineTo(x + 8, y);
  c.lineTo(x + 8, y - 4);
  c.lineTo(x + 1, y);
  c.lineTo(x + 8, y + 4);
  c.lineTo(x + 8, y);
  c.stroke();
}

/**
 * Draw the sign of a problem: a disc with an exclamation mark, so that it does not depend on colour alone. `k` is the
 * scale of the picture.
 */
export function drawSign(c: CanvasRenderingContext2D, colours: Colours, x: number, y: number, k: number): void {
  const scale = Math.min(3, Math.max(1, 0.7 / k));
  c.save();
  c.translate(x, y);
  c.scale(scale, scale);
  c.fillStyle = colours.bad;
  c.beginPath();
  c.arc(0, 0, 7, 0, 2 * Math.PI);
  c.fill();
  c.strokeStyle = colours.ground;
  c.lineWidth = 2;
  c.beginPath();
  c.moveTo(0, -4);
  c.lineTo(0, 0.5);
  c.moveTo(0, 3);
  c.lineTo(0, 4);
  c.stroke();
  c.restore();
}

/** Draw a padlock on a disc: filled if all parameters are frozen, else in outline. */
export function drawLock(
  c: CanvasRenderingContext2D,
  colours: Colours,
  x: number,
  y: number,
  k: number,
  isFilled: boolean,
): void {
  const scale = Math.min(3, Math.max(1, 0.7 / k));
  c.save();
  c.translate(x, y);
  c.scale(scale, scale);
  c.fillStyle = colours.ground;
  c.strokeStyle = colours.muted;
  c.lineWidth = 1;
  c.beginPath();
  c.arc(0, 0, 9, 0, 2 * Math.PI);
  c.fill();
  c.stroke();
  c.fillStyle = c.strokeStyle = colours.ink;
  c.lineWidth = 1.5;
  c.beginPath();
  c.moveTo(-2.5, -1);
  c.lineTo(-2.5, -2.5);
  c.arc(0, -2.5, 2.5, Math.PI, 0);
  c.lineTo(2.5, -1);
  c.stroke();
  if (isFilled) c.fillRect(-4, -1, 8, 6);
  else c.strokeRect(-3.5, -0.5, 7, 5);
  c.restore();
}

/** Draw the chevron of a group: it points right if the group is closed, down if it is open. */
export function drawChevron(
  c: CanvasRenderingContext2D,
  colours: Colours,
  x: number,
  y: number,
  isOpen: boolean,
): void {
  c.strokeStyle = colours.muted;
  c.lineWidth = 1.4;
  c.beginPath();
  if (isOpen) {
    c.moveTo(x - 3.5, y - 2);
    c.lineTo(x, y + 2);
    c.lineTo(x + 3.5, y - 2);
  } else {
    c.moveTo(x - 2, y - 3.5);
    c.lineTo(x + 2, y);
    c.lineTo(x - 2, y + 3.5);
  }
  c.stroke();
}
