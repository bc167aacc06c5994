/** The Source tab: the Python that builds the model. */

import { EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { colouredAs } from "../code/languages";
import { readOnly } from "../code/read-only";
import { together } from "../dom/calls";
import { copyFrom } from "../dom/clipboard";
import { h, icon, ICONS } from "../dom/dom";
import type { Store } from "../store/store";

export class SourceTab {
  readonly root: HTMLElement;
  private readonly view: EditorView;
  readonly destroy: () => void;

  constructor(private readonly store: Store) {
    this.view = new EditorView({
      state: EditorState.create({
        extensions: [
          readOnly,
          colouredAs("python"),
          EditorView.contentAttributes.of({
            "aria-label": "Python that builds this model, read only",
            "aria-readonly": "true",
            tabindex: "0",
            spellcheck: "false",
          }),
        ],
      }),
    });
    const copy: HTMLButtonElement = h(
      "button",
      {
        type: "button",
        class: "mnb-button",
        "data-mnb-action": "source.copy",
        onclick: () => void copyFrom(copy, store.snapshot.source),
      },
      icon(ICONS.copy),
      "Copy",
    );
    this.root = h(
      "div",
      { class: "mnb-source", "data-mnb-part": "source" },
      h(
        "div",
        { class: "mnb-row" },
        h("span", { class: "mnb-muted" }, "Python that builds this model"),
        h("span", { class: "mnb-grow" }),
        copy,
      ),
      h("div", { class: "mnb-source-text" }, this.view.dom),
    );
    this.destroy = together(
      store.on("snapshot", () => this.update()),
      () => this.view.destroy(),
    );
    this.update();
  }

  private update(): void {
    const { source } = this.store.snapshot;
    if (this.view.state.doc.toString() !== source)
      this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: source } });
  }
}
