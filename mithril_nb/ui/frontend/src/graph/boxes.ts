/** Draws the nodes of a scene, with as much detail as their size on the screen allows. */

import { percent } from "../dom/format";
import { type Colours, HUES, hueOf } from "../drawing/colours";
import { type Lettering, times } from "../drawing/lettering";
import type { Rect } from "../drawing/lines";
import { drawCells, drawChevron, drawReturn, drawRole, drawSign } from "../drawing/signs";
import { type SceneNode, isPill } from "./scene";

/** How a node is drawn: with all texts; with its name only; as a coloured rectangle; as one too small for a border. */
export type Detail = "full" | "name" | "box" | "dot";

/**
 * A value shown on a node: a number as a bar from 0 to 1, a category as a hue, or unknown if it has neither; and its
 * text.
 */
export interface Overlay {
  text: string;
  level?: number;
  hue?: number;
  /** In a legend: the role whose pattern is explained, or the sign of a gradient that flows back. */
  role?: number | "returns";
}

export interface Brush {
  c: CanvasRenderingContext2D;
  colours: Colours;
  lettering: Lettering;
  /** Pixels of the screen per unit of the scene. */
  k: number;
  isModel: boolean;
  /** Whether the nodes have instructions of more than one role. */
  hasRoles: boolean;
  /** Whether the values and shares are those of an earlier model. */
  isOld: boolean;
}

const FULL_ZOOM = 0.62;
const NAME_PX = { most: 13, least: 9 };
const LEFT = 14; // from the node's edge to its text; includes the strip of the hue
const RIGHT = 10;
const LEAST_GAP = 6; // between the texts of one row
const NAME = 13;
/** Height of a block, and width of an input or output with the room beside it. */
const [BLOCK_H, PILL_ROOM] = [52, 112];
/** Least room for a note or shape beside a value. */
const LEAST_BELOW = 30;
const SMALL = 11;
/**
 * Opacity of a value's colour behind the text, as in `viz/diagrams/overlays.py`; more would make the text hard to read.
 */
const TINT = 0.18;
/** Opacity of nodes and edges that are not part of an answer. */
export const DIM = 0.22;
/** Opacity of values that belong to an earlier model. */
export const OLD = 0.4;
/** The legend in px: length of a bar, height of a row, and most room for a text, as in `viz/diagrams/overlays.py`. */
const LEGEND = { bar: 44, row: 18, text: 180 };
const DASHED = new Set(["loop", "cond", "branch", "repeat"]);

export function detailOf({ w, h }: Pick<Rect, "w" | "h">, k: number): Detail {
  if (w * k < 4 || h * k < 4) return "dot";
  if (w * k < 34 || h * k < 11) return "box";
  return k >= FULL_ZOOM ? "full" : "name";
}

/** Return the detail of a closed node. Inputs and outputs are lower than blocks, but their names are as long. */
export function detailOfNode(node: SceneNode, { w, h }: Pick<Rect, "w" | "h">, k: number): Detail {
  return detailOf(isPill(node) ? { w: Math.max(w, PILL_ROOM), h: BLOCK_H } : { w, h }, k);
}

/**
 * Return the texts of a frame: its name, and in a model its kind, in a program its note, shape and share; or the value
 * of an overlay.
 */
function frameTexts(
  { name, repeat, kind, label, shape, share }: SceneNode,
  isModel: boolean,
  overlay: Overlay | undefined,
): [title: string, rest: string] {
  const parts = isModel
    ? [kind, overlay?.text]
    : [label, shape, overlay?.text ?? (share === null ? "" : percent(share))];
  return [times(name, repeat), parts.filter(Boolean).join(" · ")];
}

