/** A picture of costs that the kernel draws: in a shadow root of its own, its blocks linked, with a twin in words. */

import { Clock } from "./clock";
import { attr, h, text } from "./dom";
import type { Store } from "./store";
import type { Theme } from "./theme";
import type { Tip } from "./tip";

/** What is drawing, and what it is drawn with. */
const DRAWN = new Set(["svg", "g", "rect", "path", "text", "tspan", "title", "desc", "line", "circle", "ellipse", "polygon", "polyline", "defs", "pattern", "clipPath", "linearGradient", "stop", "marker", "style"]);
const DARK = /@media\s*\(prefers-color-scheme:\s*dark\)\s*\{/g;

/** Of a style sheet that follows the reader's preference, the rules that hold in a theme: the page may have another. */
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

/** A picture as elements of this document. Names in it are data: what is no drawing is left out, and nothing is fetched. */
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
      if (name.startsWith("on") || name.endsWith("href") || name === "style" || /url\(\s*(?!['"]?#)/i.test(value)) element.removeAttribute(name);
    }
  };
  clean(parsed);
  return document.importNode(parsed, true) as unknown as SVGSVGElement;
}

/** The path that a picture names: one word, with what is not allowed in it as %XX. */
export function pathOfKey(key: string): string {
  try {
    return decodeURIComponent(key.replace(/%(?![0-9A-Fa-f]{2})/g, "%25"));
  } catch {
    return key;
  }
}

const OWN = `
:host { display: block; }
:host svg.mnb-cost { --ground: var(--mnb-bg); --ink: var(--mnb-ink); display: block; max-width: 100%; height: auto; font-family: var(--mnb-ui); }
[data-block] { cursor: pointer; outline: none; }
.mnb-hovered > :is(rect, path, circle, polygon), :is(rect, path, circle, polygon).mnb-hovered { stroke: var(--mnb-accent); stroke-width: 2; }
.mnb-pinned > :is(rect, path, circle, polygon), :is(rect, path, circle, polygon).mnb-pinned { stroke: var(--mnb-accent); stroke-width: 3; }
[data-block]:focus-visible > :is(rect, path, circle, polygon), :is(rect, path, circle, polygon)[data-block]:focus-visible { stroke: var(--mnb-focus); stroke-width: 3; }
`;

/** One drawing, whose blocks are hovered, clicked and walked through. */
export class Drawing {
  readonly root = h("div", { class: "mnb-drawing" });
  private readonly shadow: ShadowRoot;
  private marks: SVGElement[] = [];
  private markup = "";
  private svg: SVGSVGElement | null = null;
  private readonly leave: () => void;

  constructor(
    private readonly store: Store,
    private readonly tip: Tip,
    open: (block: string) => void,
  ) {
    this.shadow = this.root.attachShadow({ mode: "open" });
    this.shadow.append(h("style", {}, OWN));
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
    this.leave = store.on("links", () => this.paintLinks());
  }

  destroy(): void {
    this.leave();
  }

  /** Whether there is something to be seen. */
  show(markup: string, theme: Theme): boolean {
    this.markup = markup;
    const held = (this.shadow.activeElement as SVGElement | null)?.dataset["block"];
    this.svg?.remove();
    this.svg = markup ? drawingOf(markup, theme) : null;
    this.marks = [];
    if (!this.svg) return false;
    for (const mark of this.svg.querySelectorAll<SVGElement>("[data-block]")) {
      const title = mark.querySelector(":scope > title");
      const said = title?.textContent?.trim() || pathOfKey(mark.dataset["block"]!);
      title?.remove(); // our own tip says it
      attr(mark, "aria-label", said.replace(/\s*\n\s*/g, ", "));
      mark.dataset["said"] = said;
      attr(mark, "role", "button");
      attr(mark, "tabindex", this.marks.length ? -1 : 0);
      this.marks.push(mark);
    }
    // Within an image nobody can point at anything.
    if (this.marks.length) attr(this.svg, "role", "group");
    this.shadow.append(this.svg);
    const heir = held === undefined ? null : (this.marks.find((mark) => mark.dataset["block"] === held) ?? this.marks[0]);
    if (heir) this.focus(heir);
    this.paintLinks();
    return true;
  }

  recolour(theme: Theme): void {
    if (this.markup) this.show(this.markup, theme);
  }

  /** The blocks that can be pointed at in it. */
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
    this.tip.later(mark.dataset["said"]!.split("\n"), event.clientX, event.clientY);
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
    const to = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: this.marks.length - 1 }[event.key];
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

/** A drawing as it comes: markup, the same in words, or why there is none. */
export interface Drawn {
  svg: string;
  text: string;
  reason: string;
}

/** A drawing with its states: being drawn, old, not to be had; and its twin in words. */
export class Picture {
  readonly root: HTMLElement;
  readonly drawing: Drawing;
  private readonly said = h("p", { class: "mnb-hint", role: "status" });
  private readonly twin = h("pre", { class: "mnb-twin", tabindex: 0, "aria-label": "The same in words" });
  private readonly words: HTMLElement;
  private readonly clock: Clock;
  private waitsFor = "";

  /** `open` is told which block is clicked twice. */
  constructor(store: Store, tip: Tip, open: (block: string) => void = () => {}) {
    this.drawing = new Drawing(store, tip, open);
    this.words = h("details", { class: "mnb-words" }, h("summary", {}, "The same in words"), this.twin);
    this.root = h("div", { class: "mnb-picture" }, this.said, this.drawing.root, this.words);
    this.clock = new Clock((elapsed) => elapsed && text(this.said, `${this.waitsFor}: ${elapsed}`));
    this.show(null);
  }

  destroy(): void {
    this.clock.stop();
    this.drawing.destroy();
  }

  /** Say that something is on its way; what is there is old. */
  wait(what: string | null): void {
    this.waitsFor = what ?? "";
    this.clock.run(what !== null);
    this.root.classList.toggle("mnb-old", what !== null);
    if (what !== null) this.said.hidden = false;
    else this.said.hidden = this.said.textContent === "";
  }

  /** Show a drawing, or say why there is none. */
  show(drawn: Drawn | null, theme: Theme = "light"): void {
    this.wait(null);
    const isThere = drawn !== null && this.drawing.show(drawn.svg, theme);
    this.drawing.root.hidden = !isThere;
    this.words.hidden = !drawn?.text;
    text(this.twin, drawn?.text ?? "");
    text(this.said, drawn?.reason ?? "");
    this.said.hidden = !drawn?.reason;
  }

  say(words: string): void {
    this.show({ svg: "", text: "", reason: words });
  }

  recolour(theme: Theme): void {
    this.drawing.recolour(theme);
  }
}
