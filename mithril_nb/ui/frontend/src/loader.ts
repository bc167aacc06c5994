/** The small module of each widget: waits for the shared bundle, then mounts the widget. */

declare const __MNB_KEY__: string;

const PATIENCE_MS = 10_000;

export function renderWith(mount: "mountWorkbench" | "mountExplorer" | "mountCurves") {
  return ({ model, el }: { model: unknown; el: HTMLElement }): (() => void) => {
    let cleanup: (() => void) | undefined;
    let warning: HTMLElement | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const cancel = () => {
      clearTimeout(timer);
      warning?.remove();
    };
    const start = () => {
      const api = (globalThis as any)[__MNB_KEY__];
      if (!api || cleanup) return !!cleanup;
      cancel();
      cleanup = api[mount]({ model, el });
      return true;
    };
    if (start()) return () => cleanup?.();
    timer = setTimeout(() => {
      warning = document.createElement("div");
      warning.setAttribute("role", "alert");
      warning.style.padding = "8px";
      warning.textContent =
        "mithril_nb: the shared code of the widgets was not loaded. A hidden widget of the same kernel provides it. " +
        "Try: run the cell of this widget again; after a kernel restart, run the notebook from the top.";
      el.append(warning);
    }, PATIENCE_MS);
    // The bundle may still arrive on a slow connection, or when the cell is run again.
    globalThis.addEventListener(__MNB_KEY__, start);
    return () => {
      cancel();
      globalThis.removeEventListener(__MNB_KEY__, start);
      cleanup?.();
    };
  };
}
