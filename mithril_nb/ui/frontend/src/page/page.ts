/** The page of a program at every stage: panes, the picture of the graph, tables and passes, linked to each other. */

import { h } from "../dom/dom";
import type { Anchor, StageText } from "../store/links";
import { CostRows } from "./cost-rows";
import { showPasses } from "./pass-list";
import { type Saved, decodeSaved, stagesOf } from "./saved";
import { type Look, Selection, hasSelectedText, pressByKeys } from "./selection";
import { TextPane } from "./text-pane";

const PARTS = "[data-block],[data-node]";

export async function mountPage(page: HTMLElement, packed: HTMLElement): Promise<void> {
  if (!("DecompressionStream" in globalThis)) return; // the static version of the page stays
  const saved = await decodeSaved(packed.textContent);
  packed.remove();
  const stages = stagesOf(saved);
  const texts = new Map<string, StageText>();
  const panes = new Map<string, TextPane>();
  const parts = new Parts(page, saved);
  let costs: CostRows | null = null;
  const selection = new Selection(texts, (look) => {
    parts.paint(look, selection);
    costs?.paint();
    if (look === "pin") costs?.follow(true);
    for (const pane of panes.values()) {
      pane.paint();
      if (look === "pin") pane.follow(!pane.holds(selection.anchors.pin));
    }
  });

  const bar = h("div", { class: "bar-of-stages" });
  const shelf = h("div", { class: "panes" });
  for (const stage of stages) {
    const { name } = stage;
    const show = (isShown: boolean): void => {
      tab.setAttribute("aria-pressed", String(isShown));
      if (isShown) {
        texts.set(name, stage.text);
        selection.refresh();
        panes.set(name, new TextPane(stage, selection, saved.hues));
      } else panes.delete(name);
      shelf.replaceChildren(...stages.flatMap((one) => panes.get(one.name)?.root ?? []));
      for (const pane of panes.values()) {
        pane.draw();
        pane.follow(false);
      }
    };
    const tab: HTMLElement = h("button", { type: "button", onclick: () => show(!panes.has(name)) }, stage.title);
    bar.append(tab);
    if (name === "jaxpr") texts.set(name, stage.text); // it has the blocks of the equations
    show(saved.shown.includes(name));
  }
  const live = page.querySelector<HTMLElement>(".live")!;
  live.replaceChildren(bar, shelf);
  live.hidden = false;
  for (const plain of page.querySelectorAll(".plain")) plain.remove();
  const table = page.querySelector<HTMLTableElement>("table.cost");
  if (table && saved.rows.length) costs = new CostRows(table, saved.rows, (key) => saved.paths[key] ?? key, selection);
  parts.gather();
  listen(page, saved, selection, parts);
  const list = page.querySelector<HTMLElement>(".passes");
  if (list) showPasses(list, saved, selection);
  page.dataset["ready"] = "";
}

/** Boxes of the picture and rows of the tables. An open box is not highlighted; the boxes in it are. */
class Parts {
  private found: { part: Element; equations: Set<string>; block: string }[] = [];

  constructor(
    private readonly page: HTMLElement,
    private readonly saved: Saved,
  ) {}

  gather(): void {
    const closed = [...this.page.querySelectorAll<HTMLElement | SVGElement>(PARTS)].filter((part) => part.getAttribute("aria-expanded") !== "true" && !part.dataset["line"]);
    this.found = closed.map((part) => ({ part, equations: new Set(this.equationsOf(part)), block: this.path(part.dataset["block"] ?? "") }));
  }

  paint(look: Look, selection: Selection): void {
    const ids = selection.equations(look);
    const { blocks } = selection.links[look];
    for (const { part, equations, block } of this.found) part.classList.toggle(look, equations.size ? ids.some((id) => equations.has(id)) : blocks.has(block));
  }

  anchorOf(part: HTMLElement | SVGElement): Anchor | null {
    const { block, node } = part.dataset;
    const ids = this.equationsOf(part);
    if (node && ids.length) return { kind: "equations", name: node, ids };
    return block ? { kind: "block", path: this.path(block) } : null;
  }

  private equationsOf({ dataset }: HTMLElement | SVGElement): string[] {
    return this.saved.linked[dataset["node"] ?? ""]?.split(" ") ?? [];
  }

  private path(key: string): string {
    return this.saved.paths[key] ?? key;
  }
}

/** Select parts by pointer and keys. A press on a node opens or closes it: the page has a picture for each open node. */
function listen(page: HTMLElement, saved: Saved, selection: Selection, parts: Parts): void {
  const frame = page.querySelector<HTMLElement>(".picture");
  const draw = (key: string): void => {
    const parsed = new DOMParser().parseFromString(saved.pictures[key]!, "image/svg+xml");
    frame!.replaceChildren(document.importNode(parsed.documentElement, true));
    parts.gather();
    parts.paint("pin", selection);
  };
  const press = (part: HTMLElement | SVGElement): void => {
    const anchor = parts.anchorOf(part);
    const key = part.dataset["node"] ?? "";
    const isOpen = part.getAttribute("aria-expanded") === "true";
    const goal = isOpen ? saved.parents[key] : key;
    if (part.hasAttribute("aria-expanded") && goal !== undefined && goal in saved.pictures) {
      selection.pin(null);
      if (!isOpen) selection.pin(anchor);
      draw(goal);
      [...frame!.querySelectorAll<SVGElement>("[data-node]")].find((one) => one.dataset["node"] === key)?.focus({ preventScroll: true });
    } else if (anchor) selection.pin(anchor);
  };
  const at = (event: Event, parts: string): HTMLElement | SVGElement | null => (event.target instanceof Element && !event.target.closest(".code") ? event.target.closest<HTMLElement | SVGElement>(parts) : null);
  page.addEventListener("mouseover", (event) => {
    if ((event.target as Element).closest("[data-line], .code")) return;
    const part = at(event, PARTS);
    if (part || selection.anchors.on) selection.hover(part && parts.anchorOf(part));
  });
  page.addEventListener("click", (event) => {
    const part = at(event, "[data-node],[data-block]");
    if (part && !hasSelectedText()) press(part);
  });
  page.addEventListener("keydown", (event) => {
    const part = at(event, "[data-node],tr[data-block]");
    if (part) pressByKeys(event, () => press(part));
  });
  if (!frame) return;
  const button = (label: string, key: string): HTMLElement => h("button", { type: "button", onclick: () => draw(key) }, label);
  frame.before(h("div", { class: "tools" }, button("Reset view", "@first"), button("Close all", ""), h("span", { class: "quiet" }, "Click a block to open it and pin its lines")));
}
