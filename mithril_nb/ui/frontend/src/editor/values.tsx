/** The values inside the model for one sample: which sample, and pictures of the output of the selected block. */

import { useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { grouped } from "../dom/format";
import { Button, IconButton, useElapsed, useStart } from "../dom/view";
import type { FedSample, ValueHead, ValuePicture } from "../kernel/contract";
import type { Store } from "../store/store";
import { OwnSample } from "./own-sample";

/** Feed the model with the sample `by` further, at first with the first one; the explorer has no samples. */
export function stepSample(store: Store, by: number): boolean {
  const { values } = store.snapshot as { values?: FedSample };
  if (!values) return false;
  // Before the first sample is the last one. Without data, there is none before the first random input.
  const sample = values.sample + (values.is_shown ? by : 0);
  const next = sample < 0 ? (values.samples ?? 1) - 1 : sample;
  store.kernel.latest("sample", "show_sample", { sample: next, gradients: values.gradients });
  return true;
}

function Picture({ title, svg, about, rows }: ValuePicture) {
  return (
    <figure class="mnb-value">
      <figcaption title={about}>{svg ? `${title} · ${about}` : title}</figcaption>
      {svg ? <img alt={about} src={`data:image/svg+xml,${encodeURIComponent(svg)}`} /> : <output>{about}</output>}
      <dl class="mnb-facts">
        {rows.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </figure>
  );
}

/** The controls of the sample, and the output of the block at `path`; for "", the sample itself. */
export function ValuesView({ store, path }: { store: Store; path: string }) {
  const { values } = store.snapshot;
  const latest = useSignal<{ head: ValueHead; pictures: ValuePicture[] } | null>(null);
  const failure = useSignal("");
  const requested = useRef("");
  const { kernel } = store;
  const { is_shown, sample, samples, own, gradients, message, version } = values;
  useStart(() =>
    kernel.receive(
      "value",
      (head, pictures) => {
        latest.value = { head, pictures };
        failure.value = "";
      },
      (why) => void (failure.value = why),
    ),
  );
  const key = JSON.stringify([path, version]);
  useLayoutEffect(() => {
    if (!is_shown || !version || message || requested.current === key) return;
    requested.current = key;
    kernel.latest("value", "request_value", { block: path }, (reply) => {
      if (!reply.ok && requested.current === key) requested.current = ""; // no reply: request it again
    });
  });
  // The old picture stays until the next one arrives, so that nothing flickers while the sample changes.
  const pictures = latest.value?.head.block === path && !message ? latest.value.pictures : [];
  const elapsed = useElapsed(is_shown && !version);
  const sent = useRef<Record<string, number[]>>({});
  const show = (change: object) =>
    kernel.latest("sample", "show_sample", { sample, gradients, values: own ? sent.current : null, ...change });
  const name = own
    ? "your values"
    : samples === null
      ? `random input ${grouped(sample)}`
      : `sample ${grouped(sample)} of ${grouped(samples)}`;
  return (
    <section
      class="mnb-values"
      aria-label="Values"
      data-mnb-part="values"
      data-mnb-state={pictures.length ? "ready" : is_shown ? "loading" : "off"}
      hidden={!Object.keys(store.snapshot.blocks).length}
    >
      <div class="mnb-row">
        {!is_shown && (
          <Button
            class="mnb-button mnb-quiet"
            action="values.show"
            title="Run the model on one sample, and show the output of each block"
            onClick={() => show({})}
          >
            Feed a sample
          </Button>
        )}
        {is_shown && (
          <>
            <IconButton
              icon="up"
              label="Previous sample (,)"
              action="values.previous"
              onClick={() => stepSample(store, -1)}
            />
            <span role="status">{name}</span>
            <IconButton icon="down" label="Next sample (.)" action="values.next" onClick={() => stepSample(store, 1)} />
            <span class="mnb-grow" />
            <label title="The gradients of the loss with respect to the outputs">
              <input
                type="checkbox"
                data-mnb-action="values.gradients"
                checked={gradients}
                onChange={({ currentTarget }) => show({ gradients: currentTarget.checked })}
              />
              {" gradients"}
            </label>
            <IconButton
              icon="close"
              label="Stop feeding samples"
              action="values.hide"
              onClick={() => void store.command("hide_values")}
            />
          </>
        )}
      </div>
      <p class="mnb-inline-problem" role="alert" hidden={!is_shown || !(message || failure.value)}>
        {message || failure.value}
      </p>
      {is_shown && latest.value && (
        <OwnSample
          inputs={latest.value.head.inputs}
          sample={own ? null : sample}
          feed={(values) => show({ values: (sent.current = { ...(own ? sent.current : {}), ...values }) })}
        />
      )}
      <p class="mnb-muted" hidden={!elapsed}>{`Computing… ${elapsed}`}</p>
      {is_shown && pictures.map((picture, i) => <Picture key={i} {...picture} />)}
    </section>
  );
}
