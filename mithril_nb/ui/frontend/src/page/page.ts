/** The page of a program at every stage: panes, the picture of the graph, tables and passes, linked to each other. */

import { h, textButton } from "../dom/dom";
import { hasModifier } from "../dom/events";
import { isTyping } from "../dom/focus";
import type { ExportChoice } from "../graph/export";
import { Search } from "../search/search";
import { costTexts } from "../stages/fold-costs";
import { createLecture } from "../stages/lecture";
import { heatOf } from "../costs/line-costs";
import { type Anchor, StageText, sameAnchor, sameAnchors } from "../store/links";
import { createCostRows } from "./cost-rows";
import { createPageGraph, type PageGraph } from "./graph";
import { textOf } from "./packed-text";
import { type Saved, decodeSaved, stagesOf } from "./saved";
import { Selection, hasSelectedText, type Look, pressByKeys } from "./selection";
import { readLink, showShared } from "./shared";
import { MARK } from "../store/address";
import { type TextPane, createTextPane } from "./text-pane";

const PARTS = "[data-block]";
/** CSS class of a line of a diff, by its first character. */
const DIFF_LOOKS: Record<string, string> = { "+": "plus", "-": "minus", "@": "where" };

type Named = ReadonlyMap<string, unknown>;

/** A program on one of the devices of the page. */
interface OnDevice {
  page: HTMLElement;
  packed: HTMLElement;
  menu: HTMLSelectElement | null;
  /** Its parts, after it was shown first. */
  parts?: ReturnType<typeof mountProgram>;
}

export async function mountPage(page: HTMLElement, packed: HTMLElement): Promise<void> {
  if (!("DecompressionStream" in globalThis)) return; // the static version of the page stays
  if (await showLink(page)) return;
  const whole = page.cloneNode(true);
  const copies = [...document.querySelectorAll("template")].map(
    (one) => one.content.cloneNode(true) as DocumentFragment,
  );
  const programs: OnDevice[] = [
    { page, packed },
    ...copies.map((copy) => ({ page: copy.querySelector("main")!, packed: copy.querySelector("script")! })),
  ].map((one) => ({ ...one, menu: one.page.querySelector<HTMLSelectElement>(".device select") }));
  let shown = programs[0]!;
  for (const { menu } of programs) {
    menu?.addEventListener("change", () => void show(programs[menu.selectedIndex]!));
    menu?.closest("p")!.removeAttribute("hidden");
  }
  shown.parts = mountProgram(page, packed, whole);
  await shown.parts;

  async function show(program: OnDevice) {
    const before = shown;
    shown = program;
    before.page.replaceWith(program.page);
    before.menu!.selectedIndex = programs.indexOf(before);
    program.menu!.focus();
    program.parts ??= mountProgram(program.page, program.packed, whole);
    (await program.parts).adopt(await before.parts!);
  }
}

