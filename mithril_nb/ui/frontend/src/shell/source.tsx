/** The Source tab: the Python that builds the model. */

import { useLayoutEffect, useMemo } from "preact/hooks";
import { colouredAs } from "../code/languages";
import { codeView, setText } from "../code/read-only";
import { copyFrom } from "../dom/clipboard";
import { Button, Holder, Icon, useStart } from "../dom/view";
import type { Store } from "../store/store";

export function SourceTab({ store }: { store: Store }) {
  const view = useMemo(() => codeView("Python that builds this model, read only", colouredAs("python")), []);
  const { source } = store.snapshot;
  useStart(() => () => view.destroy());
  useLayoutEffect(() => setText(view, source), [source]);
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
