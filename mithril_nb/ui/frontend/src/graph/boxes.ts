/** Draws the nodes of a scene, with as much detail as their size on the screen allows. */

import { percent } from "../dom/format";
import { type Colours, HUES, hueOf } from "../drawing/colours";
import { type Lettering, times } from "../drawing/lettering";
import type { Rect } from "../drawing/lines";
import { drawCells, drawChevron, drawLock, drawReturn, drawRole, drawSign } from "../drawing/signs";
import { type SceneNode, isPill } from "./scene";

/** How a node is drawn: with all texts; with its name only; as a coloured rectangle; as one too small for a border. */
type Detail = "full" | "name" | "box" | "dot";

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
const NAME_PX = { most: 13, least: 10 };
const LEFT = 14; // from the node's edge to its text; includes the strip of the hue
const RIGHT = 10;
const LEAST_GAP = 6; // between the texts of one row
/** How a text is written; `size` is in px. */
interface Style {
  size: number;
  look: "ink" | "muted";
  bold?: boolean;
}
const TITLE: Style = { size: 13, look: "ink", bold: true };
const NOTE: Style = { size: 11, look: "muted" };
const VALUE: Style = { size: 11, look: "ink" };
/** Height of a block, and width of an input or output with the room beside it. */
const [BLOCK_H, PILL_ROOM] = [64, 112];
/** Least room for a note or shape beside a value. */
const LEAST_BELOW = 30;
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

