/** The keyboard focus of a widget: a click anywhere inside takes it, keys stay inside, and a removed element hands it on. */

import { attr } from "./dom";

const STOPS = "button, input, select, summary, [tabindex]";
/** Lumino, which JupyterLab and Notebook are built with, takes no key whose target is in an element with this attribute. */
const MARK = "data-lm-suppress-shortcuts";

/** Whether an element is out of use: removed, hidden or disabled. */
function isOut(element: Element): boolean {
  return !element.isConnected || element.hasAttribute("hidden") || element.matches(":disabled");
}

function isNowhere(): boolean {
  return [null, document.body, document.documentElement].includes(document.activeElement as HTMLElement | null);
}

/** Whether a key saves the notebook: the one key that the host receives from inside a widget. Lumino compares `keyCode`. */
export function isSaveKey(event: KeyboardEvent): boolean {
  return (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && (event.key.toLowerCase() === "s" || event.keyCode === 83);
}

/** The elements that hold the focus inside `root`, from the innermost outwards, `root` excluded. */
function pathOf(event: Event, root: Element): Element[] {
  const path = event.composedPath();
  return path.slice(0, path.indexOf(root)).filter((one) => one instanceof Element);
}

/** The element that takes over the focus of `path[0]`, which is out of use. */
function heirOf(path: readonly Element[], root: HTMLElement): HTMLElement {
  const isUsable = (element: Element | null | undefined): element is HTMLElement => !!element && root.contains(element) && !element.closest("[hidden]") && !element.matches(":disabled");
  const [lost] = path;
  // An element that was only moved, or created again, gets its focus back.
  const action = lost!.getAttribute("data-mnb-action");
  const same = [lost, action === null ? null : root.querySelector(`[data-mnb-action="${CSS.escape(action)}"]`)].find(isUsable);
  if (same) return same as HTMLElement;
  // After a click the root is enough: a neighbour with an invisible focus would act on the next key.
  if (root.dataset["mnbInput"] === "pointer") return root;
  for (const part of path.slice(1)) {
    const stop = isUsable(part) && [...part.querySelectorAll(`:is(${STOPS}):not([tabindex="-1"])`), ...(part.matches(STOPS) ? [part] : [])].find(isUsable);
    if (stop) return stop;
    if (part.matches("section")) break;
  }
  return [...root.querySelectorAll('[role="tree"] [tabindex="0"]')].find(isUsable) ?? root;
}

/**
 * Keep the keyboard in a widget while the focus is in it.
 *
 * @param root - The widget. It takes the focus of clicks between its controls.
 * @param handle - Handles a key that no part of the widget has taken; returns whether it did.
 * @returns How to stop.
 */
export function holdKeyboard(root: HTMLElement, handle: (event: KeyboardEvent) => boolean = () => false): () => void {
  attr(root, "tabindex", -1);
  attr(root, MARK, "true");
  // Focus rings in the graph are for keys.
  root.addEventListener("pointerdown", () => (root.dataset["mnbInput"] = "pointer"), true);
  root.addEventListener("keydown", () => (root.dataset["mnbInput"] = "keys"), true);
  // The corner that resizes a panel focuses nothing, and a notebook then focuses its cell.
  const take = (): void => void setTimeout(() => path.length || root.contains(document.activeElement) || root.focus({ preventScroll: true }));
  for (const type of ["mousedown", "mouseup"]) root.addEventListener(type, take, true);
  root.addEventListener("keydown", (event) => {
    if (isSaveKey(event)) return;
    if (handle(event)) event.preventDefault();
    // JupyterLab and Notebook listen further out (A, B, D D, Enter, Ctrl+Z, ...).
    event.stopPropagation();
  });
  for (const type of ["keyup", "keypress"]) root.addEventListener(type, (event) => event.stopPropagation());
  // `disabled` would drop the focus, and send clicks and keys to the notebook: buttons are disabled for us alone.
  root.addEventListener("click", (event) => (event.target as Element).closest('[aria-disabled="true"]') && event.stopImmediatePropagation(), true);

  /** The focused element and its parents; empty while the focus is outside. */
  let path: Element[] = [];
  const recover = (): void => {
    if (path.length && root.isConnected && (isNowhere() || path.some(isOut))) heirOf(path, root).focus({ preventScroll: true });
  };
  const leave = (event: Event): void => {
    if (!event.composedPath().includes(root)) path = [];
  };
  root.addEventListener("focusin", (event) => {
    path = pathOf(event, root);
    // Notebook 7 handles keys before any listener of ours. It leaves out only a focused element that is marked itself.
    (event.target as Element).setAttribute(MARK, "true");
  });
  // Lumino looks for the marks in the capture phase on the document: before it they are taken off, after it they are put back.
  let unmarked: Element[] = [];
  const mark = (): void => {
    for (const element of unmarked) element.setAttribute(MARK, "true");
    unmarked = [];
  };
  const letSave = (event: KeyboardEvent): void => {
    mark();
    if (!isSaveKey(event) || !event.composedPath().includes(root)) return;
    unmarked = [...pathOf(event, root), root].filter((element) => element.hasAttribute(MARK));
    for (const element of unmarked) element.removeAttribute(MARK);
    setTimeout(mark);
  };
  window.addEventListener("keydown", letSave, true);
  root.addEventListener("focusout", () =>
    setTimeout(() => {
      if (!isNowhere()) return;
      if (path[0] && !path[0].isConnected) recover();
      else path = []; // it went to the browser's own controls, say: no later change may fetch it back
    }),
  );
  document.addEventListener("focusin", leave, true);
  document.addEventListener("pointerdown", leave, true);
  const observer = new MutationObserver(recover);
  observer.observe(root, { childList: true, subtree: true, attributes: true, attributeFilter: ["hidden", "disabled"] });
  return () => {
    observer.disconnect();
    window.removeEventListener("keydown", letSave, true);
    document.removeEventListener("focusin", leave, true);
    document.removeEventListener("pointerdown", leave, true);
  };
}
