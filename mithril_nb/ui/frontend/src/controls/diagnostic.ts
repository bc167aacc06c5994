/** A problem as a card. */

import { h, icon, ICONS } from "../dom/dom";
import type { Diagnostic } from "../kernel/types";

/** Show a diagnostic in a card: summary, aligned facts, advice. */
export function fillDiagnostic(card: HTMLElement, problem: Diagnostic): void {
  const facts = h("dl", { class: "mnb-facts" }, ...problem.facts.map(([name, value]) => h("div", { title: value }, h("dt", {}, name), h("dd", {}, value))));
  card.replaceChildren(
    h("p", { class: "mnb-summary" }, icon(ICONS.warning), h("span", { title: problem.summary }, problem.code ? h("b", {}, `${problem.code}: `) : null, problem.summary)),
    ...(problem.facts.length ? [facts] : []),
    ...(problem.advice ? [h("p", { class: "mnb-try" }, h("b", {}, "Try: "), h("code", { title: problem.advice }, problem.advice))] : []),
  );
}
