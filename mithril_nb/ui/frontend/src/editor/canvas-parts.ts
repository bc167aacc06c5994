/** The texts and controls of the canvas' nodes and edges. */

import { icon } from "../dom/view";
import { attr, h } from "../dom/dom";
import { titled } from "../costs/figures";
import { percent } from "../dom/format";
import { HUES } from "../drawing/colours";
import type { Legend } from "../graph/boxes";
import type { Description } from "../graph/items";
import { times } from "../drawing/lettering";
import { type Port, type SceneEdge, type SceneNode, endId, isPill } from "../graph/scene";
import type { ProblemData } from "../kernel/contract";
import type { Snapshot } from "../kernel/model";

interface PartActions {
  wire(event: PointerEvent, node: SceneNode, port: Port): void;
  /** Drag the end of the edge at an input. */
  unwire(event: PointerEvent, input: string): void;
  problem(index: number): void;
}

/** Return the accessible name and the tooltip of a node. */
export function describeNode(node: SceneNode, { problems, kinds }: Snapshot): Description {
  const family = kinds[node.kind]?.family;
  const role = node.label ? "" : `model ${node.kind}`;
  const kind = isPill(node) ? role : node.kind + (family ? `, ${family.toLowerCase()}` : "");
  const share = !isPill(node) && node.share !== null ? percent(node.share) : "";
  const problem = node.problem === null ? undefined : problems[node.problem];
  const frozen = { all: "parameters frozen", some: "some parameters frozen" }[node.frozen ?? ""] ?? "";
  const words = [
    node.name,
    node.repeat > 1 ? `×${node.repeat}` : "",
    kind,
    node.label,
    node.shape,
    share && `${share} of FLOPs`,
    frozen && `, ${frozen}`,
    problem && `, problem: ${problem.summary}`,
  ];
  const tip = [
    times(node.path || node.name, node.repeat),
    [kind, node.label].filter(Boolean).join("  "),
    node.shape && `output ${node.shape}`,
    share && `${share} of the program's ${node.group ? titled("FLOPs", false) : "FLOPs"}`,
    frozen && `${frozen}: training does not change them`,
    problem?.summary ?? "",
  ];
  return { name: words.filter(Boolean).join(" "), tip: tip.filter(Boolean) };
}

/** Colour nodes by the families of their kinds, and return the nodes and the legend. */
export function byFamily(
  nodes: readonly SceneNode[],
  kinds: Snapshot["kinds"],
): { nodes: SceneNode[]; legend: Legend } {
  const families = new Map<number, Set<string>>();
  const coloured = nodes.map((node) => {
    if (isPill(node)) return node;
    const { family, hue } = kinds[node.kind] ?? { family: "models", hue: HUES - 1 }; // a repeated sequence of kinds
    families.set(hue, (families.get(hue) ?? new Set()).add(family.toLowerCase()));
    return { ...node, hue };
  });
  const parts = [...families].sort(([a], [b]) => a - b).map(([hue, names]) => ({ hue, text: [...names].join(", ") }));
  return { nodes: coloured, legend: { heading: "colour: family", legend: parts, notes: [] } };
}

/** Return the tooltip of an edge. */
export function describeEdge(edge: SceneEdge, problems: readonly ProblemData[]): string[] {
  const problem = edge.problem === null ? undefined : problems[edge.problem];
  return [
    [edge.source, edge.target].map((end) => end.replace(/^repeat:/, "")).join(" → "),
    problem ? problem.summary : edge.shape,
  ].filter(Boolean);
}

/** Complete the element of an edge. */
export function fillEdge(element: HTMLElement, edge: SceneEdge, problems: readonly ProblemData[]): void {
  attr(element, "data-mnb-problem", edge.problem === null ? null : (problems[edge.problem]?.code ?? ""));
}

/** Add the ports of a node, and a button that shows its problem. */
export function addParts(
  parts: HTMLElement,
  node: SceneNode,
  problems: readonly ProblemData[],
  actions: PartActions,
): void {
  const problem = node.problem === null ? undefined : problems[node.problem];
  if (problem) {
    const open = (event: Event) => {
      event.stopPropagation();
      actions.problem(node.problem!);
    };
    parts.append(
      h(
        "button",
        {
          type: "button",
          class: "mnb-node-flag",
          tabindex: -1,
          title: problem.summary,
          "aria-label": problem.summary,
          onclick: open,
        },
        icon("warning"),
      ),
    );
  }
  const outputs = node.outputs.map((port) => ({ port, dot: dotOf(node, port, "output") }));
  const ports = h(
    "div",
    { class: "mnb-ports" },
    ...node.inputs.map((port) => dotOf(node, port, "input")),
    ...outputs.map(({ dot }) => dot),
  );
  ports.addEventListener("pointerdown", (event) => {
    const { side, mnbPort } = (event.target as Element).closest<HTMLElement>("[data-mnb-port]")?.dataset ?? {};
    if (event.button !== 0 || !side) return;
    event.stopPropagation();
    if (side === "input") return actions.unwire(event, mnbPort!);
    event.preventDefault(); // the node keeps the focus
    // Areas of ports that are close together overlap: take the port that is nearest to the pointer.
    const distance = ({ dot }: { dot: HTMLElement }) => {
      const box = dot.getBoundingClientRect();
      return Math.hypot(box.x + box.width / 2 - event.clientX, box.y + box.height / 2 - event.clientY);
    };
    actions.wire(event, node, outputs.reduce((best, one) => (distance(one) < distance(best) ? one : best)).port);
  });
  parts.append(ports);
}

function dotOf(node: SceneNode, port: Port, side: "input" | "output"): HTMLElement {
  const title =
    side === "output" ? `${port.name}: drag to an input to connect, or to the background to add a block` : port.name;
  return h(
    "div",
    {
      class: `mnb-port mnb-port-${side}`,
      "data-side": side,
      "data-mnb-port": endId(node.key, port.name),
      title,
      style: `left: ${port.x}px; top: ${port.y}px`,
    },
    h("span", { class: "mnb-port-name" }, port.name),
  );
}
