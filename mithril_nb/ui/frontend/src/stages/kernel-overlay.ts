/** The overlay of a graph that the kernel computes: its menus in the toolbar, and its messages. */

import { together } from "../dom/calls";
import { exportMenu } from "../graph/export";
import { GraphOverlay, type OverlayData, OverlayLayer, OverlayMenu } from "../graph/overlay";
import type { GraphView } from "../graph/view";
import { attempt, decodeJson } from "../kernel/messages";
import type { Store } from "../store/store";

interface OverlayMessage {
  stage: string;
  name: string;
  problem: string;
}

export class KernelOverlay {
  readonly layer: OverlayLayer;
  readonly menu: OverlayMenu;
  /** The menu that exports the graph. */
  readonly exports: HTMLElement;
  readonly destroy: () => void;
  private received: Promise<unknown> = Promise.resolve();

  /** `isShown` returns whether the graph of a stage is shown. */
  constructor(
    private readonly store: Store,
    view: GraphView,
    private readonly isShown: (stage: string) => boolean,
  ) {
    this.layer = new OverlayLayer(view);
    this.menu = new OverlayMenu((name, own) => store.command("show_overlay", { name, own }));
    this.exports = exportMenu(view, () => store.snapshot.name, (why) => this.layer.fail(why));
    this.destroy = together(
      store.kernel.on("overlay", (message: OverlayMessage, buffers: DataView[]) => {
        this.received = this.received.then(() => attempt(() => this.receive(message, buffers[0]), (why) => this.layer.fail(why)));
      }),
      store.on("snapshot", () => this.update()),
    );
    this.update();
  }

  private update(): void {
    const { overlay, cost } = this.store.snapshot;
    this.menu.root.hidden = !overlay;
    if (overlay) this.menu.update(overlay, !!cost?.rows.some((row) => row.total));
  }

  private async receive({ stage, name, problem }: OverlayMessage, buffer: DataView | undefined): Promise<void> {
    if (!this.isShown(stage)) return;
    if (problem) this.layer.fail(problem);
    else if (!name || !buffer) this.layer.show(null);
    else {
      const { keys, ...data } = await decodeJson<OverlayData & { keys: string[] }>(buffer);
      this.layer.show(new GraphOverlay(data, keys));
    }
  }
}
