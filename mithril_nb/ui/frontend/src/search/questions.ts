/** Questions about a graph: the matches of a search, and the ancestors, descendants and paths of nodes. */

import { attr, h, iconButton, text } from "../dom/dom";
import type { PaintState } from "../graph/painter";
import { type Scene, type SceneIndex, isPill } from "../graph/scene";
import type { GraphView } from "../graph/view";
import type { NestedGraph } from "../layout/data";
import type { Found, Hit } from "./found";
import { reachFrom } from "./reach";

/** Event of a graph: show the row of a block, its `detail`, in the table of costs. */
export const ROW = "mnb-show-row";

export interface QuestionOptions {
  /** Return the whole graph; null before it is known. */
  graph(): NestedGraph | null;
  /** Open the groups around a box. */
  open(keys: readonly string[]): void;
}

/** Ancestors, descendants or path of boxes. */
interface Question {
  what: "a" | "d" | "p";
  of: readonly string[];
}

interface Answer {
  /** Keys of boxes without others inside. */
  keys: ReadonlySet<string>;
  title: string;
}

interface Asked extends Answer {
  question: Question;
  /** The graph of the answer. */
  graph: NestedGraph;
}

export class Questions {
  /** The answer, its commands, and a button that clears it. */
  readonly root: HTMLElement;
  private readonly answer = h("span", { class: "mnb-question-text", role: "status" });
  private readonly commands = h("span", { class: "mnb-row" });
  private readonly path: HTMLButtonElement;
  private readonly end: HTMLButtonElement;
  private found: Found | null = null;
  private asked: Asked | null = null;
  private selected: ReadonlySet<string> = new Set();
  /** The marks, and what they were computed from. */
  private marked: {
    scene: Scene;
    found: Found | null;
    asked: Asked | null;
    marks: Pick<PaintState, "dimmed" | "matches">;
  } | null = null;

  constructor(
    private readonly view: GraphView,
    private readonly options: QuestionOptions,
  ) {
    const button = (label: string, title: string, act: () => void): HTMLButtonElement =>
      h("button", { type: "button", class: "mnb-button", title, onclick: act }, label);
    this.path = button("Path", "Show the path between the two selected nodes (p)", () => this.ask("p"));
    this.commands.append(
      button("Ancestors", "Show everything that the selected node depends on (a)", () => this.ask("a")),
      button("Descendants", "Show everything that depends on the selected node (d)", () => this.ask("d")),
      this.path,
    );
    this.end = iconButton("close", "Show the whole graph again", "graph.answer", () => this.clear());
    this.root = h(
      "div",
      { class: "mnb-question", role: "group", "aria-label": "Questions about the selected node" },
      this.commands,
      this.answer,
      this.end,
    );
    view.board.after(h("div", { class: "mnb-question-place" }, this.root)); // above the legend
    this.update();
  }

  /** Paint a state of the graph together with the answers. */
  paint(state: Partial<PaintState>): void {
    if (state.selected) this.selected = state.selected;
    this.followGraph();
    this.view.paint({ ...state, ...this.marks() });
    this.update();
  }

  /** Mark the matches of a search; null ends it. */
  search(found: Found | null): void {
    this.found = found;
    if (found) this.asked = null;
    this.paint({});
  }

  /** Show the node of a match; the groups around it open. */
  reveal(hit: Hit): void {
    const graph = this.options.graph();
    const key = graph && keyOfHit(graph, hit);
    if (!graph || !key) return;
    const around = graph.above(key).slice(1, -1);
    if (around.some((one) => !this.view.index.node(one)?.expanded)) this.options.open(around);
    this.view.reveal(key);
  }

  /** Handle a key; return whether it had a meaning. */
  key(event: KeyboardEvent): boolean {
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return false;
    if (event.key === "Escape") return this.clear();
    if (event.key === "t") return this.showRow();
    return (event.key === "a" || event.key === "d" || event.key === "p") && this.ask(event.key);
  }

  /** The questions as actions of a menu. */
  actions(): { title: string; act: () => void }[] {
    return [
      { title: "Ancestors (a)", act: () => void this.ask("a") },
      { title: "Descendants (d)", act: () => void this.ask("d") },
    ];
  }

  /** Show the whole graph again; return whether there was an answer. */
  clear(): boolean {
    if (!this.asked) return false;
    this.asked = null;
    this.paint({});
    return true;
  }

  /** Move to the row of the node in the table of costs: the widget around the graph handles the event. */
  private showRow(): boolean {
    const node = this.view.index.node(this.view.active);
    const path = node?.blocks?.[0] ?? node?.path;
    if (!path) return false;
    return !this.view.root.dispatchEvent(new CustomEvent(ROW, { bubbles: true, cancelable: true, detail: path }));
  }

  private ask(what: Question["what"]): boolean {
    const graph = this.options.graph();
    if (!graph) return false;
    const { active } = this.view;
    const chosen = [...this.selected].filter((key) => graph.byKey.has(key));
    let of: (string | undefined)[] = [graph.byKey.has(active) ? active : chosen[0]];
    if (what === "p") of = chosen.length === 1 && active !== chosen[0] ? [chosen[0], active] : chosen.slice(0, 2);
    const known = of.filter((key): key is string => key !== undefined && graph.byKey.has(key));
    if (what !== "p" && !known.length) return false;
    const question = { what, of: known };
    this.asked = { ...this.answerTo(graph, question), question, graph };
    this.paint({});
    return true;
  }

