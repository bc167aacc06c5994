/** Creates DOM elements without markup: data becomes text nodes or attributes, never HTML. */

type Child = Node | string | number | null | undefined | false;
type Props = Record<string, unknown>;

const SVG_NS = "http://www.w3.org/2000/svg";

function apply(element: Element, props: Props) {
  for (const [name, value] of Object.entries(props)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on") && typeof value === "function") {
      element.addEventListener(name.slice(2), value as EventListener);
    } else {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
}

function append(element: Element, children: Child[]) {
  for (const child of children) {
    if (child == null || child === false) continue;
    element.append(typeof child === "number" ? String(child) : child);
  }
}

/**
 * Create an HTML element. Props that start with `on` are listeners; `true` is an empty attribute; null and false are
 * skipped.
 */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  apply(element, props);
  append(element, children);
  return element;
}

export function textButton(label: string, act: () => void): HTMLButtonElement {
  return h("button", { type: "button", onclick: act }, label);
}

/** Create an SVG element, with props as in `h`. */
export function svg<K extends keyof SVGElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): SVGElementTagNameMap[K] {
  const element = document.createElementNS(SVG_NS, tag);
  apply(element, props);
  append(element, children);
  return element;
}

/** Set an attribute only if it changes; null removes it. */
export function attr(element: Element, name: string, value: string | number | boolean | null | undefined): void {
  if (value == null || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (element.getAttribute(name) !== text) element.setAttribute(name, text);
}

/** Set text only if it changes, so that selections stay and screen readers do not repeat it. */
export function text(element: Element, value: string): void {
  if (element.textContent !== value) element.textContent = value;
}

/** Return the focused element of the document or shadow root of an element. */
export function focusedAt(element: Element): Element | null {
  return (element.getRootNode() as Document | ShadowRoot).activeElement;
}

/** Give an element of a parent of `keyed` its key. */
export function setKey(element: Element, key: string): void {
  (element as any).__mnbKey = key;
}

/**
 * Make the children of `parent` match `items`. Elements are reused by key, so focus, caret and scroll position stay.
 */
export function keyed<T>(
  parent: Element,
  items: readonly T[],
  key: (item: T) => string,
  create: (item: T) => Element,
  update: (element: any, item: T) => void,
): void {
  const old = new Map<string, Element>();
  for (const child of Array.from(parent.children)) {
    const k = (child as any).__mnbKey as string | undefined;
    if (k !== undefined) old.set(k, child);
  }
  const kept = new Set(items.map(key));
  for (const [k, element] of old) if (!kept.has(k)) element.remove();
  const focused = focusedAt(parent);
  let at: Element | null = null;
  for (const item of items) {
    const k = key(item);
    let element = old.get(k);
    if (element) old.delete(k);
    else {
      element = create(item);
      setKey(element, k);
    }
    update(element, item);
    const next = () => (at ? at.nextElementSibling : parent.firstElementChild);
    // Moving an element drops its focus and its caret: leave it in place, and move those before it to the end.
    if (element.parentElement === parent && element.contains(focused))
      while (next() !== element) parent.append(next()!);
    if (next() !== element) parent.insertBefore(element, next());
    at = element;
  }
}

/** Paths of icons in a 16 × 16 box. */
export const ICONS = {
  undo: "M6 4 3 7l3 3M3 7h6.5a3.5 3.5 0 0 1 0 7H7",
  redo: "M10 4l3 3-3 3M13 7H6.5a3.5 3.5 0 0 0 0 7H9",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10ZM14 14l-3.4-3.4",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M6 6h7v8H6zM10 6V3H3v8h3",
  play: "M5 3l8 5-8 5z",
  pause: "M5 3v10M11 3v10",
  stop: "M4 4h8v8H4z",
  step: "M4 3l6 5-6 5zM12.5 3v10",
  fit: "M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
  tidy: "M6 2h4v3H6zM2 11h4v3H2zM10 11h4v3h-4zM8 5v3M4 11V8h8v3",
  warning: "M8 2 1.5 13.5h13zM8 6.5v3.5M8 12v.01",
  chevron: "M6 4l4 4-4 4",
  up: "M4 10l4-4 4 4",
  down: "M4 6l4 4 4-4",
  fold: "M4 2l4 4 4-4M4 14l4-4 4 4",
  unfold: "M4 6l4-4 4 4M4 10l4 4 4-4",
  full: "M3 6V3h3M10 3h3v3M13 10v3h-3M6 13H3v-3M3 3l3.5 3.5M13 3 9.5 6.5M13 13 9.5 9.5M3 13l3.5-3.5",
  tab: "M7 3H3v10h10V9M9 3h4v4M13 3 7.5 8.5",
  lock: "M4 7.5h8V14H4zM5.5 7.5V5a2.5 2.5 0 0 1 5 0v2.5",
  unlock: "M4 7.5h8V14H4zM5.5 7.5V4a2.5 2.5 0 0 1 4.8-1",
  pencil: "M3 13l.7-3L11 2.7l2.3 2.3L6 12.3zM9.5 4.2l2.3 2.3",
  trash: "M3 4h10M6 4V2.5h4V4M4.5 4l.5 9.5h6l.5-9.5",
} as const;

/**
 * Return the CSS zoom of an element, 1.4 in the Lecture preset. A length on the screen divided by the zoom is a CSS
 * length.
 */
export function zoomOf(element: HTMLElement): number {
  return (element.offsetWidth && element.getBoundingClientRect().width / element.offsetWidth) || 1;
}

let serial = 0;

/** Return an id that is unique on the page. */
export function uid(prefix: string): string {
  serial += 1;
  return `mnb-${prefix}-${serial}`;
}

/** Move an element in the document, and keep the scroll positions inside it. */
export function keepScroll(root: Element, move: () => void): void {
  const scrolled = [...root.querySelectorAll("*")].flatMap((one) =>
    one.scrollTop || one.scrollLeft ? [[one, one.scrollLeft, one.scrollTop] as const] : [],
  );
  move();
  for (const [one, left, top] of scrolled) [one.scrollLeft, one.scrollTop] = [left, top];
}
