/** Work that a burst of news asks for many times, done once before the next frame is drawn; never while the page is hidden. */
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
