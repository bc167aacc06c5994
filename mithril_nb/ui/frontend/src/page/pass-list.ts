/** The passes of a saved page: the list, and the diff of the selected pass. */

import { h } from "../dom/dom";
import { StageText } from "../store/links";
import type { Saved } from "./saved";
import type { Selection } from "./selection";
import { TextPane } from "./text-pane";

const LOOKS: Record<string, string> = { "+": "plus", "-": "minus", "@": "where" };

export function showPasses(list: HTMLElement, { passes, hues }: Saved, selection: Selection): void {
  const side = h("div", { class: "difference" });
  const rows = [...list.querySelectorAll("li")];
  list.after(side);
  const choose = (at: number) => {
    rows.forEach((row, one) => row.classList.toggle("pin", one === at));
    const diff = passes[at] || "only names or layouts changed";
    const text = new StageText("pass", 0, diff.replace(/\n$/, ""), { instructions: [], equations: {} });
    const title = rows[at]!.querySelector("b")!.textContent;
    const pane = new TextPane(
      { name: "pass", title, language: "hlo", unavailable: null, text },
      selection,
      hues,
      (line) => LOOKS[line[0] ?? ""] ?? "same",
    );
    side.replaceChildren(pane.root);
    pane.draw();
  };
  rows.forEach((row, at) => {
    row.tabIndex = 0;
    row.setAttribute("role", "button");
    row.addEventListener("click", () => choose(at));
    row.addEventListener("keydown", (event) => {
      const to = ({ ArrowDown: at + 1, ArrowUp: at - 1, Enter: at } as Record<string, number>)[event.key];
      if (to === undefined || !rows[to]) return;
      event.preventDefault();
      rows[to].focus();
      choose(to);
    });
  });
  choose(0);
}
