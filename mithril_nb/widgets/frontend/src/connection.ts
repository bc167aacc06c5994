/** The strip of a widget that has no kernel behind it: the state, how to continue, and what was refused. */

import { copyFrom } from "./clipboard";
import { attr, h, icon, ICONS, text } from "./dom";
import type { Kernel } from "./kernel";
import type { Autosave } from "./types";

/** What a widget can lose with its kernel; a run or a program that is only looked at has neither source nor edits. */
export interface Work {
  source?: string;
  autosave?: Autosave | null;
  can_undo?: boolean;
}

export function editCount(edits: number): string {
  return edits === 1 ? "1 edit" : `${edits} edits`;
}

/** The file that edits are saved in: by its folder beside the notebook, or as a path. */
export function placeOf({ path }: Pick<Autosave, "path">): string {
  const [folder, file] = path.split(/[\\/]/).slice(-2);
  return folder === ".mithril_nb" ? `${folder}/${file}, beside the notebook` : path;
}

/** What to do after the kernel or the widget has ended. */
export function adviceFor({ autosave, can_undo }: Work): string {
  const again = "Run this notebook from the top to continue.";
  if (!autosave && can_undo) return "Your edits are not saved. Copy the source before you run the cell again.";
  if (!autosave || autosave.edits === 0) return again;
  if (autosave.problem) return `Your ${editCount(autosave.edits)} could not be saved (${autosave.problem}). Copy the source before you run the cell again.`;
  return `Your ${editCount(autosave.edits)} ${autosave.edits === 1 ? "is" : "are"} saved in ${placeOf(autosave)}. ${again} This cell then offers to restore ${autosave.edits === 1 ? "it" : "them"}.`;
}

export class Connection {
  readonly root = h("div", { class: "mnb-connection", hidden: true, "data-mnb-part": "connection" });
  private readonly state = h("p", { role: "status" });
  private readonly refused = h("p", { class: "mnb-refused", role: "alert" });
  private readonly copy: HTMLButtonElement;
  private readonly leave: () => void;

  constructor(
    private readonly kernel: Kernel,
    private readonly work: () => Work,
    private readonly changed: () => void = () => {},
  ) {
    this.copy = h("button", { type: "button", class: "mnb-button", "data-mnb-action": "connection.copy", onclick: () => void copyFrom(this.copy, this.work().source ?? "") }, icon(ICONS.copy), "Copy the source");
    this.root.append(h("div", {}, this.state, this.refused), this.copy);
    this.leave = kernel.watch(() => this.update());
    this.update();
  }

  destroy(): void {
    this.leave();
  }

  private update(): void {
    const { connection, isGone, refused } = this.kernel;
    this.root.hidden = !isGone;
    attr(this.root.closest(".mnb-root") ?? this.root, "data-mnb-connection", connection);
    if (connection === "lost") text(this.state, `Disconnected from the kernel. ${adviceFor(this.work())}`);
    if (connection === "closed") text(this.state, `This widget was closed. ${adviceFor(this.work())}`);
    if (connection === "replaced") text(this.state, "Replaced: a newer run of the cell shows the current widget.");
    attr(this.state, "title", this.work().autosave?.path);
    this.copy.hidden = !this.work().source;
    text(this.refused, refused.length === 0 ? "" : `Not done, because no kernel is connected: ${refused.map((name) => name.replaceAll("_", " ")).join(", ")}.`);
    this.refused.hidden = refused.length === 0;
    if (refused.length > 0) this.changed(); // fields that show what was typed go back to the value of the model
  }
}
