/** A picture of costs drawn by the kernel, in a separate shadow root, with linked blocks and a text version. */

import { handled, hasModifier } from "../dom/events";
import { useSignal } from "@preact/signals";
import { useLayoutEffect } from "preact/hooks";
import type { Tip } from "../controls/tip";
import { attr, h } from "../dom/dom";
import { type Theme, theme } from "../dom/theme";
import { Holder, useElapsed } from "../dom/view";
import type { CostPicture } from "../kernel/contract";
import type { Store } from "../store/store";

/** SVG elements allowed in a picture. */
const DRAWN = new Set([
  "svg",
  "g",
  "rect",
  "path",
  "text",
  "tspan",
  "title",
  "desc",
  "line",
  "circle",
  "ellipse",
  "polygon",
  "polyline",
  "defs",
  "pattern",
  "clipPath",
  "linearGradient",
  "stop",
  "marker",
  "style",
]);
const DARK = /@media\s*\(prefers-color-scheme:\s*dark\)\s*\{/g;

/** Resolve `prefers-color-scheme` rules for a theme: the page's theme may differ from the reader's preference. */
export function themed(css: string, theme: Theme): string {
  let found = "";
  let at = 0;
  for (const match of css.matchAll(DARK)) {
    if (match.index < at) continue;
    const start = match.index + match[0].length;
    let end = start;
    for (let depth = 1; end < css.length && depth > 0; end++) depth += css[end] === "{" ? 1 : css[end] === "}" ? -1 : 0;
    found += css.slice(at, match.index) + (theme === "dark" ? css.slice(start, end - 1) : "");
    at = end;
  }
  return found + css.slice(at);
}

/**
 * Parse a picture into elements of this document. Its names are user data, so only drawing elements are kept, and
 * nothing is fetched.
 */
export function drawingOf(markup: string, theme: Theme): SVGSVGElement | null {
  const parsed = new DOMParser().parseFromString(markup, "image/svg+xml").documentElement;
  if (parsed.nodeName !== "svg") return null;
  const clean = (element: Element) => {
    for (const child of [...element.children]) {
      if (DRAWN.has(child.nodeName)) clean(child);
      else child.remove();
    }
    if (element.nodeName === "style") {
      const css = themed(element.textContent ?? "", theme);
      element.textContent = /@import|url\(\s*(?!['"]?#)/i.test(css) ? "" : css;
    }
    for (const { name, value } of [...element.attributes]) {
      if (name.startsWith("on") || name.endsWith("href") || name === "style" || /url\(\s*(?!['"]?#)/i.test(value))
        element.removeAttribute(name);
    }
  };
  clean(parsed);
  return document.importNode(parsed, true) as unknown as SVGSVGElement;
}

/** Decode a block path in a picture, where reserved characters are written %XX. */
export function pathOfKey(key: string): string {
  try {
    return decodeURIComponent(key.replace(/%(?![0-9A-Fa-f]{2})/g, "%25"));
  } catch {
    return key;
  }
}

const SHAPES = "rect, path, circle, polygon";
const PICTURE_CSS = `
:host { display: block; }
:host svg.mnb-cost {
  --ground: var(--mnb-bg); --ink: var(--mnb-ink);
  display: block; max-width: 100%; height: auto; font-family: var(--mnb-ui);
}
[data-block] { cursor: pointer; outline: none; }
.mnb-hovered > :is(${SHAPES}), :is(${SHAPES}).mnb-hovered { stroke: var(--mnb-accent); stroke-width: 2; }
.mnb-pinned > :is(${SHAPES}), :is(${SHAPES}).mnb-pinned { stroke: var(--mnb-accent); stroke-width: 3; }
:focus-visible > :is(${SHAPES}), :is(${SHAPES}):focus-visible { stroke: var(--mnb-focus); stroke-width: 3; }
`;

/** A drawing whose blocks react to the pointer and the keyboard. */
export function createDrawing(store: Store, tip: Tip, open: (block: string) => void) {
  const root = h("div", { class: "mnb-drawing" });
  let marks: SVGElement[] = [];
  let picture: SVGSVGElement | null = null;
  const shadow = root.attachShadow({ mode: "open" });
  shadow.append(h("style", {}, PICTURE_CSS));
  shadow.addEventListener("pointerover", (event) => hover(event as PointerEvent));
  root.addEventListener("pointerleave", () => {
    store.setHover([]);
    tip.hide();
  });
  shadow.addEventListener("click", (event) => click(event as MouseEvent));
  shadow.addEventListener("dblclick", (event) => {
    const mark = markAt(event.target);
    if (mark) open(blockOf(mark));
  });
  shadow.addEventListener("keydown", (event) => key(event as KeyboardEvent));
  const destroy = store.on("links", paintLinks);

  /** Show a drawing; return whether it could be parsed. */
  function show(markup: string, theme: Theme) {
    const focusedBlock = (shadow.activeElement as SVGElement | null)?.dataset["block"];
    picture?.remove();
    picture = markup ? drawingOf(markup, theme) : null;
    marks = [];
    if (!picture) return false;
    for (const mark of picture.querySelectorAll<SVGElement>("[data-block]")) {
      const title = mark.querySelector(":scope > title");
      const label = title?.textContent?.trim() || pathOfKey(mark.dataset["block"]!);
      title?.remove(); // the widget's tooltip replaces it
      attr(mark, "aria-label", label.replace(/\s*\n\s*/g, ", "));
      mark.dataset["label"] = label;
      attr(mark, "role", "button");
      attr(mark, "tabindex", marks.length ? -1 : 0);
      marks.push(mark);
    }
    // Screen readers do not expose the children of role "img".
    if (marks.length) attr(picture, "role", "group");
    shadow.append(picture);
    const next =
      focusedBlock === undefined ? null : (marks.find((mark) => mark.dataset["block"] === focusedBlock) ?? marks[0]);
    if (next) focus(next);
    paintLinks();
    return true;
  }

  function markAt(target: EventTarget | null) {
    return (target as Element | null)?.closest?.<SVGElement>("[data-block]") ?? null;
  }

  function blockOf(mark: SVGElement) {
    return pathOfKey(mark.dataset["block"]!) || "(unattributed)";
  }

  function hover(event: PointerEvent) {
    const mark = markAt(event.target);
    store.setHover(mark ? [{ kind: "block", path: blockOf(mark) }] : []);
    if (!mark || event.buttons !== 0) return tip.hide();
    tip.later(mark.dataset["label"]!.split("\n"), event.clientX, event.clientY);
  }

  function click(event: MouseEvent) {
    const mark = markAt(event.target);
    tip.hide();
    if (mark) {
      focus(mark);
      store.pinBlocks([blockOf(mark)], event.shiftKey);
    } else if (!event.shiftKey) store.pin([]);
  }

  function focus(mark: SVGElement) {
    for (const one of marks) attr(one, "tabindex", one === mark ? 0 : -1);
    mark.focus({ preventScroll: true });
  }

  function key(event: KeyboardEvent) {
    const mark = markAt(event.target);
    if (!mark || hasModifier(event)) return;
    const at = marks.indexOf(mark);
    const to = {
      ArrowRight: at + 1,
      ArrowDown: at + 1,
      ArrowLeft: at - 1,
      ArrowUp: at - 1,
      Home: 0,
      End: marks.length - 1,
    }[event.key];
    if (to !== undefined) {
      const next = marks[Math.max(0, Math.min(to, marks.length - 1))]!;
      focus(next);
      store.setHover([{ kind: "block", path: blockOf(next) }]);
    } else if (event.key === "Enter" || event.key === " ") store.pinBlocks([blockOf(mark)], event.shiftKey);
    else return;
    handled(event);
  }

  function paintLinks() {
    const { hoverLinks, pinLinks } = store;
    for (const mark of marks) {
      const block = blockOf(mark);
      const [pinned, hovered] = [pinLinks.blocks.has(block), hoverLinks.blocks.has(block)];
      mark.classList.toggle("mnb-pinned", pinned);
      mark.classList.toggle("mnb-hovered", hovered && !pinned);
      attr(mark, "data-mnb-linked", pinned ? "pinned" : hovered ? "hover" : null);
      attr(mark, "aria-pressed", String(pinned));
    }
  }

  return {
    root,
    show,
    /** The blocks in the drawing. */
    get blocks(): ReadonlySet<string> {
      return new Set(marks.map(blockOf));
    },
    destroy,
  };
}

type Drawing = ReturnType<typeof createDrawing>;

interface PictureProps {
  drawing: Drawing;
  drawn: CostPicture | null;
  /** What the kernel does for the next picture; null while there is none to wait for. */
  activity: string | null;
  isOld?: boolean;
  hidden: boolean;
  /** Called after a picture has been drawn. */
  done?: () => void;
}

/** A drawing with its status line and text version. */
export function PictureView({ drawing, drawn, activity, isOld, hidden, done }: PictureProps) {
  const hasPicture = useSignal(false);
  const elapsed = useElapsed(activity !== null);
  useLayoutEffect(() => {
    hasPicture.value = drawn !== null && drawing.show(drawn.svg, theme.value);
    done?.();
  }, [drawn, theme.value]);
  useLayoutEffect(() => void (drawing.root.hidden = !hasPicture.value));
  const status = activity !== null && elapsed ? `${activity}: ${elapsed}` : (drawn?.reason ?? "");
  return (
    <div class={`mnb-cost-picture${isOld || activity !== null ? " mnb-old" : ""}`} hidden={hidden}>
      <p class="mnb-hint" role="status" hidden={!status && activity === null}>
        {status}
      </p>
      <Holder nodes={[drawing.root]} />
      <details class="mnb-words" hidden={!drawn?.text}>
        <summary>{"Text version"}</summary>
        <pre class="mnb-text-version" tabIndex={0} aria-label="Text version">
          {drawn?.text}
        </pre>
      </details>
    </div>
  );
}
