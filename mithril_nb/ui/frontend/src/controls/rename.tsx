/** Renames in place. */

import { useSignal } from "@preact/signals";
import { useRef } from "preact/hooks";
import { isSaveKey } from "../dom/focus";
import { useStart } from "../dom/view";
import type { ReplyHead } from "../kernel/contract";

/** Characters that are invisible, or that change the direction of a text. */
const INVISIBLE = /^\s|\s$|[\x00-\x1f\x7f-\x9f\u200b\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]/;

interface NameFieldProps {
  /** Returns the old name; empty if the field asks for something new and shows its label as a caption. */
  name: () => string;
  /** The accessible name of the field, and its caption. */
  label?: string;
  /** The text at first, if it is not the old name. */
  proposal?: string | undefined;
  take: (name: string) => Promise<ReplyHead>;
  /** Called once at the end; `byKey` if a key ended it, so that the focus moves on. */
  close: (byKey: boolean) => void;
}

/**
 * A text field for a new name. Enter sends the name; if it is refused, the field stays open with the text and the
 * reason. Escape or an empty name keeps the old one.
 */
export function NameField({ name, label = "New name", proposal = name(), take, close }: NameFieldProps) {
  const field = useRef<HTMLInputElement>(null);
  const reason = useSignal("");
  const isBusy = useSignal(false);
  /** The last name that was sent. */
  const sent = useRef<string | null>(null);
  const isDone = useRef(false);
  const finish = (byKey: boolean) => {
    if (isDone.current) return;
    isDone.current = true;
    close(byKey);
  };
  const submit = (byKey: boolean) => {
    if (isDone.current) return;
    const { value } = field.current!;
    if (!value.trim() || value === name() || (value === sent.current && !byKey)) return finish(byKey);
    if (value === sent.current && !reason.value) return; // it waits for the reply
    sent.current = value;
    reason.value = INVISIBLE.test(value) ? "Names have no spaces at their ends, and no invisible characters." : "";
    isBusy.value = byKey && !reason.value; // after Enter, the next key is not part of the name
    if (reason.value) return;
    void take(value).then(({ ok, error }) => {
      if (ok) return finish(byKey);
      if (field.current?.value !== value) return;
      isBusy.value = false;
      reason.value = error?.summary ?? "The name was not changed: no kernel is connected.";
    });
  };
  useStart(() => {
    field.current!.value = proposal;
    field.current!.focus();
    field.current!.select();
  });
  const press = (event: KeyboardEvent) => {
    if (isSaveKey(event)) return;
    event.stopPropagation();
    // The focus returns to the button, and the same Enter would click it.
    if (event.key === "Enter") event.preventDefault();
    if (event.key === "Enter") submit(true);
    if (event.key === "Escape") finish(true);
  };
  const stop = (event: Event) => event.stopPropagation();
  return (
    <>
      <small class="mnb-field-caption" aria-hidden="true" hidden={name() !== ""}>
        {label}
      </small>
      <input
        class="mnb-rename"
        aria-label={label}
        spellcheck={false}
        aria-invalid={reason.value ? "true" : undefined}
        aria-busy={isBusy.value ? "true" : undefined}
        ref={field}
        onKeyDown={press}
        onInput={() => void (isBusy.value = false)}
        onBlur={() => submit(false)}
        onPointerDown={stop}
        onDblClick={stop}
        onContextMenu={stop}
      />
      <small class="mnb-field-problem" role="alert" hidden={!reason.value}>
        {reason.value}
      </small>
    </>
  );
}
