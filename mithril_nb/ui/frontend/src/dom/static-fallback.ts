/** Hides the static fallback of a widget, which is in a separate output, while the widget is mounted. */

const VARIABLE = "--mnb-twin";

/**
 * Hide the static fallbacks beside `el`, and return a function that shows them again. In hosts without a known output
 * container, all fallbacks of the page are hidden.
 */
export function hideFallback(el: HTMLElement): () => void {
  let container: HTMLElement | null = null;
  let ended = false;
  const count = (change: number) => {
    const lives = Number(container!.dataset["mnbLives"] ?? 0) + change;
    container!.dataset["mnbLives"] = String(lives);
    if (lives > 0) container!.style.setProperty(VARIABLE, "none");
    else container!.style.removeProperty(VARIABLE);
  };
  // Widgets can be mounted before they are attached; look for the container in the next frame.
  requestAnimationFrame(() => {
    if (ended) return;
    container = el.closest<HTMLElement>(".jp-OutputArea") ?? document.documentElement;
    count(1);
  });
  return () => {
    ended = true;
    if (container) count(-1);
  };
}
