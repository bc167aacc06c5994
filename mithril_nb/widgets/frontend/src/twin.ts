/** Hides the static twin of a widget, which stands in an output beside it, while the widget lives. */

const VARIABLE = "--mnb-twin";

/**
 * Hide the twins beside `el`; returns how to show them again. Where the outputs of a cell have no home of their own that
 * is known, the page is it.
 */
export function hideTwin(el: HTMLElement): () => void {
  let home: HTMLElement | null = null;
  let ended = false;
  const count = (change: number): void => {
    const lives = Number(home!.dataset["mnbLives"] ?? 0) + change;
    home!.dataset["mnbLives"] = String(lives);
    if (lives > 0) home!.style.setProperty(VARIABLE, "none");
    else home!.style.removeProperty(VARIABLE);
  };
  // An element may be mounted before it is attached: where it stands is known a moment later.
  requestAnimationFrame(() => {
    if (ended) return;
    home = el.closest<HTMLElement>(".jp-OutputArea") ?? document.documentElement;
    count(1);
  });
  return () => {
    ended = true;
    if (home) count(-1);
  };
}
