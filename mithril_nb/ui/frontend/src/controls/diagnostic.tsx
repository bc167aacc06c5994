/** A problem as a card. */

import { Button, Icon } from "../dom/view";
import type { ProblemData } from "../kernel/contract";
import type { Store } from "../store/store";

/** The button that mends a problem, if a command does. */
export function FixButton({ store, problem: { fix } }: { store: Store; problem: ProblemData }) {
  if (!fix) return null;
  return (
    <Button
      class="mnb-button mnb-fix"
      action="problem.fix"
      title={[fix.label, fix.hint].filter(Boolean).join(": ")}
      onClick={() => store.command(fix.command, fix.args)}
    >
      {fix.label}
    </Button>
  );
}

/** The summary, aligned facts and advice of a problem. */
export function Problem({ problem: { code, summary, facts, advice } }: { problem: ProblemData }) {
  return (
    <>
      <p class="mnb-summary">
        <Icon name="warning" />
        <span title={summary}>
          {code && <b>{`${code}: `}</b>}
          {summary}
        </span>
      </p>
      {facts.length > 0 && (
        <dl class="mnb-facts">
          {facts.map(([name, value], i) => (
            <div key={i} title={value}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
        </dl>
      )}
      {advice && (
        <p class="mnb-try" title={advice}>
          <b>{"Try: "}</b>
          {advice}
        </p>
      )}
    </>
  );
}
