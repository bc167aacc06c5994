/** Follows the theme of the host page. */

import { signal } from "@preact/signals";

export type Theme = "light" | "dark";

/** The theme of the page. */
export const theme = signal<Theme>("light");

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

/** Keep `theme`, and `data-mnb-theme` of a widget, up to date. Return a function that stops. */
export function followTheme(root: HTMLElement): () => void {
  const look = () => {
    theme.value = hostTheme();
    root.dataset["mnbTheme"] = theme.value;
  };
  look();
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
