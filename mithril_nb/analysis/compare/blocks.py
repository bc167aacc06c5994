"""The blocks of two models or programs: which blocks correspond, and which are added, removed, changed or moved."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from mithril_nb.graph.paths import default_name, join_path, lineage
from mithril_nb.graph.records import Endpoint, LogicalGraph
from mithril_nb.graph.spec import exactly
from mithril_nb.stages.alignment import align
from mithril_nb.stages.records import Stage

Mark = Literal["added", "removed", "changed", "renamed", "moved"]
_NUMBERED = re.compile(r"(.*?)_?[0-9]+$")


@dataclass(frozen=True)
class BlockInfo:
    """A block of one of two models or programs that are compared.

    Attributes:
        path: Path of the block, such as `"mlp/linear_0"`.
        kind: Kind of the block, such as `"Linear"`; `""` if unknown, as for a scope of a function.
        options: Values of the block's options by name, and the user's declarations for its ports, such as a dtype.
        structure: A value for comparisons: it is equal for two blocks if they have the same content.
        is_named: True if the user named the block; false for a default name such as `linear_0`.
    """

    path: str
    kind: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    structure: Hashable = None
    is_named: bool = True


Blocks = Mapping[str, BlockInfo]
"""The blocks of one side by path, parents before their children."""


@dataclass(frozen=True)
class BlockChange:
    """A block that differs between the two sides of a comparison.

    Attributes:
        mark: `"added"`, `"removed"`, `"changed"`, `"renamed"`, or `"moved"` (the block is now inside another block).
        before: Path of the block on the left; `None` if it is added.
        after: Path of the block on the right; `None` if it is removed.
        kind: Kind of the block, such as `"Linear"`; `""` if unknown.
        details: A triple for each option that differs: its name, the value on the left and the value on the right, such
            as `("dimension", "3", "4")`. If equations or instructions of the block differ, a last triple counts them:
            `("equations", "", "1 added, 2 changed")`.
        inside: For an added or removed block, the number of blocks inside it, which are not listed separately.
    """

    mark: Mark
    before: str | None
    after: str | None
    kind: str = ""
    details: tuple[tuple[str, str, str], ...] = ()
    inside: int = 0

    @property
    def path(self) -> str:
        """Path of the block on the right. A removed block has only a path on the left, which is returned instead."""
        return (self.before if self.after is None else self.after) or ""

    def to_dict(self) -> dict[str, Any]:
        """Return the change as plain data."""
        return {**vars(self), "details": [list(detail) for detail in self.details]}


def blocks_of_graph(graph: LogicalGraph) -> dict[str, BlockInfo]:
    """Return the blocks of a model by path; `""` is the model itself.

    Examples:
        >>> from mithril_nb.models import Linear, Model
        >>> list(blocks_of_graph((Model() + Linear(3)).graph))
        ['', 'linear_0']
    """
    blocks: dict[str, BlockInfo] = {"": BlockInfo("", options=_notes(graph, ""), structure=())}

    def walk(level: LogicalGraph, prefix: str) -> None:
        for node in level.nodes:
            path = join_path(prefix, node.name)
            options = dict(node.block.attributes) | _notes(level, node.name)
            # Default names end in `_0`, `_1`, ...
            stem = default_name(node.block.kind, 0)[:-2]
            named = _NUMBERED.match(node.name)
            is_named = named is None or named[1] != stem
            # For Python `1`, `1.0` and `True` are equal, so an option that changed its type would not be found.
            structure = (node.block, exactly(tuple(sorted(_notes(level, node.name).items()))))
            blocks[path] = BlockInfo(path, node.block.kind, options, structure, is_named)
            if node.block.graph is not None:
                walk(node.block.graph, path)

    walk(graph, "")
    return blocks


def _notes(graph: LogicalGraph, name: str) -> dict[str, str]:
    notes = {f"name of {end.port}": label for label, end in graph.labels if end.node == name != ""}
    for end, note in graph.notes:
        if end.node == name:
            notes |= {
                f"{end.port} {part}": str(value) for part, value in vars(note).items() if value not in (None, False)
            }
    return notes


def blocks_of_stage(stage: Stage, kinds: Mapping[str, str], of_model: Blocks) -> dict[str, BlockInfo]:
    """Return the blocks of a program by path, from the instructions of a stage."""
    own: dict[str, list[Hashable]] = {}
    for instruction in stage.instructions:
        for path, _ in instruction.shares[:1]:
            own.setdefault(path, []).append((instruction.opcode, instruction.role, instruction.shapes))
    children: dict[str, list[str]] = {"": []}
    for path in own:
        parent, outer = "", path.rpartition("/")[0]
        for around in (*lineage(outer), path):
            if around not in children:
                children[around] = []
                children[parent].append(around)
            parent = around
    structures: dict[str, Hashable] = {}
    # Children come after their parents, so in reverse order their structures are complete.
    for path in reversed(children):
        structures[path] = (tuple(own.get(path, ())), tuple(structures[child] for child in children[path]))
    blocks = dict(of_model) or {"": BlockInfo("", structure=())}
    for path, structure in structures.items():
        if path and path not in blocks:
            name = path.rpartition("/")[2]
            blocks[path] = BlockInfo(path, kinds.get(path, ""), {}, structure, _NUMBERED.match(name) is None)
    return blocks


def match_blocks(before: Blocks, after: Blocks) -> dict[str, str]:
    """Return a dict from the path of each block in `before` to the path of its counterpart in `after`.

    Blocks without a counterpart are left out. Blocks match by path first, then by structure, so that renamed and moved
    blocks are found.
    """
    # Ties are broken in the same way in both directions, and in every process.
    looks, others = (
        [(path, block.kind, repr(block.options)) for path, block in side.items()] for side in (before, after)
    )
    if others < looks or (others == looks and _structures(after) < _structures(before)):
        return {at: to for to, at in match_blocks(after, before).items()}
    matches: dict[str, str] = {}
    matched: set[str] = set()
    levels, others_of = _levels(before), _levels(after)

    def match(left: str, right: str) -> None:
        """Match two blocks, then the blocks inside both."""
        waiting = [(left, right)]
        while waiting:
            left, right = waiting.pop()
            if left not in matches and right not in matched:
                matches[left] = right
                matched.add(right)
                waiting += _match_level(
                    [before[path] for path in levels.get(left, ())], [after[path] for path in others_of.get(right, ())]
                )

    match("", "")
    # Then blocks that moved into others.
    free: dict[Hashable, list[str]] = {}
    # Reversed, so that `pop` returns the first free block.
    for path in reversed([*after]):
        if path not in matched:
            free.setdefault(after[path].structure, []).append(path)
    for path in before:
        candidates = free.get(before[path].structure, []) if path not in matches else []
        # It matched meanwhile, as a block inside another moved block.
        while candidates and candidates[-1] in matched:
            candidates.pop()
        if candidates:
            match(path, candidates.pop())
    return matches


def _structures(blocks: Blocks) -> list[str]:
    return [repr(block.structure) for block in blocks.values()]


def _levels(blocks: Blocks) -> dict[str, list[str]]:
    levels: dict[str, list[str]] = {}
    for path in blocks:
        if path:
            levels.setdefault(path.rpartition("/")[0], []).append(path)
    return levels


def _match_level(before: Sequence[BlockInfo], after: Sequence[BlockInfo]) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    left, right = ({_name(block): block for block in side} for side in (before, after))

    def take(name: str, other: str) -> None:
        pairs.append((left.pop(name).path, right.pop(other).path))

    for name in [name for name, block in left.items() if name in right and block.structure == right[name].structure]:
        take(name, name)
    # A default name is weaker evidence than structure: inserting a block renumbers the blocks after it.
    ours, theirs = ({block.structure for block in side.values()} for side in (left, right))
    for name in [name for name in left if name in right and left[name].kind == right[name].kind]:
        is_elsewhere = left[name].structure in theirs or right[name].structure in ours
        if right[name].is_named or not is_elsewhere:
            take(name, name)
    names, others = list(left), list(right)
    for at, to in align([left[name].structure for name in names], [right[name].structure for name in others]):
        take(names[at], others[to])
    for same_kind in (True, False):
        for name in [name for name in left if name in right]:
            if not same_kind or left[name].kind == right[name].kind:
                take(name, name)
    if len(before) == len(after) == len(left) == 1 and not before[0].kind and not after[0].kind:
        take(*left, *right)  # the scope around everything, such as the function itself
    return pairs


def _name(block: BlockInfo) -> str:
    return block.path.rpartition("/")[2]


def changes_of_blocks(
    before: Blocks, after: Blocks, matches: Mapping[str, str], details: Mapping[str, tuple[str, str, str]]
) -> tuple[BlockChange, ...]:
    """Return the blocks that differ, in the order of `after`.

    A removed block comes after the block that preceded it in `before`.
    """
    changes: list[tuple[int, bool, BlockChange]] = []
    sources = {to: at for at, to in matches.items()}
    added, removed = _inside(after, sources), _inside(before, matches)
    for number, path in enumerate(after):
        if path not in sources:
            outer = path.rpartition("/")[0]
            if outer in sources:  # blocks inside an added block are not listed
                fresh = BlockChange("added", None, path, after[path].kind, inside=added[path])
                changes.append((number, False, fresh))
            continue
        left, right = before[sources[path]], after[path]
        options = _differences(left, right) + ((details[path],) if path in details else ())
        outer, other = left.path.rpartition("/")[0], path.rpartition("/")[0]
        mark: Mark | None = "changed" if options else None
        if matches.get(outer) != other:
            mark = "moved"
        elif _name(left) != _name(right):
            mark = "renamed"
        if mark is not None:
            changes.append((number, False, BlockChange(mark, left.path, path, right.kind, options)))
    numbers, last = {path: number for number, path in enumerate(after)}, -1
    for path in before:
        if path in matches:
            last = max(last, numbers[matches[path]])
        elif path.rpartition("/")[0] in matches:
            gone = BlockChange("removed", path, None, before[path].kind, inside=removed[path])
            changes.append((last, True, gone))
    # The flag puts removed blocks after the change at the same position; sorting is stable, so their order stays.
    return tuple(change for _, _, change in sorted(changes, key=lambda entry: entry[:2]))


def _inside(blocks: Blocks, matched: Container[str]) -> Counter[str]:
    return Counter(outer for path in blocks if path not in matched for outer in lineage(path)[:-1])


def _differences(left: BlockInfo, right: BlockInfo) -> tuple[tuple[str, str, str], ...]:
    changes = [("kind", left.kind, right.kind)] if left.kind != right.kind else []
    for name in dict.fromkeys((*left.options, *right.options)):
        option, other = left.options.get(name), right.options.get(name)
        if exactly(option) != exactly(other) or (name in left.options) != (name in right.options):
            changes.append((name, _text(left, name), _text(right, name)))
    return tuple(changes)


def _text(block: BlockInfo, name: str) -> str:
    if name not in block.options:
        return ""
    value = block.options[name]
    return value if isinstance(value, str) else repr(value)


def connections_of(graph: LogicalGraph, paths: Mapping[str, str]) -> dict[str, None]:
    """Return the connections of a model in order, as keys of a dict: `"linear_0.output -> relu_0.input"`.

    Connections inside a block are left out if the block is not in `paths`.
    """
    connections: dict[str, None] = {}

    def text(end: Endpoint, prefix: str) -> str:
        path = join_path(prefix, end.node) if end.node else prefix
        label = paths.get(path, path)
        return f"{label}.{end.port}" if label else end.port

    def walk(level: LogicalGraph, prefix: str) -> None:
        for edge in level.edges:
            connections[f"{text(edge.source, prefix)} -> {text(edge.target, prefix)}"] = None
        for node in level.nodes:
            path = join_path(prefix, node.name)
            if node.block.graph is not None and path in paths:
                walk(node.block.graph, path)

    walk(graph, "")
    return connections