async function mountProgram(page: HTMLElement, packed: HTMLElement, whole: Node) {
  const saved = await decodeSaved(packed.textContent);
  const stages = stagesOf(saved);
  const files = pageFiles(whole, packed);
  const costOf = costTexts(saved.costs ?? null, "flops");
  const texts = new Map<string, StageText>();
  const panes = new Map<string, TextPane>();
  const parts = createParts(page, saved);
  let costs: ReturnType<typeof createCostRows> | null = null;
  let graph: PageGraph | null = null;
  let followPins = () => {};
  const selection = new Selection(texts, (look) => {
    parts.paint(look, selection);
    costs?.paint();
    graph?.paint(look);
    if (look === "pin") {
      costs?.follow(true);
      followPins();
    }
    for (const pane of panes.values()) {
      pane.paint();
      if (look === "pin") pane.rows.follow(!pane.holds(selection.anchors.pin));
    }
  });

  const bar = h("div", { class: "bar-of-stages" });
  const shelf = h("div", { class: "panes" });
  const shows = new Map<string, (isShown: boolean) => void>();
  for (const stage of stages) {
    const { name } = stage;
    const show = (isShown: boolean) => {
      tab.setAttribute("aria-pressed", String(isShown));
      if (isShown) {
        texts.set(name, stage.text);
        selection.refresh();
        const heat = name === "python" && saved.costs?.lines ? heatOf(stage.text, saved.costs, "flops") : null;
        panes.set(name, createTextPane(stage, selection, saved.hues, undefined, costOf, heat));
      } else panes.delete(name);
      shelf.replaceChildren(...stages.flatMap((one) => panes.get(one.name)?.root ?? []));
      for (const pane of panes.values()) {
        pane.rows.draw();
        pane.rows.follow(false);
      }
    };
    const tab = textButton(stage.title, () => show(!panes.has(name)));
    bar.append(tab);
    shows.set(name, show);
    if (name === "jaxpr") texts.set(name, stage.text); // it has the blocks of the equations
    show(saved.shown.includes(name));
  }
  const lecture = createLecture({
    root: page,
    moments: saved.tour,
    texts: () => texts,
    pins: () => selection.anchors.pin,
    pin: (anchors) => sameAnchors(anchors, selection.anchors.pin) || selection.pin(anchors),
    showStages: (names) => {
      for (const [name, show] of shows) if (names.includes(name) !== panes.has(name)) show(!panes.has(name));
    },
    walk: (direction) => {
      const pane = page.querySelector(".code:focus-within") ?? page.querySelector<HTMLElement>(".live .code");
      (pane as HTMLElement | null)?.focus();
      [...panes.values()].find(({ root }) => root.contains(pane))?.rows.walk(direction);
    },
    turn: (isOn) => {
      page.classList.toggle("lecture", isOn);
      for (const pane of panes.values()) pane.rows.draw();
    },
  });
  followPins = lecture.follow;
  bar.append(lecture.toggle, lecture.tools);
  const live = page.querySelector<HTMLElement>(".live")!;
  live.replaceChildren(bar, lecture.caption, shelf);
  live.hidden = false;
  for (const plain of page.querySelectorAll(".plain")) plain.remove();
  const table = page.querySelector<HTMLTableElement>("table.cost");
  if (table && saved.rows.length)
    costs = createCostRows(table, saved.rows, (key) => saved.paths[key] ?? key, selection);
  const frame = page.querySelector<HTMLElement>(".picture");
  const pinMatch = (anchor: Anchor) => {
    if (!selection.anchors.pin.some((pin) => sameAnchor(pin, anchor))) selection.pin(anchor); // a pin would end
  };
  const goTo = (stage: string, line: number) => {
    const anchor = { kind: "instruction" as const, stage, version: 0, index: texts.get(stage)!.owner[line]! };
    if (anchor.index >= 0) pinMatch(anchor);
    panes.get(stage)?.rows.go(line);
  };
  const search = new Search({
    stages: () => texts,
    blocks: () => ({}),
    titleOf: (name) => stages.find((stage) => stage.name === name)?.title ?? name,
    show: (found) => selection.find(found),
    go: (hit, text) => {
      if (hit.kind === "instruction" && text) goTo(text.stage, hit.instruction.line);
      else if (hit.kind === "block") pinMatch({ kind: "block", path: hit.path });
      graph?.questions.reveal(hit);
    },
    goToLine: goTo,
  });
  if (frame && saved.graph)
    graph = createPageGraph(frame, saved.graph, selection, search.root, () => search.clear(), files);
  else live.before(h("div", { class: "tools" }, search.root));
  parts.gather();
  listen(page, selection, parts);
  const press = (event: KeyboardEvent) => {
    if (!page.isConnected) return; // a program on another device
    const isInside = live.contains(event.target as Node) && !isTyping(event.target) && !hasModifier(event);
    if (event.key === "5" && isInside) lecture.set(!lecture.isOn);
    else lecture.key(event);
  };
  document.addEventListener("keydown", press, true);
  for (const type of ["beforeprint", "afterprint"])
    globalThis.addEventListener(type, () => panes.forEach((pane) => pane.print(type === "beforeprint")));
  const list = page.querySelector<HTMLElement>(".passes");
  if (list) showPasses(list, saved, selection);
  if (saved.tour.length) lecture.set(true);
  page.dataset["ready"] = "";

  /** Show the stages of a program on another device, and pin what is pinned there; a lecture continues. */
  function adopt(from: { selection: Selection; panes: Named; shows: Named; lecture: typeof lecture }) {
    lecture.set(from.lecture.isOn, from.lecture.at);
    for (const [name, show] of shows)
      if (from.shows.has(name) && from.panes.has(name) !== panes.has(name)) show(!panes.has(name));
    const pins = from.selection.anchors.pin.map((pin): Anchor => {
      if (pin.kind !== "instruction") return pin;
      const text = from.selection.stages.get(pin.stage)!;
      if (text.text === texts.get(pin.stage)?.text) return pin;
      const instruction = text.instructions[pin.index]!;
      const block = instruction.equations.length ? null : text.mainBlock(instruction);
      return block === null
        ? { kind: "equations", name: instruction.opcode, ids: instruction.equations }
        : { kind: "block", path: block };
    });
    if (!sameAnchors(pins, selection.anchors.pin)) selection.pin(pins);
    // Rows that were drawn before may have scrolled while the page was not shown.
    for (const pane of panes.values()) pane.rows.draw();
  }

  return { selection, panes, shows, lecture, adopt };
}

/**
 * Show the model of the link that opened the page. Returns whether there is one; a broken link is reported above the
 * page.
 */
async function showLink(page: HTMLElement) {
  const { hash } = location;
  const isLink = hash.startsWith(MARK);
  globalThis.addEventListener("hashchange", () => (isLink || location.hash.startsWith(MARK)) && location.reload());
  if (!isLink) return false;
  try {
    showShared(page, await readLink(hash));
  } catch (error) {
    page.prepend(
      h(
        "p",
        { class: "gone", role: "alert" },
        `Cannot show the model of this link: ${error instanceof Error ? error.message : String(error)}. Copy ` +
          `the whole link again, or load the model from a file.`,
      ),
    );
    return false;
  }
  page.dataset["ready"] = "";
  return true;
}

