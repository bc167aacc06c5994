/** The clipboard of the canvas: selected blocks as Python, which the kernel writes, and reads without running it. */

import { copyText } from "../dom/clipboard";
import { isTyping } from "../dom/focus";
import type { Store } from "../store/store";
import { parentOf } from "./graph";

export function createClipboard(store: Store, root: HTMLElement, request: (paths: string[]) => Promise<string>) {
  for (const [type, act] of [
    ["copy", copy],
    ["cut", cut],
  ] as const)
    root.addEventListener(type, (event) => {
      const hasText = getSelection()?.isCollapsed === false; // such as a part of a problem, which the browser copies
      if (isTyping(event.target) || hasText || !store.selection.length) return;
      event.preventDefault();
      void act();
    });
  root.addEventListener("paste", (event) => {
    const text = event.clipboardData?.getData("text/plain");
    if (isTyping(event.target) || !text) return;
    event.preventDefault();
    paste(text);
  });

  async function copy() {
    const paths = store.selection;
    const focused = document.activeElement as HTMLElement | null;
    try {
      const isCopied = await copyText(await request(paths), root);
      store.outcome = isCopied ? `Copied ${named(paths)} as Python. Paste: Ctrl+V` : "Copying is not allowed here.";
      // Without the clipboard of the browser, copying moves the focus.
      if (document.activeElement === document.body) focused?.focus({ preventScroll: true });
      return isCopied ? paths : [];
    } catch (error) {
      store.outcome = error instanceof Error ? error.message : String(error);
      return [];
    }
  }

  async function cut() {
    const paths = await copy();
    if (paths.length) store.remove(paths);
  }

  /** Add the blocks of Python to the group of the selected blocks. */
  function paste(text: string) {
    void store.command("paste", { text, path: parentOf(store.selection[0] ?? "") }, "Pasted. Undo: Ctrl+Z");
  }

  async function pasteFromMenu() {
    try {
      paste(await navigator.clipboard.readText());
    } catch {
      store.outcome = "The browser lets only the key paste here: Ctrl+V.";
    }
  }

  return { copy, cut, pasteFromMenu };
}

function named(paths: readonly string[]) {
  return paths.length === 1 ? paths[0]! : `${paths.length} blocks`;
}
