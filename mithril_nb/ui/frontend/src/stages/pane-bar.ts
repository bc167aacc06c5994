/** The bar above the text of a pane: the block of the first visible line, the outline, and buttons that fold. */

import { type OutlineItem, blockAt, outlineOf } from "../code/fold-ranges";
import { type CostText, nameOf } from "../code/folds";
import { oncePerFrame } from "../dom/calls";
import { attr, h, iconButton, text } from "../dom/dom";
import type { StageText } from "../store/links";
import { Outline } from "./outline";
import type { PaneFolds } from "./pane-folds";

/** The parts of a pane that its bar uses. */
export interface BarTarget {
  stage: string;
  title: string;
  folds: PaneFolds;
  content: () => StageText | null;
  /** The first visible line. */
  firstLine: () => number;
  hueOf: (block: string) => number | null;
  costOf: CostText;
  selected: () => readonly string[];
  goTo: (line: number) => void;
  focus: () => void;
}

export class PaneBar {
  readonly root: HTMLElement;
  readonly outline: Outline;
  private readonly swatch = h("i", { class: "mnb-swatch" });
  private readonly name = h("span", { class: "mnb-pane-crumb-name" });
  private readonly cost = h("small", {});
  private readonly crumb: HTMLButtonElement;
  private readonly only: HTMLButtonElement;
  private items: OutlineItem[] | null = null;
  /** Paints after a scroll. */
  readonly follow = oncePerFrame(() => this.paint());

  constructor(private readonly target: BarTarget) {
    const { stage, title, folds } = target;
    this.outline = new Outline(
      `Blocks of ${title}`,
      ({ path, lines }) =>
        [`${lines.toLocaleString("en-US")} ${lines === 1 ? "line" : "lines"}`, target.costOf(path, null)]
          .filter(Boolean)
          .join(", "),
      (path) => this.hueClass(path),
      ({ line }) => target.goTo(line),
      (byKey) => {
        attr(this.crumb, "aria-expanded", "false");
        if (byKey) target.focus();
      },
    );
    this.crumb = h(
      "button",
      {
        type: "button",
        class: "mnb-pane-crumb",
        title: "Outline: list the blocks (o)",
        "aria-haspopup": "listbox",
        "aria-expanded": "false",
        "data-mnb-action": `outline.${stage}`,
        onclick: () => this.openOutline(),
      },
      this.swatch,
      this.name,
      this.cost,
    );
    // A press on the button would close the outline by its blur, and the click would open it again.
    this.crumb.addEventListener("pointerdown", (event) => this.outline.isOpen && event.preventDefault());
    this.only = h(
      "button",
      {
        type: "button",
        class: "mnb-toggle mnb-toggle-small",
        "aria-pressed": "false",
        "data-mnb-action": `only.${stage}`,
        onclick: () => this.toggleOnly(),
      },
      "only this block",
    );
    this.root = h(
      "div",
      { class: "mnb-pane-bar", role: "group", "aria-label": `Blocks of ${title}`, hidden: true },
      this.crumb,
      h("span", { class: "mnb-grow" }),
      this.only,
      iconButton("fold", "Fold all (Shift z)", `fold.${stage}`, () => folds.foldAll()),
      iconButton("unfold", "Unfold all (Shift z)", `unfold.${stage}`, () => folds.unfoldAll()),
      this.outline.root,
    );
  }

  /** Take a new text. */
  reset(): void {
    this.items = null;
    this.outline.close(false);
    this.paint();
  }

  openOutline(): void {
    const content = this.target.content();
    if (this.outline.isOpen) this.outline.close(true);
    else if (content && !this.root.hidden) {
      attr(this.crumb, "aria-expanded", "true");
      this.outline.open((this.items ??= outlineOf(content)), this.crumb.dataset["mnbBlock"] ?? "");
    }
  }

  toggleOnly(): void {
    const { folds, selected } = this.target;
    const blocks = folds.only.length ? [] : selected();
    folds.showOnly(blocks);
    this.paint();
  }

  /** If the pane shows only some blocks, show the selected ones instead, unless they are inside of those. */
  followSelection(): void {
    const { folds, selected } = this.target;
    const blocks = selected();
    const isInside = (block: string): boolean => folds.only.some((one) => block === one || block.startsWith(`${one}/`));
    if (folds.only.length && !blocks.every(isInside)) folds.showOnly(blocks);
    this.paintOnly();
  }

  paint(): void {
    const { folds, content, firstLine, costOf } = this.target;
    const shown = content();
    this.root.hidden = !shown || (folds.now.ranges.length === 0 && folds.only.length === 0);
    if (!shown || this.root.hidden) return;
    const line = firstLine();
    const hidden = folds.now.hiddenAt(line);
    // A folded signature has no block: name the block below it.
    const found = hidden?.block ? hidden : blockAt(shown, hidden ? hidden.to + 1 : line);
    text(this.name, found ? nameOf(found) : "Outline");
    text(this.cost, found ? costOf(found.block, found.role) : "");
    attr(this.swatch, "class", `mnb-swatch ${found ? this.hueClass(found.block) : ""}`);
    this.swatch.hidden = !found;
    attr(this.crumb, "data-mnb-block", found?.block);
    this.paintOnly();
  }

  private paintOnly(): void {
    const { folds, selected } = this.target;
    const isOn = folds.only.length > 0;
    const canTurnOn = selected().length > 0;
    attr(this.only, "aria-pressed", String(isOn));
    attr(this.only, "aria-disabled", isOn || canTurnOn ? null : "true");
    attr(
      this.only,
      "title",
      isOn
        ? `Only ${folds.only.join(", ")}. Show all blocks (b)`
        : canTurnOn
          ? "Fold everything outside of the selected block (b)"
          : "Select a block or a line first",
    );
  }

  private hueClass(block: string): string {
    const hue = this.target.hueOf(block);
    return hue === null ? "" : `mnb-hue-${hue}`;
  }
}
