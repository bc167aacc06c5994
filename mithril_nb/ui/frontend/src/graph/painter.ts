/** Draws the visible part of a scene into a canvas. */

import { grouped } from "../dom/format";
import { push } from "../dom/lists";
import type { Colours } from "../drawing/colours";
import { createGrid } from "../drawing/grid";
import { createLettering, type Lettering } from "../drawing/lettering";
import { type Line, type Point, type Rect, bend, boxOf, distanceTo, piecesIn, trace } from "../drawing/lines";
import { SvgContext } from "../drawing/svg-context";
import type { View } from "../drawing/zoom";
import {
  type Brush,
  DIM,
  type Legend,
  OLD,
  type Overlay,
  detailOfNode,
  drawBox,
  drawCount,
  drawFrame,
  drawLegend,
  rectangleColour,
} from "./boxes";
import { createOverview } from "./overview";
import { type SceneEdge, type SceneNode, SceneIndex, EMPTY, boundsOf, isPill } from "./scene";
import {
  type DrawnEdge,
  type Fork,
  type PlacedLabel,
  drawChip,
  drawEdgeSigns,
  drawForks,
  drawLabels,
  drawLit,
  drawWires,
  forksOf,
  placeLabels,
} from "./wires";

/** A connection that is being drawn. */
export interface Wire {
  from: Point;
  to: Point;
  tone: "plain" | "good" | "bad";
}

/** The state of a picture, by keys of nodes and ids of edges. */
export interface PaintState {
  hovered: ReadonlySet<string>;
  selected: ReadonlySet<string>;
  /** Nodes and edges that are not part of the current answer. */
  dimmed: ReadonlySet<string>;
  /** Number of matches of a search in each node that has any. */
  matches: ReadonlyMap<string, number>;
  overlay: ReadonlyMap<string, Overlay>;
  /** The legend of exported pictures. */
  legend: Legend | null;
  /** True if the values and shares belong to an earlier model; they are drawn faintly. */
  isOld: boolean;
  hoveredEdge: string | null;
  selectedEdge: string | null;
  wire: Wire | null;
}

export const PLAIN: PaintState = {
  hovered: new Set(),
  selected: new Set(),
  dimmed: new Set(),
  matches: new Map(),
  overlay: new Map(),
  legend: null,
  isOld: false,
  hoveredEdge: null,
  selectedEdge: null,
  wire: null,
};

/** Nodes and edges drawn elsewhere than in the scene: dragged, or moving to their new place. */
export interface Moved {
  nodes: ReadonlyMap<string, Rect & { opacity?: number }>;
  lines: ReadonlyMap<string, Line & { opacity?: number }>;
  /** What the dragged nodes are in line with. */
  guides?: readonly Line[];
}

export const STILL: Moved = { nodes: new Map(), lines: new Map() };

/** From this zoom on, each edge shows its shape. */
const CHIP_ZOOM = 1.25;
const LABEL_ZOOM = 0.62;
/** With more boxes in view, they are taken from the overview: always, or if it has enough detail. */
const MOST_BOXES = { always: 12_000, ifSharp: 1_500 };
const SHARP = 0.6;
/** If boxes are only a few pixels large and there are more edges, the edges are left out. */
const MOST_DISTANT_EDGES = 1_500;
const DISTANT_ZOOM = 0.12;
/** Edges longer than this many views are cut to the view. */
const LONG = 3;
const MOST_MATCHES = 2_000;
const SVG_MOST = 20_000;
/** Least width of a picture with a legend. */
const LEAST_WITH_LEGEND = 480;
const PNG = { margin: 14, side: 16_000, area: 100e6 };

