/** Renames in place. */

import { attr, h, text } from "../dom/dom";
import { isSaveKey } from "../dom/focus";
import type { ReplyHead } from "../kernel/contract";

/** Characters that are invisible, or that change the direction of a text. */
const INVISIBLE = /^\s|\s$|[\x00-\x1f\x7f-\x9f\u200b\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/;

/**
 * Turn a label into a text field. Enter sends the name; if it is refused, the field stays open with the text and the
 * reason. Escape or an empty name keeps the old one. `closed` is called last.
 */
export function editName(
  slot: HTMLElement,
  name: string,
  take: (name: string) => Promise<ReplyHead>,
  back: () => void,
  closed: () => void = () => {},
): void {
  if (slot.querySelector("input")) return;
  const input = h("input", { class: "mnb-rename", "aria-label": "New name", spellcheck: "false" });
  const reason = h("small", { class: "mnb-field-problem", role: "alert", hidden: true });
  input.value = name;
  let isDone = false;
  /** The last name that was sent, and whether it was refused. */
  let sent: string | null = null;
  const finish = (value: string, refocus: boolean): void => {
    if (isDone) return;
    isDone = true;
    slot.textContent = value;
    if (refocus) back();
    closed();
  };
  const refuse = (why: string): void => {
    attr(input, "aria-invalid", why ? "true" : null);
    attr(input, "aria-busy", null);
    reason.hidden = why === "";
    text(reason, why);
  };
  const submit = (refocus: boolean): void => {
    const { value } = input;
    if (!value.trim() || value === name || (value === sent && !refocus)) return finish(name, refocus);
    if (value === sent && reason.hidden) return; // it waits for the reply
    sent = value;
    if (INVISIBLE.test(value)) return refuse("Names have no spaces at their ends, and no invisible characters.");
    refuse("");
    attr(input, "aria-busy", refocus ? "true" : null); // after Enter, the next key is not part of the name
    void take(value).then(({ ok, error }) => {
      if (ok || input.value !== value) return ok ? finish(value, refocus) : undefined;
      refuse(error?.summary ?? "The name was not changed: no kernel is connected.");
    });
  };
  input.addEventListener("keydown", (event) => {
    if (isSaveKey(event)) return;
    event.stopPropagation();
    if (event.key === "Enter") {
      // The focus returns to the button, and the same Enter would click it.
      event.preventDefault();
      submit(true);
    }
    if (event.key === "Escape") finish(name, true);
  });
  for (const type of ["pointerdown", "dblclick", "contextmenu"])
    input.addEventListener(type, (event) => event.stopPropagation());
  input.addEventListener("input", () => attr(input, "aria-busy", null));
  input.addEventListener("blur", () => submit(false));
  slot.replaceChildren(input, reason);
  input.focus();
  input.select();
}