/** Draw an open group: its area, its rim and its title. */
export function drawFrame(brush: Brush, node: SceneNode, { x, y, w, h }: Rect, overlay: Overlay | undefined): void {
  const { c, colours, lettering, k, isModel } = brush;
  const colour = hueOf(colours, node.hue);
  const isBad = node.problem !== null;
  c.lineWidth = Math.max(1, 1 / k);
  if (node.repeat > 1) {
    c.strokeStyle = colour;
    c.save();
    c.globalAlpha *= 0.5;
    for (const off of [6, 3]) outline(c, x + off, y - off, w - off, h, 6);
    c.restore();
    plate(c, x, y, w, h, 6, colours.ground);
  }
  c.save();
  c.globalAlpha *= 0.07;
  c.fillStyle = colour;
  c.fillRect(x, y, w, h); // faint, so that its corners need not be round
  c.restore();
  c.strokeStyle = isBad ? colours.bad : colour;
  c.setLineDash(isBad ? [5, 3] : DASHED.has(node.kind) ? [6, 3] : []);
  outline(c, x, y, w, h, 6);
  c.setLineDash([]);
  const detail = detailOf({ w, h: 24 }, k);
  if (detail === "full") {
    const [title, rest] = frameTexts(node, isModel, overlay);
    drawChevron(c, colours, x + 11, y + 13.5, true);
    const left = x + 19;
    const name = lettering.fit(title, NAME, (w - 30) * (rest ? 0.75 : 1), true);
    write(brush, left, y + 18, name, NAME, "ink", true);
    const at = left + lettering.width(name, NAME, true) + 8;
    asValue(brush, () => write(brush, at, y + 18, lettering.fit(rest, SMALL, x + w - 10 - at), SMALL, "muted"));
  } else if (detail === "name" || (detail === "box" && 24 * k >= 8)) {
    const size = 10 / k;
    write(brush, x + 6, y + 18, lettering.fit(times(node.name, node.repeat), size, w - 12, true), size, "ink", true);
  }
  if (isModel && detail === "full") drawPorts(brush, node, x, y);
  if (isBad) drawSign(c, colours, x + w - 1, y + 1, Math.min(3, Math.max(1, 0.7 / k)));
}

/** Draw a closed node. */
export function drawBox(brush: Brush, node: SceneNode, rect: Rect, overlay: Overlay | undefined): void {
  const detail = detailOfNode(node, rect, brush.k);
  if (detail === "full") {
    if (isPill(node)) drawPill(brush, node, rect, overlay);
    else if (brush.isModel) drawBlock(brush, node, rect, overlay);
    else drawStep(brush, node, rect, overlay);
  } else if (detail === "name") drawName(brush, node, rect, overlay);
  else {
    const { c, colours } = brush;
    c.fillStyle = rectangleColour(colours, node, overlay);
    c.fillRect(rect.x, rect.y, rect.w, rect.h);
  }
  if (node.problem !== null && detail !== "dot")
    drawSign(brush.c, brush.colours, rect.x + rect.w - 1, rect.y + 1, Math.min(3, Math.max(1, 0.7 / brush.k)));
}

/** Draw the number of matches at the lower right corner of a node. */
export function drawCount(brush: Brush, { x, y, w, h }: Rect, count: number): void {
  const { c, colours, lettering, k } = brush;
  const size = SMALL / Math.min(1, k);
  const label = String(count);
  const width = Math.max(size * 1.5, lettering.width(label, size, true) + size);
  plate(c, x + w - width + size / 2, y + h - size, width, size * 1.5, size * 0.75, colours.match);
  lettering.use(size, true);
  c.fillStyle = colours.ground;
  c.textAlign = "center";
  c.fillText(label, x + w - width / 2 + size / 2, y + h + size * 0.1);
}

/** Return the colour of a node that is drawn as a rectangle. */
export function rectangleColour(colours: Colours, node: SceneNode, overlay: Overlay | undefined): string {
  if (node.problem !== null) return colours.bad;
  if (!overlay) return stripColour(colours, node);
  if (overlay.hue !== undefined) return hueOf(colours, overlay.hue);
  return overlay.level === undefined
    ? colours.line
    : colours.heat[Math.round(overlay.level * (colours.heat.length - 1))]!;
}

/** Draw a block of a model: kind and label, name and shape, its share as a bar, and its ports. */
function drawBlock(brush: Brush, node: SceneNode, { x, y, w, h }: Rect, overlay: Overlay | undefined): void {
  const { c, colours, lettering } = brush;
  if (node.group || node.repeat > 1) {
    // A second edge behind the box marks a group.
    box(brush, x + 4, y + 4, w, h);
  }
  boxWithStrip(brush, node, x, y, w, h, overlay);
  const [left, right] = [x + LEFT, x + w - RIGHT];
  const room = right - left;
  const shown = overlay ?? (node.share === null ? undefined : { text: percent(node.share), level: node.share });
  const [upper, lower] = shown ? [y + 17, y + 34] : [y + 21, y + 39];
  const kind = times(node.kind, node.repeat);
  row(brush, left, right, upper, kind, SMALL, "muted", node.label, "ink", false);
  row(brush, left, right, lower, node.name, NAME, "ink", node.shape, "muted", true);
  if (shown) {
    const text = lettering.fit(shown.text, 9.5, room * 0.7);
    drawValue(brush, left, y + 42, room - Math.max(40, lettering.width(text, 9.5) + 6), shown);
    asValue(brush, () => write(brush, right, y + 47, text, 9.5, "muted", false, "right"));
  }
  if (node.group) drawChevron(c, colours, x + 9, y + h / 2, false);
  drawPorts(brush, node, x, y);
}

