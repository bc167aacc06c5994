/** A problem as a card. */

import { h, icon, ICONS } from "../dom/dom";
import type { ProblemData } from "../kernel/contract";
import type { Store } from "../store/store";

/** Return the button that mends a problem; null if no command does. */
export function fixButton(store: Store, { fix }: ProblemData): HTMLElement | null {
  if (!fix) return null;
  const act = (): void => void store.command(fix.command, fix.args);
  return h(
    "button",
    { type: "button", class: "mnb-button mnb-fix", "data-mnb-action": "problem.fix", onclick: act },
    fix.label,
  );
}

/** Show a diagnostic in a card: summary, aligned facts, advice. */
export function fillDiagnostic(card: HTMLElement, problem: ProblemData): void {
  const facts = h(
    "dl",
    { class: "mnb-facts" },
    ...problem.facts.map(([name, value]) => h("div", { title: value }, h("dt", {}, name), h("dd", {}, value))),
  );
  card.replaceChildren(
    h(
      "p",
      { class: "mnb-summary" },
      icon(ICONS.warning),
      h("span", { title: problem.summary }, problem.code ? h("b", {}, `${problem.code}: `) : null, problem.summary),
    ),
    ...(problem.facts.length ? [facts] : []),
    ...(problem.advice
      ? [h("p", { class: "mnb-try", title: problem.advice }, h("b", {}, "Try: "), problem.advice)]
      : []),
  );
}
