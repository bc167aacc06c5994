/** The nodes of a stage's graph: their links to blocks and equations, and their texts. */

import { titled } from "../costs/figures";
import { percent } from "../dom/format";
import { times } from "../drawing/lettering";
import type { Description } from "../graph/items";
import type { Scene, SceneNode } from "../graph/scene";
import { type Anchor, anchorId } from "../store/links";

/**
 * Return the keys of the nodes that some anchors are linked to. `blocks` and `ids` are the blocks and equations of the
 * anchors.
 */
export function linkedKeys(
  nodes: readonly SceneNode[],
  anchors: readonly Anchor[],
  blocks: ReadonlySet<string>,
  ids: ReadonlySet<string>,
): Set<string> {
  const found = new Set<string>();
  if (anchors.length === 0) return found;
  const given = new Set(anchors.map(anchorId));
  for (const node of nodes) {
    const own = blocksOf(node);
    const isLinked = own.length
      ? own.some((path) => blocks.has(path))
      : node.equations?.some((id) => ids.has(id)) || anchorsOf(node).some((one) => given.has(anchorId(one)));
    if (isLinked) found.add(node.key);
  }
  return found;
}

/** Return the paths of the blocks that a node represents; none if it has equations. */
function blocksOf(node: SceneNode) {
  if (node.equations?.length) return [];
  return node.blocks?.length ? node.blocks : node.path ? [node.path] : [];
}

export function anchorsOf(node: SceneNode): Anchor[] {
  const blocks = blocksOf(node);
  if (blocks.length) return blocks.map((path) => ({ kind: "block", path }));
  return node.equations?.length ? [{ kind: "equations", name: node.key, ids: [...node.equations] }] : [];
}

/** Return the accessible name and the tooltip of a node. */
export function describe(node: SceneNode, { roles }: Scene): Description {
  const kind =
    node.kind === "block" || node.kind === "instruction"
      ? node.kind
      : node.kind === "repeat"
        ? "repeated part"
        : node.kind;
  const counts =
    node.kind === "instruction" || node.kind === "input"
      ? ""
      : [...roles, "without a role"]
          .map((role, at) => (node.counts?.[at] ? `${node.counts[at]} ${role}` : ""))
          .filter(Boolean)
          .join(", ");
  const share =
    node.share === null
      ? ""
      : `${percent(node.share)} of ${node.group && node.kind === "block" ? titled("FLOPs", false) : "FLOPs"}`;
  const parts = [`${kind} ${times(node.name, node.repeat)}`, node.label, node.shape, share, counts].filter(Boolean);
  const act = node.group ? (node.expanded ? "double-click or ← to close" : "double-click or → to open") : "";
  return { name: parts.join(", "), tip: [...parts, act].filter(Boolean) };
}
