/** The bar above the text of a pane: the block of the first visible line, the outline, and buttons that fold. */

import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import { type OutlineItem, blockAt, outlineOf } from "../code/fold-ranges";
import { nameOf } from "../code/folds";
import { counted } from "../dom/format";
import { Button, IconButton } from "../dom/view";
import { Outline } from "./outline";
import type { Pane } from "./pane";

export function PaneBar({ pane }: { pane: Pane }) {
  const { stage, store, folds, text, costOf } = pane;
  const { now, only } = folds;
  /** The blocks of the text, while the outline is open. */
  const items = useSignal<OutlineItem[] | null>(null);
  const isHidden = !text || (now.ranges.length === 0 && only.length === 0);
  const hidden = now.hiddenAt(pane.firstLine);
  // A folded signature has no block: name the block below it.
  const found = hidden?.block ? hidden : isHidden ? null : blockAt(text, hidden ? hidden.to + 1 : pane.firstLine);
  const canTurnOn = store.selection.length > 0;
  const openOutline = (): void => void (items.value = items.value || isHidden ? null : outlineOf(text));
  pane.openOutline = () => {
    if (items.value) pane.view.focus();
    openOutline();
  };
  useLayoutEffect(() => void (items.value = null), [text]);
  const classOf = (block: string) => {
    const hue = pane.hueOf(block);
    return hue === null ? "" : `mnb-hue-${hue}`;
  };
  const label = `Blocks of ${store.titleOf(stage)}`;
  return (
    <div class="mnb-pane-bar" role="group" aria-label={label} hidden={isHidden}>
      <Button
        class="mnb-pane-crumb"
        title="Outline: list the blocks (o)"
        aria-haspopup="listbox"
        aria-expanded={items.value !== null}
        action={`outline.${stage}`}
        data-mnb-block={found?.block}
        // A press on the button would close the outline by its blur, and the click would open it again.
        onPointerDown={(event) => items.value && event.preventDefault()}
        onClick={() => pane.openOutline()}
      >
        <i class={`mnb-swatch ${found ? classOf(found.block) : ""}`} hidden={!found} />
        <span class="mnb-pane-crumb-name">{found ? nameOf(found) : "Outline"}</span>
        <small>{found && costOf(found.block, found.role)}</small>
      </Button>
      <span class="mnb-grow" />
      <Button
        class="mnb-toggle mnb-toggle-small"
        aria-pressed={only.length > 0}
        off={!only.length && !canTurnOn}
        title={
          only.length
            ? `Only ${only.join(", ")}. Show all blocks (b)`
            : canTurnOn
              ? "Fold everything outside of the selected block (b)"
              : "Select a block or a line first"
        }
        action={`only.${stage}`}
        onClick={() => pane.toggleOnly()}
      >
        {"only this block"}
      </Button>
      <IconButton icon="fold" label="Fold all (Shift z)" action={`fold.${stage}`} onClick={() => folds.foldAll()} />
      <IconButton
        icon="unfold"
        label="Unfold all (Shift z)"
        action={`unfold.${stage}`}
        onClick={() => folds.unfoldAll()}
      />
      <Outline
        label={label}
        items={items.value}
        here={found?.block ?? ""}
        detailOf={({ path, lines }) => [counted(lines, "line"), costOf(path, null)].filter(Boolean).join(", ")}
        classOf={classOf}
        choose={({ line }) => pane.caretTo(line)}
        close={(byKey) => {
          items.value = null;
          if (byKey) pane.view.focus();
        }}
      />
    </div>
  );
}
