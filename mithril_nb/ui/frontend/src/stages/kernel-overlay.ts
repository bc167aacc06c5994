/** The overlay of a graph that the kernel computes, and its exports: their menus in the toolbar, and their messages. */

import { together } from "../dom/calls";
import { copyText } from "../dom/clipboard";
import { type ExportChoice, exportMenu } from "../graph/export";
import { GraphOverlay, OverlayLayer, OverlayMenu } from "../graph/overlay";
import type { GraphView } from "../graph/view";
import type { OverlayData, OverlayHead } from "../kernel/contract";
import { RequestedFiles } from "../store/requested-files";
import type { Store } from "../store/store";

/** Overlays that need no costs. */
const WITHOUT_COSTS = new Set(["own values", "dtype"]);
const LINK_HINT =
  "Copy #model=…, a text that contains the model. Append it to the address of a page saved as HTML, or pass it " +
  "to ml.load or mithril-nb lab --app";

export class KernelOverlay {
  readonly layer: OverlayLayer;
  readonly menu: OverlayMenu;
  /** The menu that exports the graph. */
  readonly exports: HTMLElement;
  readonly destroy: () => void;
  /** The choice of the latest reply. */
  private answered = "";

  /** `isShown` returns whether the graph of a stage is shown. */
  constructor(
    private readonly store: Store,
    view: GraphView,
    private readonly isShown: (stage: string) => boolean,
  ) {
    this.layer = new OverlayLayer(view);
    this.menu = new OverlayMenu((name, own) => store.command("show_overlay", { name, own }));
    const files = new RequestedFiles(store);
    this.exports = exportMenu(
      view,
      () => store.snapshot.name,
      (why) => this.layer.fail(why),
      choicesOf(files, store.snapshot.palette.length > 0, view.root),
    );
    this.destroy = together(
      files.destroy,
      store.kernel.receive(
        "overlay",
        (head, data) => this.take(head, data),
        (why) => this.layer.fail(why),
      ),
      store.on("snapshot", () => this.update()),
    );
    this.update();
  }

  private update(): void {
    const { overlay, cost } = this.store.snapshot;
    this.menu.root.hidden = !overlay;
    if (overlay) this.menu.update(overlay, !!cost?.rows.some((row) => row.total));
    const isOld = cost?.stale && !WITHOUT_COSTS.has(this.layer.name);
    this.layer.fade(
      isOld
        ? "from the previous model"
        : this.layer.name && this.answered !== this.chosen()
          ? "computing the chosen values"
          : "",
    );
  }

  private chosen(): string {
    const { overlay } = this.store.snapshot;
    return overlay?.name ? `${overlay.name} ${overlay.own}` : "";
  }

  private take({ stage, name, own, problem, is_stale }: OverlayHead, data: OverlayData | undefined): void {
    const of = name && `${name} ${own}`;
    if (!this.isShown(stage) || of !== this.chosen()) return; // of an earlier graph or choice
    const isNew = this.answered !== of;
    this.answered = of;
    if (problem) this.layer.fail(problem);
    else if (data) this.layer.show(new GraphOverlay(data, data.keys));
    else if (!name) this.layer.show(null);
    else if (is_stale && isNew) this.layer.fail("Costs return once the errors are fixed.");
    this.update();
  }
}

/** The files that the kernel makes, as choices of the export menu. */
function choicesOf(files: RequestedFiles, hasModel: boolean, near: HTMLElement): ExportChoice[] {
  const of = (format: string, suffix: string, title: string, hint: string): ExportChoice => ({
    title,
    hint,
    suffix,
    make: () => files.request(format),
  });
  const copy = async (): Promise<void> => {
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
