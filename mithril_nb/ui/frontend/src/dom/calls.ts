/** Coalesce calls into one before the next frame. Nothing runs while the page is hidden. */
export function oncePerFrame(work: () => void): () => void {
  let queued = false;
  return () => {
    if (queued) return;
    queued = true;
    requestAnimationFrame(() => {
      queued = false;
      work();
    });
  };
}

/** Return a function that calls all of these. */
export function together(...calls: readonly (() => void)[]): () => void {
  return () => {
    for (const call of calls) call();
  };
}
