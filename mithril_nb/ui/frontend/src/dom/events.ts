/** What the handlers of events share. */

/** Return whether Ctrl, Cmd or Alt is pressed: such a key belongs to the browser, the host or a command. */
export function hasModifier({ ctrlKey, metaKey, altKey }: KeyboardEvent): boolean {
  return ctrlKey || metaKey || altKey;
}

/** Prevent the default of an event that no other part may handle. */
export function handled(event: Event): void {
  event.preventDefault();
  event.stopPropagation();
}

/**
 * Follow a pressed pointer until it is released or the browser takes it, as for a scroll. While it is captured, all its
 * events arrive at `element`.
 */
export function followPointer(
  element: HTMLElement,
  { pointerId }: PointerEvent,
  move: (event: PointerEvent) => void,
  done: (event: PointerEvent, isReleased: boolean) => void = () => {},
): void {
  element.setPointerCapture(pointerId);
  const end = new AbortController();
  element.addEventListener("pointermove", move, end);
  for (const type of ["pointerup", "pointercancel"] as const)
    element.addEventListener(
      type,
      (event) => {
        end.abort();
        done(event, type === "pointerup");
      },
      end,
    );
}

/** Call a function with each size of an element, and at first. Return a function that ends this. */
export function watchSize(element: Element, changed: () => void): () => void {
  if (typeof ResizeObserver === "undefined") return () => {};
  const watcher = new ResizeObserver(changed);
  watcher.observe(element);
  return () => watcher.disconnect();
}
