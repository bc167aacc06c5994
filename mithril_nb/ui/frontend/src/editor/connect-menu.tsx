/** Connects blocks, or shares their parameters, by keyboard: a menu of the ports. */

import { useSignal } from "@preact/signals";
import { useLayoutEffect, useMemo } from "preact/hooks";
import { Options } from "../controls/options";
import { uid, zoomOf } from "../dom/dom";
import { mount } from "../dom/view";
import { type SceneNode, endId } from "../graph/scene";
import type { GraphView } from "../graph/view";
import type { Store } from "../store/store";
import type { ParameterData } from "../kernel/contract";
import { type PortRef, targetsOf } from "./graph";
import { PreviewLines, type Previews } from "./preview";

export interface Choice {
  label: string;
  title: string;
  /** To what the port is connected, or why it cannot be. */
  detail: string;
  /** Name and arguments of the command; missing if the port cannot be connected. */
  edit?: readonly [name: string, args: Record<string, unknown>] | undefined;
  /** What it does instead of a command. */
  act?: () => void;
}

interface ListProps {
  label: string;
  none: string;
  choices: readonly Choice[];
  store: Store;
  previews: Previews;
  /** `byKey` is false if the focus has left already. */
  close: (byKey: boolean) => void;
}

function ConnectList({ label, none, choices, store, previews, close }: ListProps) {
  const id = useMemo(() => uid("connect"), []);
  const at = useSignal(0);
  const take = (at: number) => {
    const { edit, act } = choices[at] ?? {};
    if (!edit && !act) return;
    close(true); // first: the action may open a field
    if (edit) void store.command(...edit);
    else act!();
  };
  const current = choices[at.value]?.edit;
  useLayoutEffect(() => previews.show(current?.[0], current?.[1]), [current]);
  const press = (event: KeyboardEvent) => {
    event.stopPropagation();
    if (event.key === "ArrowDown") at.value = Math.min(at.value + 1, choices.length - 1);
    else if (event.key === "ArrowUp") at.value = Math.max(at.value - 1, 0);
    else if (event.key === "Enter") take(at.value);
    else if (event.key === "Escape") close(true);
    else return;
    event.preventDefault();
  };
  return (
    <div class="mnb-menu">
      <div class="mnb-menu-title" title={label}>
        {label}
      </div>
      {!choices.length && <p>{none}</p>}
      <Options
        id={id}
        label={label}
        options={choices}
        at={at.value}
        pick={take}
        tabIndex={0}
        aria-activedescendant={`${id}-${at.value}`}
        onKeyDown={press}
        onBlur={() => close(false)}
      />
      <PreviewLines previews={previews} />
    </div>
  );
}

/** Return the inputs that the outputs of a node can be connected to, or are connected to. */
export function connectionsOf({ index }: GraphView, node: SceneNode): Choice[] {
  const feeders = new Map(index.scene.edges.map((edge) => [edge.target, `connected to ${edge.source}`]));
  return node.outputs.flatMap((port) => {
    const source: PortRef = { node, port, side: "output", endpoint: endId(node.key, port.name) };
    return targetsOf(index, source).map(({ target: { endpoint }, connected }) => ({
      label: `${node.outputs.length > 1 ? `${port.name} → ` : ""}${endpoint}`,
      title: endpoint,
      detail: connected ? "connected; Enter disconnects" : (feeders.get(endpoint) ?? "not connected"),
      edit: [connected ? "disconnect" : "connect", { source: source.endpoint, target: endpoint }],
    }));
  });
}

/** Return the parameters with which those of a block can share their values; those of other shapes come last. */
export function sharesOf(store: Store, path: string): Choice[] {
  const { blocks } = store.snapshot;
  const own = blocks[path]?.params ?? [];
  const choices = own.flatMap((param) =>
    Object.values(blocks).flatMap((block) =>
      block.params.flatMap((other): Choice[] => {
        const [source, target] = [endId(path, param.port), endId(block.path, other.port)];
        if (source === target || param.is_trainable === null || other.is_trainable === null) return [];
        const isShared = param.name === other.name;
        const problem = shapeProblem(param, other);
        const edit: Choice["edit"] = isShared ? ["unshare", { target }] : ["share", { source, target }];
        const detail = isShared ? "shared; Enter unshares" : problem || other.shape;
        return [{ label: `${param.port} → ${target}`, title: target, detail, edit: problem ? undefined : edit }];
      }),
    ),
  );
  return [...choices.filter(({ edit }) => edit), ...choices.filter(({ edit }) => !edit)];
}

/** Return why a block cannot use the parameter of another one; "" if it can. */
export function shapeProblem(source: ParameterData, target: ParameterData): string {
  const known = [source, target].every(({ shape }) => shape !== "unknown");
  return known && source.shape !== target.shape ? `its shape is ${target.shape}, not ${source.shape}` : "";
}

/** Open a menu of ports in a frame, and return a function that closes it. */
export function openConnectMenu(
  store: Store,
  view: GraphView,
  previews: Previews,
  frame: HTMLElement,
  beside: HTMLElement,
  props: Omit<ListProps, "close" | "store" | "previews">,
): () => void {
  let isOpen = true;
  const close = (byKey: boolean) => {
    if (!isOpen) return;
    isOpen = false; // removing the list blurs it, which closes it again
    root.remove();
    destroy();
    previews.show();
    if (byKey) view.focus(view.active);
  };
  const list = <ConnectList {...props} {...{ store, previews, close }} />;
  const { root, destroy } = mount(list);
  const [outer, inner] = [frame.getBoundingClientRect(), beside.getBoundingClientRect()];
  const zoom = zoomOf(frame);
  frame.append(root);
  // A menu beyond the edge would scroll the canvas when an option is scrolled into view.
  const [right, lowest] = [outer.width / zoom - root.offsetWidth - 8, outer.height / zoom - 180];
  root.style.left = `${Math.max(4, Math.min((inner.right - outer.left) / zoom + 8, right))}px`;
  root.style.top = `${Math.max(4, Math.min((inner.top - outer.top) / zoom, lowest))}px`;
  root.querySelector<HTMLElement>('[role="listbox"]')!.focus({ preventScroll: true });
  return () => close(false);
}
