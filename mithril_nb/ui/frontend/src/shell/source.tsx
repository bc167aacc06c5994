/** The Source tab: the Python that builds the model. */

import { EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { useLayoutEffect, useMemo } from "preact/hooks";
import { colouredAs } from "../code/languages";
import { readOnly } from "../code/read-only";
import { copyFrom } from "../dom/clipboard";
import { Button, Holder, Icon, useStart } from "../dom/view";
import type { Store } from "../store/store";

function createView(): EditorView {
  const attributes = {
    "aria-label": "Python that builds this model, read only",
    "aria-readonly": "true",
    tabindex: "0",
    spellcheck: "false",
  };
  const extensions = [readOnly, colouredAs("python"), EditorView.contentAttributes.of(attributes)];
  return new EditorView({ state: EditorState.create({ extensions }) });
}

export function SourceTab({ store }: { store: Store }) {
  const view = useMemo(createView, []);
  const { source } = store.snapshot;
  useStart(() => () => view.destroy());
  useLayoutEffect(() => {
    view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: source } });
  }, [source]);
  return (
    <div class="mnb-source" data-mnb-part="source">
      <div class="mnb-row">
        <span class="mnb-muted">{"Python that builds this model"}</span>
        <span class="mnb-grow" />
        <Button action="source.copy" onClick={(event) => void copyFrom(event.currentTarget, store.snapshot.source)}>
          <Icon name="copy" />
          Copy
        </Button>
      </div>
      <Holder class="mnb-source-text" nodes={[view.dom]} />
    </div>
  );
}
