/** The Problems tab, and the banner for a command that failed. */

import { useSignal } from "@preact/signals";
import { FixButton, Problem } from "../controls/diagnostic";
import { Button, IconButton } from "../dom/view";
import type { Store } from "../store/store";

export function ProblemsTab({ store }: { store: Store }) {
  const { problems } = store.snapshot;
  return (
    <div class="mnb-problems" data-mnb-part="problems">
      <p class="mnb-hint" hidden={problems.length > 0}>
        {"No problems. All required ports are connected and all shapes match."}
      </p>
      <div class="mnb-problem-list" role="list">
        {problems.map((problem, i) => (
          <div key={`${i} ${problem.code} ${problem.summary}`} role="listitem">
            <Button
              class="mnb-problem"
              title="Go to the location"
              data-mnb-problem={problem.code}
              onClick={() => store.goTo(problem)}
            >
              <Problem problem={problem} />
            </Button>
            <FixButton store={store} problem={problem} />
          </div>
        ))}
      </div>
    </div>
  );
}

export function Notice({ store }: { store: Store }) {
  const { notice } = store.snapshot;
  const key = JSON.stringify(notice);
  const dismissed = useSignal("");
  const dismiss = () => {
    dismissed.value = key;
    void store.command("dismiss");
  };
  return (
    <div
      class="mnb-notice"
      role="alert"
      hidden={!notice || dismissed.value === key}
      data-mnb-part="notice"
      data-mnb-code={notice?.code}
    >
      <div class="mnb-notice-body">
        {notice && <Problem problem={notice} />}
        {notice && <FixButton store={store} problem={notice} />}
      </div>
      <IconButton icon="close" label="Dismiss" action="notice.dismiss" onClick={dismiss} />
    </div>
  );
}