/** Draw an input or output: name and shape, in one row in a model, in two in a program. */
function drawPill(brush: Brush, node: SceneNode, { x, y, w, h }: Rect, overlay: Overlay | undefined): void {
  const { c, colours, lettering, isModel } = brush;
  plate(c, x, y, w, h, h / 2, colours.surface);
  c.strokeStyle = colours.line;
  c.lineWidth = 1;
  outline(c, x, y, w, h, h / 2);
  const middle = x + w / 2;
  if (!isModel) {
    // The last key of a name such as `params['head']['kernel']` distinguishes it from others.
    const last = /\['?([^'\]]+)'?\]$/.exec(node.name)?.[1];
    const name = last !== undefined && !/^\d+$/.test(last) ? last : node.name;
    write(brush, middle, y + 14.5, lettering.fit(name, SMALL, w - 24, true), SMALL, "ink", true, "center");
    write(brush, middle, y + 27, lettering.fit(overlay?.text ?? node.shape, 10, w - 24), 10, "muted", false, "center");
    return;
  }
  if (node.shape) row(brush, x + LEFT, x + w - LEFT, y + 20, node.name, NAME, "ink", node.shape, "muted", true);
  else write(brush, middle, y + 20, lettering.fit(node.name, NAME, w - 2 * LEFT, true), NAME, "ink", true, "center");
  drawPorts(brush, node, x, y);
}

/** Draw a node of a program: its name, its note or shape and its share, and a pattern for each role. */
function drawStep(brush: Brush, node: SceneNode, { x, y, w, h }: Rect, overlay: Overlay | undefined): void {
  const { c, colours, lettering, hasRoles } = brush;
  // A stack of boxes marks a repeated node.
  if (node.repeat > 1) for (const off of [6, 3]) box(brush, x + off, y - off, w - off, h);
  boxWithStrip(brush, node, x, y, w, h, overlay);
  const [left, right] = [x + LEFT, x + w - RIGHT];
  const isInstruction = node.kind === "instruction";
  const counts = (node.counts ?? []).slice(0, -1);
  const hasCells = hasRoles && !isInstruction && counts.some((count) => count > 0);
  const first = y + (hasCells ? 22 : h / 2 - 3);
  const repeat = node.repeat > 1 ? `×${node.repeat}` : "";
  const room =
    right - left - (hasRoles && isInstruction ? 18 : 0) - (repeat ? lettering.width(repeat, NAME, true) + 8 : 0);
  write(brush, left, first, lettering.fit(node.name, NAME, room, true), NAME, "ink", true);
  write(brush, right, first, repeat, NAME, "ink", true, "right");
  const share = overlay?.text ?? (node.share === null ? "" : percent(node.share));
  const below = right - left - (share ? lettering.width(share, SMALL) + 8 : 0);
  if (below > LEAST_BELOW)
    write(
      brush,
      left,
      first + 17,
      lettering.fit((node.kind === "lines" && node.shape) || node.label || node.shape, SMALL, below),
      SMALL,
      "muted",
    );
  asValue(brush, () =>
    write(brush, right, first + 17, lettering.fit(share, SMALL, right - left), SMALL, "ink", false, "right"),
  );
  if (overlay) drawValue(brush, left, y + h - 6, right - left, overlay);
  if (hasCells) drawCells(c, colours, left, y + h - 8, right - left, counts, node.hue);
  else if (hasRoles && isInstruction) {
    const role = counts.findIndex((count) => count > 0);
    if (role >= 0) drawRole(c, colours, right - 12, y + 8, 12, role, node.hue);
  }
  if (node.group) drawChevron(c, colours, x + 9, y + h / 2, false);
}

/**
 * Draw a node with its name only, in letters that stay readable while the picture is small. Hundreds of these are in
 * view, so they are plain rectangles, which are drawn several times faster than round corners.
 */