function detailOf({ w, h }: Pick<Rect, "w" | "h">, k: number): Detail {
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
export function drawFrame(brush: Brush, node: SceneNode, rect: Rect, overlay: Overlay | undefined): void {
  const { c, colours, lettering, k, isModel } = brush;
  const { x, y, w, h } = rect;
  const colour = hueOf(colours, node.hue);
  const isBad = node.problem !== null;
  c.lineWidth = Math.max(1, 1 / k);
  if (node.repeat > 1) {
    c.strokeStyle = colour;
    c.save();
    c.globalAlpha *= 0.5;
    for (const behind of stacked(rect)) outline(c, behind, 6);
    c.restore();
    plate(c, rect, 6, colours.ground);
  }
  c.save();
  c.globalAlpha *= 0.07;
  c.fillStyle = colour;
  c.fillRect(x, y, w, h); // faint, so that its corners need not be round
  c.restore();
  c.strokeStyle = isBad ? colours.bad : colour;
  c.setLineDash(isBad ? [5, 3] : DASHED.has(node.kind) ? [6, 3] : []);
  outline(c, rect, 6);
  c.setLineDash([]);
  const detail = detailOf({ w, h: 24 }, k);
  if (detail === "full") {
    const [title, rest] = frameTexts(node, isModel, overlay);
    drawChevron(c, colours, x + 11, y + 13.5, true);
    const left = x + 19;
    const name = lettering.fit(title, TITLE.size, (w - 30) * (rest ? 0.75 : 1), true);
    write(brush, left, y + 18, name, TITLE);
    const at = left + lettering.width(name, TITLE.size, true) + 8;
    asValue(brush, () => write(brush, at, y + 18, rest, NOTE, x + w - 10 - at));
  } else if (detail === "name" || (detail === "box" && 24 * k >= 8)) {
    write(brush, x + 6, y + 18, times(node.name, node.repeat), { ...TITLE, size: 10 / k }, w - 12);
  }
  if (isModel && detail === "full") drawPorts(brush, node, x, y);
  drawSigns(brush, node, rect);
}

function drawSigns({ c, colours, k }: Brush, { problem, frozen }: SceneNode, { x, y, w, h }: Rect) {
  if (frozen) drawLock(c, colours, x + 3, y + h - 1, k, frozen === "all");
  if (problem !== null) drawSign(c, colours, x + w - 1, y + 1, k);
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
  if (detail !== "dot") drawSigns(brush, node, rect);
}

/** Draw the number of matches at the lower right corner of a node. */
export function drawCount(brush: Brush, { x, y, w, h }: Rect, count: number): void {
  const { c, colours, lettering, k } = brush;
  const size = NOTE.size / Math.min(1, k);
  const label = String(count);
  const width = Math.max(size * 1.5, lettering.width(label, size, true) + size);
  plate(c, { x: x + w - width + size / 2, y: y + h - size, w: width, h: size * 1.5 }, size * 0.75, colours.match);
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
function drawBlock(brush: Brush, node: SceneNode, rect: Rect, overlay: Overlay | undefined) {
  const { c, colours, lettering } = brush;
  const { x, y, w, h } = rect;
  // A second edge behind the box marks a group.
  if (node.group || node.repeat > 1) box(brush, { x: x + 4, y: y + 4, w, h });
  boxWithStrip(brush, node, rect, overlay);
  const [left, right] = [x + LEFT, x + w - RIGHT];
  const room = right - left;
  const shown = overlay ?? (node.share === null ? undefined : { text: percent(node.share), level: node.share });
  row(brush, left, right, y + 16, times(node.kind, node.repeat), NOTE, node.label, VALUE);
  write(brush, left, y + 32, node.name, TITLE, room);
  write(brush, left, y + 47, node.shape, NOTE, room);
  if (shown) {
    const text = lettering.fit(shown.text, NOTE.size, room * 0.7);
    drawValue(brush, left, y + 53, room - Math.max(40, lettering.width(text, NOTE.size) + 6), shown);
    asValue(brush, () => write(brush, right, y + 59, text, NOTE, room, "right"));
  }
  if (node.group) drawChevron(c, colours, x + 9, y + h / 2, false);
  drawPorts(brush, node, x, y);
}

/** Draw an input or output: name and shape, in one row in a model, in two in a program. */
function drawPill(brush: Brush, node: SceneNode, rect: Rect, overlay: Overlay | undefined) {
  const { c, colours, isModel } = brush;
  const { x, y, w, h } = rect;
  plate(c, rect, h / 2, colours.surface);
  c.strokeStyle = colours.line;
  c.lineWidth = 1;
  if (node.label && isModel) {
    c.strokeStyle = colours.muted; // a shared parameter
    c.setLineDash([4, 3]);
  }
  outline(c, rect, h / 2);
  c.setLineDash([]);
  const middle = x + w / 2;
  if (!isModel) {
    // The last key of a name such as `params['head']['kernel']` distinguishes it from others.
    const last = /\['?([^'\]]+)'?\]$/.exec(node.name)?.[1];
    const name = last !== undefined && !/^\d+$/.test(last) ? last : node.name;
    write(brush, middle, y + 14.5, name, { ...VALUE, bold: true }, w - 24, "center");
    write(brush, middle, y + 27, overlay?.text ?? node.shape, { ...NOTE, size: 10 }, w - 24, "center");
    return;
  }
  write(brush, middle, y + (node.shape ? 17 : 24), node.name, TITLE, w - LEFT - RIGHT, "center");
  write(brush, middle, y + 32, node.shape, NOTE, w - LEFT - RIGHT, "center");
  drawPorts(brush, node, x, y);
}

