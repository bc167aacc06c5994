/** The colours of a picture, read from the page's style sheet. */

export const HUES = 8;

/** Name, CSS value and fallback. A workbench defines `--mnb-*`, a saved page the short names. */
const COLOURS = {
  ground: ["var(--mnb-bg, var(--ground))", "#ffffff"],
  surface: ["var(--mnb-panel, var(--surface))", "#f7f8fa"],
  line: ["var(--mnb-line, var(--line))", "#c5ccd3"],
  wire: ["var(--mnb-edge, var(--wire))", "#6b7681"],
  ink: ["var(--mnb-ink, var(--ink))", "#1b2026"],
  muted: ["var(--mnb-muted, var(--muted))", "#545d68"],
  accent: ["var(--mnb-accent, var(--accent))", "#6a3df0"],
  bad: ["var(--mnb-error, var(--bad))", "#b3261e"],
  good: ["var(--mnb-good, var(--accent))", "#1b6e3c"],
  cost: ["var(--mnb-cost-1, var(--cost))", "#8a4b08"],
  match: ["var(--mnb-match, var(--cost))", "#b35900"],
  track: ["var(--mnb-raised, var(--track))", "#e3e7eb"],
} as const;
const FALLBACK_HUES = ["#0072b2", "#d55e00", "#009e73", "#c2699b", "#b8860b", "#3590c8", "#7a5195", "#5d6d7e"];

/** Steps from an empty bar to the colour of costs, in percent, for nodes too small for a bar. */
const HEAT = [0, 20, 40, 60, 80, 100];

export type Colours = Record<keyof typeof COLOURS, string> & {
  hues: readonly string[];
  heat: readonly string[];
  family: string;
};

/** Read the colours that apply inside an element. */
export function readColours(element: HTMLElement): Colours {
  // Custom properties keep `color-mix()` unevaluated, so a probe computes each colour.
  const probe = document.createElement("span");
  probe.hidden = true;
  probe.style.setProperty("forced-color-adjust", "none"); // the picture keeps its colours
  element.append(probe);
  const style = getComputedStyle(probe);
  const read = (value: string, fallback: string) => {
    probe.style.color = "";
    probe.style.color = value;
    return style.color.startsWith("rgb") || style.color.startsWith("color(") ? style.color : fallback;
  };
  const found: Record<string, string> = {};
  for (const [name, [value, fallback]] of Object.entries(COLOURS)) found[name] = read(value, fallback);
  const hues = FALLBACK_HUES.map((fallback, i) => read(`var(--mnb-hue-${i}, var(--h${i}))`, fallback));
  const heat = HEAT.map((percent) =>
    read(
      `color-mix(in srgb, ${found["cost"]} ${percent}%, ${found["track"]})`,
      percent < 50 ? found["track"]! : found["cost"]!,
    ),
  );
  const family = style.fontFamily || "system-ui, sans-serif";
  probe.remove();
  return { ...found, hues, heat, family } as unknown as Colours;
}

/**
 * Call `changed` when the colours inside an element may have changed: by the host's theme, the system's, or the layout
 * of the widget.
 */
export function watchColours(element: HTMLElement, changed: () => void): () => void {
  const observer = new MutationObserver(changed);
  const watch = (one: Element, ...names: string[]) =>
    observer.observe(one, { attributes: true, attributeFilter: ["class", ...names] });
  for (const one of [document.documentElement, document.body])
    watch(one, "data-theme", "data-jp-theme-name", "data-jp-theme-light", "data-vscode-theme-kind");
  const timer = setTimeout(() => {
    const widget = element.closest(".mnb-root"); // it is built around the element
    if (widget) watch(widget, "data-mnb-theme", "data-mnb-layout");
  });
  const media = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  media?.addEventListener?.("change", changed);
  return () => {
    clearTimeout(timer);
    observer.disconnect();
    media?.removeEventListener?.("change", changed);
  };
}

/** Return the hue of a node. */
export function hueOf(colours: Colours, hue: number): string {
  return colours.hues[((hue % HUES) + HUES) % HUES]!;
}
