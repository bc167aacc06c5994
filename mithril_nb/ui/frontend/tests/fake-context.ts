/** A 2D context that records texts, rectangles, colours and opacities. Each letter is 6 px wide at 10 px. */

export class FakeContext {
  texts: string[] = [];
  rectangles = 0;
  rims = 0;
  /** Rectangles that are drawn faintly. */
  faint = 0;
  readonly colours = new Set<string>();
  readonly context: CanvasRenderingContext2D;
  private readonly alphas = new Map<string, number>();

  constructor() {
    const state: Record<string, any> = { globalAlpha: 1, font: "10px sans-serif" };
    const stack: Record<string, any>[] = [];
    const known: Record<string, unknown> = {
      measureText: (text: string) => ({
        width: text.length * 0.6 * Number(/([\d.]+)px/.exec(state["font"])?.[1] ?? 10),
      }),
      fillText: (text: string) => {
        this.texts.push(text);
        this.alphas.set(text, state["globalAlpha"]);
      },
      fillRect: () => {
        this.rectangles += 1;
        this.faint += Number(state["globalAlpha"] < 0.5);
      },
      strokeRect: () => (this.rims += 1),
      save: () => stack.push({ ...state }),
      restore: () => Object.assign(state, stack.pop()),
    };
    this.context = new Proxy(state, {
      get: (_, name: string) => known[name] ?? (name in state ? state[name] : () => {}),
      set: (_, name: string, value) => {
        if (name === "fillStyle" || name === "strokeStyle") this.colours.add(String(value));
        state[name] = value;
        return true;
      },
    }) as unknown as CanvasRenderingContext2D;
  }

  alphaOf(text: string): number | undefined {
    return this.alphas.get(text);
  }

  clear(): void {
    this.texts = [];
    this.rectangles = this.rims = this.faint = 0;
    this.colours.clear();
  }
}