export function createPainter() {
  let index = new SceneIndex(EMPTY);
  let bounds: Rect = { x: 0, y: 0, w: 0, h: 0 };
  let nodeGrid = createGrid([]);
  let edgeBoxes: Rect[] = [];
  let edgeGrid = createGrid([]);
  let forks: { dimmed: ReadonlySet<string>; all: Fork[] } | null = null;
  let placedLabels: PlacedLabel[] | null = null;
  let letters: Lettering | null = null;
  let rolesShown = false;
  /** Whether an exported picture is drawn, which needs all details. */
  let isExported = false;
  const overview = createOverview();

  function show(shown: SceneIndex) {
    index = shown;
    const { scene } = index;
    bounds = boundsOf(scene) ?? { x: 0, y: 0, w: 0, h: 0 };
    nodeGrid = createGrid(scene.nodes);
    edgeBoxes = scene.edges.map(boxOf);
    edgeGrid = createGrid(edgeBoxes);
    forks = null;
    rolesShown = scene.roles.filter((_, role) => scene.nodes.some((node) => node.counts?.[role])).length > 1;
    placedLabels = null;
    overview.clear();
  }

  /** Return the nodes that meet a part of the scene, in reading order. */
  function nodesIn(part: Rect) {
    return nodeGrid.find(part).map((at) => index.scene.nodes[at]!);
  }

  /** Return the edges whose surrounding rectangle meets a part of the scene. */
  function linesIn(part: Rect) {
    return edgeGrid.find(part).map((at) => index.scene.edges[at]!);
  }

  /** Return the node at a point: a box, or else the innermost frame. */
  function nodeAt(x: number, y: number) {
    const found = nodesIn({ x, y, w: 0, h: 0 });
    return found.findLast((node) => !node.expanded) ?? found.at(-1) ?? null;
  }

  /** Return the edge nearest to a point, at most `reach` away. */
  function edgeAt(x: number, y: number, reach: number) {
    let best: SceneEdge | null = null;
    for (const at of edgeGrid.find({ x: x - reach, y: y - reach, w: 2 * reach, h: 2 * reach })) {
      const edge = index.scene.edges[at]!;
      const distance = distanceTo(edge, x, y);
      if (distance <= reach) [best, reach] = [edge, distance];
    }
    return best;
  }

  /** Draw the part of the scene that is visible in a frame of this size in CSS pixels. */
  function draw(
    c: CanvasRenderingContext2D,
    view: View,
    size: { width: number; height: number; ratio: number },
    colours: Colours,
    state: PaintState,
    moved: Moved,
  ) {
    if (letters?.family !== colours.family) {
      letters = createLettering(c, colours.family);
      placedLabels = null;
    }
    const { k } = view;
    const brush: Brush = {
      c,
      colours,
      lettering: letters,
      k,
      isModel: index.scene.is_model,
      hasRoles: rolesShown,
      isOld: state.isOld,
    };
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, size.width * size.ratio, size.height * size.ratio);
    c.setTransform(k * size.ratio, 0, 0, k * size.ratio, view.x * size.ratio, view.y * size.ratio);
    c.globalAlpha = 1;
    const margin = 12;
    const part: Rect = {
      x: -view.x / k - margin,
      y: -view.y / k - margin,
      w: size.width / k + 2 * margin,
      h: size.height / k + 2 * margin,
    };
    letters.reset();
    const isSharp = overview.scaleOf(bounds) >= SHARP * k * size.ratio;
    if (!isExported && estimate(part) * index.scene.nodes.length > (isSharp ? MOST_BOXES.ifSharp : MOST_BOXES.always))
      overview.blit(c, index.scene, bounds, colours, state);
    else drawPart(brush, part, state, moved);
    drawOutlines(brush, part, state, moved);
    if (moved === STILL) drawMatches(brush, part, state);
    if (moved.guides) drawGuides(brush, moved.guides);
    if (state.wire) drawWire(brush, state.wire);
  }

  /** Draw the whole scene as PNG, with the legend of the overlay. */
  function toPng(colours: Colours, state: PaintState, scale: number): Promise<Blob> {
    const canvas = document.createElement("canvas");
    const c = canvas.getContext("2d");
    if (!c) return Promise.reject(new Error("This browser cannot draw pictures."));
    const { width, height } = sheet(c, colours, state);
    const k = Math.min(scale, PNG.side / Math.max(width, height), Math.sqrt(PNG.area / (width * height)));
    Object.assign(canvas, { width: Math.ceil(width * k), height: Math.ceil(height * k) });
    drawSheet(c, colours, state, k, canvas);
    c.globalCompositeOperation = "destination-over";
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.fillStyle = colours.ground;
    c.fillRect(0, 0, canvas.width, canvas.height);
    const tooLarge = `A picture of ${canvas.width} × ${canvas.height} px is too large for this browser.`;
    return new Promise((resolve, reject) =>
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error(tooLarge))), "image/png"),
    );
  }

  /** Return the whole scene as SVG, with the legend of the overlay. */
  function toSvg(colours: Colours, state: PaintState, title: string) {
    const { nodes } = index.scene;
    if (nodes.length > SVG_MOST)
      throw new Error(`An SVG of ${grouped(nodes.length)} nodes is too large. Export PNG, or close groups.`);
    const c = new SvgContext(document.createElement("canvas").getContext("2d"));
    const size = sheet(c as unknown as CanvasRenderingContext2D, colours, state);
    drawSheet(c as unknown as CanvasRenderingContext2D, colours, state, 1, size);
    return c.toText(size.width, size.height, colours.ground, title);
  }

  function sheet(c: CanvasRenderingContext2D, colours: Colours, state: PaintState) {
    const width = Math.max(bounds.w, state.legend ? LEAST_WITH_LEGEND : 0) + 2 * PNG.margin;
    const below = drawLegendOf(c, colours, state, 1, false);
    return { width, height: bounds.h + 2 * PNG.margin + below };
  }

  function drawSheet(
    c: CanvasRenderingContext2D,
    colours: Colours,
    state: PaintState,
    k: number,
    size: { width: number; height: number },
  ) {
    const { x, y } = bounds;
    const plain = { ...state, hovered: PLAIN.hovered, hoveredEdge: null, wire: null };
    letters = null; // it measures with the context that it draws to
    isExported = true;
    draw(
      c,
      { x: (PNG.margin - x) * k, y: (PNG.margin - y) * k, k },
      { width: size.width, height: size.height, ratio: 1 },
      colours,
      plain,
      STILL,
    );
    isExported = false;
    drawLegendOf(c, colours, state, k, true);
    letters = null;
  }

  /** Draw the legend below the graph, and return its height; 0 without an overlay. */
  function drawLegendOf(
    c: CanvasRenderingContext2D,
    colours: Colours,
    { legend, isOld }: PaintState,
    k: number,
    draws: boolean,
  ) {
    if (!legend) return 0;
    const { x, y, w, h } = bounds;
    const brush: Brush = {
      c,
      colours,
      lettering: createLettering(c, colours.family),
      k,
      isModel: true,
      hasRoles: false,
      isOld,
    };
    return drawLegend(brush, legend, x, y + h + PNG.margin, Math.max(w, LEAST_WITH_LEGEND), draws);
  }

  /** Return the share of the scene that a part contains. */
  function estimate(part: Rect) {
    const { x, y, w, h } = bounds;
    const share = (from: number, length: number, start: number, whole: number) =>
      whole ? Math.max(0, Math.min(from + length, start + whole) - Math.max(from, start)) / whole : 1;
    return share(part.x, part.w, x, w) * share(part.y, part.h, y, h);
  }

  function drawPart(brush: Brush, part: Rect, state: PaintState, moved: Moved) {
    const drawn = nodesIn(part).filter((node) => !moved.nodes.has(node.key));
    const moving = [...moved.nodes].flatMap(([key, rect]) => {
      const node = index.node(key);
      return node && meets(rect, part) ? [{ node, rect }] : [];
    });
    const dim = (key: string, opacity = 1): void =>
      void (brush.c.globalAlpha = opacity * (state.dimmed.has(key) ? DIM : 1));
    for (const node of drawn) {
      if (!node.expanded) continue;
      dim(node.key);
      drawFrame(brush, node, node, state.overlay.get(node.key));
    }
    for (const { node, rect } of moving) {
      if (!node.expanded) continue;
      dim(node.key, rect.opacity);
      drawFrame(brush, node, rect, state.overlay.get(node.key));
    }
    const isCrowded = brush.k < DISTANT_ZOOM && estimate(part) * index.scene.edges.length > MOST_DISTANT_EDGES;
    const edges = isCrowded ? [] : edgesIn(part, moved);
    if (edges.length) {
      const plain = edges.filter(({ edge }) => !state.dimmed.has(edge.id) && !moved.lines.get(edge.id)?.opacity);
      brush.c.globalAlpha = 1;
      drawWires(brush, plain);
      if (plain.length < edges.length) {
        brush.c.globalAlpha = DIM;
        drawWires(
          brush,
          edges.filter(({ edge }) => state.dimmed.has(edge.id)),
        );
        for (const one of edges) {
          const opacity = moved.lines.get(one.edge.id)?.opacity;
          if (!opacity || state.dimmed.has(one.edge.id)) continue;
          brush.c.globalAlpha = opacity;
          drawWires(brush, [one]);
        }
      }
    }
    brush.c.globalAlpha = 1;
    if (brush.k >= LABEL_ZOOM && moved === STILL) {
      const { dimmed } = state;
      if (forks?.dimmed !== dimmed)
        forks = { dimmed, all: forksOf(index.scene.edges.filter(({ id }) => !dimmed.has(id))) };
      drawForks(
        brush,
        forks.all.filter(({ point: [x, y] }) => meets({ x, y, w: 0, h: 0 }, part)),
      );
    }
    drawLitEdges(brush, edges, state);
    drawBoxes(brush, drawn, state, dim);
    for (const { node, rect } of moving) {
      if (node.expanded) continue;
      dim(node.key, rect.opacity);
      drawBox(brush, node, rect, state.overlay.get(node.key));
    }
    brush.c.globalAlpha = 1;
    if (brush.k >= LABEL_ZOOM && moved === STILL) {
      placedLabels ??= placeLabels(index, brush);
      drawLabels(
        brush,
        placedLabels.filter(({ edge, x, y }) => !state.dimmed.has(edge.id) && meets({ x, y, w: 180, h: 1 }, part)),
      );
    }
    for (const one of edges)
      if (
        one.edge.problem === null &&
        (brush.k >= CHIP_ZOOM || one.edge.id === state.hoveredEdge || one.edge.id === state.selectedEdge)
      )
        drawChip(brush, one);
    drawEdgeSigns(brush, edges);
  }

  function edgesIn(part: Rect, moved: Moved) {
    const { edges } = index.scene;
    const found: DrawnEdge[] = [];
    for (const at of edgeGrid.find(part)) {
      const [edge, box] = [edges[at]!, edgeBoxes[at]!];
      if (moved.lines.has(edge.id)) continue;
      if (box.w <= LONG * part.w && box.h <= LONG * part.h) found.push({ edge, line: edge });
      else
        for (const { points, isEnd } of piecesIn(edge, part))
          found.push({
            edge: isEnd ? edge : { ...edge, is_end: false, returns: false },
            line: { points, curve: false },
          });
    }
    if (moved.lines.size) {
      for (const edge of edges) {
        const line = moved.lines.get(edge.id);
        if (line) found.push({ edge, line });
      }
    }
    return found;
  }

  function drawLitEdges(brush: Brush, edges: readonly DrawnEdge[], state: PaintState) {
    for (const one of edges) {
      if (one.edge.id === state.selectedEdge) drawLit(brush, one, brush.colours.accent, 3);
      else if (one.edge.id === state.hoveredEdge)
        drawLit(brush, one, one.edge.problem === null ? brush.colours.ink : brush.colours.bad, 2);
    }
  }

  /** Draw closed nodes. Rectangles are drawn colour by colour: changing the colour costs more than a rectangle. */
  function drawBoxes(brush: Brush, nodes: readonly SceneNode[], state: PaintState, dim: (key: string) => void) {
    const rectangles = new Map<string, SceneNode[]>();
    for (const node of nodes) {
      if (node.expanded) continue;
      const detail = detailOfNode(node, node, brush.k);
      if (detail === "full" || detail === "name" || node.problem !== null || state.dimmed.has(node.key)) {
        dim(node.key);
        drawBox(brush, node, node, state.overlay.get(node.key));
        continue;
      }
      push(rectangles, rectangleColour(brush.colours, node, state.overlay.get(node.key)), node);
    }
    brush.c.globalAlpha = state.isOld && state.overlay.size ? OLD : 1;
    for (const [colour, some] of rectangles) {
      brush.c.fillStyle = colour;
      for (const { x, y, w, h } of some) brush.c.fillRect(x, y, w, h);
    }
    brush.c.globalAlpha = 1;
  }

  /**
   * Draw a rim around each match, and the number of matches on groups. Thousands of them are a picture by themselves.
   */
  function drawMatches(brush: Brush, part: Rect, { matches }: PaintState) {
    if (!matches.size) return;
    const { c, colours, k } = brush;
    const unit = 1 / Math.min(1, k);
    c.strokeStyle = colours.match;
    c.lineWidth = 2 * unit;
    const found = nodesIn(part)
      .filter(({ key, expanded }) => !expanded && matches.has(key))
      .slice(0, MOST_MATCHES);
    for (const node of found) {
      const count = matches.get(node.key)!;
      c.strokeRect(node.x - unit, node.y - unit, node.w + 2 * unit, node.h + 2 * unit);
      if ((node.group || count > 1) && node.h * k >= 14) drawCount(brush, node, count);
    }
  }

  /** Draw the rims of hovered and selected nodes. */
  function drawOutlines({ c, colours, k }: Brush, part: Rect, state: PaintState, moved: Moved) {
    const unit = 1 / Math.min(1, k);
    c.lineWidth = 2 * unit;
    c.strokeStyle = colours.accent;
    const rim = (key: string, opacity: number) => {
      const node = index.node(key);
      const rect = moved.nodes.get(key) ?? node;
      if (!node || !rect || !meets(rect, part)) return;
      const isRound = !node.expanded && isPill(node);
      c.globalAlpha = opacity;
      c.beginPath();
      c.roundRect(
        rect.x - 2 * unit,
        rect.y - 2 * unit,
        rect.w + 4 * unit,
        rect.h + 4 * unit,
        isRound ? rect.h / 2 + 2 * unit : 5,
      );
      c.stroke();
    };
    for (const key of state.hovered) if (!state.selected.has(key)) rim(key, 0.6);
    for (const key of state.selected) rim(key, 1);
    c.globalAlpha = 1;
  }

  return {
    get index() {
      return index;
    },
    get bounds() {
      return bounds;
    },
    overview,
    show,
    nodesIn,
    linesIn,
    nodeAt,
    edgeAt,
    draw,
    toPng,
    toSvg,
  };
}

export type Painter = ReturnType<typeof createPainter>;

function drawGuides({ c, colours, k }: Brush, guides: readonly Line[]) {
  c.strokeStyle = colours.match;
  c.lineWidth = 1 / k;
  c.beginPath();
  for (const line of guides) trace(c, line);
  c.stroke();
}

function drawWire({ c, colours, k }: Brush, { from, to, tone }: Wire) {
  c.strokeStyle = tone === "good" ? colours.good : tone === "bad" ? colours.bad : colours.ink;
  c.lineWidth = Math.max(2, 1.2 / k);
  c.setLineDash(tone === "bad" ? [6, 4] : []);
  c.beginPath();
  trace(c, bend(from[0], from[1], to[0], to[1]));
  c.stroke();
  c.setLineDash([]);
  c.fillStyle = c.strokeStyle;
  if (tone === "plain") return;
  c.beginPath();
  c.arc(to[0], to[1], 5, 0, 2 * Math.PI);
  c.fill();
}

function meets(one: Rect, part: Rect) {
  return one.x <= part.x + part.w && one.x + one.w >= part.x && one.y <= part.y + part.h && one.y + one.h >= part.y;
}
