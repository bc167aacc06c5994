/** Minimal stand-ins for browser features that jsdom lacks. */

import { Blob as NodeBlob } from "node:buffer";
import { beforeEach, vi } from "vitest";

// Layouts are remembered by the browser.
beforeEach(() => globalThis.localStorage?.clear());

// The default of one second is too short for a busy machine.
const { waitFor } = vi;
vi.waitFor = (look, options = { timeout: 10_000 }) => waitFor(look, options);

// jsdom's Blob has no stream().
globalThis.Blob = NodeBlob as unknown as typeof Blob;

const NOTHING = {
  x: 0,
  y: 0,
  left: 0,
  top: 0,
  right: 0,
  bottom: 0,
  width: 0,
  height: 0,
  toJSON: () => ({}),
} as DOMRect;
// Tests of pure modules run without a document.
if (typeof document !== "undefined") {
  // CodeMirror measures text with ranges. jsdom has no layout, so all sizes are 0.
  Range.prototype.getClientRects ??= () => [] as unknown as DOMRectList;
  Range.prototype.getBoundingClientRect ??= () => NOTHING;
  Element.prototype.setPointerCapture ??= () => {};
  Element.prototype.releasePointerCapture ??= () => {};
  globalThis.CSS ??= { escape: (value: string) => value.replace(/[^\w-]/g, (c) => `\\${c}`) } as typeof CSS;

  // Plots need a canvas, which jsdom lacks. Plots of width 0 draw nothing, so null is enough.
  HTMLCanvasElement.prototype.getContext = (() => null) as typeof HTMLCanvasElement.prototype.getContext;
  globalThis.matchMedia ??= ((query: string) => ({
    matches: false,
    media: query,
    addEventListener() {},
    removeEventListener() {},
    addListener() {},
    removeListener() {},
  })) as unknown as typeof matchMedia;
}
