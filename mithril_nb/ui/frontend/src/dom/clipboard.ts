/** Copies text, including on pages without access to the clipboard API (http, iframes). */

export async function copyText(value: string, near: HTMLElement): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(value);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = value;
    area.className = "mnb-offscreen";
    near.append(area);
    area.select();
    const copied = typeof document.execCommand === "function" && document.execCommand("copy");
    area.remove();
    return copied;
  }
}

/** Copy text, and confirm on the button for 1.2 s. */
export async function copyFrom(button: HTMLButtonElement, value: string): Promise<void> {
  const copied = await copyText(value, button.parentElement ?? button);
  button.focus();
  const name = button.getAttribute("aria-label") ?? "";
  button.classList.add(copied ? "mnb-did" : "mnb-failed");
  button.setAttribute("aria-label", copied ? "Copied" : "Copying is not allowed here");
  setTimeout(() => {
    button.classList.remove("mnb-did", "mnb-failed");
    button.setAttribute("aria-label", name);
  }, 1200);
}
