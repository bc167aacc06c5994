/** Nodes of the canvas: their content and pointer actions. */

import { editName } from "../controls/rename";
import { ICONS, attr, h, icon, keyed, text } from "../dom/dom";
import { percent } from "../dom/format";
import type { Diagnostic, GraphNode, Port } from "../kernel/types";
import type { Links } from "../store/links";
import { endpointOf, keyOf } from "./graph";

export interface NodeActions {
  hover(path: string | null): void;
  select(key: string, path: string, add: boolean): void;
  rename(path: string, name: string): void;
  toggle(path: string): void;
  scale(): number;
  drag(node: GraphNode, x: number, y: number): void;
  drop(node: GraphNode, x: number, y: number): void;
  /** Draw the graph as it was before a drag. */
  restore(): void;
  wire(event: PointerEvent, node: GraphNode, port: Port): void;
  problem(index: number): void;
}

/** The current node of each element. Listeners are attached once and look it up when called. */
const shown = new WeakMap<Element, GraphNode>();

const DRAG_PX = 4;

export function createNode(first: GraphNode, actions: NodeActions): HTMLElement {
  const boundary = first.path === "";
  const nameSlot = h("span", { class: "mnb-node-name" });
  const chevron = h("button", { type: "button", class: "mnb-node-chevron", tabindex: -1, hidden: true }, icon(ICONS.chevron));
  const flag = h("button", { type: "button", class: "mnb-node-flag", tabindex: -1, hidden: true }, icon(ICONS.warning));
  const element = h(
    "div",
    { class: boundary ? "mnb-node mnb-boundary" : "mnb-node", role: "treeitem", "data-mnb-node": keyOf(first) },
    // Spaces between the parts, so that screen readers do not join the words.
    h("div", { class: "mnb-node-head" }, nameSlot, " ", h("span", { class: "mnb-node-repeat" }), " ", h("span", { class: "mnb-node-kind" }), " ", flag, chevron),
    h("div", { class: "mnb-node-body" }, h("span", { class: "mnb-node-label" }), " ", h("span", { class: "mnb-chip" }), " "),
    h("div", { class: "mnb-node-cost" }, h("span", { class: "mnb-node-bar" }, h("i")), h("span", { class: "mnb-node-share" })),
    h("div", { class: "mnb-ports" }),
  );
  const node = (): GraphNode => shown.get(element)!;
  const rename = (): void => {
    if (node().path) editName(nameSlot, node().name, (name) => actions.rename(node().path, name), () => element.focus());
  };
  element.addEventListener("pointerenter", () => node().path && actions.hover(node().path));
  element.addEventListener("pointerleave", () => actions.hover(null));
  element.addEventListener("dblclick", (event) => {
    event.preventDefault();
    rename();
  });
  element.addEventListener("mnb-rename", rename);
  chevron.addEventListener("click", (event) => {
    event.stopPropagation();
    actions.toggle(node().path);
  });
  flag.addEventListener("click", (event) => {
    event.stopPropagation();
    const { problem } = node();
    if (problem !== null) actions.problem(problem);
  });
  element.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || (event.target as Element).closest("button, input, .mnb-port")) return;
    press(event, element, node, actions);
  });
  element.querySelector(".mnb-ports")!.addEventListener("pointerdown", (event) => {
    const dot = (event.target as Element).closest<HTMLElement>("[data-mnb-port]");
    if (!dot) return;
    event.stopPropagation();
    if (dot.dataset["side"] !== "output") return;
    // Areas of ports that are close together overlap: take the port that is nearest to the pointer.
    const { clientX, clientY } = event as PointerEvent;
    const distance = (port: Port): number => {
      const box = element.querySelector(`[data-side="output"][data-mnb-port="${CSS.escape(endpointOf(node(), port))}"]`)!.getBoundingClientRect();
      return Math.hypot(box.x + box.width / 2 - clientX, box.y + box.height / 2 - clientY);
    };
    const nearest = node().outputs.reduce((best, port) => (distance(port) < distance(best) ? port : best));
    actions.wire(event as PointerEvent, node(), nearest);
  });
  return element;
}

/** Handle a press: a drag if the pointer moves, else a click. */
function press(event: PointerEvent, element: HTMLElement, node: () => GraphNode, actions: NodeActions): void {
  const start = node();
  const add = event.shiftKey;
  let dragging = false;
  let place = { x: start.x, y: start.y };
  element.focus({ preventScroll: true });
  element.setPointerCapture(event.pointerId);
  const move = (moved: PointerEvent): void => {
    const dx = moved.clientX - event.clientX;
    const dy = moved.clientY - event.clientY;
    if (!dragging && Math.hypot(dx, dy) < DRAG_PX) return;
    dragging = true;
    place = { x: start.x + dx / actions.scale(), y: start.y + dy / actions.scale() };
    actions.drag(start, place.x, place.y);
  };
  const done = (ended: PointerEvent): void => {
    element.removeEventListener("pointermove", move);
    element.removeEventListener("pointerup", done);
    element.removeEventListener("pointercancel", done);
    if (dragging && ended.type === "pointerup" && start.path) actions.drop(start, place.x, place.y);
    else if (dragging) actions.restore();
    else if (ended.type === "pointerup") actions.select(keyOf(start), start.path, add);
  };
  element.addEventListener("pointermove", move);
  element.addEventListener("pointerup", done);
  element.addEventListener("pointercancel", done);
}

