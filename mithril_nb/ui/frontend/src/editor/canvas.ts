/** The logical graph of a model in a `GraphView`: selection, editing, wiring. */

import { iconButton } from "../dom/view";
import { hasModifier, watchSize } from "../dom/events";
import { signal } from "@preact/signals";
import { createElement, render } from "preact";
import { type MenuAction, openMenu } from "../controls/menu";
import { NameField } from "../controls/rename";
import type { Tip } from "../controls/tip";
import { together } from "../dom/calls";
import { h } from "../dom/dom";
import { BLOCK_COLOURS } from "../graph/overlay";
import { STILL } from "../graph/painter";
import { boundsOf, endId, isPill, type SceneEdge, type SceneNode } from "../graph/scene";
import { createGraphView, type GraphView } from "../graph/view";
import { createQuestions } from "../search/questions";
import { createKernelOverlay } from "../stages/kernel-overlay";
import type { ReplyHead } from "../kernel/contract";
import type { Store } from "../store/store";
import { addParts, byFamily, describeEdge, describeNode, fillEdge } from "./canvas-parts";
import { templateButtons } from "./templates";
import { createWiring } from "./canvas-wiring";
import { type Choice, connectionsOf, openConnectMenu, sharesOf } from "./connect-menu";
import { ARRANGEMENTS, type Arrangement, snapped } from "./arrange";
import { openBlockSearch } from "./block-search";
import { createClipboard } from "./clipboard";
import { createPreviews } from "./preview";
import { draggedBy, parentOf, type PortRef } from "./graph";
import { insetOf } from "../layout/layout";
import { DTYPES, trainableIn } from "./parameters";
import { type BlockPlace, createLaidOut } from "./laid-out";

/** Width of the list of the palette that is open over the graph, in narrow widgets. */
const PALETTE_PX = 250;
/** Distance in px by which a key moves a block. */
const STEP = 16;
/** Distance in px on the screen over which a dragged block snaps to others. */
const SNAP_PX = 6;
const STEPS: Readonly<Record<string, readonly [number, number]>> = {
  ArrowLeft: [-1, 0],
  ArrowRight: [1, 0],
  ArrowUp: [0, -1],
  ArrowDown: [0, 1],
};

