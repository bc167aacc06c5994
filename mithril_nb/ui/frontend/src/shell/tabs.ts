/** A bar of tabs with their panels: Cost, Passes, Train and others. */

import { fullButton } from "../controls/full-screen";
import { together } from "../dom/calls";
import { attr, h, text, uid } from "../dom/dom";
import type { Store } from "../store/store";

export interface Tab {
  name: string;
  title: string;
  root: HTMLElement;
  /** Returns a figure shown beside the title, such as the number of problems. */
  figure?: () => string;
  /** Returns whether its content is shown elsewhere, so that the tab is hidden. */
  isAway?: () => boolean;
}

export class Tabs {
  readonly root: HTMLElement;
  private readonly buttons = new Map<string, HTMLButtonElement>();
  readonly destroy: () => void;

  constructor(
    private readonly store: Store,
    private readonly tabs: Tab[],
    label = "Cost, passes, training, source, problems",
    /** True if a click on the selected tab closes its panel; no tab is selected then. */
    private readonly canClose = false,
  ) {
    const bar = h("div", { class: "mnb-tab-list", role: "tablist", "aria-label": label });
    this.root = h(
      "section",
      { class: "mnb-tabs", tabindex: -1, "data-mnb-full": "this tab" },
      h("div", { class: "mnb-bar mnb-tabs-bar" }, bar, h("span", { class: "mnb-grow" }), fullButton("this tab", "tab")),
    );
    tabs.forEach((tab, i) => {
      const id = uid("tab");
      const button = h(
        "button",
        {
          type: "button",
          class: "mnb-tab",
          role: "tab",
          id,
          "aria-controls": `${id}-panel`,
          "data-mnb-tab": tab.name,
          onclick: () => store.showTab(this.canClose && store.tab === tab.name ? "" : tab.name),
        },
        h("span", {}, tab.title),
        h("span", { class: "mnb-tab-figure" }),
      );
      button.addEventListener("keydown", (event) => {
        const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
        if (by === 0) return;
        event.preventDefault();
        event.stopPropagation();
        const rest = Array.from(tabs, (_, k) => tabs[(i + by * (k + 1) + tabs.length * tabs.length) % tabs.length]!);
        const next = rest.find((one) => !one.isAway?.())!;
        store.showTab(next.name);
        this.buttons.get(next.name)?.focus();
      });
      this.buttons.set(tab.name, button);
      bar.append(button);
      this.root.append(
        h(
          "div",
          {
            class: "mnb-tab-panel",
            role: "tabpanel",
            id: `${id}-panel`,
            "aria-labelledby": id,
            "data-mnb-panel": tab.name,
          },
          tab.root,
        ),
      );
    });
    // The buttons of the stages are in the same row, after the tabs.
    const watcher =
      typeof ResizeObserver === "undefined"
        ? null
        : new ResizeObserver(() => this.root.style.setProperty("--mnb-tabs-width", `${bar.scrollWidth + 12}px`));
    watcher?.observe(bar);
    this.destroy = together(
      store.on("tab", () => this.update()),
      store.on("snapshot", () => this.update()),
      () => watcher?.disconnect(),
    );
    this.update();
  }

  has(name: string): boolean {
    return this.buttons.has(name);
  }

  /** Open the remembered tab, or `usual` if there is none. */
  restore(usual: string): void {
    const tab = this.store.memory.get("tab", usual);
    this.store.showTab(this.has(tab) || (this.canClose && tab === "") ? tab : usual);
  }

  update(): void {
    const isOpen = this.has(this.store.tab);
    this.root.dataset["mnbOpen"] = String(isOpen);
    for (const tab of this.tabs) {
      const button = this.buttons.get(tab.name)!;
      const shown = tab.name === this.store.tab;
      attr(button, "aria-selected", String(shown));
      attr(button, "tabindex", shown || (!isOpen && tab === this.tabs[0]) ? 0 : -1);
      if (this.canClose) attr(button, "title", shown ? `Close ${tab.title}` : `Open ${tab.title}`);
      button.hidden = tab.isAway?.() ?? false;
      text(button.lastElementChild!, tab.figure?.() ?? "");
      const panel = tab.root.parentElement!;
      if (panel.hidden === shown) panel.hidden = !shown;
    }
  }
}
