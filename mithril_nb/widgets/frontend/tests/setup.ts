/** What jsdom lacks and the workbench needs, as small as it can be. */

import { Blob as NodeBlob } from "node:buffer";

// jsdom's Blob has no stream to unpack.
globalThis.Blob = NodeBlob as unknown as typeof Blob;

const NOTHING = { x: 0, y: 0, left: 0, top: 0, right: 0, bottom: 0, width: 0, height: 0, toJSON: () => ({}) } as DOMRect;
// Tests of pure modules run without a document.
if (typeof document !== "undefined") {
  // CodeMirror measures text by ranges; jsdom has no layout, so everything measures nothing.
  Range.prototype.getClientRects ??= () => [] as unknown as DOMRectList;
  Range.prototype.getBoundingClientRect ??= () => NOTHING;
  Element.prototype.setPointerCapture ??= () => {};
  Element.prototype.releasePointerCapture ??= () => {};
  globalThis.CSS ??= { escape: (value: string) => value.replace(/[^\w-]/g, (c) => `\\${c}`) } as typeof CSS;

  // A plot needs a canvas, which jsdom has not; it draws only where it has a width, so this is never drawn on.
  HTMLCanvasElement.prototype.getContext = (() => null) as typeof HTMLCanvasElement.prototype.getContext;
  globalThis.matchMedia ??= ((query: string) => ({ matches: false, media: query, addEventListener() {}, removeEventListener() {}, addListener() {}, removeListener() {} })) as unknown as typeof matchMedia;
}
