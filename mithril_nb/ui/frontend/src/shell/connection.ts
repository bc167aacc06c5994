/** The banner of a disconnected widget: the state, what to do next, and the commands that were not run. */

import { copyFrom } from "../dom/clipboard";
import { attr, h, icon, ICONS, text } from "../dom/dom";
import type { Kernel } from "../kernel/kernel";
import type { AutosaveData } from "../kernel/contract";

/** The work that is lost with the kernel; live runs and explored programs have neither source nor edits. */
export interface Work {
  source?: string;
  autosave?: AutosaveData | null;
  can_undo?: boolean;
}

export function editCount(edits: number): string {
  return edits === 1 ? "1 edit" : `${edits} edits`;
}

/** Return the file that edits are saved in, relative to the notebook if possible. */
export function placeOf({ path }: Pick<AutosaveData, "path">): string {
  const [folder, file] = path.split(/[\\/]/).slice(-2);
  return folder === ".mithril_nb" ? `${folder}/${file}, beside the notebook` : path;
}

/** Return advice for the user after the kernel or the widget has ended. */
export function adviceFor({ autosave, can_undo }: Work): string {
  const again = "Run this notebook from the top to continue.";
  if (!autosave && can_undo) return "Your edits are not saved. Copy the source before you run the cell again.";
  if (!autosave || autosave.edits === 0) return again;
  if (autosave.problem)
    return (
      `Your ${editCount(autosave.edits)} could not be saved (${autosave.problem}). Copy the source before ` +
      `you run the cell again.`
    );
  return (
    `Your ${editCount(autosave.edits)} ${autosave.edits === 1 ? "is" : "are"} saved in ` +
    `${placeOf(autosave)}. ${again} This cell then offers to restore ${autosave.edits === 1 ? "it" : "them"}.`
  );
}

export class Connection {
  readonly root = h("div", { class: "mnb-connection", hidden: true, "data-mnb-part": "connection" });
  private readonly state = h("p", { role: "status" });
  private readonly dropped = h("p", { class: "mnb-dropped", role: "alert" });
  private readonly copy: HTMLButtonElement;
  readonly destroy: () => void;

  constructor(
    private readonly kernel: Kernel,
    private readonly work: () => Work,
    private readonly changed: () => void = () => {},
  ) {
    this.copy = h(
      "button",
      {
        type: "button",
        class: "mnb-button",
        "data-mnb-action": "connection.copy",
        onclick: () => void copyFrom(this.copy, this.work().source ?? ""),
      },
      icon(ICONS.copy),
      "Copy the source",
    );
    this.root.append(h("div", {}, this.state, this.dropped), this.copy);
    this.destroy = kernel.watch(() => this.update());
    this.update();
  }

  private update(): void {
    const { connection, isGone, dropped } = this.kernel;
    this.root.hidden = !isGone;
    attr(this.root.closest(".mnb-root") ?? this.root, "data-mnb-connection", connection);
    if (connection === "lost") text(this.state, `Disconnected from the kernel. ${adviceFor(this.work())}`);
    if (connection === "closed") text(this.state, `This widget was closed. ${adviceFor(this.work())}`);
    if (connection === "replaced") text(this.state, "Replaced: a newer run of the cell shows the current widget.");
    attr(this.state, "title", this.work().autosave?.path);
    this.copy.hidden = !this.work().source;
    text(
      this.dropped,
      dropped.length === 0
        ? ""
        : `Not run, because no kernel is connected: ${dropped.map((name) => name.replaceAll("_", " ")).join(", ")}.`,
    );
    this.dropped.hidden = dropped.length === 0;
    if (dropped.length > 0) this.changed(); // reset edited fields to the value in the model
  }
}
