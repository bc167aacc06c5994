/** The overlay of a graph that the kernel computes, and its exports: their menus in the toolbar, and their messages. */

import { together } from "../dom/calls";
import { copyText } from "../dom/clipboard";
import { type ExportChoice, exportMenu } from "../graph/export";
import { createOverlayLayer, createOverlayMenu, GraphOverlay } from "../graph/overlay";
import type { GraphView } from "../graph/view";
import type { OverlayData, OverlayHead } from "../kernel/contract";
import { decodeJson, errorOf } from "../kernel/messages";
import type { Store } from "../store/store";

/** Overlays that need no costs. */
const WITHOUT_COSTS = new Set(["own values", "dtype"]);
const LINK_HINT =
  "Copy #model=…, a text that contains the model. Append it to the address of a page saved as HTML, or pass it " +
  "to ml.load or mithril-nb lab --app";
const NOT_CONNECTED = "Not connected to the kernel, so the file cannot be made.";

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
    choicesOf((format) => files.request(format), store.snapshot.palette.length > 0, view.root),
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

  return { layer, menu, exports, request: files.request, destroy };
}

/** The files that the kernel makes, as choices of the export menu. */
function choicesOf(request: (format: string) => Promise<string>, hasModel: boolean, near: HTMLElement): ExportChoice[] {
  const of = (format: string, suffix: string, title: string, hint: string): ExportChoice => ({
    title,
    hint,
    suffix,
    make: () => request(format),
  });
  const copy = async () => {
    if (!(await copyText(await request("link"), near)))
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
          of("python", "py", "Python: model", "Code that builds the model"),
          of("model", "model.json", "JSON: model", "The model without its parameters, for ml.load"),
          { title: "Copy link", suffix: "", hint: LINK_HINT, make: copy, done: "Copied" },
        ]
      : []),
  ];
}

interface Waiting {
  resolve: (text: string) => void;
  reject: (error: Error) => void;
}

/** Texts of files that the kernel makes on request. */
function createRequestedFiles(store: Store) {
  const requests = new Map<string, Waiting>();
  const { kernel } = store;
  const destroy = together(
    kernel.on("export", ({ format, problem }, [buffer]) => {
      const waiting = take(format);
      if (problem || !buffer) waiting?.reject(new Error(problem));
      else if (waiting) void decodeJson<string>(buffer).then(waiting.resolve, waiting.reject);
    }),
    kernel.watch(() => {
      if (kernel.isGone) for (const format of [...requests.keys()]) take(format)?.reject(new Error(NOT_CONNECTED));
    }),
  );

  /** Request a file from the kernel. Other pages with the same widget receive it too, and ignore it. */
  async function request(format: string, args: Record<string, unknown> = {}) {
    take(format)?.reject(new Error("A later export of the same format replaced this one."));
    const text = new Promise<string>((resolve, reject) => requests.set(format, { resolve, reject }));
    void store.command("request_export", { format, ...args }).then((reply) => {
      if (!reply.ok) take(format)?.reject(new Error(errorOf(reply) ?? NOT_CONNECTED));
    });
    return text;
  }

  function take(format: string) {
    const waiting = requests.get(format);
    requests.delete(format);
    return waiting;
  }

  return { destroy, request };
}