/** Rows of the tables. */
function createParts(page: HTMLElement, saved: Saved) {
  let found: { part: Element; block: string }[] = [];

  function gather() {
    const rows = [...page.querySelectorAll<HTMLElement>(PARTS)].filter((part) => !part.dataset["line"]);
    found = rows.map((part) => ({ part, block: path(part.dataset["block"]!) }));
  }

  function paint(look: Look, selection: Selection) {
    const { blocks } = selection.links[look];
    for (const { part, block } of found) part.classList.toggle(look, blocks.has(block));
  }

  function anchorOf({ dataset }: HTMLElement): Anchor | null {
    return dataset["block"] ? { kind: "block", path: path(dataset["block"]) } : null;
  }

  function path(key: string) {
    return saved.paths[key] ?? key;
  }

  return { gather, paint, anchorOf };
}

type Parts = ReturnType<typeof createParts>;

/** Select rows of the tables by pointer and keys. */
function listen(page: HTMLElement, selection: Selection, parts: Parts) {
  const press = (part: HTMLElement) => {
    const anchor = parts.anchorOf(part);
    if (anchor) selection.pin(anchor);
  };
  const at = (event: Event, parts: string) =>
    event.target instanceof Element && !event.target.closest(".code, .picture")
      ? event.target.closest<HTMLElement>(parts)
      : null;
  page.addEventListener("mouseover", (event) => {
    if ((event.target as Element).closest("[data-line], .code, .picture")) return;
    const part = at(event, PARTS);
    if (part || selection.anchors.on.length) selection.hover(part && parts.anchorOf(part));
  });
  page.addEventListener("click", (event) => {
    const part = at(event, "[data-block]");
    if (part && !hasSelectedText()) press(part);
  });
  page.addEventListener("keydown", (event) => {
    const part = at(event, "tr[data-block]");
    if (part) pressByKeys(event, () => press(part));
  });
}

/** Return the choices of the export menu: `whole` is the page before scripts changed it, `packed` has the data. */
function pageFiles(whole: Node, packed: HTMLElement): ExportChoice[] {
  return [
    { title: "HTML: this page", suffix: "html", hint: "The page as it was saved", make: () => pageText(whole) },
    {
      title: "JSON: all stages",
      suffix: "json",
      hint: "The data of the page: texts, links, costs, and the graph",
      make: () => dataText(packed),
    },
  ];
}

/** Return the text of the file: the document with the page as it was before scripts changed it. */
function pageText(first: Node) {
  const root = document.documentElement.cloneNode(true) as HTMLElement;
  root.querySelector("main")!.replaceWith(first.cloneNode(true));
  return `<!DOCTYPE html>\n${root.outerHTML}\n`;
}

/**
 * Return the data as JSON, with plain texts. Instructions stay columns of indices into tables: all lines of a kernel
 * have the same thousands of blocks.
 */
async function dataText(packed: HTMLElement) {
  const { rows: _, ...data } = await decodeSaved(packed.textContent);
  const stages = data.stages.map((stage) => {
    if ("text" in stage) return stage;
    const { templates: _1, lines: _2, addresses: _3, numbers: _4, ...rest } = stage;
    return { ...rest, text: textOf(stage) };
  });
  return JSON.stringify({ format: "mithril_nb.page", version: 1, name: document.title, ...data, stages });
}

/** Show the list of the passes, and the diff of the selected pass. */
function showPasses(list: HTMLElement, { passes, hues }: Saved, selection: Selection): void {
  const side = h("div", { class: "difference" });
  const rows = [...list.querySelectorAll("li")];
  list.after(side);
  list.setAttribute("role", "listbox");
  list.setAttribute("aria-label", "Passes");
  const choose = (at: number) => {
    rows.forEach((row, one) => {
      row.classList.toggle("pin", one === at);
      row.setAttribute("aria-selected", String(one === at));
    });
    const diff = passes[at] || "only names or layouts changed";
    const text = new StageText("pass", 0, diff.replace(/\n$/, ""), { instructions: [], equations: {} });
    const title = rows[at]!.querySelector("b")!.textContent;
    const pane = createTextPane(
      { name: "pass", title, language: "hlo", unavailable: null, text },
      selection,
      hues,
      (line) => DIFF_LOOKS[line[0] ?? ""] ?? "same",
    );
    side.replaceChildren(pane.root);
    pane.rows.draw();
  };
  rows.forEach((row, at) => {
    row.tabIndex = 0;
    row.setAttribute("role", "option");
    row.addEventListener("click", () => choose(at));
    row.addEventListener("keydown", (event) => {
      const to = ({ ArrowDown: at + 1, ArrowUp: at - 1, Enter: at } as Record<string, number>)[event.key];
      if (to === undefined || !rows[to]) return;
      event.preventDefault();
      rows[to].focus();
      choose(to);
    });
  });
  choose(0);
}
