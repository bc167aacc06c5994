/** Keyboard focus of a widget: clicks inside take it, keys stay inside, and a removed element passes it on. */

import { attr } from "./dom";

const STOPS = "button, input, select, summary, [tabindex]";
/** Lumino, used by JupyterLab and Notebook, ignores keys whose target is inside an element with this attribute. */
const MARK = "data-lm-suppress-shortcuts";

/** Return whether an element cannot hold the focus: removed, hidden or disabled. */
function isUnusable(element: Element) {
  return !element.isConnected || element.hasAttribute("hidden") || element.matches(":disabled");
}

/** Return whether a style hides an element, such as one in a closed panel. */
function isUnseen(element: Element) {
  return element.checkVisibility?.({ visibilityProperty: true }) === false; // jsdom has no such method
}

function isNowhere() {
  return [null, document.body, document.documentElement].includes(document.activeElement as HTMLElement | null);
}

/** Return whether a key saves the notebook, the only key passed on to the host. Lumino compares `keyCode`. */
export function isSaveKey(event: KeyboardEvent): boolean {
  return (
    (event.ctrlKey || event.metaKey) &&
    !event.altKey &&
    !event.shiftKey &&
    (event.key.toLowerCase() === "s" || event.keyCode === 83)
  );
}

/** Return the target of an event and its ancestors inside `root`, innermost first, without `root`. */
function pathOf(event: Event, root: Element) {
  const path = event.composedPath();
  return path.slice(0, path.indexOf(root)).filter((one) => one instanceof Element);
}

/** Return the element that takes the focus from `path[0]`, which cannot hold it any more. */
function findNextFocus(path: readonly Element[], root: HTMLElement) {
  const isUsable = (element: Element | null | undefined): element is HTMLElement =>
    !!element &&
    root.contains(element) &&
    !element.closest("[hidden]") &&
    !element.matches(":disabled") &&
    !isUnseen(element);
  const [lost] = path;
  // An element that was moved or recreated gets the focus back.
  const action = lost!.getAttribute("data-mnb-action");
  const same = [lost, action === null ? null : root.querySelector(`[data-mnb-action="${CSS.escape(action)}"]`)].find(
    isUsable,
  );
  if (same) return same as HTMLElement;
  // After a click, and while the user types, focus the root: a neighbour would react to the next key.
  if (root.dataset["mnbInput"] === "pointer" || isWriting(lost!)) return root;
  for (const part of path.slice(1)) {
    const stop =
      isUsable(part) &&
      [...part.querySelectorAll(`:is(${STOPS}):not([tabindex="-1"])`), ...(part.matches(STOPS) ? [part] : [])].find(
        isUsable,
      );
    if (stop) return stop;
    if (part.matches("section")) break;
  }
  return [...root.querySelectorAll('[role="tree"] [tabindex="0"]')].find(isUsable) ?? root;
}

/**
 * Keep the keyboard in a widget while the focus is in it.
 *
 * @param root - The widget. It takes the focus of clicks between its controls.
 * @param handle - Handles a key that no part of the widget has handled; returns whether it did.
 * @returns A function that releases the keyboard.
 */
export function holdKeyboard(root: HTMLElement, handle: (event: KeyboardEvent) => boolean = () => false): () => void {
  attr(root, "tabindex", -1);
  attr(root, MARK, "true");
  // The graph shows focus rings only for keyboard input.
  root.addEventListener("pointerdown", () => (root.dataset["mnbInput"] = "pointer"), true);
  root.addEventListener("keydown", () => (root.dataset["mnbInput"] = "keys"), true);
  // A press on a panel's resize corner focuses nothing, and the notebook would focus its cell.
  const take = (): void =>
    void setTimeout(() => path.length || root.contains(document.activeElement) || root.focus({ preventScroll: true }));
  for (const type of ["mousedown", "mouseup"]) root.addEventListener(type, take, true);
  root.addEventListener("keydown", (event) => {
    if (isSaveKey(event)) return;
    if (handle(event)) event.preventDefault();
    // JupyterLab and Notebook listen on outer elements (A, B, D D, Enter, Ctrl+Z, ...).
    event.stopPropagation();
  });
  // JupyterLab's menu on an outer element would offer "Cut Cell".
  for (const type of ["keyup", "keypress", "contextmenu"])
    root.addEventListener(type, (event) => event.stopPropagation());
  // `disabled` would drop the focus and pass clicks and keys to the notebook, so buttons use `aria-disabled`.
  root.addEventListener(
    "click",
    (event) => (event.target as Element).closest('[aria-disabled="true"]') && event.stopImmediatePropagation(),
    true,
  );

  /** The focused element and its parents; empty while the focus is outside. */
  let path: Element[] = [];
  const pass = () => root.isConnected && findNextFocus(path, root).focus({ preventScroll: true });
  const recover = (changes: readonly MutationRecord[]) => {
    // An element that was moved is usable, but has lost the focus. Any other change must not take the focus back: the
    // user may be moving it, and between `focusout` and `focusin` nothing has it.
    const isMoved =
      isNowhere() && changes.some(({ removedNodes }) => path.some((part) => [...removedNodes].includes(part)));
    if (isMoved || path.some(isUnusable)) pass();
  };
  const leave = (event: Event) => {
    if (!event.composedPath().includes(root)) path = [];
  };
  root.addEventListener("focusin", (event) => {
    path = pathOf(event, root);
    // Notebook 7 handles keys before these listeners. It ignores only a focused element that has the mark itself.
    (event.target as Element).setAttribute(MARK, "true");
  });
  // Lumino checks the marks in the capture phase on the document. Remove them before it, and restore them after it.
  let unmarked: Element[] = [];
  const mark = () => {
    for (const element of unmarked) element.setAttribute(MARK, "true");
    unmarked = [];
  };
  const letSave = (event: KeyboardEvent) => {
    mark();
    if (!isSaveKey(event) || !event.composedPath().includes(root)) return;
    unmarked = [...pathOf(event, root), root].filter((element) => element.hasAttribute(MARK));
    for (const element of unmarked) element.removeAttribute(MARK);
    setTimeout(mark);
  };
  window.addEventListener("keydown", letSave, true);
  // Before the listeners inside, which may hide or remove what had the focus. `focusout` is first, but does not arrive
  // here if a listener of `blur` removes the element.
  for (const type of ["focusout", "blur"] as const)
    root.addEventListener(
      type,
      (event) => {
        if (event.relatedTarget) path = [];
        setTimeout(() => {
          if (!isNowhere()) return;
          if (path[0] && (!path[0].isConnected || isUnseen(path[0]))) pass();
          else path = []; // the focus left the page, for example to the browser's controls: do not take it back later
        });
      },
      true,
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

/** Return whether the target is a text field, an editor or a menu. A read-only code pane is not. */
export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof Element)) return false;
  if (target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return true;
  if (target.matches('[contenteditable="true"]:not([aria-readonly="true"])')) return true;
  return target instanceof HTMLInputElement && !["range", "checkbox", "button"].includes(target.type);
}

/**
 * Return whether the user writes in an element, so that the next letter is not a shortcut even if the element is gone.
 */
export function isWriting(element: Element | null): boolean {
  return isTyping(element) && !element!.hasAttribute("aria-busy");
}
