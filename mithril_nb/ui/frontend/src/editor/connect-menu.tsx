/** Connects blocks by keyboard: a menu of the inputs that accept a block's outputs. */

import { useSignal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { Options } from "../controls/options";
import { uid, zoomOf } from "../dom/dom";
import { mount } from "../dom/view";
import { type SceneNode, endId } from "../graph/scene";
import type { GraphView } from "../graph/view";
import type { Store } from "../store/store";
import { type PortRef, targetsOf } from "./graph";

interface Connection {
  source: PortRef;
  target: PortRef;
  connected: boolean;
}

interface ListProps {
  node: SceneNode;
  choices: readonly Connection[];
  /** What each input is connected to. */
  feeders: ReadonlyMap<string, string>;
  take: (choice: Connection) => void;
  /** `byKey` is false if the focus has left already. */
  close: (byKey: boolean) => void;
}

function ConnectList({ node, choices, feeders, take, close }: ListProps) {
  const id = useMemo(() => uid("connect"), []);
  const at = useSignal(0);
  const label = `Connect ${node.name} to`;
  const press = (event: KeyboardEvent) => {
    event.stopPropagation();
    if (event.key === "ArrowDown") at.value = Math.min(at.value + 1, choices.length - 1);
    else if (event.key === "ArrowUp") at.value = Math.max(at.value - 1, 0);
    else if (event.key === "Enter" && choices[at.value]) take(choices[at.value]!);
    else if (event.key === "Escape") close(true);
    else return;
    event.preventDefault();
  };
  const options = choices.map(({ source, target: { endpoint }, connected }) => {
    const feeder = feeders.get(endpoint) ?? "not connected";
    return {
      label: `${node.outputs.length > 1 ? `${source.port.name} → ` : ""}${endpoint}`,
      title: endpoint,
      detail: connected ? "connected; Enter disconnects" : feeder,
    };
  });
  return (
    <div class="mnb-menu">
      <div class="mnb-menu-title" title={node.name}>
        {label}
      </div>
      {!choices.length && <p>{"No input can be connected to this output."}</p>}
      <Options
        id={id}
        label={label}
        options={options}
        at={at.value}
        pick={(at) => take(choices[at]!)}
        tabIndex={0}
        aria-activedescendant={`${id}-${at.value}`}
        onKeyDown={press}
        onBlur={() => close(false)}
      />
    </div>
  );
}

/** Open the menu of a node in a frame, and return a function that closes it. */
export function openConnectMenu(
  store: Store,
  view: GraphView,
  frame: HTMLElement,
  node: SceneNode,
  beside: HTMLElement,
): () => void {
  const { index } = view;
  const choices = node.outputs.flatMap((port): Connection[] => {
    const source: PortRef = { node, port, side: "output", endpoint: endId(node.key, port.name) };
    return targetsOf(index, source).map((found) => ({ source, ...found }));
  });
  const feeders = new Map(index.scene.edges.map((edge) => [edge.target, `connected to ${edge.source}`]));
  let isOpen = true;
  const close = (byKey: boolean) => {
    if (!isOpen) return;
    isOpen = false; // removing the list blurs it, which closes it again
    root.remove();
    destroy();
    if (byKey) view.focus(view.active);
  };
  const take = ({ source, target, connected }: Connection) => {
    store.command(connected ? "disconnect" : "connect", { source: source.endpoint, target: target.endpoint });
    close(true);
  };
  const list = <ConnectList node={node} choices={choices} feeders={feeders} take={take} close={close} />;
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
