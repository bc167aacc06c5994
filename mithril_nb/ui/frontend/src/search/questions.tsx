/** Questions about a graph: the matches of a search, and the ancestors, descendants and paths of nodes. */

import type { MenuAction } from "../controls/menu";
import { counted } from "../dom/format";
import { isWithin } from "../store/links";
import { hasModifier } from "../dom/events";
import { h } from "../dom/dom";
import { Button, IconButton, mount } from "../dom/view";
import { signal } from "@preact/signals";
import type { PaintState } from "../graph/painter";
import { type Scene, type SceneIndex, isPill } from "../graph/scene";
import type { GraphView } from "../graph/view";
import type { NestedGraph } from "../layout/data";
import type { Found, Hit } from "./found";
import { reachFrom } from "./reach";

/** Event of a graph: show the row of a block, its `detail`, in the table of costs. */
export const ROW = "mnb-show-row";

interface QuestionOptions {
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

type Marks = Pick<PaintState, "dimmed" | "matches">;

export function createQuestions(view: GraphView, options: QuestionOptions) {
  const found = signal<Found | null>(null);
  const asked = signal<Asked | null>(null);
  const selected = signal<ReadonlySet<string>>(new Set());
  let isDimmed = false;
  /** The marks, and what they were computed from. */
  let marked: [Scene, Found | null, Asked | null, Marks] | null = null;

  /** The answer, its commands, and a button that clears it. */
  function QuestionBar() {
    const { size } = selected.value;
    const isHidden = size === 0 || size > 2;
    const button = (label: string, what: Question["what"], title: string, hidden = false) => (
      <Button title={`${title} (${what})`} hidden={hidden} onClick={() => ask(what)}>
        {label}
      </Button>
    );
    return (
      <div
        class="mnb-question"
        role="group"
        aria-label="Questions about the selected node"
        data-mnb-empty={!asked.value && isHidden ? "" : undefined}
      >
        <span class="mnb-row" hidden={isHidden}>
          {button("Ancestors", "a", "Show everything that the selected node depends on")}
          {button("Descendants", "d", "Show everything that depends on the selected node")}
          {button("Path", "p", "Show the path between the two selected nodes", size !== 2)}
        </span>
        <span class="mnb-question-text" role="status">
          {asked.value?.title}
        </span>
        <IconButton
          icon="close"
          label="Show the whole graph again"
          action="graph.answer"
          hidden={!asked.value}
          onClick={clear}
        />
      </div>
    );
  }
  const { root } = mount(<QuestionBar />);
  view.board.after(h("div", { class: "mnb-question-place" }, root)); // above the legend

  /** Paint a state of the graph together with the answers. */
  function paint(state: Partial<PaintState>) {
    if (state.selected) selected.value = state.selected;
    followGraph();
    const dimmed = isDimmed && selected.value.size ? { dimmed: dimmedOf(view.index, selected.value) } : {};
    view.paint({ ...state, ...marks(), ...dimmed });
  }

  /** Dim all but the selected nodes, or end this. */
  function dim(isOn: boolean) {
    isDimmed = isOn;
    paint({});
  }

  /** Mark the matches of a search; null ends it. */
  function search(matches: Found | null) {
    found.value = matches;
    if (matches) asked.value = null;
    paint({});
  }

  /** Show the node of a match; the groups around it open. */
  function reveal(hit: Hit) {
    const graph = options.graph();
    const key = graph && keyOfHit(graph, hit);
    if (!graph || !key) return;
    const around = graph.above(key).slice(1, -1);
    if (around.some((one) => !view.index.node(one)?.expanded)) options.open(around);
    view.reveal(key);
  }

  /** Handle a key; return whether it had a meaning. */
  function key(event: KeyboardEvent) {
    if (hasModifier(event) || event.shiftKey) return false;
    if (event.key === "Escape") return clear();
    if (event.key === "t") return showRow();
    return (event.key === "a" || event.key === "d" || event.key === "p") && ask(event.key);
  }

  /** The questions as actions of a menu. */
  function actions(): MenuAction[] {
    return [
      { title: "Ancestors", keys: "A", starts: true, act: () => void ask("a") },
      { title: "Descendants", keys: "D", act: () => void ask("d") },
    ];
  }

  /** Show the whole graph again; return whether there was an answer. */
  function clear() {
    if (!asked.value) return false;
    asked.value = null;
    paint({});
    return true;
  }

  /** Move to the row of the node in the table of costs: the widget around the graph handles the event. */
  function showRow() {
    const node = view.index.node(view.active);
    const path = node?.blocks?.[0] ?? node?.path;
    if (!path) return false;
    return !view.root.dispatchEvent(new CustomEvent(ROW, { bubbles: true, cancelable: true, detail: path }));
  }

  function ask(what: Question["what"]) {
    const graph = options.graph();
    if (!graph) return false;
    const { active } = view;
    const chosen = [...selected.value].filter((key) => graph.byKey.has(key));
    let of: (string | undefined)[] = [graph.byKey.has(active) ? active : chosen[0]];
    if (what === "p") of = chosen.length === 1 && active !== chosen[0] ? [chosen[0], active] : chosen.slice(0, 2);
    const known = of.filter((key): key is string => key !== undefined && graph.byKey.has(key));
    if (what !== "p" && !known.length) return false;
    const question = { what, of: known };
    asked.value = { ...answerTo(graph, question), question, graph };
    paint({});
    return true;
  }

  /** Ask again if the graph has changed; without the nodes in question, the answer ends. */
  function followGraph() {
    const graph = options.graph();
    if (!asked.value || asked.value.graph === graph) return;
    const { question, graph: before } = asked.value;
    const isKnown = graph?.title === before.title && question.of.every((key) => graph.byKey.has(key));
    asked.value = graph && isKnown ? { ...answerTo(graph, question), question, graph } : null;
  }

  function answerTo(graph: NestedGraph, { what, of }: Question): Answer {
    const nameOf = (key: string) => graph.byKey.get(key)?.name ?? key;
    const [one, other] = of;
    if (what === "p") {
      if (one === undefined || other === undefined)
        return { keys: new Set(), title: "Select two nodes, then press p: Shift Enter adds to the selection." };
      return pathOf(graph, one, other, nameOf);
    }
    const reach = reachFrom(graph, one!);
    const found = what === "a" ? reach.ancestors(one!) : reach.descendants(one!);
    const title = `${counted(found.size, what === "a" ? "ancestor" : "descendant")} of ${nameOf(one!)}`;
    return { keys: new Set([...found, ...innermost(graph, one!)]), title };
  }

  function pathOf(graph: NestedGraph, one: string, other: string, nameOf: (key: string) => string): Answer {
    let [start, goal] = [one, other];
    let found = reachFrom(graph, start).between(start, goal);
    if (!found) [start, goal, found] = [other, one, reachFrom(graph, other).between(other, one)];
    if (!found) return { keys: new Set(), title: `No path between ${nameOf(one)} and ${nameOf(other)}` };
    const keys = new Set([...found, ...innermost(graph, start), ...innermost(graph, goal)]);
    return { keys, title: `Path from ${nameOf(start)} to ${nameOf(goal)}: ${counted(found.size, "node")} between` };
  }

  function innermost(graph: NestedGraph, key: string): string[] {
    const children = graph.children.get(key);
    return children ? children.flatMap((child) => innermost(graph, child.key)) : [key];
  }

  function marks() {
    const { scene } = view;
    const now = [scene, found.value, asked.value] as const;
    if (marked && now.every((value, i) => value === marked![i])) return marked[3];
    const matches = found.value?.hits.length ? found.value.countsIn(scene) : new Map<string, number>();
    const graph = options.graph();
    let kept: Set<string> | null = null;
    if (asked.value?.keys.size && graph)
      kept = new Set([...asked.value.keys].flatMap((key) => (graph.byKey.has(key) ? graph.above(key) : [])));
    else if (matches.size) kept = new Set(matches.keys());
    marked = [...now, { matches, dimmed: kept?.size ? dimmedOf(view.index, kept) : new Set<string>() }];
    return marked[3];
  }

  /** Return the paths of the blocks of the answer, or that a search has found; of instructions only without blocks. */
  function foundPaths(): string[] {
    if (asked.value) return [...asked.value.keys];
    const hits = found.value?.hits ?? [];
    const blocks = hits.flatMap((hit) => (hit.kind === "block" ? [hit.path] : []));
    return blocks.length ? blocks : [...new Set(hits.flatMap((hit) => (hit.kind === "block" ? [] : hit.blocks)))];
  }

  return { root, paint, dim, search, reveal, key, actions, clear, foundPaths };
}

export type Questions = ReturnType<typeof createQuestions>;

/** Return the keys of the nodes and ids of the edges outside of some nodes and of the groups around them. */
function dimmedOf(index: SceneIndex, kept: ReadonlySet<string>) {
  const around = new Set([...kept].flatMap((key) => index.groupsOf(key).map((group) => group.key)));
  const found = new Set(index.scene.nodes.flatMap(({ key }) => (kept.has(key) || around.has(key) ? [] : [key])));
  for (const { id, source, target } of index.scene.edges) {
    const ends = [index.endAt(source, "source"), index.endAt(target, "target")];
    if (ends.some((end) => !end || found.has(end.node.key))) found.add(id);
  }
  return found;
}

/** Return the key of the innermost box that holds a match: by equation, else by the path of its block. */
function keyOfHit(graph: NestedGraph, hit: Hit) {
  const ids = hit.kind === "instruction" ? hit.instruction.equations : [];
  const paths = hit.kind === "instruction" ? hit.blocks : [hit.path];
  let best: { key: string; length: number } | null = null;
  for (const box of graph.boxes) {
    const isLeaf = !graph.children.has(box.key);
    if (isLeaf && !isPill(box) && ids.length && box.equations.some((id) => ids.includes(id))) return box.key;
    for (const path of box.blocks.length ? box.blocks : box.equations.length || !box.path ? [] : [box.path]) {
      const isAround = paths.some((one) => isWithin(one, path));
      if (isAround && path.length > (best?.length ?? -1)) best = { key: box.key, length: path.length };
    }
  }
  return best?.key ?? graph.boxes.find((box) => box.equations.some((id) => ids.includes(id)))?.key ?? null;
}
