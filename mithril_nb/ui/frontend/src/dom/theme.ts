/** Follows the theme of the host page. */

export type Theme = "light" | "dark";

export function hostTheme(): Theme {
  const { body, documentElement } = document;
  const jupyter = body.dataset["jpThemeLight"];
  if (jupyter !== undefined) return jupyter === "false" ? "dark" : "light";
  const vscode = body.dataset["vscodeThemeKind"];
  if (vscode !== undefined) return vscode.includes("dark") || vscode === "vscode-high-contrast" ? "dark" : "light";
  const named = documentElement.dataset["theme"] ?? body.dataset["theme"];
  if (named === "dark" || named === "light") return named;
  if (body.classList.contains("dark") || documentElement.classList.contains("dark")) return "dark";
  return globalThis.matchMedia?.("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

/** Keep `data-mnb-theme` up to date, and call `changed` after each change. Return a function that stops. */
export function followTheme(root: HTMLElement, changed: (theme: Theme) => void): () => void {
  let theme = hostTheme();
  root.dataset["mnbTheme"] = theme;
  const look = (): void => {
    const now = hostTheme();
    if (now === theme) return;
    theme = now;
    root.dataset["mnbTheme"] = theme;
    changed(theme);
  };
  const observer = new MutationObserver(look);
  const watched = {
    attributes: true,
    attributeFilter: ["data-jp-theme-light", "data-vscode-theme-kind", "data-theme", "class"],
  };
  observer.observe(document.body, watched);
  observer.observe(document.documentElement, watched);
  const media = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  media?.addEventListener?.("change", look);
  return () => {
    observer.disconnect();
    media?.removeEventListener?.("change", look);
  };
}
