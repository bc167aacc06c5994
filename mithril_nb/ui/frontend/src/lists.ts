/** The Source and Problems tabs, and the banner for a command that failed. */

import { EditorState } from "@codemirror/state";
import { EditorView } from "@codemirror/view";
import { copyFrom } from "./clipboard";
import { attr, h, icon, ICONS, iconButton, keyed, text } from "./dom";
import { colouredAs } from "./languages";
import type { Store } from "./store";
import { readOnly } from "./styles";
import type { Diagnostic } from "./types";

export class SourceTab {
  readonly root: HTMLElement;
  private readonly view: EditorView;
  private readonly unsubscribe: () => void;

  constructor(private readonly store: Store) {
    this.view = new EditorView({
      state: EditorState.create({
        extensions: [readOnly, colouredAs("python"), EditorView.contentAttributes.of({ "aria-label": "Python that builds this model, read only", "aria-readonly": "true", tabindex: "0", spellcheck: "false" })],
      }),
    });
    const copy: HTMLButtonElement = h("button", { type: "button", class: "mnb-button", "data-mnb-action": "source.copy", onclick: () => void copyFrom(copy, store.snapshot.source) }, icon(ICONS.copy), "Copy");
    this.root = h("div", { class: "mnb-source", "data-mnb-part": "source" }, h("div", { class: "mnb-row" }, h("span", { class: "mnb-muted" }, "Python that builds this model"), h("span", { class: "mnb-grow" }), copy), h("div", { class: "mnb-source-text" }, this.view.dom));
    this.unsubscribe = store.on("snapshot", () => this.update());
    this.update();
  }

  destroy(): void {
    this.unsubscribe();
    this.view.destroy();
  }

  private update(): void {
    const { source } = this.store.snapshot;
    if (this.view.state.doc.toString() !== source) this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: source } });
  }
}

/** Show a diagnostic in a card: summary, aligned facts, advice. */
export function fillDiagnostic(card: HTMLElement, problem: Diagnostic): void {
  const facts = h("dl", { class: "mnb-facts" }, ...problem.facts.map(([name, value]) => h("div", { title: value }, h("dt", {}, name), h("dd", {}, value))));
  card.replaceChildren(
    h("p", { class: "mnb-summary" }, icon(ICONS.warning), h("span", { title: problem.summary }, problem.code ? h("b", {}, `${problem.code}: `) : null, problem.summary)),
    ...(problem.facts.length ? [facts] : []),
    ...(problem.advice ? [h("p", { class: "mnb-try" }, h("b", {}, "Try: "), h("code", { title: problem.advice }, problem.advice))] : []),
  );
}

export class ProblemsTab {
  readonly root: HTMLElement;
  private readonly list = h("div", { class: "mnb-problem-list", role: "list" });
  private readonly hint = h("p", { class: "mnb-hint" }, "No problems. All required ports are connected and all shapes match.");
  private readonly unsubscribe: () => void;

  constructor(private readonly store: Store) {
    this.root = h("div", { class: "mnb-problems", "data-mnb-part": "problems" }, this.hint, this.list);
    this.unsubscribe = store.on("snapshot", () => this.update());
    this.update();
  }

  destroy(): void {
    this.unsubscribe();
  }

  private update(): void {
    const { problems } = this.store.snapshot;
    this.hint.hidden = problems.length > 0;
    const current = new Map(problems.map((problem, i) => [`${i} ${problem.code} ${problem.summary}`, problem]));
    keyed(this.list, [...current], ([key]) => key, ([key, problem]) => {
      const card = h("button", { type: "button", class: "mnb-problem", title: "Go to the location", "data-mnb-problem": problem.code, onclick: () => this.store.goTo(current.get(key) ?? problem) });
      return h("div", { role: "listitem" }, card);
    }, (item: HTMLElement, [, problem]) => fillDiagnostic(item.firstElementChild as HTMLElement, problem));
  }
}

export class Notice {
  readonly root = h("div", { class: "mnb-notice", role: "alert", hidden: true, "data-mnb-part": "notice" });
  private readonly body = h("div", { class: "mnb-notice-body" });
  private seen = "";
  private readonly unsubscribe: () => void;

  constructor(private readonly store: Store) {
    this.root.append(this.body, iconButton("close", "Dismiss", "notice.dismiss", () => {
      this.root.hidden = true;
      store.command("dismiss");
    }));
    this.unsubscribe = store.on("snapshot", () => this.update());
    this.update();
  }

  destroy(): void {
    this.unsubscribe();
  }

  private update(): void {
    const { notice } = this.store.snapshot;
    const key = notice ? JSON.stringify(notice) : "";
    if (key === this.seen) return;
    this.seen = key;
    this.root.hidden = notice === null;
    attr(this.root, "data-mnb-code", notice?.code);
    if (notice) fillDiagnostic(this.body, notice);
    else text(this.body, "");
  }
}
