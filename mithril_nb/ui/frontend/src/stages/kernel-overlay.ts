/** The overlay of a graph that the kernel computes, and its exports: their menus in the toolbar, and their messages. */

import { together } from "../dom/calls";
import { copyText } from "../dom/clipboard";
import { type ExportChoice, exportMenu } from "../graph/export";
import { createOverlayLayer, createOverlayMenu, GraphOverlay } from "../graph/overlay";
import type { GraphView } from "../graph/view";
import type { OverlayData, OverlayHead } from "../kernel/contract";
import { createRequestedFiles, type RequestedFiles } from "../store/requested-files";
import type { Store } from "../store/store";

/** Overlays that need no costs. */
const WITHOUT_COSTS = new Set(["own values", "dtype"]);
const LINK_HINT =
  "Copy #model=…, a text that contains the model. Append it to the address of a page saved as HTML, or pass it " +
  "to ml.load or mithril-nb lab --app";

export function createKernelOverlay(store: Store, view: GraphView, isShown: (stage: string) => boolean) {
  /** The choice of the latest reply. */
  let answered = "";
  const layer = createOverlayLayer(view);
  const menu = createOverlayMenu((name, own) => store.command("show_overlay", { name, own }));
  const files = createRequestedFiles(store);
  const exports = exportMenu(
    view,
    () => store.snapshot.name,
    (why) => layer.fail(why),
    choicesOf(files, store.snapshot.palette.length > 0, view.root),
  );
  const destroy = together(
    files.destroy,
    store.kernel.receive("overlay", take, (why) => layer.fail(why)),
    store.on("snapshot", update),
  );
  update();

  function update() {
    const { overlay, cost } = store.snapshot;
    menu.root.hidden = !overlay;
    if (overlay) menu.update(overlay, !!cost?.rows.some((row) => row.total));
    const isOld = cost?.stale && !WITHOUT_COSTS.has(layer.name);
    layer.fade(
      isOld ? "from the previous model" : layer.name && answered !== chosen() ? "computing the chosen values" : "",
    );
  }

  function chosen() {
    const { overlay } = store.snapshot;
    return overlay?.name ? `${overlay.name} ${overlay.own}` : "";
  }

  function take({ stage, name, own, problem, is_stale }: OverlayHead, data: OverlayData | undefined) {
    const of = name && `${name} ${own}`;
    if (!isShown(stage) || of !== chosen()) return; // of an earlier graph or choice
    const isNew = answered !== of;
    answered = of;
    if (problem) layer.fail(problem);
    else if (data) layer.show(new GraphOverlay(data, data.keys));
    else if (!name) layer.show(null);
    else if (is_stale && isNew) layer.fail("Costs return once the errors are fixed.");
    update();
  }

  return { layer, menu, exports, destroy };
}

/** The files that the kernel makes, as choices of the export menu. */
function choicesOf(files: RequestedFiles, hasModel: boolean, near: HTMLElement): ExportChoice[] {
  const of = (format: string, suffix: string, title: string, hint: string): ExportChoice => ({
    title,
    hint,
    suffix,
    make: () => files.request(format),
  });
  const copy = async () => {
    if (!(await copyText(await files.request("link"), near)))
      throw new Error("Copying is not allowed here. model.share_link() in Python returns the link.");
  };
  return [
    of(
      "html",
      "html",
      "HTML: page of all stages",
      "One file that needs no kernel and no network. Compiles the program",
    ),
    of("json", "json", "JSON: all stages", "The stages as data, without the passes. Compiles the program"),
    ...(hasModel
      ? [
          of("model", "model.json", "JSON: model", "The model without its parameters, for ml.load"),
          { title: "Copy link", suffix: "", hint: LINK_HINT, make: copy, done: "Copied" },
        ]
      : []),
  ];
}