export function createCanvas(store: Store, tip: Tip) {
  let closeMenu = () => {};
  let isPaletteOpen = false;
  let tools!: HTMLElement;
  /** The block that the keys move, with those selected beside it, and how far. */
  let nudging: { node: SceneNode; dx: number; dy: number } | null = null;
  const laidOut = createLaidOut(store, () => view, show);
  const view = makeView(tip);
  const overlay = createKernelOverlay(store, view, () => true);
  const questions = createQuestions(view, {
    graph: () => laidOut.nested,
    open: (keys) => keys.forEach((key) => laidOut.open(key, true)),
  });
  const wiring = createWiring(store, tip, view, paintLinks, continueWire);
  const templates = h("div", { class: "mnb-templates" });
  const empty = h(
    "div",
    { class: "mnb-empty", hidden: true },
    h("p", {}, "This model has no blocks yet."),
    h(
      "div",
      { class: "mnb-row" },
      h(
        "button",
        {
          type: "button",
          class: "mnb-button mnb-primary",
          "data-mnb-action": "empty.add",
          onclick: startFromBlock,
        },
        "Start from a block",
      ),
      h(
        "button",
        {
          type: "button",
          class: "mnb-button",
          "data-mnb-action": "empty.example",
          onclick: () => store.command("load_example"),
        },
        "Load an example",
      ),
    ),
    h("p", { class: "mnb-muted" }, "Or from a template, which trains on generated data:"),
    templates,
  );
  const root = h(
    "section",
    { class: "mnb-canvas", "aria-label": "Logical graph" },
    view.root,
    empty,
    (tools = h(
      "div",
      { class: "mnb-canvas-tools" },
      overlay.menu.root,
      overlay.exports,
      iconButton("plus", "Zoom in", "canvas.in", () => view.zoomBy(1.25)),
      iconButton("minus", "Zoom out", "canvas.out", () => view.zoomBy(0.8)),
      iconButton("fit", "Fit the graph into view", "canvas.fit", () => view.fit()),
      iconButton("tidy", "Tidy up the layout", "canvas.tidy", tidy),
    )),
  );
  const previews = createPreviews(store);
  const clipboard = createClipboard(store, root, (paths) => overlay.request("python", { paths }));
  for (const type of ["keyup", "focusout"]) view.board.addEventListener(type, endNudge);
  const destroy = together(
    store.on("snapshot", laidOut.update),
    store.on("links", paintLinks),
    store.on("edge", checkEdge),
    store.on("colours", () => show()),
    watchSize(tools, view.resized), // their rows wrap after the frame has its new size
    laidOut.destroy,
    previews.destroy,
    overlay.destroy,
    view.destroy,
    () => closeMenu(),
  );
  laidOut.update();

  /** Keep clear of the list of the palette while it lies over the left side of the graph. */
  function showPalette(isOpen: boolean) {
    isPaletteOpen = isOpen;
    if (isOpen && store.selection.length) view.reveal(view.active);
  }

  /** Put moved blocks back, and lay out all for the width of the canvas. */
  function tidy() {
    view.rewrap();
    void store.command("tidy");
  }

  /** Move the focus to the search for a new block. */
  function startFromBlock() {
    root.dispatchEvent(new CustomEvent("mnb-focus-palette", { bubbles: true }));
    return true;
  }

  function makeView(tip: Tip): GraphView {
    const problems = () => store.snapshot.problems;
    const goTo = (index: number) => {
      store.showTab("problems");
      store.goTo(problems()[index]!);
    };
    return createGraphView({
      label: "Blocks of the model",
      tip,
      describe: (node) => overlay.layer.describe(node.key, describeNode(node, store.snapshot)),
      describeEdge: (edge) => describeEdge(edge, problems()),
      rewrap: () => laidOut.rewrap(),
      hover: (node) => store.setHover(node ? pathsOf(node).map((path) => ({ kind: "block", path })) : []),
      select: (node, add) => {
        const paths = pathsOf(node);
        if (paths.length) store.pinBlocks([...paths], add);
        else if (!add) store.release();
      },
      toggle: toggle,
      clear: () => store.release(),
      covered: () => ({
        left: isPaletteOpen ? PALETTE_PX : 0,
        top: tools.offsetTop + tools.offsetHeight,
      }),
      selectEdge: (edge) => store.selectEdge(edge.id),
      open: (node) => (node.group ? toggle(node) : rename(node.key)),
      actions: actionsFor,
      drag: {
        isMovable: (node) => node.path !== "",
        // Undo, source or code may remove or rename a block while it is dragged.
        move: (node, x, y, event) =>
          view.index.node(node.key) ? drag(node, x - node.x, y - node.y, event.ctrlKey || event.metaKey) : node,
        drop: (node, x, y) => {
          if (!view.index.node(node.key)) return view.move(STILL);
          const edge = edgeUnder(node, x, y);
          if (!edge) return shift(movedWith(node), x - node.x, y - node.y);
          const [path, left, top] = placeOf(node, x, y);
          const args = { path, source: edge.source, target: edge.target, x: left, y: top };
          view.move(draggedBy(view.index, new Set([node.key]), x - node.x, y - node.y)); // without guides
          void store.command("insert", args).then(({ ok }) => ok || view.move(STILL));
        },
        cancel: () => view.move(STILL),
      },
      pull: (event, edge) => wiring.pull(event, edge),
      marquee: () => {
        const { selection } = store;
        return (nodes, add, isDone) => {
          const paths = new Set([...(add ? selection : []), ...nodes.flatMap(pathsOf)]);
          if (isDone) store.pinBlocks([...paths]);
          else questions.paint({ selected: keysOf(paths) });
        };
      },
      decorate: (parts, node) =>
        addParts(parts, node, problems(), {
          wire: (event, node, port) =>
            wiring.begin(event, {
              fixed: { node, port, side: "output", endpoint: endId(node.key, port.name) },
              edge: null,
            }),
          unwire: (event, input) => {
            const edge = view.scene.edges.find(({ target }) => target === input);
            if (edge) return wiring.pull(event, edge);
            const port = node.inputs.find(({ name }) => endId(node.key, name) === input);
            const isParameter = store.snapshot.blocks[node.path]?.params.some((param) => param.port === port?.name);
            if (port && isParameter) wiring.shareFrom(event, { node, port, side: "input", endpoint: input });
          },
          problem: goTo,
        }),
      decorateEdge: (element, edge) => fillEdge(element, edge, problems()),
      key: key,
    });
  }

  /** Show the scene. The group at `anchor`, which the user opened or closed, stays in its place. */
  function show(anchor?: string) {
    const { scene } = laidOut;
    const { nodes, legend } = store.isByFamily
      ? byFamily(scene.nodes, store.snapshot.kinds)
      : { nodes: scene.nodes, legend: BLOCK_COLOURS };
    view.show({ ...scene, nodes }, { anchor });
    overlay.layer.explain(scene, nodes.length ? legend : null);
    empty.hidden = view.scene.nodes.some((node) => node.path !== "");
    if (!templates.childElementCount) templates.append(...templateButtons(store));
    checkEdge();
  }

  /** Keep the selected edge only if it is drawn. */
  function checkEdge() {
    const { selectedEdge } = store;
    if (selectedEdge !== null && !view.scene.edges.some(({ id }) => id === selectedEdge)) return store.selectEdge(null);
    paintLinks();
  }

  function paintLinks() {
    const { hoverLinks, pinLinks, selectedEdge } = store;
    questions.paint({ hovered: keysOf(hoverLinks.blocks), selected: keysOf(pinLinks.blocks), selectedEdge });
  }

  function keysOf(blocks: ReadonlySet<string>) {
    const nodes = view.scene.nodes.filter((node) => pathsOf(node).some((path) => blocks.has(path)));
    return new Set(nodes.map(({ key }) => key));
  }

  function toggle(node: SceneNode) {
    if (!node.group) return;
    laidOut.open(node.key, !node.expanded);
  }

  /** Return the selected blocks, without those inside of other selected ones. */
  function selectedNodes() {
    const selected = new Set(store.selection);
    const isIn = (key: string) => view.index.groupsOf(key).some(({ path }) => selected.has(path));
    return view.scene.nodes.filter(({ key, path }) => selected.has(path) && !isIn(key));
  }

  /** Return the keys of the blocks that move with a block: all selected ones if it is one of them. */
  function movedWith({ key }: SceneNode): ReadonlySet<string> {
    const keys = new Set(selectedNodes().map((node) => node.key));
    return keys.has(key) ? keys : new Set([key]);
  }

  /** Return the blocks that move with a block, the rectangle around them, and the least shift: levels have borders. */
  function moving(node: SceneNode) {
    const keys = movedWith(node);
    const nodes = view.scene.nodes.filter(({ key }) => keys.has(key));
    const least = { x: -Infinity, y: -Infinity };
    for (const { parent, x, y } of nodes) {
      const frame = view.index.node(parent) ?? { x: 0, y: 0 };
      const [left, top] = insetOf(parent);
      least.x = Math.max(least.x, frame.x + left - x);
      least.y = Math.max(least.y, frame.y + top - y);
    }
    return { keys, bounds: boundsOf({ nodes, edges: [] })!, least };
  }

  function shift(keys: ReadonlySet<string>, dx: number, dy: number) {
    const nodes = view.scene.nodes.filter(({ key }) => keys.has(key));
    laidOut.move(nodes.map((node) => placeOf(node, node.x + dx, node.y + dy)));
  }

  function placeOf({ path, parent }: SceneNode, x: number, y: number): BlockPlace {
    const frame = view.index.node(parent);
    return [path, Math.round(x - (frame?.x ?? 0)), Math.round(y - (frame?.y ?? 0))];
  }

  function arrange({ title, axis, arrange }: Arrangement) {
    const nodes = selectedNodes();
    const at = arrange(nodes);
    const places = nodes.map((node, i) =>
      axis === "x" ? placeOf(node, at[i]!, node.y) : placeOf(node, node.x, at[i]!),
    );
    laidOut.move(places, title.toLowerCase());
  }

  /** Select the other blocks of the level of the selected blocks. */
  function invert() {
    const selected = new Set(store.selection);
    const level = parentOf(store.selection[0] ?? "");
    store.pinBlocks(blocksIn(level).filter((path) => !selected.has(path)));
    return true;
  }

  /** Move blocks by a step with each key; the release of a key sends their new places once. */
  function nudge(node: SceneNode, key: string) {
    const [dx, dy] = STEPS[key] ?? [0, 0];
    const from = nudging?.node.key === node.key ? nudging : { dx: 0, dy: 0 };
    const { keys, least } = moving(node);
    nudging = { node, dx: Math.max(least.x, from.dx + dx * STEP), dy: Math.max(least.y, from.dy + dy * STEP) };
    view.move(draggedBy(view.index, keys, nudging.dx, nudging.dy));
    return true;
  }

  function endNudge() {
    const nudged = nudging;
    nudging = null;
    if (nudged) shift(movedWith(nudged.node), nudged.dx, nudged.dy);
  }

  function key(event: KeyboardEvent, node: SceneNode | undefined) {
    if ((event.ctrlKey || event.metaKey) && !event.altKey) return commandKey(event, node);
    const isMove = event.altKey && event.shiftKey && !event.ctrlKey && !event.metaKey && event.key in STEPS;
    if (isMove && node?.path) return nudge(node, event.key);
    if (isMove && node && isPill(node)) return reorder(node, STEPS[event.key]![1]);
    if (hasModifier(event)) return false;
    if (event.key === "Delete" || event.key === "Backspace") return removeSelected(node);
    if (questions.key(event)) return true;
    if (event.key === "v") return invert();
    const edge = view.scene.edges.find(({ id }) => id === store.selectedEdge);
    if (edge && event.key === "n") return (insertInto(edge), true);
    if (!node) return false;
    if (isRepeat(node) && (event.key === "F2" || event.key === "c"))
      toggle(node); // its blocks can be edited
    else if (event.key === "F2") rename(node.key);
    else if (event.key === "c") connect(node);
    else if (event.key === "r" && node.path) replaceKind(node);
    else if (event.key === "s" && node.path) share(node);
    else if (event.key === "w" && node.path) togglePorts(movedWith(node).size > 1 ? selectedNodes() : [node]);
    else if (event.key === "l" && node.path) freeze(movedWith(node).size > 1 ? selectedNodes() : [node]);
    else return false;
    return true;
  }

  function commandKey(event: KeyboardEvent, focused: SceneNode | undefined) {
    const selected = selectedNodes();
    const nodes = selected.length ? selected : focused?.path ? [focused] : [];
    const letter = event.key.toLowerCase();
    if (!nodes.length || (letter !== "d" && letter !== "g")) return false;
    if (letter === "d") void duplicate(nodes.map(({ path }) => path));
    else if (event.shiftKey) void ungroup(nodes[0]!.path);
    else group(nodes);
    return true;
  }

  function actionsFor(node: SceneNode | null, edge: SceneEdge | null): MenuAction[] {
    const remove = (title: string) => ({
      title,
      keys: "Delete",
      starts: true,
      act: () => void removeSelected(node ?? undefined),
    });
    if (edge) return [{ title: "Insert a block…", keys: "N", act: () => insertInto(edge) }, remove("Remove")];
    if (!node)
      return [
        { title: "Add a block…", keys: "N", act: () => void startFromBlock() },
        ...(view.scene.nodes.some(({ path }) => path)
          ? [
              {
                title: "Add an input…",
                act: () => addInput(view.scene.nodes.filter(({ path }) => path && !parentOf(path))),
              },
            ]
          : []),
        ...(store.snapshot.templates.length ? [] : [{ title: "Save the model to My blocks…", act: () => save() }]),
        { title: "Paste", keys: "Ctrl V", act: () => void clipboard.pasteFromMenu() },
        { title: "Select all blocks", keys: "Ctrl A", starts: true, act: () => store.pinBlocks(blocksIn("")) },
        ...(foundBlocks().length ? [{ title: "Select what is found", act: () => store.pinBlocks(foundBlocks()) }] : []),
        { title: "Invert the selection", keys: "V", act: () => void invert() },
        { title: "Tidy up the layout", starts: true, act: tidy },
      ];
    if (isPill(node))
      return [
        { title: "Rename", keys: "F2", act: () => void rename(node.key) },
        ...(node.name in store.snapshot.dtypes && node.kind === "input"
          ? [{ title: `Dtype: ${store.snapshot.dtypes[node.name]}…`, act: () => openDtypes(node) }]
          : []),
        ...([-1, 1] as const)
          .filter((by) => reordered(node, by))
          .map((by) => ({
            title: by < 0 ? "Move up" : "Move down",
            keys: `Alt Shift ${by < 0 ? "↑" : "↓"}`,
            act: () => void reorder(node, by),
          })),
        ...(node.kind === "output" ? [remove("Remove")] : []),
      ];
    const nodes = movedWith(node).size > 1 ? selectedNodes() : [node];
    const paths = nodes.flatMap(pathsOf);
    if (!paths.length) return questions.actions();
    const count = nodes.length > 1 ? ` ${nodes.length} blocks` : "";
    const output = node.outputs[0] && endId(node.key, node.outputs[0].name);
    const isRead = view.scene.edges.some(({ source }) => source === output);
    const isOutput = view.scene.edges.some(({ source, target }) => source === output && !target.includes("."));
    const single: MenuAction[] = [
      { title: "Rename", keys: "F2", act: () => void rename(node.key) },
      { title: "Connect to…", keys: "C", act: () => connect(node) },
      { title: "Replace…", keys: "R", act: () => replaceKind(node) },
      ...(node.inputs.length ? [{ title: "Read a new input…", act: () => addInput([node]) }] : []),
      ...(output && isRead && !isOutput
        ? [{ title: "Make its output one of the model", act: () => void store.command("expose", { source: output }) }]
        : []),
    ];
    return [
      ...(nodes.length === 1 && node.path ? single : []),
      ...freezing(nodes),
      ...(nodes.some(({ path }) => store.snapshot.blocks[path]?.params.length)
        ? [
            {
              title: arePortsShown(nodes) ? "Hide ports of parameters" : "Show ports of parameters",
              keys: "W",
              act: () => togglePorts(nodes),
            },
            ...(nodes.length === 1 ? [{ title: "Share a parameter with…", keys: "S", act: () => share(node) }] : []),
          ]
        : []),
      { title: `Copy${count}`, keys: "Ctrl C", starts: true, act: () => void clipboard.copy() },
      { title: `Cut${count}`, keys: "Ctrl X", act: () => void clipboard.cut() },
      { title: `Duplicate${count}`, keys: "Ctrl D", act: () => void duplicate(paths) },
      { title: `Group${count}…`, keys: "Ctrl G", starts: true, act: () => void group(nodes) },
      ...(node.group && node.path
        ? [{ title: "Ungroup", keys: "Ctrl Shift G", act: () => void ungroup(node.path) }]
        : []),
      ...(nodes.length === 1 && node.path
        ? [
            { title: "Repeat…", act: () => void repeat(node) },
            ...(trainableIn(store.snapshot.blocks, node.path).length
              ? [{ title: "Repeat with shared parameters…", act: () => void repeat(node, true) }]
              : []),
            { title: "Save to My blocks…", act: () => save(node) },
          ]
        : []),
      ...(nodes.length > 1 ? [{ title: "Align, distribute…", act: () => openArrangements(node) }] : []),
      ...questions.actions(),
      remove(`Remove${count}`),
    ];
  }

  /** Show a dragged block, with all that move with it, in line with others near it; return its place. */
  function drag(node: SceneNode, x: number, y: number, isFree: boolean) {
    const { keys, bounds, least } = moving(node);
    const others = view.visible().filter(({ key, parent }) => !isFree && parent === node.parent && !keys.has(key));
    const { guides, ...shift } = snapped(bounds, { x, y }, least, others, SNAP_PX / view.scale);
    const at = { x: node.x + shift.x, y: node.y + shift.y };
    view.move({ ...draggedBy(view.index, keys, shift.x, shift.y), guides });
    view.paint({ hoveredEdge: edgeUnder(node, at.x, at.y)?.id ?? null });
    return at;
  }

  /** Return the edge into which a dragged block is inserted: a block without connections to other blocks. */
  function edgeUnder({ key, w, h, path, inputs, outputs }: SceneNode, x: number, y: number) {
    const isFree = (["before", "after"] as const).every((side) =>
      view.index.neighbours(key, side).every((other) => isPill(view.index.node(other)!)),
    );
    if (!isFree || !inputs.length || !outputs.length || selectedNodes().length > 1) return null;
    return edgeAt(x + w / 2, y + h / 2, path);
  }

  /** Return the edge at a point between blocks of one level that are not at `path`. */
  function edgeAt(x: number, y: number, path = "") {
    const edge = view.edgeAt(x, y);
    const ends = edge && [view.index.endAt(edge.source, "source"), view.index.endAt(edge.target, "target")];
    return ends?.every((end) => end && (!end.node.path || end.node.path !== path)) ? edge : null;
  }

  function foundBlocks() {
    return questions.foundPaths().filter((path) => path in store.snapshot.blocks);
  }

  /**
   * Return where a palette item at a pointer would land: in the wire there, which is marked and for which the layout
   * finds room; else at the pointer.
   */
  function aimAt(pointer: { clientX: number; clientY: number } | null) {
    const isOver = pointer !== null && view.contains(pointer.clientX, pointer.clientY);
    const { x, y } = isOver ? view.toScene(pointer.clientX, pointer.clientY) : { x: 0, y: 0 };
    const edge = isOver ? edgeAt(x, y) : null;
    view.paint({ hoveredEdge: edge?.id ?? null });
    if (!isOver) return null;
    if (edge) return { ends: { source: edge.source, target: edge.target }, place: {} };
    return { ends: {}, place: { x: Math.round(x), y: Math.round(y) } };
  }

  function blocksIn(level: string) {
    return Object.keys(store.snapshot.blocks).filter((path) => parentOf(path) === level);
  }

  function duplicate(paths: string[]) {
    return store.command("duplicate", { paths }, `Duplicated ${paths.join(", ")}. Undo: Ctrl+Z`);
  }

  function ungroup(path: string) {
    return store.command("ungroup", { path }, `Ungrouped ${path}. Undo: Ctrl+Z`);
  }

  /** Group blocks; a field at the first one asks for the name. */
  function group(nodes: readonly SceneNode[]) {
    const paths = nodes.map(({ path }) => path);
    return ask(nodes[0]!.key, "Name of the group", "", (name) => store.command("group", { paths, name }), nextGroup());
  }

  /** Return the action that freezes the parameters of blocks, or lets training change them if all are frozen. */
  function freezing(nodes: readonly SceneNode[]): MenuAction[] {
    const { blocks } = store.snapshot;
    const names = nodes.flatMap(pathsOf).filter((path) => trainableIn(blocks, path).length > 0);
    const isFrozen = names.every((path) => trainableIn(blocks, path).every((param) => !param.is_trainable));
    const act = () => void store.command("set_trainable", { names, is_trainable: isFrozen });
    return names.length
      ? [{ title: isFrozen ? "Unfreeze its parameters" : "Freeze its parameters", keys: "L", act }]
      : [];
  }

  function freeze(nodes: readonly SceneNode[]) {
    freezing(nodes)[0]?.act();
  }

  function nextGroup() {
    const names = new Set(view.scene.nodes.map(({ name }) => name));
    for (let number = 0; ; number++) if (!names.has(`group_${number}`)) return `group_${number}`;
  }

  function repeat({ key, path }: SceneNode, isShared = false) {
    const take = (text: string) => store.command("repeat", { path, count: Number(text) || 0, is_shared: isShared });
    return ask(key, "Number of repetitions in all", "", take, "2");
  }

  /** Save a block, or without one the model, to *My blocks*; a field asks for the name. */
  function save(node?: SceneNode) {
    const { key = "" } = node ?? view.scene.nodes.find(({ path }) => path) ?? {};
    const path = node?.path ?? "";
    const take = (name: string) => store.command("save_block", { path, name }, `Saved as my_blocks/${name}.json`);
    ask(key, "Name in My blocks", "", take, (node?.name ?? store.snapshot.name).replace(/\W/g, "_"));
  }

  function replaceKind(node: SceneNode) {
    const { right = 0, top = 0 } = view.elementOf(node.key)?.getBoundingClientRect() ?? {};
    const input = node.inputs[0] && endId(node.key, node.inputs[0].name);
    const { source = "" } = view.scene.edges.find(({ target }) => target === input) ?? {};
    const edit = { name: "replace_block", args: { path: node.path } };
    openSearch(`Replace ${node.name} by`, source, [right, top], edit, () => view.focus(node.key));
  }

  function insertInto({ source, target, id }: SceneEdge) {
    const { left = 0, top = 0 } =
      view.board.querySelector(`[data-mnb-edge="${CSS.escape(id)}"]`)?.getBoundingClientRect() ?? {};
    const edit = { name: "place_block", args: { source, target } };
    openSearch(`Insert between ${source} and ${target}`, source, [left, top], edit, () => view.board.focus());
  }

  /** Ask for a block that continues a wire, where the wire was dropped. */
  function continueWire({ node, endpoint }: PortRef, { clientX, clientY }: PointerEvent) {
    const { x, y } = view.toScene(clientX, clientY);
    const [, left, top] = placeOf(node, x, y);
    const edit = { name: "place_block", args: { source: endpoint }, place: { x: left, y: top } };
    openSearch(`Add after ${endpoint}`, endpoint, [clientX, clientY], edit, () => view.focus(node.key));
  }

  /** Open the search for the kind of a block that reads `source`, with which an edit is made. */
  function openSearch(
    title: string,
    source: string,
    at: readonly [number, number],
    { name, args, place }: { name: string; args: Record<string, unknown>; place?: Record<string, unknown> },
    back: () => void,
  ) {
    const fits = signal<Readonly<Record<string, string>> | null>(null);
    const stop = store.kernel.receive(
      "fits",
      (head, shapes) => void (head.source === source && (fits.value = shapes)),
      () => {}, // all kinds are offered
    );
    const closed = (byKey: boolean) => {
      stop();
      view.paint({ wire: null });
      if (byKey) back();
    };
    closeMenu();
    const take = (kind: string): void => void store.command(name, { kind, ...args, ...place });
    const preview = (kind: string) => previews.show(name, { kind, ...args });
    closeMenu = openBlockSearch(root, title, store.snapshot.palette, fits, at, take, previews, preview, closed);
    if (source) void store.kernel.send("request_fits", { source });
  }

  function openArrangements(node: SceneNode) {
    const { length } = selectedNodes();
    const { right = 0, top = 0 } = view.elementOf(node.key)?.getBoundingClientRect() ?? {};
    const choices = ARRANGEMENTS.filter(({ least }) => length >= least);
    const actions = choices.map((choice) => ({ title: choice.title, act: () => arrange(choice) }));
    openMenu(view.root, "Align, distribute", actions, right, top, () => view.focus(node.key));
  }

  function openDtypes({ key, name }: SceneNode) {
    const { right = 0, top = 0 } = view.elementOf(key)?.getBoundingClientRect() ?? {};
    const actions = DTYPES.map((dtype) => ({
      title: dtype,
      act: () => void store.command("set_dtype", { name, dtype }),
    }));
    openMenu(view.root, `Dtype of ${name}`, actions, right, top, () => view.focus(key));
  }

  function connect(node: SceneNode) {
    openPorts(node, {
      label: `Connect ${node.name} to`,
      none: "No input can be connected to this output.",
      choices: connectionsOf(view, node),
    });
  }

  /** Ask which port of some blocks reads a new input of the model, and for its name. */
  function addInput(nodes: readonly SceneNode[]) {
    const ports = nodes.flatMap((node) =>
      node.inputs.map(({ name }): Choice => {
        const target = endId(node.key, name);
        const { source } = view.scene.edges.find((edge) => edge.target === target) ?? {};
        const take = (source: string) => store.command("connect", { source, target });
        const act = () => void ask(node.key, "Name of the new input", "", take, nextInput());
        return { label: target, title: target, detail: source ? `reads ${source}` : "", act };
      }),
    );
    if (ports.length === 1) ports[0]!.act!();
    else openPorts(nodes[0]!, { label: "A new input is read by", none: "No block has an input.", choices: ports });
  }

  /** Return the inputs or outputs of the model with one of them moved by a place, if there is one. */
  function reordered(node: SceneNode, by: number) {
    const names = view.scene.nodes.filter((other) => isPill(other) && other.kind === node.kind).map(({ name }) => name);
    const at = names.indexOf(node.name);
    if (!by || !(at + by in names)) return null;
    names.splice(at + by, 0, ...names.splice(at, 1));
    return names;
  }

  function reorder(node: SceneNode, by: number) {
    const names = reordered(node, by);
    if (names) void store.command("set_order", { names });
    return true;
  }

  function nextInput() {
    const names = new Set(view.scene.nodes.filter(isPill).map(({ name }) => name));
    for (let number = 2; ; number++) if (!names.has(`input_${number}`)) return `input_${number}`;
  }

  function share(node: SceneNode) {
    openPorts(node, {
      label: `Share a parameter of ${node.name} with`,
      none: "No other block has parameters.",
      choices: sharesOf(store, node.path),
    });
  }

  function openPorts({ key }: SceneNode, props: Parameters<typeof openConnectMenu>[5]) {
    closeMenu();
    closeMenu = openConnectMenu(store, view, previews, root, view.elementOf(key) ?? view.root, props);
  }

  /** Show or hide the ports of the parameters of blocks. */
  function togglePorts(nodes: readonly SceneNode[]) {
    const paths = nodes.flatMap(pathsOf);
    void store.command("show_ports", { paths, is_shown: !arePortsShown(nodes) });
  }

  function arePortsShown(nodes: readonly SceneNode[]) {
    return nodes.every(({ path, inputs }) =>
      (store.snapshot.blocks[path]?.params ?? []).every(
        ({ port, is_trainable: isTrained }) => isTrained === null || inputs.some(({ name }) => name === port),
      ),
    );
  }

  /** Rename a block, an input or an output in place; return whether it is drawn. */
  function rename(key: string) {
    const node = view.index.node(key);
    if (!node || !(node.path || isPill(node))) return false;
    return ask(key, "New name", node.name, (name, { path, kind, name: old }) =>
      path ? store.command("rename", { path, name }) : store.command(`rename_${kind}`, { [kind]: old, name }),
    );
  }

  /** Ask for a text in a field at a node; return whether the node is drawn. */
  function ask(
    key: string,
    label: string,
    name: string,
    take: (text: string, node: SceneNode) => Promise<ReplyHead>,
    proposal: string | undefined = undefined,
  ) {
    view.reveal(key);
    const element = view.elementOf(key);
    if (!element || element.querySelector(".mnb-rename")) return false;
    const slot = h("div", { class: "mnb-rename-slot" });
    element.append(slot);
    const close = (byKey: boolean) => {
      if (byKey) element.focus({ preventScroll: true });
      render(null, slot);
      slot.remove();
    };
    let node = view.index.node(key)!;
    // An earlier rename may arrive while this field is open.
    const current = () => (node = view.index.node(view.keyOf(slot)!) ?? node);
    const rename = { name: () => name && current().name, take: (text: string) => take(text, current()) };
    render(createElement(NameField, { ...rename, label, proposal, close }), slot);
    return true;
  }

  /** Remove the selected edge or blocks, else the focused block; return whether anything was removed. */
  function removeSelected(focused?: SceneNode) {
    const edge = view.scene.edges.find((candidate) => candidate.id === store.selectedEdge);
    if (edge) {
      const { source, target } = edge;
      const folded = view.scene.nodes.find((node) => isRepeat(node) && (node.key === source || node.key === target));
      if (folded) {
        toggle(folded); // the connection belongs to a block inside
        return true;
      }
      wiring.disconnect(edge);
      return true;
    }
    const { selection } = store;
    if (focused?.kind === "output" && isPill(focused) && !selection.length) {
      store.command("hide_output", { output: focused.name });
      return true;
    }
    const paths = selection.length ? selection : focused ? [...pathsOf(focused)] : [];
    if (paths.length) store.remove(paths);
    return paths.length > 0;
  }

  return {
    root,
    destroy,
    questions,
    previews,
    aimAt,
    tools,
    showPalette,
    startFromBlock,
    /** Rename the first selected block in place; return whether a block is selected. */
    renameSelected: () => rename(store.selection[0] ?? ""),
    removeSelected,
  };
}

export type Canvas = ReturnType<typeof createCanvas>;

/** Return whether a node represents a repeated part of the model. */
function isRepeat(node: SceneNode) {
  return node.group && !node.path;
}

/** Return the paths of the blocks that a node represents. */
function pathsOf(node: SceneNode) {
  return node.path ? [node.path] : (node.blocks ?? []);
}
