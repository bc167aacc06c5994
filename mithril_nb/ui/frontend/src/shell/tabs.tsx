/** A bar of tabs with their panels: Cost, Passes, Train and others. */

import { handled } from "../dom/events";
import { useMemo, useRef } from "preact/hooks";
import { FullButton } from "../controls/full-screen";
import { uid } from "../dom/dom";
import { Button, Holder, useSize } from "../dom/view";
import type { Store } from "../store/store";

export interface Tab {
  name: string;
  title: string;
  root: HTMLElement;
  /** Returns a figure shown beside the title, such as the number of problems. */
  figure?: () => string;
  /** Returns whether its content is shown elsewhere, so that the tab is hidden. */
  isAway?: () => boolean;
}

interface TabsProps {
  store: Store;
  tabs: readonly Tab[];
  label?: string;
  /** True if a click on the selected tab closes its panel; no tab is selected then. */
  canClose?: boolean;
}

/** Open the remembered tab, or `usual` if there is none. */
export function restoreTab(store: Store, tabs: readonly Tab[], usual: string, canClose = false): void {
  const tab = store.memory.get("tab", usual);
  store.showTab(tabs.some(({ name }) => name === tab) || (canClose && tab === "") ? tab : usual);
}

export function Tabs({ store, tabs, label = "Cost, passes, training, source, problems", canClose }: TabsProps) {
  const bar = useRef<HTMLDivElement>(null);
  const id = useMemo(() => uid("tab"), []);
  const isOpen = tabs.some(({ name }) => name === store.tab);
  // The buttons of the stages are in the same row, after the tabs.
  useSize(bar, () => {
    const root = bar.current!.closest<HTMLElement>(".mnb-tabs");
    root?.style.setProperty("--mnb-tabs-width", `${bar.current!.scrollWidth + 12}px`);
  });
  const press = (event: KeyboardEvent, at: number) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (by === undefined) return;
    handled(event);
    const others = tabs.map((_, i) => (at + by * (i + 1) + tabs.length * tabs.length) % tabs.length);
    const next = others.find((other) => !tabs[other]!.isAway?.())!;
    store.showTab(tabs[next]!.name);
    (bar.current!.children[next] as HTMLElement).focus();
  };
  return (
    <section class="mnb-tabs" tabIndex={-1} data-mnb-full="this tab" data-mnb-open={String(isOpen)}>
      <div class="mnb-bar mnb-tabs-bar">
        <div class="mnb-tab-list" role="tablist" aria-label={label} ref={bar}>
          {tabs.map(({ name, title, figure, isAway }, i) => {
            const isShown = store.tab === name;
            return (
              <Button
                key={name}
                class="mnb-tab"
                role="tab"
                id={`${id}-${name}`}
                aria-controls={`${id}-${name}-panel`}
                aria-selected={isShown}
                tabIndex={isShown || (!isOpen && i === 0) ? 0 : -1}
                title={canClose ? `${isShown ? "Close" : "Open"} ${title}` : undefined}
                hidden={isAway?.()}
                data-mnb-tab={name}
                onClick={() => store.showTab(canClose && isShown ? "" : name)}
                onKeyDown={(event) => press(event, i)}
              >
                <span>{title}</span>
                <span class="mnb-tab-figure">{figure?.()}</span>
              </Button>
            );
          })}
        </div>
        <span class="mnb-grow" />
        <FullButton label="this tab" action="tab" />
      </div>
      {tabs.map(({ name, root }) => (
        <Holder
          key={name}
          class="mnb-tab-panel"
          role="tabpanel"
          id={`${id}-${name}-panel`}
          aria-labelledby={`${id}-${name}`}
          hidden={store.tab !== name}
          data-mnb-panel={name}
          nodes={[root]}
        />
      ))}
    </section>
  );
}
