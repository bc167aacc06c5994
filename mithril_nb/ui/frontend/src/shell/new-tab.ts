/** Opens a second view of a widget in a tab of JupyterLab, beside the notebook. */

import { iconButton } from "../dom/dom";
import type { WidgetModel } from "../kernel/types";

/** The parts of JupyterLab's widget manager in use; other hosts lack some of them. */
interface Manager {
  get_model?: (id: string) => Promise<unknown>;
  create_view?: (model: unknown) => Promise<{ luminoWidget: LuminoWidget }>;
  /** The context of the notebook's document: `DocumentRegistry.IContext`. */
  context?: { addSibling?: (widget: LuminoWidget, options: { mode: string }) => unknown };
}

interface LuminoWidget {
  title: { label: string; caption: string; closable: boolean };
  addClass: (name: string) => void;
}

/** The class of an element that a widget fills. */
export const FILLED = "mnb-filled";

/** Create the button, or return null if the host has no tabs: only JupyterLab adds siblings to a document. */
export function newTabButton(model: WidgetModel, name: string): HTMLButtonElement | null {
  const manager = model.widget_manager as Manager | undefined;
  const id = model.get("own_id");
  // Notebook 7 has the same manager, but shows one document per page.
  if (!manager?.get_model || !manager.create_view || !manager.context?.addSibling || typeof id !== "string" || !id || document.body.dataset["notebook"]) return null;
  const open = async (): Promise<void> => {
    const { luminoWidget: view } = await manager.create_view!(await manager.get_model!(id));
    view.title.label = view.title.caption = name;
    view.title.closable = true;
    view.addClass(FILLED);
    manager.context!.addSibling!(view, { mode: "tab-after" });
  };
  return iconButton("tab", "Open in a JupyterLab tab", "tab.open", () => void open());
}
