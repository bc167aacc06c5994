import { expect, test } from "vitest";
import { shortData } from "./short-data";
import { FakeSession } from "../dev/fake-model";
import { mount } from "../src/dom/view";
import type { DeviceChoice, MissingCompiler as Missing } from "../src/kernel/contract";
import { Kernel } from "../src/kernel/kernel";
import { DeviceMenu, MissingCompiler } from "../src/shell/device";
import { Store } from "../src/store/store";
import { finderIn } from "./find";

const CHOICE: DeviceChoice = {
  name: "cpu",
  first: "cpu",
  local: "cpu",
  choices: [
    { name: "h100", title: "NVIDIA H100", memory_bytes: 80 * 2 ** 30, topologies: ["2", "8"], needs_bytes: 5e8 },
    { name: "v5e", title: "TPU v5e", memory_bytes: 16 * 2 ** 30, topologies: ["2x2", "4x4"], needs_bytes: 0 },
  ],
  fixed: "",
  missing: null,
  is_compiling: false,
  facts: [],
};
const MISSING: Missing = {
  device: "h100",
  problem: { code: "", summary: "h100 needs a compiler.", facts: [], advice: "", block: "", port: "", edge: null },
  can_install: true,
  progress: "",
  share: null,
};

function shown(choice: Partial<DeviceChoice>) {
  localStorage.clear();
  const session = new FakeSession(shortData(4));
  const store = new Store({ ...shortData(4).snapshot, device: { ...CHOICE, ...choice } }, new Kernel(session));
  const sent: [string, unknown][] = [];
  store.kernel.send = (name, args) => {
    sent.push([name, args["device"]]);
    return Promise.resolve({ id: 1, ok: true, error: null });
  };
  const [menu, bar] = [mount(<DeviceMenu store={store} />), mount(<MissingCompiler store={store} />)];
  document.body.replaceChildren(menu.root, bar.root);
  const change = (device: Partial<DeviceChoice>) =>
    store.takeSnapshot({ ...store.snapshot, device: { ...store.snapshot.device, ...device } });
  return { find: finderIn(() => document.body), store, sent, change };
}

const rows = () => [...document.querySelectorAll('[role="option"]')].map(({ textContent }) => textContent);
const key = (on: Element, key: string) => on.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));

function type(input: HTMLInputElement, text: string): void {
  input.value = text;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}

test("lists devices, and topologies of the typed or current one", () => {
  const { find, sent } = shown({});
  const button = find('[data-mnb-action="device"]');
  button.click();
  expect(rows()).toEqual(["cputhis machine, ready", "h10080 GiB, needs a compiler of 500 MB", "v5e16 GiB, ready"]);
  const input = find<HTMLInputElement>('[role="combobox"]');
  type(input, "tpu");
  expect(rows()).toEqual(["v5e16 GiB, ready", "v5e:2x2TPU v5e", "v5e:4x4TPU v5e"]);
  key(input, "ArrowDown");
  key(input, "Enter");
  expect(document.activeElement).toBe(button);
  key(button, "ArrowDown");
  type(input, "h100:4x2");
  key(input, "Enter");
  expect(sent).toEqual([
    ["choose_device", "v5e:2x2"],
    ["choose_device", "h100:4x2"],
  ]);
});

test.each([
  [16, "16 GiB"],
  [17.5, "17.5 GiB"],
  [100, "100 GiB"],
  [120, "120 GiB"],
  [1024, "1024 GiB"],
])("memory of %s GiB", (size, text) => {
  const { find } = shown({ choices: [{ ...CHOICE.choices[1]!, memory_bytes: size * 2 ** 30 }] });
  find('[data-mnb-action="device"]').click();
  expect(rows()[1]).toBe(`v5e${text}, ready`);
});

test("remembers the choice while the code has the same device", () => {
  const { change, store } = shown({});
  change({ name: "v5e" });
  expect([store.memory.get("device, in code cpu", ""), store.memory.get("device, in code h100", "")]).toEqual([
    "v5e",
    "",
  ]);
});

test("is disabled with the reason", () => {
  const { find } = shown({ fixed: "this program was given as text" });
  const button = find('[data-mnb-action="device"]');
  button.click();
  expect([button.getAttribute("aria-disabled"), button.title.includes("given as text"), rows()]).toEqual([
    "true",
    true,
    [],
  ]);
});

test("installs a compiler, and keeps the focus", () => {
  const { find, sent, change } = shown({ missing: MISSING });
  const [bar, install] = [find('[data-mnb-part="missing-compiler"]'), find('[data-mnb-action="device.install"]')];
  expect([bar.hidden, find('[role="alert"]').textContent]).toEqual([false, "h100 needs a compiler."]);
  install.focus();
  install.click();
  change({ missing: { ...MISSING, progress: "Downloading", share: 0.25 } });
  expect(find<HTMLProgressElement>("progress").value).toBe(0.25);
  expect([bar.textContent!.includes("Downloading: 25.0 %"), document.activeElement]).toEqual([true, install]);
  change({ missing: null, name: "h100" });
  expect([bar.hidden, document.activeElement]).toEqual([true, find('[data-mnb-action="device"]')]);
  expect(sent).toEqual([["install_compiler", undefined]]);
});

test("shows why there is no compiler to install, without a button", () => {
  const problem = { ...MISSING.problem, summary: "JAX 0.9 names no compiler for cuda." };
  const { find } = shown({ missing: { ...MISSING, problem, can_install: false } });
  expect(find('[role="alert"]').textContent).toBe(problem.summary);
  expect(find('[data-mnb-action="device.install"]').hidden).toBe(true);
  expect(find('[data-mnb-action="device.dismiss"]').hidden).toBe(false);
});
