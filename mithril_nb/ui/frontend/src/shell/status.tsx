/**
 * The status line: stage times, costs of the program and of the selected block, attributed share, and the result of the
 * last command.
 */

import { useLayoutEffect, useState } from "preact/hooks";
import { ATTRIBUTED, FIGURE_TITLES, figureText, shareOf, titled, totalOf } from "../costs/figures";
import { counted, elapsed, percent, seconds } from "../dom/format";
import type { Store } from "../store/store";

const LONGEST = 40; // characters of a path; its whole name is in the tooltip

type StatusPart = [name: string, text: string, title: string];

/** Return the FLOPs of the selected block, by the convention of graph and table, and the exact value. */
function selectedPart({ snapshot: { cost, overlay }, selection }: Store): StatusPart[] {
  const [path] = selection;
  const row = selection.length === 1 && cost?.rows.find(({ block }) => block === path);
  if (!cost || !row) return [];
  const { own } = overlay;
  const shown = own ? row : totalOf(row);
  const [title] = FIGURE_TITLES.flops;
  const name = cost.rows.some(({ total }) => total) ? titled(title, own) : title;
  const [text, exact] = figureText(shown, "flops");
  const [share, bound] = cost.total.formulas?.["flops"] ? [null, ""] : shareOf(shown, cost.total, "flops");
  const label = path!.length > LONGEST ? `${path!.slice(0, LONGEST / 2)}…${path!.slice(-LONGEST / 2)}` : path;
  const figures = `${label}: ${name} ${text}${share === null ? "" : `, ${bound}${percent(share)}`}`;
  return [["selected", figures, `${name} of ${path}: ${exact}`]];
}

/** Return the parts of the line. What does not fit is left out, the times first. */
function partsOf(store: Store): StatusPart[] {
  const { status, problems, cost } = store.snapshot;
  const time = (name: string, value: number | null, detail = ""): StatusPart[] =>
    value == null ? [] : [[name, `${name} ${seconds(value)}`, `${name}: ${value} s${detail}`]];
  const figures = (["flops", "bytes_accessed"] as const).flatMap((figure): StatusPart[] => {
    if (!cost) return [];
    const [text, exact] = figureText(cost.total, figure);
    return [[figure, `${FIGURE_TITLES[figure][0]}: ${text} in total`, `${FIGURE_TITLES[figure][2]}: ${exact}`]];
  });
  const { length } = problems;
  return [
    ...selectedPart(store),
    ...figures,
    ...(status.attributed === null
      ? []
      : [["attributed", `${percent(status.attributed)} of FLOPs attributed`, ATTRIBUTED] as StatusPart]),
    ...(length ? [["problems", counted(length, "problem"), problems[0]!.summary] as StatusPart] : []),
    ...time("trace", status.trace_s),
    ...time("lower", status.lower_s),
    ...time("optimize", status.optimize_s, " for XLA's passes and memory planning, without code generation"),
    ...time("compile", status.compile_s),
  ];
}

/** The command that the kernel has not answered yet, or the result of the last one. */
function Outcome({ store }: { store: Store }) {
  const { waiting, connection } = store.kernel;
  const isWaiting = connection === "waiting" && waiting !== null;
  const [, repaint] = useState(0);
  useLayoutEffect(() => {
    if (!isWaiting) return;
    const timer = setInterval(() => repaint(performance.now()), 1000);
    return () => clearInterval(timer);
  }, [isWaiting, waiting?.since]);
  return (
    <span class="mnb-status-waiting" role="status">
      {isWaiting
        ? `Waiting for the kernel: “${waiting.name.replaceAll("_", " ")}”, ` +
          elapsed((performance.now() - waiting.since) / 1000)
        : store.outcome}
    </span>
  );
}

export function Status({ store }: { store: Store }) {
  const parts = partsOf(store);
  const title = [`model version ${store.snapshot.version}`, ...parts.map(([, , title]) => title)].join("\n");
  return (
    <div class="mnb-status" role="group" aria-label="Figures" data-mnb-part="status" title={title}>
      <span class="mnb-status-figures">
        {parts.map(([name, text, title]) => (
          <span key={name} data-mnb-status={name} title={title}>
            {text}
          </span>
        ))}
      </span>
      <Outcome store={store} />
    </div>
  );
}
