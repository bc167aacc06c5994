/** The widget, as its host shows it, and its snapshot. */

import type { ExplorerSnapshot, WorkbenchSnapshot } from "./contract";

/** The snapshot of a workbench, or that of an explorer with defaults. */
export type Snapshot = WorkbenchSnapshot & Partial<Omit<ExplorerSnapshot, keyof WorkbenchSnapshot>>;

/** The part of anywidget's model that the front end uses. */
export interface WidgetModel {
  get(name: string): unknown;
  set(name: string, value: unknown, options?: { silent: boolean }): void;
  on(event: string, callback: (...args: any[]) => void): void;
  off(event: string, callback: (...args: any[]) => void): void;
  send(content: unknown, callbacks?: unknown, buffers?: unknown): void;
  widget_manager?: unknown;
}

/** The arguments that a host passes to a widget that it shows. */
export interface Mounted {
  model: WidgetModel;
  el: HTMLElement;
}

/** The views of the Cost tab. */
export type CostView = "table" | "treemap" | "roofline" | "memory" | "beside" | "what_if";
