/** The search of a workbench or explorer: matches are marked in its graph and stages, and selected in its store. */

import type { Questions } from "../search/questions";
import { Search } from "../search/search";
import type { Panes } from "../stages/panes";
import type { Snapshot } from "../kernel/model";
import type { Store } from "../store/store";

export function storeSearch(store: Store, panes: Panes, questions: Questions): Search {
  const showPane = (stage: string) => {
    if (!store.panes.includes(stage)) store.showPanes([...store.panes, stage].slice(-3));
  };
  let seen: { of: Snapshot["blocks"]; kinds: Record<string, string> } | null = null;
  /** Return the kinds of the blocks, the same object until the blocks change. */
  const blocks = () => {
    const of = store.snapshot.blocks;
    if (seen?.of !== of)
      seen = { of, kinds: Object.fromEntries(Object.values(of).map(({ path, kind }) => [path, kind])) };
    return seen!.kinds;
  };
  const search = new Search({
    begin: () => {
      const { jaxpr } = store.snapshot.stages;
      if (jaxpr && jaxpr.state !== "unavailable" && !store.texts.has("jaxpr"))
        void store.kernel.send("request_stage", { stage: "jaxpr" });
    },
    stages: () => store.texts,
    blocks,
    titleOf: (stage) => store.titleOf(stage),
    show: (found) => {
      questions.search(found);
      panes.showFound(found?.lines ?? null);
    },
    go: (hit, text) => {
      if (hit.kind === "block") store.pinBlocks([hit.path]);
      else if (text) {
        store.pin(
          [{ kind: "instruction", stage: text.stage, version: text.version, index: hit.instruction.index }],
          false,
          text.stage,
        );
        panes.pane(text.stage)?.caretTo(hit.instruction.line);
      }
      questions.reveal(hit);
    },
    goToLine: (stage, line) => {
      showPane(stage);
      const text = store.texts.get(stage);
      const instruction = text?.at(line);
      store.revealStages();
      if (text && instruction)
        store.pin([{ kind: "instruction", stage, version: text.version, index: instruction.index }], false, stage);
      panes.pane(stage)?.caretTo(line);
    },
  });
  store.on("stages", () => search.refresh());
  store.on("snapshot", () => search.follow());
  return search;
}
