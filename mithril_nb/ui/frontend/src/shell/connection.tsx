/** The banner of a disconnected widget: the state, what to do next, and the commands that were not run. */

import { counted } from "../dom/format";
import { useLayoutEffect, useRef } from "preact/hooks";
import { copyFrom } from "../dom/clipboard";
import { attr } from "../dom/dom";
import { Button, Icon } from "../dom/view";
import type { AutosaveData } from "../kernel/contract";
import type { Kernel } from "../kernel/kernel";

/** The work that is lost with the kernel; live runs and explored programs have neither source nor edits. */
export interface Work {
  source?: string;
  autosave?: AutosaveData | null;
  can_undo?: boolean;
}

/** Return the file that edits are saved in, relative to the notebook if possible. */
export function placeOf({ path }: Pick<AutosaveData, "path">): string {
  const [folder, file] = path.split(/[\\/]/).slice(-2);
  return folder === ".mithril_nb" ? `${folder}/${file}, beside the notebook` : path;
}

/** Return advice for the user after the kernel or the widget has ended. */
export function adviceFor({ autosave, can_undo }: Work): string {
  const again = "Run this notebook from the top to continue.";
  const copy = "Copy the source before you run the cell again.";
  if (!autosave && can_undo) return `Your edits are not saved. ${copy}`;
  if (!autosave || autosave.edits === 0) return again;
  const edits = `Your ${counted(autosave.edits, "edit")}`;
  if (autosave.problem) return `${edits} could not be saved (${autosave.problem}). ${copy}`;
  const [are, them] = autosave.edits === 1 ? ["is", "it"] : ["are", "them"];
  return `${edits} ${are} saved in ${placeOf(autosave)}. ${again} This cell then offers to restore ${them}.`;
}

export function Connection({ kernel, work }: { kernel: Kernel; work: () => Work }) {
  const root = useRef<HTMLDivElement>(null);
  const { connection, isGone, dropped } = kernel;
  const { source = "", autosave } = work();
  useLayoutEffect(() => attr(root.current!.closest(".mnb-root") ?? root.current!, "data-mnb-connection", connection));
  const states: Record<string, string> = {
    lost: `Disconnected from the kernel. ${adviceFor(work())}`,
    closed: `This widget was closed. ${adviceFor(work())}`,
    replaced: "Replaced: a newer run of the cell shows the current widget.",
  };
  const names = dropped.map((name) => name.replaceAll("_", " ")).join(", ");
  return (
    <div class="mnb-connection" hidden={!isGone} data-mnb-part="connection" ref={root}>
      <div>
        <p role="status" title={autosave?.path}>
          {states[connection]}
        </p>
        <p class="mnb-dropped" role="alert" hidden={!names}>
          {names && `Not run, because no kernel is connected: ${names}.`}
        </p>
      </div>
      <Button action="connection.copy" hidden={!source} onClick={(event) => void copyFrom(event.currentTarget, source)}>
        <Icon name="copy" />
        {"Copy the source"}
      </Button>
    </div>
  );
}
