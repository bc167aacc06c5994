/** The offer to restore edits saved by an earlier run of the cell. */

import { attr, h, text } from "../dom/dom";
import type { AutosaveOffer } from "../kernel/contract";
import type { Store } from "../store/store";
import { editCount, placeOf } from "./connection";

const MOST_LABELS = 4;

/** Format the latest edits as one line. */
export function listOf(labels: readonly string[], edits: number): string {
  const shown = labels.slice(-MOST_LABELS);
  const more = edits - shown.length;
  return (more > 0 ? `${more} more, then ` : "") + shown.join(", ");
}

export class Restore {
  readonly root = h("section", {
    class: "mnb-restore",
    hidden: true,
    "aria-label": "Saved edits",
    "data-mnb-part": "restore",
  });
  private readonly summary = h("p", { role: "status" });
  private readonly restore: HTMLButtonElement;
  private readonly difference = h("pre", {
    tabindex: "0",
    "aria-label": "Difference between the code's model and the saved one",
  });
  private painted = "";
  readonly destroy: () => void;

  constructor(private readonly store: Store) {
    this.restore = h("button", {
      type: "button",
      class: "mnb-button mnb-primary",
      "data-mnb-action": "restore.edits",
      onclick: () => this.choose("restore_edits"),
    });
    const start = h(
      "button",
      {
        type: "button",
        class: "mnb-button",
        "data-mnb-action": "restore.decline",
        onclick: () => this.choose("decline_edits"),
      },
      "Start from the code",
    );
    this.root.append(
      h("div", { class: "mnb-restore-row" }, this.summary, this.restore, start),
      h(
        "details",
        {},
        h("summary", { "data-mnb-action": "restore.difference" }, "Show the difference"),
        this.difference,
      ),
    );
    this.destroy = store.on("snapshot", () => this.update());
    this.update();
  }

  private choose(command: string): void {
    const { autosave } = this.store.snapshot;
    const kept =
      command === "decline_edits" && autosave?.offer
        ? `The saved ${editCount(autosave.offer.edits)} stay${autosave.offer.edits === 1 ? "s" : ""} in ` +
          `${placeOf(autosave)}.`
        : "";
    this.store.command(command, {}, kept);
    this.root.closest<HTMLElement>(".mnb-root")?.querySelector<HTMLElement>(".mnb-palette-search")?.focus();
  }

  private update(): void {
    const offer = this.store.snapshot.autosave?.offer ?? null;
    this.root.hidden = offer === null;
    const key = offer ? JSON.stringify(offer) : "";
    if (!offer || key === this.painted) return;
    this.painted = key;
    const when = new Date(offer.saved_at * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
    const lines = [
      `An earlier run of this cell saved ${editCount(offer.edits)} on ${when}: ${listOf(offer.labels, offer.edits)}.`,
      !offer.can_restore && "They cannot be restored, because parts of the model cannot be saved to a file.",
      !offer.can_restore && "Copy what you need from the difference.",
      offer.older && `An older version with ${editCount(offer.older)} is available after “Start from the code”.`,
    ];
    text(this.summary, lines.filter(Boolean).join(" "));
    text(this.restore, `Restore your ${editCount(offer.edits)}`);
    attr(this.restore, "aria-disabled", offer.can_restore ? null : "true");
    this.difference.replaceChildren(...linesOf(offer));
  }
}

function linesOf(offer: AutosaveOffer): HTMLElement[] {
  const kinds: Record<string, string> = { "+": "mnb-diff-added", "-": "mnb-diff-removed", "@": "mnb-diff-title" };
  return offer.difference.split("\n").map((line) => {
    const element = h("span", {}, `${line}\n`);
    attr(element, "class", kinds[line[0] ?? ""]);
    return element;
  });
}