/** Draw a node of a program: its name, its note or shape and its share, and a pattern for each role. */
function drawStep(brush: Brush, node: SceneNode, rect: Rect, overlay: Overlay | undefined) {
  const { c, colours, lettering, hasRoles } = brush;
  const { x, y, w, h } = rect;
  // A stack of boxes marks a repeated node.
  if (node.repeat > 1) for (const behind of stacked(rect)) box(brush, behind);
  boxWithStrip(brush, node, rect, overlay);
  const [left, right] = [x + LEFT, x + w - RIGHT];
  const isInstruction = node.kind === "instruction";
  const counts = (node.counts ?? []).slice(0, -1);
  const hasCells = hasRoles && !isInstruction && counts.some((count) => count > 0);
  const first = y + (hasCells ? 22 : h / 2 - 3);
  const repeat = node.repeat > 1 ? `×${node.repeat}` : "";
  const room =
    right - left - (hasRoles && isInstruction ? 18 : 0) - (repeat ? lettering.width(repeat, TITLE.size, true) + 8 : 0);
  write(brush, left, first, node.name, TITLE, room);
  write(brush, right, first, repeat, TITLE, undefined, "right");
  const share = overlay?.text ?? (node.share === null ? "" : percent(node.share));
  const below = right - left - (share ? lettering.width(share, VALUE.size) + 8 : 0);
  const note = (node.kind === "lines" && node.shape) || node.label || node.shape;
  if (below > LEAST_BELOW) write(brush, left, first + 17, note, NOTE, below);
  asValue(brush, () => write(brush, right, first + 17, share, VALUE, right - left, "right"));
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
function drawName(brush: Brush, node: SceneNode, rect: Rect, overlay: Overlay | undefined) {
  const { c, colours, lettering, k } = brush;
  const { x, y, w, h } = rect;
  const isBad = node.problem !== null;
  const rim = Math.max(1, 0.7 / k);
  const plain = (left: number, top: number, colour: string, edge: string) => {
    c.fillStyle = edge;
    c.fillRect(left, top, w, h);
    c.fillStyle = colour;
    c.fillRect(left + rim, top + rim, w - 2 * rim, h - 2 * rim);
  };
  if (node.repeat > 1 || node.group) plain(x + 4, y + (brush.isModel ? 4 : -4), colours.surface, colours.line);
  plain(x, y, colours.surface, isBad ? colours.bad : colours.line);
  if (overlay) tint(brush, rect, 0, overlay);
  const strip = () => {
    c.fillStyle = overlay ? rectangleColour(colours, node, overlay) : stripColour(colours, node);
    c.fillRect(x, y, 6, h);
  };
  overlay ? asValue(brush, strip) : strip();
  const size = Math.min(NAME_PX.most, Math.max(NAME_PX.least, TITLE.size * k)) / k;
  const [style, middle] = [{ ...TITLE, size }, y + h / 2 + size * 0.36];
  if (isPill(node)) return write(brush, x + w / 2, middle, node.name, style, Math.max(w, PILL_ROOM), "center");
  const repeat = node.repeat > 1 ? ` ×${node.repeat}` : "";
  const [left, room] = [x + 6 + 3 / k, w - 6 - 6 / k];
  const count = repeat && lettering.width(repeat, size, true) < room * 0.6 ? repeat : "";
  write(
    brush,
    left,
    middle,
    lettering.fit(node.name, size, room - lettering.width(count, size, true), true) + count,
    style,
  );
}

function stripColour(colours: Colours, node: SceneNode) {
  return node.path || node.kind !== "input" ? hueOf(colours, node.hue) : colours.line;
}

/** Draw the bar of a value, 4 high: as long as the number, full for a category, hatched if unknown. */
function drawValue(brush: Brush, x: number, y: number, length: number, { level, hue }: Overlay) {
  const { c, colours } = brush;
  const bar = { x, y, w: length, h: 4 };
  plate(c, bar, 2, colours.track);
  asValue(brush, () => {
    if (hue !== undefined) plate(c, bar, 2, hueOf(colours, hue));
    else if (level === undefined) hatch(brush, bar);
    else {
      const filled = Math.max(0, Math.min(1, level)) * length;
      if (filled >= 0.5) plate(c, { ...bar, w: filled }, Math.min(2, filled / 2), colours.cost);
    }
  });
}

/** Draw a part of a value: faintly if it is of an earlier model. */
function asValue({ c, isOld }: Brush, draw: () => void) {
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
  if (draws) write(brush, x, y + 12, heading, { ...VALUE, bold: true }, width);
  let [left, top] = [x, y + 24];
  for (const one of legend) {
    const text = lettering.fit(one.text, NOTE.size, Math.min(LEGEND.text, width - LEGEND.bar - 6));
    const needed = LEGEND.bar + 6 + lettering.width(text, NOTE.size);
    if (left > x && left + needed > x + width) [left, top] = [x, top + LEGEND.row];
    if (draws) {
      if (one.role === undefined) drawValue(brush, left, top, LEGEND.bar, one);
      else if (one.role !== "returns") drawRole(brush.c, brush.colours, left, top - 1, LEGEND.bar, one.role, HUES - 1);
      else drawReturn(brush.c, brush.colours, left, top + 2.5, LEGEND.bar);
      write(brush, left + LEGEND.bar + 6, top + 6, text, NOTE);
    }
    left += needed + 18;
  }
  for (const note of notes) {
    top += LEGEND.row;
    if (draws) write(brush, x, top + 6, note, NOTE, width);
  }
  return top + LEGEND.row - y;
}

function hatch({ c, colours }: Brush, { x, y, w, h }: Rect) {
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
function tint({ c, colours, isOld }: Brush, rect: Rect, radius: number, { level, hue }: Overlay) {
  if (hue === undefined && !level) return;
  c.save();
  c.globalAlpha *= (isOld ? OLD : 1) * (hue === undefined ? TINT * level! : TINT);
  plate(c, rect, radius, hue === undefined ? colours.cost : hueOf(colours, hue));
  c.restore();
}

function drawPorts({ c, colours }: Brush, node: SceneNode, x: number, y: number) {
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

/** Return the boxes behind that of a repeated node. */
function stacked({ x, y, w, h }: Rect): Rect[] {
  return [6, 3].map((off) => ({ x: x + off, y: y - off, w: w - off, h }));
}

function box({ c, colours, k }: Brush, rect: Rect) {
  plate(c, rect, 4, colours.surface);
  c.strokeStyle = colours.line;
  c.lineWidth = Math.max(1, 0.7 / k);
  outline(c, rect, 4);
}

/** Draw the box of a node, and the strip in its hue. */
function boxWithStrip(brush: Brush, node: SceneNode, rect: Rect, overlay: Overlay | undefined) {
  const { c, colours, k } = brush;
  plate(c, rect, 4, colours.surface);
  if (overlay) tint(brush, rect, 4, overlay);
  const isBad = node.problem !== null;
  c.strokeStyle = isBad ? colours.bad : colours.line;
  c.lineWidth = Math.max(isBad ? 1.5 : 1, 0.7 / k);
  if (isBad) c.setLineDash([5, 3]);
  outline(c, rect, 4);
  c.setLineDash([]);
  c.fillStyle = stripColour(colours, node);
  c.beginPath();
  c.roundRect(rect.x, rect.y, 6, rect.h, [4, 0, 0, 4]);
  c.fill();
}

/** Write two texts into one row. Without room for both, the first keeps up to 60 % of it, and the second is cut. */
function row(
  brush: Brush,
  left: number,
  right: number,
  y: number,
  first: string,
  style: Style,
  second: string,
  other: Style,
) {
  const { lettering } = brush;
  const room = right - left - (second ? LEAST_GAP : 0);
  const kept = Math.min(lettering.width(first, style.size, style.bold), room * 0.6);
  const beside = lettering.fit(second, other.size, room - kept);
  write(brush, left, y, first, style, room - lettering.width(beside, other.size));
  write(brush, right, y, beside, other, undefined, "right");
}

/** Write a text; with `room`, it is cut to this width. */
function write(
  { c, colours, lettering }: Brush,
  x: number,
  y: number,
  text: string,
  { size, look, bold = false }: Style,
  room?: number,
  align: CanvasTextAlign = "left",
) {
  const shown = room === undefined ? text : lettering.fit(text, size, room, bold);
  if (!shown) return;
  lettering.use(size, bold);
  c.fillStyle = colours[look];
  c.textAlign = align;
  c.fillText(shown, x, y);
}

function plate(c: CanvasRenderingContext2D, { x, y, w, h }: Rect, radius: number, colour: string) {
  c.fillStyle = colour;
  c.beginPath();
  c.roundRect(x, y, w, h, radius);
  c.fill();
}

function outline(c: CanvasRenderingContext2D, { x, y, w, h }: Rect, radius: number) {
  c.beginPath();
  c.roundRect(x, y, w, h, radius);
  c.stroke();
}
