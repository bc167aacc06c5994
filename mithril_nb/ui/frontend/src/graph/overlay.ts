/** The values of an overlay by key of the node, as the kernel and saved pages send them, and its legend. */

import { exact, exactSeconds, percent, seconds, si } from "../dom/format";
import { attr, h, svg } from "../dom/dom";
import type { OverlayChoice, OverlayData } from "../kernel/contract";
import type { Overlay } from "./boxes";
import type { Description } from "./items";
import type { PaintState } from "./painter";
import type { Scene } from "./scene";

/** The values in an overlay; saved pages have no keys. */
export type OverlayValues = Omit<OverlayData, "keys" | "own"> & { own?: boolean | null };

const UNKNOWN = "?";

export class GraphOverlay {
  readonly marks = new Map<string, Overlay>();
  readonly heading: string;
  /** The parts of the legend: the ends of the scale or the categories, and unknown. */
  readonly legend: Overlay[];
  readonly notes: readonly string[];
  private readonly details = new Map<string, string>();

  constructor(
    readonly data: OverlayValues,
    keys: readonly string[],
  ) {
    const { values, categories, total, title } = data;
    const isNumber = categories.length === 0;
    const numbers = isNumber ? values.filter((value): value is number => typeof value === "number") : [];
    const [least, most] = numbers.reduce(
      ([low, high], value) => [Math.min(low, value), Math.max(high, value)],
      [Infinity, -Infinity],
    );
    const [low, high] = [Math.min(0, least), Math.max(0, most)];
    const markOf = (value: number): Overlay =>
      isNumber
        ? { text: this.format(value), level: high > low ? (value - low) / (high - low) : 0 }
        : { text: categories[value] ?? UNKNOWN, hue: value };
    const bounds = new Set(data.bounds);
    values.forEach((value, at) => {
      const key = keys[at];
      if (key === undefined || value === null) return;
      const written = data.texts[at];
      const bound = bounds.has(at) && value ? "≥ " : "";
      const mark = value === UNKNOWN ? { text: UNKNOWN } : markOf(value as number);
      this.marks.set(key, { ...mark, text: written ?? bound + mark.text });
      const share = isNumber && total && typeof value === "number" ? `, ${percent(value / total)}` : "";
      const known = () => written ?? (isNumber ? `${bound}${this.exact(value as number)}${share}` : mark.text);
      const detail =
        value === UNKNOWN ? (written === undefined ? "unknown" : `${written}; of this node: unknown`) : known();
      this.details.set(key, `${title}: ${detail}`);
    });
    this.notes = data.notes;
    this.heading = total === null ? title : `${title}: ${this.format(total)} in total`;
    const ends = numbers.length ? [...new Set([least, most])].map(markOf) : [];
    this.legend = [
      ...(isNumber ? ends : categories.map((_, at) => markOf(at))),
      ...(values.includes(UNKNOWN) ? [{ text: "unknown" }] : []),
    ];
  }

  /** Return the title and the exact value of a node, for its tooltip and name; "" without a value. */
  describe(key: string) {
    return this.details.get(key) ?? "";
  }

  private format(value: number) {
    return this.data.unit === "s" ? seconds(value) : si(value, this.data.unit);
  }

  private exact(value: number) {
    return this.data.unit === "s" ? exactSeconds(value) : exact(value, this.data.unit);
  }
}

/** Return the legend of the patterns in the boxes of a program: as in viz/diagrams/svg.py. Null for a single role. */
function legendOfRoles({ nodes, edges, roles }: Scene): PaintState["legend"] {
  const used = roles.flatMap((text, role) => (nodes.some((node) => node.counts?.[role]) ? [{ text, role }] : []));
  const back = edges.some((edge) => edge.returns) ? [{ text: "gradient flows back", role: "returns" as const }] : [];
  return used.length > 1 ? { heading: "bars: instructions", legend: [...used, ...back], notes: [] } : null;
}

/** The legend of colours that tell blocks apart. */
export const BLOCK_COLOURS: PaintState["legend"] = { heading: "colour: block, as in the code", legend: [], notes: [] };

