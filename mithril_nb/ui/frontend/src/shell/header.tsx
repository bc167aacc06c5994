/** The header: model name, program, shapes, undo, redo, layout presets and search. */

import { focusedAt } from "../dom/dom";
import { batch, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Button, IconButton, Select } from "../dom/view";
import type { Store } from "../store/store";
import { DeviceMenu } from "./device";

/** Parse "32, 64" or "batch, 64" as a shape; the kernel validates it. */
export function readShape(value: string): (number | string)[] {
  const parts = value
    .replace(/[()[\]]/g, " ")
    .split(/[\s,×]+/)
    .filter(Boolean);
  return parts.map((part) => (/^\d+$/.test(part) ? Number(part) : part));
}

/** The right end of a header, one element: in narrow widgets the search shrinks before it wraps. */
export function HeaderEnd({ showHelp, children }: { showHelp: () => void; children: ComponentChildren }) {
  return (
    <span class="mnb-header-end">
      {children}
      <Button
        class="mnb-button mnb-icon-button"
        aria-label="Keyboard shortcuts"
        title="Keyboard shortcuts (?)"
        action="help"
        onClick={showHelp}
      >
        ?
      </Button>
    </span>
  );
}

export function ShapeField({ store, port }: { store: Store; port: string }) {
  const input = useRef<HTMLInputElement>(null);
  /** The typed text, until the kernel accepts it. */
  const draft = useSignal<string | null>(null);
  const isSent = useSignal(false);
  const reason = useSignal("");
  const { snapshot } = store;
  const shape = snapshot.shapes[port]!.join(", ");
  const placeholder = shape ? undefined : "32, 64";
  useLayoutEffect(() => {
    const isTyping = draft.value !== null && focusedAt(input.current!) === input.current;
    if (!isTyping && !isSent.value) batch(() => ([draft.value, reason.value] = [null, ""]));
  }, [snapshot]);
  const commit = (): void => {
    if (draft.value === null || isSent.value) return;
    const sizes = readShape(draft.value);
    if (!sizes.length) return void (reason.value = "Enter at least one size, such as 32, 64.");
    isSent.value = true;
    void store.kernel.send("set_shape", { name: port, shape: sizes }).then(({ ok, error }) => {
      if (!isSent.value) return; // the user kept typing, so the field is newer than the reply
      batch(() => {
        isSent.value = false;
        if (ok) draft.value = null;
        reason.value = error ? [error.summary, ...error.facts.map((fact) => fact.join(": "))].join("\n") : "";
      });
    });
  };
  return (
    <label class="mnb-labelled">
      <span title={port}>{port}</span>
      <input
        type="text"
        class="mnb-input mnb-shape"
        aria-label={`Shape of ${port}`}
        aria-invalid={reason.value ? "true" : undefined}
        data-mnb-shape={port}
        autocomplete="off"
        spellcheck={false}
        title={reason.value || "Axis sizes as numbers or names, such as batch, 64"}
        placeholder={placeholder}
        style={{ width: `${(shape || placeholder!).length + 3}ch` }}
        value={draft.value ?? shape}
        ref={input}
        onInput={(event) => batch(() => ([draft.value, isSent.value] = [event.currentTarget.value, false]))}
        onChange={commit}
        onKeyDown={(event) => event.key === "Enter" && commit()}
      />
      <small class="mnb-field-problem" role="alert" hidden={!reason.value}>
        {reason.value.split("\n")[0]}
      </small>
    </label>
  );
}

/** Undo or redo, with the name of the edit. */
function Step({
  store,
  name,
  keys,
  is,
  of,
}: {
  store: Store;
  name: "undo" | "redo";
  keys: string;
  is: boolean;
  of: string;
}) {
  const title = name === "undo" ? "Undo" : "Redo";
  const label = `${title}${is && of ? `: ${of}` : ""} (${keys})`;
  const send = (): void => void store.command(name);
  return <IconButton icon={name} label={label} action={name} off={!is} onClick={send} />;
}

interface HeaderProps {
  store: Store;
  presets: ComponentChildren;
  showHelp: () => void;
  children: ComponentChildren;
}

export function Header({ store, presets, showHelp, children }: HeaderProps) {
  const { snapshot } = store;
  const { name, backend, program, programs, output, outputs, program_note: note } = snapshot;
  const choose = (output: string): void => void (output && store.command("set_output", { output }));
  return (
    <div class="mnb-header" role="group" aria-label="Model, program and shapes">
      <b class="mnb-model-name" title={name}>
        {name}
      </b>
      <span class="mnb-backend">{backend}</span>
      <DeviceMenu store={store} />
      <label class="mnb-labelled">
        <span>program</span>
        <Select
          aria-label="Program"
          action="program"
          values={programs}
          value={program}
          pick={(program) => void store.command("set_program", { program })}
        />
      </label>
      <label class="mnb-labelled" hidden={outputs.length < 2}>
        <span>output</span>
        <Select
          aria-label="Output to train on"
          action="output"
          values={output ? outputs : ["", ...outputs]}
          value={output}
          pick={choose}
        />
      </label>
      <span class="mnb-shapes">
        {Object.keys(snapshot.shapes).map((port) => (
          <ShapeField key={port} store={store} port={port} />
        ))}
      </span>
      <span class="mnb-row">
        <Step store={store} name="undo" keys="Ctrl+Z" is={snapshot.can_undo} of={snapshot.undo_label} />
        <Step store={store} name="redo" keys="Ctrl+Shift+Z" is={snapshot.can_redo} of={snapshot.redo_label} />
      </span>
      <span class="mnb-badge mnb-program-note" role="status" hidden={!note}>
        {note && `Program ${program}: ${note}.`}
      </span>
      {presets}
      <HeaderEnd showHelp={showHelp}>{children}</HeaderEnd>
    </div>
  );
}
