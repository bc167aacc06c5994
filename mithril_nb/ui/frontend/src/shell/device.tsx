/** The device that the program is compiled for: its menu, and the compiler that it needs. */

import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Problem } from "../controls/diagnostic";
import { Picker } from "../controls/picker";
import { focusedAt } from "../dom/dom";
import { hasModifier, handled } from "../dom/events";
import { percent, si } from "../dom/format";
import { Button, useElapsed, useStart } from "../dom/view";
import type { DeviceChoice, DeviceEntry } from "../kernel/contract";
import type { Store } from "../store/store";

type Row = Pick<DeviceEntry, "name" | "title"> & { detail: string };

function gigabytes(bytes: number): string {
  const size = bytes / 2 ** 30;
  return `${size < 100 ? Number(size.toPrecision(3)) : Math.round(size)} GiB`;
}

function rowsOf({ local, choices }: DeviceChoice): Row[] {
  const here = { name: local, title: `${local}: this machine`, detail: "this machine, ready" };
  return [here].concat(
    choices.flatMap(({ name, title, memory_bytes: memory, topologies, needs_bytes: needs }) => {
      const state = needs ? `needs a compiler of ${si(needs, "B")}` : "ready";
      const detail = [memory && gigabytes(memory), state].filter(Boolean).join(", ");
      const meshes = topologies.map((topology) => ({ name: `${name}:${topology}`, title, detail: title }));
      return [{ name, title, detail }, ...meshes];
    }),
  );
}

/** A button with the name of the device, and the menu of all devices. */
export function DeviceMenu({ store }: { store: Store }) {
  // A notebook that an earlier version saved has no device.
  return store.snapshot.device ? <Menu store={store} device={store.snapshot.device} /> : null;
}

function Menu({ store, device }: { store: Store; device: DeviceChoice }) {
  const { name, first, fixed, facts, missing } = device;
  const rows = useSignal<Row[] | null>(null);
  const button = useRef<HTMLButtonElement>(null);
  const isCompiling = device.is_compiling && !store.kernel.isGone;
  const clock = useElapsed(isCompiling);
  const choose = (device: string) => void store.command("choose_device", { device });
  // After another choice in the code, the remembered one does not apply.
  const remembered = `device, in code ${first}`;
  const seen = useRef(name);
  useStart(() => {
    const before = store.memory.get(remembered, name);
    // After a reload of the page, the kernel still has the choice.
    if (before !== name && name === first && !fixed) void store.kernel.send("choose_device", { device: before });
  });
  useLayoutEffect(() => {
    if (name !== seen.current) store.memory.set(remembered, name);
    seen.current = name;
  }, [name]);
  const off = fixed || (store.kernel.isGone ? "Not connected to the kernel" : "");
  const toggle = () => void (rows.value = rows.value || off ? null : rowsOf(device));
  const title = device.choices.find((choice) => choice.name === name.split(":")[0])?.title ?? "this machine";
  return (
    <span class="mnb-device">
      <span class="mnb-muted">device</span>
      <Button
        class="mnb-select"
        aria-haspopup="listbox"
        aria-expanded={rows.value !== null}
        aria-label={`Device: ${name}`}
        title={[`Compiled for ${title}`, ...facts, off].filter(Boolean).join("\n")}
        action="device"
        off={off !== ""}
        ref={button}
        // A press on the button would close the menu by its blur, and the click would open it again.
        onPointerDown={(event) => rows.value && event.preventDefault()}
        onClick={toggle}
        onKeyDown={(event) => {
          if (event.key !== "ArrowDown" || hasModifier(event)) return;
          handled(event);
          toggle();
        }}
      >
        {name}
      </Button>
      <Picker
        label="Devices"
        noun="device"
        look="mnb-outline"
        items={rows.value}
        matches={(row, needle) =>
          needle
            ? `${row.name} ${row.title}`.toLowerCase().includes(needle)
            : !row.name.includes(":") || row.name.startsWith(`${name.split(":")[0]}:`)
        }
        isHere={(row) => row.name === name}
        rowOf={(row) => ({
          label: row.name,
          title: row.title,
          detail: row.detail,
          depth: row.name.includes(":") ? 1 : 0,
        })}
        choose={(row) => choose(row.name)}
        enter={choose}
        close={(byKey) => {
          rows.value = null;
          if (byKey) button.current!.focus();
        }}
      />
      <span class="mnb-badge" role="status" hidden={!clock}>
        {clock && `Compiling: ${clock}`}
      </span>
      <Button
        class="mnb-toggle mnb-toggle-small"
        action="device.cancel"
        title="Go back to the device before"
        hidden={!clock || missing !== null}
        onClick={() => {
          button.current!.focus();
          void store.command("cancel_device");
        }}
      >
        cancel
      </Button>
    </span>
  );
}

/** The compiler that the chosen device needs: why it is missing, and its installation. */
export function MissingCompiler({ store }: { store: Store }) {
  const missing = store.snapshot.device?.missing;
  const root = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const bar = root.current!;
    if (!missing && bar.contains(focusedAt(bar)))
      bar.parentElement!.querySelector<HTMLElement>('[data-mnb-action="device"]')?.focus();
  }, [!missing]);
  return (
    <div class="mnb-notice mnb-missing" hidden={!missing} data-mnb-part="missing-compiler" ref={root}>
      <div class="mnb-notice-body">
        <div role="alert">{missing && !missing.progress && <Problem problem={missing.problem} />}</div>
        {missing?.progress && (
          <p class="mnb-summary">
            <progress aria-label="Installation" value={missing.share ?? undefined} />
            <span>
              {missing.progress}
              {missing.share !== null && `: ${percent(missing.share)}`}
            </span>
          </p>
        )}
      </div>
      <Button
        action="device.install"
        hidden={!missing?.can_install}
        off={!missing || missing.progress !== ""}
        onClick={() => store.command("install_compiler")}
      >
        {missing?.progress ? "Installing…" : "Install"}
      </Button>
      <Button action="device.dismiss" onClick={() => store.command("cancel_device")}>
        Cancel
      </Button>
    </div>
  );
}