function drawName(brush: Brush, node: SceneNode, { x, y, w, h }: Rect, overlay: Overlay | undefined): void {
  const { c, colours, lettering, k } = brush;
  const isBad = node.problem !== null;
  const rim = Math.max(1, 0.7 / k);
  const plain = (left: number, top: number, colour: string, edge: string): void => {
    c.fillStyle = edge;
    c.fillRect(left, top, w, h);
    c.fillStyle = colour;
    c.fillRect(left + rim, top + rim, w - 2 * rim, h - 2 * rim);
  };
  if (node.repeat > 1 || node.group) plain(x + 4, y + (brush.isModel ? 4 : -4), colours.surface, colours.line);
  plain(x, y, colours.surface, isBad ? colours.bad : colours.line);
  if (overlay) tint(brush, x, y, w, h, 0, overlay);
  const strip = (): void => {
    c.fillStyle = overlay ? rectangleColour(colours, node, overlay) : stripColour(colours, node);
    c.fillRect(x, y, 6, h);
  };
  overlay ? asValue(brush, strip) : strip();
  const size = Math.min(NAME_PX.most, Math.max(NAME_PX.least, NAME * k)) / k;
  if (isPill(node))
    return write(
      brush,
      x + w / 2,
      y + h / 2 + size * 0.36,
      lettering.fit(node.name, size, Math.max(w, PILL_ROOM), true),
      size,
      "ink",
      true,
      "center",
    );
  const repeat = node.repeat > 1 ? ` ×${node.repeat}` : "";
  const [left, room] = [x + 6 + 3 / k, w - 6 - 6 / k];
  const count = repeat && lettering.width(repeat, size, true) < room * 0.6 ? repeat : "";
  write(
    brush,
    left,
    y + h / 2 + size * 0.36,
    `${lettering.fit(node.name, size, room - lettering.width(count, size, true), true)}${count}`,
    size,
    "ink",
    true,
  );
}

function stripColour(colours: Colours, node: SceneNode): string {
  return node.path || node.kind !== "input" ? hueOf(colours, node.hue) : colours.line;
}

/** Draw the bar of a value, 4 high: as long as the number, full for a category, hatched if unknown. */
export function drawValue(brush: Brush, x: number, y: number, length: number, { level, hue }: Overlay): void {
  const { c, colours } = brush;
  plate(c, x, y, length, 4, 2, colours.track);
  asValue(brush, () => {
    if (hue !== undefined) plate(c, x, y, length, 4, 2, hueOf(colours, hue));
    else if (level === undefined) hatch(brush, x, y, length, 4);
    else {
      const filled = Math.max(0, Math.min(1, level)) * length;
      if (filled >= 0.5) plate(c, x, y, filled, 4, Math.min(2, filled / 2), colours.cost);
    }
  });
}

/** Draw a part of a value: faintly if it is of an earlier model. */
function asValue({ c, isOld }: Brush, draw: () => void): void {
  if (!isOld) return draw();
  c.save();
  c.globalAlpha *= OLD;
  draw();
  c.restore();
}

/**
 * The legend of an exported picture, below the graph: the heading, the ends of the scale or the categories, and notes.
 */
export interface Legend {
  readonly heading: string;
  readonly legend: readonly Overlay[];
  readonly notes: readonly string[];
}

/** Draw the legend of an overlay in rows of a width, and return its height. Without `draws`, only measure it. */
export function drawLegend(
  brush: Brush,
  { heading, legend, notes }: Legend,
  x: number,
  y: number,
  width: number,
  draws = true,
): number {
  const { lettering } = brush;
  if (draws) write(brush, x, y + 12, lettering.fit(heading, SMALL, width, true), SMALL, "ink", true);
  let [left, top] = [x, y + 24];
  for (const one of legend) {
    const text = lettering.fit(one.text, SMALL, Math.min(LEGEND.text, width - LEGEND.bar - 6));
    const needed = LEGEND.bar + 6 + lettering.width(text, SMALL);
    if (left > x && left + needed > x + width) [left, top] = [x, top + LEGEND.row];
    if (draws) {
      if (one.role === undefined) drawValue(brush, left, top, LEGEND.bar, one);
      else if (one.role !== "returns") drawRole(brush.c, brush.colours, left, top - 1, LEGEND.bar, one.role, HUES - 1);
      else drawReturn(brush.c, brush.colours, left, top + 2.5, LEGEND.bar);
      write(brush, left + LEGEND.bar + 6, top + 6, text, SMALL, "muted");
    }
    left += needed + 18;
  }
  for (const note of notes) {
    top += LEGEND.row;
    if (draws) write(brush, x, top + 6, lettering.fit(note, SMALL, width), SMALL, "muted");
  }
  return top + LEGEND.row - y;
}

