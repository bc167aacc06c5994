import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { renderWith } from "../src/loader";
import { hostTheme } from "../src/dom/theme";

const KEY = "mithril_nb/test";
let el: HTMLElement;
beforeEach(() => {
  vi.useFakeTimers();
  el = document.createElement("div");
});
afterEach(() => {
  vi.useRealTimers();
  delete (globalThis as any)[KEY];
});

test("a widget mounts at once if the bundle is loaded", () => {
  const gone = vi.fn();
  const mountWorkbench = vi.fn(() => gone);
  (globalThis as any)[KEY] = { mountWorkbench };
  const cleanup = renderWith("mountWorkbench")({ model: 1, el });
  expect(mountWorkbench).toHaveBeenCalledWith({ model: 1, el });
  cleanup();
  expect(gone).toHaveBeenCalledTimes(1);
});

test("a widget warns after ten seconds and mounts later", () => {
  renderWith("mountCurves")({ model: 1, el });
  vi.advanceTimersByTime(9_900);
  expect(el.textContent).toBe("");
  vi.advanceTimersByTime(200);
  expect(el.querySelector('[role="alert"]')!.textContent).toBe(
    "mithril_nb: the shared code of the widgets was not loaded. A hidden widget of the same kernel provides it. " +
      "Try: run the cell of this widget again; after a kernel restart, run the notebook from the top.",
  );
  const mountCurves = vi.fn(() => () => {});
  (globalThis as any)[KEY] = { mountCurves };
  globalThis.dispatchEvent(new Event(KEY));
  globalThis.dispatchEvent(new Event(KEY));
  expect(mountCurves).toHaveBeenCalledTimes(1);
  expect(el.textContent).toBe("");
});

test("a widget mounts without a warning within ten seconds", () => {
  renderWith("mountExplorer")({ model: 1, el });
  vi.advanceTimersByTime(2_000);
  (globalThis as any)[KEY] = { mountExplorer: vi.fn(() => () => {}) };
  globalThis.dispatchEvent(new Event(KEY));
  vi.advanceTimersByTime(20_000);
  expect(el.textContent).toBe("");
});

test("a removed widget never mounts and shows nothing", () => {
  const mountCurves = vi.fn(() => () => {});
  renderWith("mountCurves")({ model: 1, el })();
  (globalThis as any)[KEY] = { mountCurves };
  globalThis.dispatchEvent(new Event(KEY));
  vi.advanceTimersByTime(20_000);
  expect(mountCurves).not.toHaveBeenCalled();
  expect(el.textContent).toBe("");
});

test("the theme follows the host", () => {
  expect(hostTheme()).toBe("light");
  document.body.dataset["jpThemeLight"] = "false";
  expect(hostTheme()).toBe("dark");
  delete document.body.dataset["jpThemeLight"];
  document.body.dataset["vscodeThemeKind"] = "vscode-dark";
  expect(hostTheme()).toBe("dark");
  delete document.body.dataset["vscodeThemeKind"];
});
