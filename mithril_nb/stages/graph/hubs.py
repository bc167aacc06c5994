"""Split hubs: blocks whose operations are between other blocks.

A module often has a few operations between its layers, such as an activation or a concatenation. If these operations
were one node, data would flow from each layer into this node and from there into the next layer, and the graph would
not show the order of the layers. So the node is split into one part for each place between layers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mithril_nb.stages.graph.draft import NodeDraft
from mithril_nb.stages.graph.folds import lines_label, name_of_operations, operations_of
from mithril_nb.stages.records import ById

# Kinds of nodes that a hub can be between.
_AROUND = ("block", "loop", "cond")
_MOST_HUBS = 8


def split_hubs(root: NodeDraft, by_id: ById) -> None:
    """Split the hubs that are directly in the program, or directly in one of its loops and branches."""
    # A hub is a block without parameters and without blocks inside, whose forward results flow back into it through
    # another block. Of the hubs in one node, only the eight with the most operations are split.
    positions: dict[str, int] = {}
    for draft in [*root.walk()]:
        if draft is not root and draft.kind not in ("loop", "branch"):
            continue
        hubs = [
            part
            for part, child in draft.children.items()
            # The ids directly in a block are its parameters.
            if child.kind == "block" and not child.ids and len(child.children) > 1
            if all(node is child or node.kind not in ("block", "repeat") for node in child.walk())
        ]
        if not hubs or sum(child.kind in _AROUND for child in draft.children.values()) < 2:
            continue
        positions = positions or {id: position for position, id in enumerate(by_id)}
        parts = {id: part for part, child in draft.children.items() for node in child.walk() for id in node.ids}
        level = {id: parts[id] for id in sorted(parts, key=positions.__getitem__)}
        cycles = _in_cycles(level, by_id)
        hubs = sorted((part for part in hubs if part in cycles), key=lambda part: -len(draft.children[part].children))
        for part in hubs[:_MOST_HUBS]:
            _split(draft, part, level, by_id)


def _in_cycles(level: Mapping[str, str], by_id: ById) -> set[str]:
    """Return the keys of the child nodes that are in a cycle of forward data, or between two cycles."""
    into: dict[str, set[str]] = {}
    out: dict[str, set[str]] = {}
    for id, part in level.items():
        if by_id[id].role in ("forward", None):
            for maker in by_id[id].operands:
                source = level.get(maker, part)
                if source != part:
                    into.setdefault(part, set()).add(source)
                    out.setdefault(source, set()).add(part)
    left = {*into} & {*out}
    ends = [part for part in {*into} ^ {*out}]
    while ends:
        end = ends.pop()
        for near, back in ((out, into), (into, out)):
            for other in near.pop(end, ()):
                back.get(other, set()).discard(end)
                if other in left and not back.get(other):
                    left.remove(other)
                    ends.append(other)
    return left


def _split(draft: NodeDraft, part: str, level: Mapping[str, str], by_id: ById) -> None:
    hub = draft.children[part]
    units = [*hub.children.values()]
    home = {id: at for at, unit in enumerate(units) for node in unit.walk() for id in node.ids}
    entries, comes_back = _entries(level, part, by_id)
    if not comes_back:
        return
    groups = _groups(units, home, entries, by_id)
    del draft.children[part]
    names = [operations_of(group, by_id) for group in groups]
    # If all parts have the same operations, the block is a function that is called several times: keep its name.
    is_function = len(names[0]) > 1 and all(name == names[0] for name in names)
    for number, group in enumerate(groups):
        parent = draft
        if len(group) > 1:
            name = hub.name if is_function else name_of_operations(group, by_id)
            parent = draft.child(f"{part}:{number}", name, "lines", hub.block)
            parent.note = "" if is_function else lines_label(group)
        else:
            group[0].source = ""  # the rounds of a loop have the same lines, but are separate parts
        for unit in group:
            inner = unit.key[len(hub.key) + 1 :]
            if inner in parent.children:  # another hub has a loop with this key
                inner = f"{part}:{number}:{inner}"
            parent.children[inner] = unit
            unit.parent = parent
            unit.rekey(f"{parent.key}/{inner}" if parent.key else inner)


def _entries(level: Mapping[str, str], hub: str, by_id: ById) -> tuple[dict[str, int], bool]:
    """Count how often data enters a hub from other nodes on its way to each forward instruction."""
    # If several ways lead to an instruction, the largest count is used.
    entries: dict[str, int] = {}
    has_left: dict[str, bool] = {}
    comes_back = False
    for id, part in level.items():  # in program order
        instruction = by_id[id]
        if instruction.role not in ("forward", None) or instruction.opcode == "parameter":
            continue
        is_in = part == hub
        makers = [maker for maker in instruction.operands if maker in entries]
        outside = [maker for maker in makers if level[maker] != hub]
        entries[id] = max((entries[maker] + (is_in and level[maker] != hub) for maker in makers), default=0)
        has_left[id] = any(has_left[maker] for maker in outside) or (not is_in and len(outside) < len(makers))
        comes_back |= is_in and has_left[id]
    return entries, comes_back


def _groups(
    units: Sequence[NodeDraft], home: Mapping[str, int], entries: Mapping[str, int], by_id: ById
) -> list[list[NodeDraft]]:
    """Divide the nodes of a hub into connected nodes with the same count in `entries`, and their backward pass."""
    count = len(units)
    is_forward = [any(id in entries for id in _ids(unit)) for unit in units]
    depth = [max((entries.get(id, 0) for id in _ids(unit)), default=0) for unit in units]
    makers = [{id for inner in _ids(unit) for id in by_id[inner].operands} for unit in units]
    near = [sorted({home[id] for id in makers[at] if id in home} - {at}) for at in range(count)]
    group = list(range(count))

    def first(at: int) -> int:
        while group[at] != at:
            group[at] = at = group[group[at]]
        return at

    for at in range(count):
        for other in near[at] if is_forward[at] else ():
            if is_forward[other] and depth[other] == depth[at]:
                group[first(at)] = first(other)
    # A part that reads nothing from outside, such as constants, joins the only part that uses it.
    takers: dict[int, set[int]] = {}
    reads_outside = {first(at) for at in range(count) if any(id in by_id and id not in home for id in makers[at])}
    for at in range(count):
        for other in near[at] if is_forward[at] else ():
            if is_forward[other] and first(other) != first(at):
                takers.setdefault(first(other), set()).add(first(at))
    for part, users in takers.items():
        if len(users) == 1 and is_forward[part] and part not in reads_outside:
            group[part] = users.pop()
    # The backward pass runs in reverse order.
    lines: dict[str, list[int]] = {}
    for at in reversed(range(count)):
        if is_forward[at] and first(at) not in lines.setdefault(units[at].source, []):
            lines[units[at].source].append(first(at))
    last = [first(max((at for at in range(count) if is_forward[at]), default=0))]
    done: Counter[tuple[str, str]] = Counter()
    for at in range(count):
        if not is_forward[at]:
            near_groups = [first(other) for other in near[at] if is_forward[other] or other < at]
            line = lines.get(units[at].source, last)
            nth = done[units[at].source, units[at].name]
            group[at] = near_groups[0] if near_groups else line[min(nth, len(line) - 1)]
            done[units[at].source, units[at].name] += not near_groups
    parts: dict[int, list[NodeDraft]] = {}
    for at, unit in enumerate(units):
        parts.setdefault(first(at), []).append(unit)
    return [*parts.values()]


def _ids(unit: NodeDraft) -> Iterable[str]:
    return (id for node in unit.walk() for id in node.ids)
