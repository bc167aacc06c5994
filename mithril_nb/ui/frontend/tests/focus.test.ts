import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { openMenu } from "../src/controls/menu";
import { h } from "../src/dom/dom";
import { holdKeyboard } from "../src/dom/focus";

/** Longer than a mutation observer plus a timeout of 0. */
const settled = (): Promise<unknown> => new Promise((resolve) => setTimeout(resolve, 5));

test("a menu whose way back is gone is removed once", () => {
  // Chromium sends `focusout` while it removes an element with the focus, and fails if a listener removes it, too.
  const remove = vi.spyOn(Element.prototype, "remove").mockImplementation(function (this: Element) {
    if (this.contains(document.activeElement)) this.dispatchEvent(new FocusEvent("focusout", { bubbles: true }));
    if (!this.parentNode) throw new Error("The node to be removed is no longer a child of this node.");
    this.parentNode.removeChild(this);
  });
  const frame = h("div");
  document.body.append(frame);
  const act = vi.fn();
  openMenu(frame, "Actions", [{ title: "Delete", act }], 0, 0, () => undefined);
  const item = frame.querySelector<HTMLElement>('[role="menuitem"]')!;
  item.focus();
  item.click();
  expect(act).toHaveBeenCalledOnce();
  expect(frame.children).toHaveLength(0);
  remove.mockRestore();
  frame.remove();
});

describe("the focus of a widget", () => {
  let root: HTMLElement;
  let section: HTMLElement;
  let first: HTMLElement;
  let second: HTMLElement;
  let letGo: () => void;
  const button = (action: string): HTMLElement => h("button", { type: "button", "data-mnb-action": action }, action);
  const input = (kind: "pointerdown" | "keydown"): boolean => root.dispatchEvent(new Event(kind));
  const focused = (): Element | null => document.activeElement;
  beforeEach(() => {
    [first, second] = [button("first"), button("second")];
    section = h("section", {}, first, h("span", {}, second));
    root = h("div", {}, section, h("div", { role: "tree" }, h("div", { role: "treeitem", tabindex: 0 }, "block")));
    document.body.append(root);
    letGo = holdKeyboard(root);
    input("keydown");
  });
  afterEach(() => {
    letGo();
    root.remove();
  });

  test.each([
    ["removed", () => second.remove()],
    ["hidden", () => (second.hidden = true)],
    ["disabled", () => second.setAttribute("disabled", "")],
    ["in a part that is hidden", () => (second.parentElement!.hidden = true)],
  ])("goes to a neighbour when the element is %s, after a click to the root", async (_, lose) => {
    second.focus();
    lose();
    await settled();
    expect(focused()).toBe(first);
    section.append(second);
    for (const part of [second, second.parentElement!]) part.hidden = false;
    second.removeAttribute("disabled");
    second.focus();
    input("pointerdown");
    second.remove();
    await settled();
    expect(focused()).toBe(root);
  });

  test("goes to a neighbour when a style hides the element", async () => {
    second.focus();
    second.checkVisibility = () => false; // jsdom has no layout; a browser removes the focus at the next frame
    second.blur();
    await settled();
    expect(focused()).toBe(first);
  });

  test("moves to the root after a click that focuses nothing", async () => {
    const cell = document.body.appendChild(h("div", { tabindex: -1 }));
    for (const type of ["mousedown", "mouseup"]) {
      cell.focus();
      section.dispatchEvent(new Event(type, { bubbles: true }));
      await settled();
      expect(focused()).toBe(root);
    }
    second.focus();
    section.dispatchEvent(new Event("mousedown", { bubbles: true }));
    await settled();
    expect(focused()).toBe(second);
    cell.remove();
  });

  test("moves to the graph when its section is empty", async () => {
    second.focus();
    section.replaceChildren();
    await settled();
    expect(focused()!.getAttribute("role")).toBe("treeitem");
  });

  test("stays on an element that is moved or recreated", async () => {
    second.focus();
    section.prepend(second);
    await settled();
    expect(focused()).toBe(second);
    input("pointerdown");
    section.replaceChildren(button("first"), button("second"));
    await settled();
    expect((focused() as HTMLElement).dataset["mnbAction"]).toBe("second");
  });

  test("is not taken back from outside", async () => {
    const outside = button("outside");
    document.body.append(outside);
    second.focus();
    outside.focus();
    second.remove();
    await settled();
    expect(focused()).toBe(outside);
    first.focus();
    first.blur(); // as if Tab left the page
    await settled();
    first.remove();
    await settled();
    expect(focused()).toBe(document.body);
    outside.remove();
  });

  test("accepts clicks between controls, ignores disabled ones", () => {
    const heard = vi.fn();
    first.addEventListener("click", heard);
    first.setAttribute("aria-disabled", "true");
    first.click();
    expect(heard).not.toHaveBeenCalled();
    first.removeAttribute("aria-disabled");
    first.click();
    expect(heard).toHaveBeenCalledTimes(1);
    expect(root.tabIndex).toBe(-1);
    second.focus();
    expect(second.dataset["lmSuppressShortcuts"], "Notebook 7 looks at the focused element alone").toBe("true");
  });

  test.each(["keydown", "keyup", "keypress"])("keeps %s inside", (type) => {
    const heard = vi.fn();
    document.addEventListener(type, heard);
    for (const target of [root, second]) target.dispatchEvent(new KeyboardEvent(type, { key: "x", bubbles: true }));
    expect(heard).not.toHaveBeenCalled();
    document.removeEventListener(type, heard);
  });

  test("passes on only the key that saves the notebook", async () => {
    const MARKED = "[data-lm-suppress-shortcuts]";
    second.focus();
    const seen: [string, boolean][] = [];
    const lumino = (event: KeyboardEvent): void =>
      void seen.push([event.key, (event.target as Element).closest(MARKED) !== null]);
    const out = vi.fn();
    document.addEventListener("keydown", lumino, true);
    window.addEventListener("keydown", out);
    const press = (key: string, more: KeyboardEventInit): boolean =>
      second.dispatchEvent(
        new KeyboardEvent("keydown", { key, bubbles: true, composed: true, cancelable: true, ...more }),
      );
    press("s", { ctrlKey: true });
    press("x", { ctrlKey: true }); // within the same event loop turn
    press("s", { metaKey: true });
    await settled();
    expect([root, second].every((one) => one.matches(MARKED))).toBe(true);
    press("s", {});
    press("S", { ctrlKey: true, shiftKey: true });
    press("s", { ctrlKey: true, altKey: true });
    expect(seen).toEqual([
      ["s", false],
      ["x", true],
      ["s", false],
      ["s", true],
      ["S", true],
      ["s", true],
    ]);
    expect(out.mock.calls.map(([event]) => [event.key, event.defaultPrevented])).toEqual([
      ["s", false],
      ["s", false],
    ]);
    document.removeEventListener("keydown", lumino, true);
    window.removeEventListener("keydown", out);
  });
});
