/** Opens a second view of a widget in a tab of JupyterLab, beside the notebook. */

import { IconButton } from "../dom/view";
import type { WidgetModel } from "../kernel/model";

/** The parts of JupyterLab's widget manager in use; other hosts lack some of them. */
interface Manager {
  get_model?: (id: string) => Promise<unknown>;
  create_view?: (model: unknown) => Promise<{ luminoWidget: LuminoWidget }>;
  /** The context of the notebook's document: `DocumentRegistry.IContext`. */
  context?: { addSibling?: (widget: LuminoWidget) => unknown };
}

interface LuminoWidget {
  node: HTMLElement;
  title: { label: string; caption: string; closable: boolean };
  disposed: { connect: (slot: () => void) => void };
  addClass: (name: string) => void;
  dispose: () => void;
}

interface LuminoClass {
  new (): LuminoWidget;
  attach: (widget: LuminoWidget, host: HTMLElement) => void;
}

/** The button; missing if the host has no tabs: only JupyterLab adds siblings to a document. */
export function NewTabButton({ model, name }: { model: WidgetModel; name: string }) {
  const manager = model.widget_manager as Manager | undefined;
  // Notebook 7 has the same manager, but shows one document per page.
  if (!manager?.get_model || !manager.create_view || !manager.context?.addSibling || document.body.dataset["notebook"])
    return null;
  const open = async () => {
    const { luminoWidget: view } = await manager.create_view!(await manager.get_model!(model.get("own_id") as string));
    // ipywidgets resets the size of a view when it is displayed, so another element gets the size of the tab.
    const Widget = Object.getPrototypeOf(Object.getPrototypeOf(view)).constructor as LuminoClass;
    const page = new Widget();
    page.title.label = page.title.caption = name;
    page.title.closable = true;
    page.addClass("mnb-filled");
    page.disposed.connect(() => view.dispose());
    manager.context!.addSibling!(page);
    Widget.attach(view, page.node);
  };
  return <IconButton icon="tab" label="Open in a JupyterLab tab" action="tab.open" onClick={() => void open()} />;
}