export function updateNode(element: HTMLElement, node: GraphNode, problems: readonly Diagnostic[]): void {
  shown.set(element, node);
  const find = (name: string): HTMLElement => element.querySelector<HTMLElement>(name)!;
  element.classList.remove("mnb-dragging");
  element.style.transform = `translate(${node.x}px, ${node.y}px)`;
  element.style.width = `${node.w}px`;
  element.style.height = `${node.h}px`;
  const hue = `mnb-hue-${((node.hue % 8) + 8) % 8}`;
  for (const name of Array.from(element.classList)) if (name.startsWith("mnb-hue-") && name !== hue) element.classList.remove(name);
  element.classList.toggle(hue, node.path !== "");
  const open = node.group && node.expanded;
  element.classList.toggle("mnb-frame", open);
  element.classList.toggle("mnb-group", node.group && !open);
  element.classList.toggle("mnb-nested", node.path.includes("/"));
  const problem = node.problem === null ? undefined : problems[node.problem];
  element.classList.toggle("mnb-wrong", problem !== undefined);
  const flag = find(".mnb-node-flag");
  flag.hidden = problem === undefined;
  attr(flag, "title", problem?.summary);
  attr(flag, "aria-label", problem?.summary);
  const nameSlot = find(".mnb-node-name");
  if (!nameSlot.querySelector("input")) text(nameSlot, node.name);
  attr(nameSlot, "title", node.path || node.name);
  text(find(".mnb-node-kind"), node.path ? node.kind : node.kind === "input" ? "model input" : "model output");
  attr(find(".mnb-node-kind"), "title", node.path ? node.kind : null);
  text(find(".mnb-node-repeat"), node.repeat > 1 ? `×${node.repeat}` : "");
  const chevron = find(".mnb-node-chevron");
  chevron.hidden = !node.group;
  attr(chevron, "aria-label", open ? `Close ${node.name}` : `Open ${node.name}`);
  text(find(".mnb-node-label"), node.label);
  const chip = find(".mnb-chip");
  text(chip, node.shape);
  attr(chip, "title", node.shape ? `output ${node.shape}` : null);
  const share = node.path ? node.share : null;
  const cost = find(".mnb-node-cost");
  cost.hidden = share === null;
  attr(cost, "title", share === null ? null : `${percent(share)} of the program's FLOPs${node.group ? ", including inner blocks" : ""}`);
  const shareText = share === null ? "" : percent(share, share >= 0.1 ? 0 : 1);
  text(find(".mnb-node-share"), shareText);
  find(".mnb-node-bar i").style.width = `${Math.min(100, (share ?? 0) * 100)}%`;
  ports(find(".mnb-ports"), node);
  const visible = [node.name, node.repeat > 1 && `×${node.repeat}`, find(".mnb-node-kind").textContent, node.label, node.shape, shareText];
  const label = [visible.filter(Boolean).join(" "), share !== null && "of FLOPs", problem && `, problem: ${problem.summary}`];
  attr(element, "aria-label", label.filter(Boolean).join(" "));
  attr(element, "aria-level", node.path ? node.path.split("/").length : 1);
  attr(element, "aria-expanded", node.group ? String(node.expanded) : null);
}

function ports(layer: HTMLElement, node: GraphNode): void {
  const all = [...node.inputs.map((port) => ({ port, side: "input" })), ...node.outputs.map((port) => ({ port, side: "output" }))];
  keyed(
    layer,
    all,
    ({ port, side }) => `${side} ${port.name}`,
    ({ port, side }) => h("div", { class: `mnb-port mnb-port-${side}`, "data-side": side, "data-mnb-port": endpointOf(node, port) }, h("span", { class: "mnb-port-name" }, port.name)),
    (dot: HTMLElement, { port, side }) => {
      dot.style.left = `${port.x}px`;
      dot.style.top = `${port.y}px`;
      attr(dot, "data-mnb-port", endpointOf(node, port));
      attr(dot, "title", side === "output" ? `${port.name}: drag to an input to connect` : port.name);
    },
  );
}

export function paintLink(element: HTMLElement, hover: Links, pins: Links): void {
  const node = shown.get(element);
  const path = node?.path ?? "";
  const pinned = path !== "" && pins.blocks.has(path);
  const hovered = path !== "" && hover.blocks.has(path);
  element.classList.toggle("mnb-pinned", pinned);
  element.classList.toggle("mnb-hovered", hovered);
  attr(element, "data-mnb-linked", pinned ? "pinned" : hovered ? "hover" : null);
  attr(element, "aria-selected", String(pinned));
}