function hatch({ c, colours }: Brush, x: number, y: number, w: number, h: number): void {
  c.strokeStyle = colours.wire;
  c.lineWidth = 1;
  c.beginPath();
  for (let at = x; at <= x + w - h; at += 5) {
    c.moveTo(at, y + h);
    c.lineTo(at + h, y);
  }
  c.stroke();
}

/** Draw the colour of a value behind the text of a node. */
function tint(
  { c, colours, isOld }: Brush,
  x: number,
  y: number,
  w: number,
  h: number,
  radius: number,
  { level, hue }: Overlay,
): void {
  if (hue === undefined && !level) return;
  c.save();
  c.globalAlpha *= (isOld ? OLD : 1) * (hue === undefined ? TINT * level! : TINT);
  plate(c, x, y, w, h, radius, hue === undefined ? colours.cost : hueOf(colours, hue));
  c.restore();
}

function drawPorts({ c, colours }: Brush, node: SceneNode, x: number, y: number): void {
  c.fillStyle = colours.ground;
  c.strokeStyle = colours.wire;
  c.lineWidth = 1;
  c.beginPath();
  for (const ports of [node.inputs, node.outputs]) {
    for (const port of ports) {
      c.moveTo(x + port.x + 2.5, y + port.y);
      c.arc(x + port.x, y + port.y, 2.5, 0, 2 * Math.PI);
    }
  }
  c.fill();
  c.stroke();
}

function box({ c, colours, k }: Brush, x: number, y: number, w: number, h: number): void {
  plate(c, x, y, w, h, 4, colours.surface);
  c.strokeStyle = colours.line;
  c.lineWidth = Math.max(1, 0.7 / k);
  outline(c, x, y, w, h, 4);
}

/** Draw the box of a node, and the strip in its hue. */
function boxWithStrip(
  brush: Brush,
  node: SceneNode,
  x: number,
  y: number,
  w: number,
  h: number,
  overlay: Overlay | undefined,
): void {
  const { c, colours, k } = brush;
  plate(c, x, y, w, h, 4, colours.surface);
  if (overlay) tint(brush, x, y, w, h, 4, overlay);
  const isBad = node.problem !== null;
  c.strokeStyle = isBad ? colours.bad : colours.line;
  c.lineWidth = Math.max(isBad ? 1.5 : 1, 0.7 / k);
  if (isBad) c.setLineDash([5, 3]);
  outline(c, x, y, w, h, 4);
  c.setLineDash([]);
  c.fillStyle = stripColour(colours, node);
  c.beginPath();
  c.roundRect(x, y, 6, h, [4, 0, 0, 4]);
  c.fill();
}

/** Write two texts into one row. Without room for both, the first keeps up to 60 % of it, and the second is cut. */
function row(
  brush: Brush,
  left: number,
  right: number,
  y: number,
  first: string,
  size: number,
  look: "ink" | "muted",
  second: string,
  other: "ink" | "muted",
  bold: boolean,
): void {
  const { lettering } = brush;
  const room = right - left - (second ? LEAST_GAP : 0);
  const kept = Math.min(lettering.width(first, size, bold), room * 0.6);
  const beside = lettering.fit(second, SMALL, room - kept);
  write(brush, left, y, lettering.fit(first, size, room - lettering.width(beside, SMALL), bold), size, look, bold);
  write(brush, right, y, beside, SMALL, other, false, "right");
}

function write(
  { c, colours, lettering }: Brush,
  x: number,
  y: number,
  text: string,
  size: number,
  look: "ink" | "muted",
  bold = false,
  align: CanvasTextAlign = "left",
): void {
  if (!text) return;
  lettering.use(size, bold);
  c.fillStyle = colours[look];
  c.textAlign = align;
  c.fillText(text, x, y);
}

function plate(
  c: CanvasRenderingContext2D,
  x: number,
  y: number,
  w: number,
  h: number,
  radius: number,
  colour: string,
): void {
  c.fillStyle = colour;
  c.beginPath();
  c.roundRect(x, y, w, h, radius);
  c.fill();
}

function outline(c: CanvasRenderingContext2D, x: number, y: number, w: number, h: number, radius: number): void {
  c.beginPath();
  c.roundRect(x, y, w, h, radius);
  c.stroke();
}
