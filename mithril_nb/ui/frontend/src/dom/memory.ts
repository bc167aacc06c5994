/** Remembers the layout of each widget in the browser: sizes, preset, tab. No kernel is involved. */

type Value = string | number | boolean;

const KEY = "mithril_nb.layouts";
/** Number of widgets whose layouts are kept; the least recently changed one is dropped first. */
const MOST = 60;

type Layouts = Record<string, Record<string, Value>>;

/** Read the stored layouts. The storage may be blocked, and another program may have written anything. */
function read() {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    return typeof found === "object" && found !== null && !Array.isArray(found) ? (found as Layouts) : {};
  } catch {
    return {};
  }
}

export class Memory {
  private readonly values: Map<string, Value>;

  /** `widget` identifies the widget after a reload of the page and after the next run of its cell. */
  constructor(private readonly widget: string) {
    const found = read();
    this.values = new Map(
      Object.hasOwn(found, widget) && typeof found[widget] === "object" ? Object.entries(found[widget] ?? {}) : [],
    );
  }

  /** Return a value of the type of `fallback`: the remembered one, or `fallback`. */
  get<T extends Value>(name: string, fallback: T) {
    const value = this.values.get(name);
    return typeof value === typeof fallback ? (value as T) : fallback;
  }

  set(name: string, value: Value) {
    this.values.set(name, value);
    // Another widget may have written since.
    const others = Object.entries(read()).filter(([widget]) => widget !== this.widget);
    try {
      localStorage.setItem(
        KEY,
        JSON.stringify(Object.fromEntries([...others, [this.widget, Object.fromEntries(this.values)]].slice(-MOST))),
      );
    } catch {
      // Blocked or full: remembered until the page is closed.
    }
  }
}
