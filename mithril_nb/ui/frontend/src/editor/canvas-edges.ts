/** Edges of the canvas: a line, a wide invisible line for clicks, a shape label, and an icon for problems. */

import { attr, svg, text } from "../dom/dom";
import type { Diagnostic, GraphEdge } from "../kernel/types";
import type { Store } from "../store/store";
import { arrowOf, middle, pathOf } from "./graph";

export type EdgeView = SVGGElement;

export function createEdge(edge: GraphEdge, store: Store): EdgeView {
  return svg(
    "g",
    {
      class: "mnb-edge", "data-mnb-edge": edge.id,
      onclick: (event: Event) => {
        event.stopPropagation();
        store.selectEdge(edge.id);
        // The board handles Delete, so it needs the focus.
        (event.currentTarget as Element).closest<HTMLElement>(".mnb-board")?.focus({ preventScroll: true });
      },
    },
    svg("title"),
    svg("path", { class: "mnb-edge-hit" }),
    svg("path", { class: "mnb-edge-line" }),
    svg("path", { class: "mnb-edge-arrow" }),
    svg("g", { class: "mnb-edge-label" }, svg("rect", { rx: 3, height: 16 }), svg("text", { "text-anchor": "middle", dy: "0.34em" })),
    svg("g", { class: "mnb-edge-problem" }, svg("circle", { r: 8 }), svg("text", { "text-anchor": "middle", dy: "0.36em" }, "!")),
  );
}

export function updateEdge(element: EdgeView, edge: GraphEdge, problems: readonly Diagnostic[]): void {
  const problem = edge.problem === null ? undefined : problems[edge.problem];
  const d = pathOf(edge);
  const ends = `${edge.source} → ${edge.target}`;
  for (const path of element.querySelectorAll(".mnb-edge-line, .mnb-edge-hit")) attr(path, "d", d);
  attr(element.querySelector(".mnb-edge-arrow")!, "d", arrowOf(edge.points));
  attr(element, "data-mnb-problem", problem ? problem.code : null);
  element.classList.toggle("mnb-wrong", problem !== undefined);
  text(element.querySelector("title")!, problem ? `${ends}: ${problem.summary}` : `${ends}  ${edge.shape}`);
  const [x, y] = middle(edge);
  const label = element.querySelector<SVGGElement>(".mnb-edge-label")!;
  text(label.querySelector("text")!, edge.shape);
  const width = edge.shape.length * 6.4 + 10;
  const rect = label.querySelector("rect")!;
  attr(rect, "width", width);
  attr(rect, "x", -width / 2);
  attr(rect, "y", -8);
  attr(label, "transform", `translate(${x} ${y})`);
  attr(element.querySelector(".mnb-edge-problem")!, "transform", `translate(${x} ${y})`);
}
