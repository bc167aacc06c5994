/** The explanation of a line, in a card below the text of its pane. */

import { useLayoutEffect, useRef } from "preact/hooks";
import { focusedAt } from "../dom/dom";
import { IconButton } from "../dom/view";
import type { Pane } from "./pane";

const TITLES: Record<string, string> = {
  what: "What it computes",
  from: "Where it comes from",
  fate: "What became of it",
  cost: "What it costs",
  cheaper: "What is cheaper",
};

export function Explanation({ pane }: { pane: Pane }) {
  const { explanation } = pane;
  const root = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    const card = root.current!;
    // The user may have moved on before the answer came.
    if (explanation && card.closest("[data-mnb-pane]")!.contains(focusedAt(card))) card.focus();
  }, [explanation]);
  const close = () => {
    pane.explanation = null;
    pane.view.focus();
  };
  return (
    <section
      class="mnb-explanation"
      role="dialog"
      aria-label="Explanation of the line"
      data-mnb-part="explanation"
      tabIndex={-1}
      hidden={!explanation}
      ref={root}
      onKeyDown={(event) => {
        event.stopPropagation();
        if (event.key === "Escape" || event.key.toLowerCase() === "x") close();
      }}
    >
      <div class="mnb-row">
        <code>{explanation?.code}</code>
        <span class="mnb-grow" />
        <IconButton icon="close" label="Close the explanation (Esc)" action="explanation.close" onClick={close} />
      </div>
      <dl>
        {Object.entries(TITLES).map(([kind, title]) => {
          const clauses = explanation?.clauses.filter(([name]) => name === kind) ?? [];
          return (
            clauses.length > 0 && (
              <div key={kind}>
                <dt>{title}</dt>
                {clauses.map(([, text, source]) => (
                  <dd key={text} title={`Source: ${source}`}>
                    {text}
                  </dd>
                ))}
              </div>
            )
          );
        })}
      </dl>
    </section>
  );
}