/** The overlay of a view, with its legend in the lower left corner; without one, those of the roles and the colours. */
export function createOverlayLayer(view: { root: HTMLElement; paint(state: Partial<PaintState>): void }) {
  const legend = h("div", { class: "mnb-legend", role: "note", "aria-label": "Legend", hidden: true });
  let now: GraphOverlay | null = null;
  /** Why the overlay is missing, or drawn faintly. */
  let why = "";
  let old = "";
  let plain: NonNullable<PaintState["legend"]>[] = [];
  view.root.append(legend);

  function show(overlay: GraphOverlay | null, failure = "") {
    [now, why] = [overlay, failure];
    fill();
    view.paint({
      overlay: overlay?.marks ?? new Map(),
      legend: overlay ?? plain.find((part) => part.legend.length) ?? null,
    });
  }

  /** Explain the roles of a new scene, and its colours, while no overlay is shown. */
  function explain(scene: Scene, colours: PaintState["legend"] = null) {
    const parts = [legendOfRoles(scene), colours].filter((part) => part !== null);
    if (JSON.stringify(parts) === JSON.stringify(plain)) return;
    plain = parts;
    if (!now) show(null, why);
  }

  /** Draw values faintly, and show why; "" draws them normally again. */
  function fade(why: string) {
    if (old === why) return;
    old = why;
    fill();
    view.paint({ isOld: why !== "" });
  }

  /** Return a description with the value of the node. */
  function describe(key: string, { name, tip }: Description): Description {
    const value = now?.describe(key) ?? "";
    return value ? { name: `${name}, ${value}`, tip: [...tip, value] } : { name, tip };
  }

  function fill() {
    const shown = now ? [now] : why ? [] : plain;
    legend.hidden = !shown.length && !why && !old;
    const part = (mark: Overlay): HTMLElement =>
      h("span", { class: "mnb-legend-part" }, swatch(mark), h("span", {}, mark.text));
    const explained = shown.flatMap((shown) => [
      h(now ? "b" : "span", now ? {} : { class: "mnb-muted" }, shown.heading),
      ...shown.legend.map(part),
      ...shown.notes.map((note) => h("span", { class: "mnb-muted" }, note)),
    ]);
    legend.replaceChildren(...explained, why, ...(old ? [h("span", { class: "mnb-badge", role: "status" }, old)] : []));
  }

  return {
    legend,
    /** Name of the shown overlay; "" for none. */
    get name() {
      return now?.data.name ?? "";
    },
    show,
    explain,
    /** Show why the overlay is missing. */
    fail: (why: string) => show(null, why),
    fade,
    describe,
  };
}

function swatch({ level, hue, role }: Overlay) {
  const bar = (width: number, name: string): SVGElement =>
    svg("rect", { x: 0, y: 3, width, height: 6, rx: 2, class: name });
  const lines = Array.from({ length: 8 }, (_, at) => `M${at * 5} 9l6-6`).join("");
  const roles = [
    bar(40, "mnb-swatch-role"),
    svg("path", { d: lines, class: "mnb-swatch-hatch" }),
    svg("path", { d: "M3 6H40", class: "mnb-swatch-dots" }),
  ];
  const own =
    role === "returns"
      ? [svg("path", { d: "M40 6H8V2L1 6l7 4V6", class: "mnb-swatch-hatch" })]
      : role !== undefined
        ? [roles[role] ?? roles[2]!]
        : null;
  const filled =
    own ??
    (hue !== undefined
      ? [bar(40, `mnb-swatch-hue mnb-hue-${hue}`)]
      : level === undefined
        ? [roles[1]!]
        : [bar(40 * level, "mnb-swatch-level")]);
  const width = hue === undefined ? 40 : 14;
  return svg(
    "svg",
    { viewBox: `0 0 ${width} 12`, width, height: 12, "aria-hidden": "true" },
    role === "returns" ? null : bar(40, "mnb-swatch-track"),
    ...filled,
  );
}

/** Overlays that the compiler computes. */
const SLOW = new Set(["memory"]);

/** The menus in a graph's toolbar: the values on its nodes, and the convention of numbers. */
export function createOverlayMenu(chosen: (name: string, own: boolean) => void) {
  const menu = h("select", {
    class: "mnb-select",
    "aria-label": "Values on the nodes",
    title: "Show values on the nodes of the graph",
    "data-mnb-action": "graph.overlay",
  }) as HTMLSelectElement;
  const convention = h(
    "select",
    {
      class: "mnb-select",
      "aria-label": "Costs of blocks that contain others",
      title: "Whether the cost of a block includes the blocks inside it, in the graph, the tables and the tooltips",
      "data-mnb-action": "graph.convention",
    },
    h("option", { value: "inner" }, "with inner blocks"),
    h("option", { value: "own" }, "own"),
  ) as HTMLSelectElement;
  /** Whether a slow choice waits for Enter. */
  let isWaiting = false;
  const send = () => {
    isWaiting = false;
    chosen(menu.value, convention.value === "own");
  };
  // Arrow keys select every choice on the way, and a slow choice would start the compiler.
  let key = "";
  menu.addEventListener("pointerdown", () => (key = ""));
  menu.addEventListener("keydown", (event) => {
    key = event.key;
    if (key === "Enter" && isWaiting) send();
  });
  menu.addEventListener("blur", () => isWaiting && send());
  menu.addEventListener("change", () => {
    isWaiting = SLOW.has(menu.value) && key !== "" && key !== "Enter";
    if (!isWaiting) send();
  });
  convention.addEventListener("change", send);
  const root = h("span", { class: "mnb-overlay-menu" }, menu, convention);

  function update({ name, own, choices }: OverlayChoice, hasGroups: boolean) {
    const all = [["", name ? "none" : "show values…"], ...choices] as [string, string][];
    const listed = all.some(([one]) => one === name) ? all : [...all, [name, name] as [string, string]];
    if (
      Array.from(menu.options, (option) => `${option.value}\n${option.text}`).join() !==
      listed.map((one) => one.join("\n")).join()
    ) {
      menu.replaceChildren(...listed.map(([value, title]) => h("option", { value }, title)));
    }
    if (!isWaiting) menu.value = name;
    convention.value = own ? "own" : "inner";
    convention.hidden = !hasGroups;
    attr(root, "data-mnb-overlay", name || null);
  }

  return { root, update };
}
