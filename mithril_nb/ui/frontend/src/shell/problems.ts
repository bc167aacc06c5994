/** The Problems tab, and the banner for a command that failed. */

import { fillDiagnostic, fixButton } from "../controls/diagnostic";
import { attr, h, iconButton, keyed, text } from "../dom/dom";
import type { Store } from "../store/store";

export class ProblemsTab {
  readonly root: HTMLElement;
  private readonly list = h("div", { class: "mnb-problem-list", role: "list" });
  private readonly hint = h(
    "p",
    { class: "mnb-hint" },
    "No problems. All required ports are connected and all shapes match.",
  );
  readonly destroy: () => void;

  constructor(private readonly store: Store) {
    this.root = h("div", { class: "mnb-problems", "data-mnb-part": "problems" }, this.hint, this.list);
    this.destroy = store.on("snapshot", () => this.update());
    this.update();
  }

  private update(): void {
    const { problems } = this.store.snapshot;
    this.hint.hidden = problems.length > 0;
    const current = new Map(problems.map((problem, i) => [`${i} ${problem.code} ${problem.summary}`, problem]));
    keyed(
      this.list,
      [...current],
      ([key]) => key,
      ([key, problem]) => {
        const card = h("button", {
          type: "button",
          class: "mnb-problem",
          title: "Go to the location",
          "data-mnb-problem": problem.code,
          onclick: () => this.store.goTo(current.get(key) ?? problem),
        });
        return h("div", { role: "listitem" }, card);
      },
      (item: HTMLElement, [, problem]) => {
        const card = item.firstElementChild as HTMLElement;
        fillDiagnostic(card, problem);
        item.replaceChildren(card, ...[fixButton(this.store, problem)].filter((part) => part !== null));
      },
    );
  }
}

export class Notice {
  readonly root = h("div", { class: "mnb-notice", role: "alert", hidden: true, "data-mnb-part": "notice" });
  private readonly body = h("div", { class: "mnb-notice-body" });
  private seen = "";
  readonly destroy: () => void;

  constructor(private readonly store: Store) {
    this.root.append(
      this.body,
      iconButton("close", "Dismiss", "notice.dismiss", () => {
        this.root.hidden = true;
        store.command("dismiss");
      }),
    );
    this.destroy = store.on("snapshot", () => this.update());
    this.update();
  }

  private update(): void {
    const { notice } = this.store.snapshot;
    const key = notice ? JSON.stringify(notice) : "";
    if (key === this.seen) return;
    this.seen = key;
    this.root.hidden = notice === null;
    attr(this.root, "data-mnb-code", notice?.code);
    if (!notice) return text(this.body, "");
    fillDiagnostic(this.body, notice);
    const fix = fixButton(this.store, notice);
    if (fix) this.body.append(fix);
  }
}
