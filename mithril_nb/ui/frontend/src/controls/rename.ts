/** Renames in place. */

import { h } from "../dom/dom";
import { isSaveKey } from "../dom/focus";

/** Turn a label into a text field. Enter accepts the name; Escape or an empty name keeps the old one. `closed` is called last. */
export function editName(slot: HTMLElement, name: string, take: (name: string) => void, back: () => void, closed: () => void = () => {}): void {
  if (slot.querySelector("input")) return;
  const input = h("input", { class: "mnb-rename", "aria-label": "New name", spellcheck: "false" });
  input.value = name;
  let done = false;
  const finish = (keep: boolean, refocus: boolean): void => {
    if (done) return;
    done = true;
    const value = input.value.trim();
    slot.textContent = keep && value ? value : name;
    if (keep && value && value !== name) take(value);
    if (refocus) back();
    closed();
  };
  input.addEventListener("keydown", (event) => {
    if (isSaveKey(event)) return;
    event.stopPropagation();
    if (event.key === "Enter") {
      // The focus returns to the button, and the same Enter would click it.
      event.preventDefault();
      finish(true, true);
    }
    if (event.key === "Escape") finish(false, true);
  });
  input.addEventListener("pointerdown", (event) => event.stopPropagation());
  input.addEventListener("dblclick", (event) => event.stopPropagation());
  input.addEventListener("blur", () => finish(true, false));
  slot.replaceChildren(input);
  input.focus();
  input.select();
}
