/** The Source tab: the Python that builds the model, as an editor. */

import { useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo } from "preact/hooks";
import { type Completion, codeEditor, follow, showError } from "../code/editable";
import { colouredAs } from "../code/languages";
import { copyFrom } from "../dom/clipboard";
import { Button, Holder, Icon, useStart } from "../dom/view";
import type { ProblemData } from "../kernel/contract";
import type { Store } from "../store/store";

const LABEL = "Python that builds this model";

/** Return the arguments of the kind that is called, if the model has such a block, and all kinds of blocks. */
function completions({ palette, kinds }: Store["snapshot"], before: string): Completion[] {
  const called = /(\w+)\(([^()]|\([^()]*\))*$/.exec(before)?.[1];
  const fields = kinds?.[called ?? ""]?.fields ?? [];
  return [
    ...fields.map(({ name, doc }) => ({ label: name, detail: doc, insert: `${name}=` })),
    ...palette
      .filter(({ problem }) => problem === undefined)
      .map(({ kind, summary }) => ({ label: kind, detail: summary, insert: `${kind}(` })),
  ];
}

function errorOf({ summary, facts }: ProblemData) {
  const line = Number(facts.find(([name]) => name === "line")?.[1]);
  const others = facts.filter(([name]) => name !== "line" && name !== "code").map((fact) => fact.join(": "));
  return { line: Number.isInteger(line) && line > 0 ? line : null, text: [summary, ...others].join(" ") };
}

export function SourceTab({ store }: { store: Store }) {
  const { kernel } = store;
  /** The code of the kernel from which the draft starts; null without a draft. */
  const base = useSignal<string | null>(null);
  const text = () => view.state.doc.toString();
  const apply = async () => {
    if (base.value === null || kernel.isGone) return;
    const sent = text();
    const reply = await kernel.send("set_source", { text: sent });
    if (reply.error) showError(view, errorOf(reply.error));
    else if (reply.ok && text() === sent) base.value = null;
  };
  const change = () => {
    const now = store.snapshot.source;
    base.value = text() === now ? null : (base.value ?? now);
  };
  const view = useMemo(
    () =>
      codeEditor(
        LABEL,
        { change, apply: () => void apply(), complete: (before) => completions(store.snapshot, before) },
        colouredAs("python"),
      ),
    [],
  );
  const { source } = store.snapshot;
  useStart(() => () => view.destroy());
  useLayoutEffect(() => {
    if (base.value === null) follow(view, source);
  }, [source, base.value]);
  const isDraft = base.value !== null;
  const isOld = isDraft && base.value !== source;
  const status = isOld
    ? "The model has changed since you started to edit. Apply replaces it; Discard shows its code."
    : isDraft
      ? "Not applied yet"
      : LABEL;
  return (
    <div class="mnb-source" data-mnb-part="source">
      <div class="mnb-row mnb-wrap">
        <span class="mnb-muted" role="status">
          {status}
        </span>
        <span class="mnb-grow" />
        <Button
          class="mnb-button mnb-primary"
          action="source.apply"
          off={!isDraft || kernel.isGone}
          title="Build the model from this code (Ctrl+Enter)"
          onClick={() => void apply()}
        >
          Apply
        </Button>
        <Button action="source.discard" off={!isDraft} onClick={() => void (base.value = null)}>
          Discard
        </Button>
        <Button action="source.copy" onClick={(event) => void copyFrom(event.currentTarget, text())}>
          <Icon name="copy" />
          Copy
        </Button>
      </div>
      <Holder class="mnb-source-text" nodes={[view.dom]} />
    </div>
  );
}
