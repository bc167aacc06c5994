/** Search over blocks and all loaded stages. */

import { ICONS, h, icon, uid } from "../dom/dom";
import type { Panes } from "../stages/panes";
import type { Store } from "../store/store";

const PER_STAGE = 8;

interface Hit {
  where: string;
  label: string;
  go: () => void;
}

export class Search {
  readonly root: HTMLElement;
  readonly input: HTMLInputElement;
  private readonly id = uid("hits");
  private readonly list = h("div", { class: "mnb-options", role: "listbox", id: this.id, "aria-label": "Results" });
  private readonly count = h("div", { class: "mnb-menu-title", role: "status" });
  private readonly box: HTMLElement;
  private hits: Hit[] = [];
  private at = 0;

  constructor(
    private readonly store: Store,
    private readonly panes: Panes,
  ) {
    this.input = h("input", { type: "search", class: "mnb-input", placeholder: "Search blocks and stages", "aria-label": "Search blocks and stages", role: "combobox", "aria-expanded": "false", "aria-controls": this.id, autocomplete: "off", spellcheck: "false", "data-mnb-action": "search" });
    this.box = h("div", { class: "mnb-menu mnb-search-box", hidden: true }, this.count, this.list);
    this.root = h("div", { class: "mnb-search" }, icon(ICONS.search), this.input, this.box);
    this.input.addEventListener("input", () => this.look());
    this.input.addEventListener("focus", () => this.input.value && this.look());
    this.input.addEventListener("blur", () => setTimeout(() => this.close(), 150));
    this.input.addEventListener("keydown", (event) => this.key(event));
  }

  destroy(): void {
    this.close();
  }

  private close(): void {
    this.box.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
  }

  private key(event: KeyboardEvent): void {
    if (event.key === "ArrowDown") this.at = Math.min(this.at + 1, this.hits.length - 1);
    else if (event.key === "ArrowUp") this.at = Math.max(this.at - 1, 0);
    else if (event.key === "Enter") this.hits[this.at]?.go();
    else if (event.key === "Escape") {
      this.input.value = "";
      this.close();
    } else return;
    event.preventDefault();
    event.stopPropagation();
    this.paint();
  }

  private look(): void {
    const query = this.input.value.trim().toLowerCase();
    this.at = 0;
    this.hits = [];
    if (!query) {
      this.close();
      return;
    }
    const { store } = this;
    for (const block of Object.values(store.snapshot.blocks)) {
      if (`${block.path} ${block.kind}`.toLowerCase().includes(query)) this.hits.push({ where: block.kind, label: block.path, go: () => store.pinBlocks([block.path]) });
    }
    let total = this.hits.length;
    for (const text of store.texts.values()) {
      let found = 0;
      text.text.split("\n").forEach((line, i) => {
        if (!line.toLowerCase().includes(query)) return;
        found += 1;
        if (found <= PER_STAGE) this.hits.push({ where: `${this.store.titleOf(text.stage)} ${i + 1}`, label: line.trim(), go: () => this.goTo(text.stage, i + 1) });
      });
      total += found;
    }
    this.count.textContent = total === 0 ? "No results" : total > this.hits.length ? `${total} results, the first ${PER_STAGE} of each stage:` : `${total} ${total === 1 ? "result" : "results"}`;
    this.list.replaceChildren(
      ...this.hits.map((hit, i) => h("div", { class: "mnb-option", role: "option", id: `${this.id}-${i}`, onpointerdown: (event: Event) => { event.preventDefault(); hit.go(); } }, h("span", { class: "mnb-hit-label", title: hit.label }, hit.label), h("small", { title: hit.where }, hit.where))),
    );
    this.box.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    this.paint();
  }

  private goTo(stage: string, line: number): void {
    const { store } = this;
    if (!store.panes.includes(stage)) store.showPanes([...store.panes, stage].slice(-3));
    const instruction = store.texts.get(stage)?.at(line);
    store.revealStages();
    if (instruction) store.pin([{ kind: "instruction", stage, version: store.texts.get(stage)!.version, index: instruction.index }], false, stage);
    this.panes.pane(stage)?.caretTo(line);
  }

  private paint(): void {
    this.list.querySelectorAll(".mnb-option").forEach((option, i) => {
      option.setAttribute("aria-selected", String(i === this.at));
      if (i === this.at) option.scrollIntoView?.({ block: "nearest" });
    });
    if (this.hits.length) this.input.setAttribute("aria-activedescendant", `${this.id}-${this.at}`);
    else this.input.removeAttribute("aria-activedescendant");
  }
}
