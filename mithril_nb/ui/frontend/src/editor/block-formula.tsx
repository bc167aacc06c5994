/** The FLOP formula of the selected block: with numbers, and its terms with a legend of the letters. */

import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { copyFrom } from "../dom/clipboard";
import { exact, grouped, si } from "../dom/format";
import { IconButton, useStart } from "../dom/view";
import type { BlockFormula, FormulaTerm } from "../kernel/contract";
import { errorOf } from "../kernel/messages";
import type { Store } from "../store/store";

type ShownFormula = BlockFormula & { hasFailed?: boolean };

function TermLine({ term }: { term: FormulaTerm }) {
  const { formula, letters, times, role, opcodes, flops, why } = term;
  const count = times === 1 || !formula ? "" : `${times === null ? "?" : grouped(times)} × `;
  const values = letters.map(([letter, value]) => `${letter} = ${typeof value === "number" ? grouped(value) : value}`);
  const sum = flops === null ? `unknown: ${why}` : si(flops, "FLOP");
  return (
    <li class={flops === null ? "mnb-term mnb-term-unknown" : "mnb-term"}>
      {formula && <code>{count + formula}</code>}
      {values.length > 0 && <span class="mnb-term-letters">{values.join(", ")}</span>}
      <span class="mnb-term-sum" title={flops === null ? undefined : exact(flops, "FLOP")}>
        {`${sum} · ${[...opcodes, ...(role ? [role] : [])].join(", ")}`}
      </span>
    </li>
  );
}

/** The formula of the block at `path`. It is requested once per version, when the costs are ready. */
export function BlockFormulaView({ store, path }: { store: Store; path: string }) {
  const latest = useSignal<ShownFormula | null>(null);
  const requested = useRef("");
  const current = useRef(path);
  current.current = path;
  const { kernel, snapshot } = store;
  const { version, cost, problems } = snapshot;
  const fail = (block: string, version: number, why: string) => {
    const none = { short: "", whole: "", terms: [], legend: [], left: 0, left_flops: 0 };
    latest.value = { ...none, block, version, why, text: why, hasFailed: true };
  };
  useStart(() =>
    kernel.receive(
      "formula",
      (_, formula) => void (formula.block === current.current && (latest.value = formula)),
      (why, { block, version }) => fail(block, version, why),
    ),
  );
  const key = JSON.stringify([path, version]);
  useLayoutEffect(() => {
    if (!path || cost === null || cost.stale || requested.current === key) return;
    requested.current = key;
    kernel.afterRest("formula", "request_formula", { block: path }, (reply) => {
      const why = errorOf(reply);
      if (why !== null) fail(path, version, why);
      else if (!reply.ok && requested.current === key) requested.current = ""; // no reply: request it again
    });
  });
  const found = latest.value?.block === path ? latest.value : null;
  const isOld = found !== null && found.version !== version;
  const message =
    (isOld || !found) && problems.length
      ? "Costs return once the errors are fixed."
      : found
        ? isOld
          ? ""
          : found.why
        : kernel.isGone
          ? "Not connected to the kernel, so the formula cannot be loaded."
          : "Computing…";
  const { terms = [], left = 0, legend = [] } = found ?? {};
  const count = terms.length + left;
  return (
    <section
      class={isOld ? "mnb-block-formula mnb-count-old" : "mnb-block-formula"}
      aria-label="FLOP formula"
      data-mnb-part="formula"
      data-mnb-state={found?.hasFailed ? "failed" : isOld ? "stale" : found ? "ready" : "loading"}
      hidden={!path}
    >
      <div class="mnb-row">
        <span class="mnb-muted">{"FLOP formula"}</span>
        <span class="mnb-grow" />
        <IconButton
          icon="copy"
          label="Copy the formula with its terms, as text"
          action="formula.copy"
          hidden={!found || found.hasFailed === true}
          onClick={(event) => void copyFrom(event.currentTarget, found?.text ?? "")}
        />
      </div>
      <code class="mnb-count" title={found?.whole} hidden={!found?.short}>
        {found?.short}
      </code>
      <p class="mnb-count-status" role="status" hidden={!message}>
        {message}
      </p>
      <details hidden={!terms.length}>
        <summary data-mnb-action="formula.letters">{count === 1 ? "Terms" : `Terms (${count})`}</summary>
        <code class="mnb-count mnb-count-whole" hidden={found?.whole === found?.short}>
          {found?.whole}
        </code>
        <ul class="mnb-terms">
          {terms.map((term, i) => (
            <TermLine key={i} term={term} />
          ))}
          {left > 0 && <li class="mnb-muted">{`and ${left} more · ${si(found!.left_flops, "FLOP")}`}</li>}
        </ul>
        <p class="mnb-count-legend" hidden={!legend.length}>
          {legend.map((meaning) => meaning.join(": ")).join(" · ")}
        </p>
      </details>
    </section>
  );
}