  /** Ask again if the graph has changed; without the nodes in question, the answer ends. */
  private followGraph(): void {
    const { asked } = this;
    const graph = this.options.graph();
    if (!asked || asked.graph === graph) return;
    const isKnown = graph?.title === asked.graph.title && asked.question.of.every((key) => graph.byKey.has(key));
    this.asked = graph && isKnown ? { ...this.answerTo(graph, asked.question), question: asked.question, graph } : null;
  }

  private answerTo(graph: NestedGraph, { what, of }: Question): Answer {
    const nameOf = (key: string): string => graph.byKey.get(key)?.name ?? key;
    const [one, other] = of;
    if (what === "p") {
      if (one === undefined || other === undefined)
        return { keys: new Set(), title: "Select two nodes, then press p: Shift Enter adds to the selection." };
      return this.pathOf(graph, one, other, nameOf);
    }
    const reach = reachFrom(graph, one!);
    const found = what === "a" ? reach.ancestors(one!) : reach.descendants(one!);
    const title = `${counted(found.size, what === "a" ? "ancestor" : "descendant")} of ${nameOf(one!)}`;
    return { keys: new Set([...found, ...this.innermost(graph, one!)]), title };
  }

  private pathOf(graph: NestedGraph, one: string, other: string, nameOf: (key: string) => string): Answer {
    let [start, goal] = [one, other];
    let found = reachFrom(graph, start).between(start, goal);
    if (!found) [start, goal, found] = [other, one, reachFrom(graph, other).between(other, one)];
    if (!found) return { keys: new Set(), title: `No path between ${nameOf(one)} and ${nameOf(other)}` };
    const keys = new Set([...found, ...this.innermost(graph, start), ...this.innermost(graph, goal)]);
    return { keys, title: `Path from ${nameOf(start)} to ${nameOf(goal)}: ${counted(found.size, "node")} between` };
  }

  private innermost(graph: NestedGraph, key: string): string[] {
    const children = graph.children.get(key);
    return children ? children.flatMap((child) => this.innermost(graph, child.key)) : [key];
  }

  private marks(): Pick<PaintState, "dimmed" | "matches"> {
    const { scene } = this.view;
    const { found, asked } = this;
    if (this.marked?.scene === scene && this.marked.found === found && this.marked.asked === asked)
      return this.marked.marks;
    const matches = found?.hits.length ? found.countsIn(scene) : new Map<string, number>();
    const graph = this.options.graph();
    let kept: Set<string> | null = null;
    if (asked?.keys.size && graph)
      kept = new Set([...asked.keys].flatMap((key) => (graph.byKey.has(key) ? graph.above(key) : [])));
    else if (matches.size) kept = new Set(matches.keys());
    const marks = { matches, dimmed: kept?.size ? dimmedOf(this.view.index, kept) : new Set<string>() };
    this.marked = { scene, found, asked, marks };
    return marks;
  }

  private update(): void {
    const { selected, asked } = this;
    text(this.answer, asked?.title ?? "");
    this.end.hidden = !asked;
    this.commands.hidden = selected.size === 0 || selected.size > 2;
    this.path.hidden = selected.size !== 2;
    attr(this.root, "data-mnb-empty", !asked && this.commands.hidden ? "" : null);
  }
}

/** Return the keys of the nodes and ids of the edges outside of some nodes and of the groups around them. */
function dimmedOf(index: SceneIndex, kept: ReadonlySet<string>): Set<string> {
  const around = new Set([...kept].flatMap((key) => index.groupsOf(key).map((group) => group.key)));
  const found = new Set(index.scene.nodes.flatMap(({ key }) => (kept.has(key) || around.has(key) ? [] : [key])));
  for (const { id, source, target } of index.scene.edges) {
    const ends = [index.endAt(source, "source"), index.endAt(target, "target")];
    if (ends.some((end) => !end || found.has(end.node.key))) found.add(id);
  }
  return found;
}

/** Return the key of the innermost box that holds a match: by equation, else by the path of its block. */
function keyOfHit(graph: NestedGraph, hit: Hit): string | null {
  const ids = hit.kind === "instruction" ? hit.instruction.equations : [];
  const paths = hit.kind === "instruction" ? hit.blocks : [hit.path];
  let best: { key: string; length: number } | null = null;
  for (const box of graph.boxes) {
    const isLeaf = !graph.children.has(box.key);
    if (isLeaf && !isPill(box) && ids.length && box.equations.some((id) => ids.includes(id))) return box.key;
    for (const path of box.blocks.length ? box.blocks : box.equations.length || !box.path ? [] : [box.path]) {
      const isAround = paths.some((one) => one === path || one.startsWith(`${path}/`));
      if (isAround && path.length > (best?.length ?? -1)) best = { key: box.key, length: path.length };
    }
  }
  return best?.key ?? graph.boxes.find((box) => box.equations.some((id) => ids.includes(id)))?.key ?? null;
}

function counted(count: number, name: string): string {
  return `${count.toLocaleString("en-US")} ${name}${count === 1 ? "" : "s"}`;
}
