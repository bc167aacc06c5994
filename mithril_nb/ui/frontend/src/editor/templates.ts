/** Buttons with pictures of the models that an empty canvas offers. */

import { h, svg } from "../dom/dom";
import type { TemplateData } from "../kernel/contract";
import type { Store } from "../store/store";

const [STEP_X, STEP_Y, WIDTH, HEIGHT] = [17, 12, 11, 8];
/** Longer models continue in the next line. */
const COLUMNS = 11;

/** Return the picture of a model: a mark in the colour of its family for each block. */
function picture({ blocks, wires }: TemplateData, hues: ReadonlyMap<string, number>) {
  const high = Math.max(...blocks.map(([, , row]) => row + 1));
  const wide = Math.max(...blocks.map(([, column]) => column + 1));
  const lineOf = (at: number) => Math.floor(blocks[at]![1] / COLUMNS);
  const corner = (at: number): [number, number] => {
    const [, column, row] = blocks[at]!;
    return [(column % COLUMNS) * STEP_X, (lineOf(at) * high + row) * STEP_Y + 6];
  };
  const inOneLine = wires.filter(([from, to]) => lineOf(from) === lineOf(to));
  const paths = inOneLine.map(([from, to]) => {
    const [[x0, y0], [x1, y1]] = [corner(from), corner(to)];
    const [start, end] = [x0 + WIDTH, x1];
    const isSkip = blocks[to]![1] - blocks[from]![1] > 1 && y0 === y1;
    return isSkip
      ? `M${x0 + WIDTH / 2} ${y0}V${y0 - 4}H${x1 + WIDTH / 2}V${y1}`
      : `M${start} ${y0 + HEIGHT / 2}L${end} ${y1 + HEIGHT / 2}`;
  });
  const marks = blocks.map(([kind], at) => {
    const [x, y] = corner(at);
    return svg("rect", {
      x,
      y,
      width: WIDTH,
      height: HEIGHT,
      rx: 2,
      style: `fill: var(--mnb-hue-${hues.get(kind) ?? 7})`,
    });
  });
  const [width, height] = [Math.min(wide, COLUMNS) * STEP_X, high * Math.ceil(wide / COLUMNS) * STEP_Y + 6];
  return svg(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true", class: "mnb-template-picture" },
    svg("path", { d: paths.join(""), fill: "none" }),
    ...marks,
  );
}

export function templateButtons(store: Store): HTMLElement[] {
  const hues = new Map(store.snapshot.palette.map(({ kind, hue }) => [kind, hue]));
  return store.snapshot.templates.map((template) =>
    h(
      "button",
      {
        type: "button",
        class: "mnb-button mnb-template",
        "data-mnb-action": `empty.template.${template.name}`,
        onclick: () => store.command("load_example", { template: template.name }),
      },
      picture(template, hues),
      h("strong", {}, template.title),
      h("span", {}, template.summary),
    ),
  );
}
