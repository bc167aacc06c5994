/** The tiny part that each widget carries: wait for the shared asset, then mount. */

declare const __MNB_KEY__: string;

const PATIENCE_MS = 10_000;

export function renderWith(mount: "mountWorkbench" | "mountExplorer" | "mountCurves") {
  return ({ model, el }: { model: unknown; el: HTMLElement }): (() => void) => {
    let cleanup: (() => void) | undefined;
    let said: HTMLElement | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const beStill = (): void => {
      clearTimeout(timer);
      said?.remove();
    };
    const start = (): boolean => {
      const api = (globalThis as any)[__MNB_KEY__];
      if (!api || cleanup) return !!cleanup;
      beStill();
      cleanup = api[mount]({ model, el });
      return true;
    };
    if (start()) return () => cleanup?.();
    timer = setTimeout(() => {
      said = document.createElement("div");
      said.setAttribute("role", "alert");
      said.style.padding = "8px";
      said.textContent =
        "mithril_nb: the code that all its widgets share has not arrived. It comes with a hidden widget from the same kernel. " +
        "Try: run the cell that made this widget again; after a kernel restart, run the notebook from the top.";
      el.append(said);
    }, PATIENCE_MS);
    // It may still come: on a slow line, or when the cell is run again.
    globalThis.addEventListener(__MNB_KEY__, start);
    return () => {
      beStill();
      globalThis.removeEventListener(__MNB_KEY__, start);
      cleanup?.();
    };
  };
}
