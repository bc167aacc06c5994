/** The offer to restore edits saved by an earlier run of the cell. */

import { counted } from "../dom/format";
import { Button } from "../dom/view";
import type { Store } from "../store/store";
import { placeOf } from "./connection";

const MOST_LABELS = 4;
const LOOKS: Record<string, string> = { "+": "mnb-diff-added", "-": "mnb-diff-removed", "@": "mnb-diff-title" };

/** Format the latest edits as one line. */
function listOf(labels: readonly string[], edits: number): string {
  const shown = labels.slice(-MOST_LABELS);
  const more = edits - shown.length;
  return (more > 0 ? `${more} more, then ` : "") + shown.join(", ");
}

export function Restore({ store }: { store: Store }) {
  const { autosave } = store.snapshot;
  const offer = autosave?.offer;
  const count = counted(offer?.edits ?? 0, "edit");
  const choose = (event: MouseEvent, command: string, done = "") => {
    void store.command(command, {}, done);
    const root = (event.currentTarget as Element).closest(".mnb-root");
    root?.querySelector<HTMLElement>(".mnb-palette-search")?.focus();
  };
  const when =
    offer && new Date(offer.saved_at * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  const summary = offer && [
    `An earlier run of this cell saved ${count} on ${when}: ${listOf(offer.labels, offer.edits)}.`,
    !offer.can_restore && "They cannot be restored, because parts of the model cannot be saved to a file.",
    !offer.can_restore && "Copy what you need from the difference.",
    offer.older && `An older version with ${counted(offer.older, "edit")} is available after “Start from the code”.`,
  ];
  const stays = autosave && `The saved ${count} stay${offer?.edits === 1 ? "s" : ""} in ${placeOf(autosave)}.`;
  return (
    <section class="mnb-restore" hidden={!offer} aria-label="Saved edits" data-mnb-part="restore">
      <div class="mnb-restore-row">
        <p role="status">{summary?.filter(Boolean).join(" ")}</p>
        <Button
          class="mnb-button mnb-primary"
          action="restore.edits"
          off={!offer?.can_restore}
          onClick={(event) => choose(event, "restore_edits")}
        >
          {`Restore your ${count}`}
        </Button>
        <Button action="restore.decline" onClick={(event) => choose(event, "decline_edits", stays ?? "")}>
          {"Start from the code"}
        </Button>
      </div>
      <details>
        <summary data-mnb-action="restore.difference">{"Show the difference"}</summary>
        <pre tabIndex={0} aria-label="Difference between the code's model and the saved one">
          {offer?.difference.split("\n").map((line, i) => (
            <span key={i} class={LOOKS[line[0] ?? ""]}>{`${line}\n`}</span>
          ))}
        </pre>
      </details>
    </section>
  );
}
