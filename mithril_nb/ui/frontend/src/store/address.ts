/** A link to a model in the page's address: in a page with nothing but a workbench, the kernel opens it. */

import type { Store } from "./store";

/** Start of the fragment: as in models/saving/serialization.py. */
export const MARK = "#model=";

/** Open the model of the address, now and when the address changes. Returns a function that ends this. */
export function followAddress(root: HTMLElement, store: Store): () => void {
  let sent = "";
  const open = async () => {
    const { hash, pathname, search } = location;
    if (!hash.startsWith(MARK) || hash === sent || !root.closest(".mnb-page")) return;
    sent = hash;
    const reply = await store.command("open_link", { link: hash });
    sent = "";
    // A reload keeps later edits. After an error, the link stays for another try.
    if (reply.ok && location.hash === hash) history.replaceState(history.state, "", pathname + search);
  };
  globalThis.addEventListener("hashchange", open);
  requestAnimationFrame(open); // the classes of the widget are set after it is drawn
  return () => globalThis.removeEventListener("hashchange", open);
}
