/** A picture of costs drawn by the kernel, in a separate shadow root, with linked blocks and a text version. */

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
  const clean = (element: Element): void => {
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
export class Drawing {
  readonly root = h("div", { class: "mnb-drawing" });
  private readonly shadow: ShadowRoot;
  private marks: SVGElement[] = [];
  private svg: SVGSVGElement | null = null;
  readonly destroy: () => void;

  constructor(
    private readonly store: Store,
    private readonly tip: Tip,
    open: (block: string) => void,
  ) {
    this.shadow = this.root.attachShadow({ mode: "open" });
    this.shadow.append(h("style", {}, PICTURE_CSS));
    this.shadow.addEventListener("pointerover", (event) => this.hover(event as PointerEvent));
    this.root.addEventListener("pointerleave", () => {
      store.setHover([]);
      tip.hide();
    });
    this.shadow.addEventListener("click", (event) => this.click(event as MouseEvent));
    this.shadow.addEventListener("dblclick", (event) => {
      const mark = this.markAt(event.target);
      if (mark) open(this.blockOf(mark));
    });
    this.shadow.addEventListener("keydown", (event) => this.key(event as KeyboardEvent));
    this.destroy = store.on("links", () => this.paintLinks());
  }

  /** Show a drawing; return whether it could be parsed. */
  show(markup: string, theme: Theme): boolean {
    const focusedBlock = (this.shadow.activeElement as SVGElement | null)?.dataset["block"];
    this.svg?.remove();
    this.svg = markup ? drawingOf(markup, theme) : null;
    this.marks = [];
    if (!this.svg) return false;
    for (const mark of this.svg.querySelectorAll<SVGElement>("[data-block]")) {
      const title = mark.querySelector(":scope > title");
      const label = title?.textContent?.trim() || pathOfKey(mark.dataset["block"]!);
      title?.remove(); // the widget's tooltip replaces it
      attr(mark, "aria-label", label.replace(/\s*\n\s*/g, ", "));
      mark.dataset["label"] = label;
      attr(mark, "role", "button");
      attr(mark, "tabindex", this.marks.length ? -1 : 0);
      this.marks.push(mark);
    }
    // Screen readers do not expose the children of role "img".
    if (this.marks.length) attr(this.svg, "role", "group");
    this.shadow.append(this.svg);
    const next =
      focusedBlock === undefined
        ? null
        : (this.marks.find((mark) => mark.dataset["block"] === focusedBlock) ?? this.marks[0]);
    if (next) this.focus(next);
    this.paintLinks();
    return true;
  }

  /** The blocks in the drawing. */
  get blocks(): ReadonlySet<string> {
    return new Set(this.marks.map((mark) => this.blockOf(mark)));
  }

  private markAt(target: EventTarget | null): SVGElement | null {
    return (target as Element | null)?.closest?.<SVGElement>("[data-block]") ?? null;
  }

  private blockOf(mark: SVGElement): string {
    return pathOfKey(mark.dataset["block"]!) || "(unattributed)";
  }

  private hover(event: PointerEvent): void {
    const mark = this.markAt(event.target);
    this.store.setHover(mark ? [{ kind: "block", path: this.blockOf(mark) }] : []);
    if (!mark || event.buttons !== 0) return this.tip.hide();
    this.tip.later(mark.dataset["label"]!.split("\n"), event.clientX, event.clientY);
  }

  private click(event: MouseEvent): void {
    const mark = this.markAt(event.target);
    this.tip.hide();
    if (mark) {
      this.focus(mark);
      this.store.pinBlocks([this.blockOf(mark)], event.shiftKey);
    } else if (!event.shiftKey) this.store.pin([]);
  }

  private focus(mark: SVGElement): void {
    for (const one of this.marks) attr(one, "tabindex", one === mark ? 0 : -1);
    mark.focus({ preventScroll: true });
  }

  private key(event: KeyboardEvent): void {
    const mark = this.markAt(event.target);
    if (!mark || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = this.marks.indexOf(mark);
    const to = {
      ArrowRight: at + 1,
      ArrowDown: at + 1,
      ArrowLeft: at - 1,
      ArrowUp: at - 1,
      Home: 0,
      End: this.marks.length - 1,
    }[event.key];
    if (to !== undefined) {
      const next = this.marks[Math.max(0, Math.min(to, this.marks.length - 1))]!;
      this.focus(next);
      this.store.setHover([{ kind: "block", path: this.blockOf(next) }]);
    } else if (event.key === "Enter" || event.key === " ") this.store.pinBlocks([this.blockOf(mark)], event.shiftKey);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  private paintLinks(): void {
    const { hoverLinks, pinLinks } = this.store;
    for (const mark of this.marks) {
      const block = this.blockOf(mark);
      const [pinned, hovered] = [pinLinks.blocks.has(block), hoverLinks.blocks.has(block)];
      mark.classList.toggle("mnb-pinned", pinned);
      mark.classList.toggle("mnb-hovered", hovered && !pinned);
      attr(mark, "data-mnb-linked", pinned ? "pinned" : hovered ? "hover" : null);
      attr(mark, "aria-pressed", String(pinned));
    }
  }
}

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
