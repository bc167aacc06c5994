"""A stage as a graph in levels: blocks, loops and branches that open, equal ones folded, instructions at the bottom.

Forward, backward and update of a block are one node with three counts: a train step looks like its model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from mithril_nb.display import Shown
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.frozen import quick_to_make
from mithril_nb.stages.records import LOSS, OPTIMIZER, ROLES, Role

Kind = Literal["block", "loop", "cond", "branch", "call", "repeat", "lines", "bucket", "instruction", "input"]
ROOT = ""
_FEW = 4
_STRUCTURE = frozenset({"block", "loop", "cond", "branch", "repeat"})
MOST = 25
"""As many nodes are taken in at a glance; a level with more is folded further."""


@quick_to_make
@dataclass(frozen=True)
class GraphNode:
    """One node of a stage's graph.

    Attributes:
        key: Unique in its graph; `""` for the root.
        name: What a person calls it.
        kind: What it is.
        block: Path of the block that it is, or is part of.
        parent: Key of the node that it is inside of.
        children: Keys of the nodes inside, in the order of the program.
        ids: Instructions that stand in it directly; those of its children not among them.
        counts: Number of instructions in all of it: forward, backward, update, and without a role.
        shape: What it gives.
        repeat: How many equal ones it stands for.
        members: Keys of these, its own among them, where they are nodes.
        note: What else to know: `"10 rounds"`, `"unknown number of rounds"`.
    """

    key: str
    name: str
    kind: Kind
    block: str
    parent: str
    children: tuple[str, ...] = ()
    ids: tuple[str, ...] = field(default=(), repr=False)
    counts: tuple[int, int, int, int] = (0, 0, 0, 0)
    shape: str = ""
    repeat: int = 1
    members: tuple[str, ...] = field(default=(), repr=False)
    note: str = ""


@dataclass(frozen=True)
class GraphEdge:
    """All data that flows from one visible node to another.

    Attributes:
        source: Key of the node that gives.
        target: Key of the node that takes.
        roles: The roles of what takes it, in the order of a step.
        shape: What flows, if that is one shape; the largest, followed by how many more there are, if not.
    """

    source: str
    target: str
    roles: tuple[Role, ...]
    shape: str


@dataclass(frozen=True)
class StageGraph(Shown):
    """A stage as a graph in levels.

    Attributes:
        stage: Name of the stage.
        nodes: All nodes by key, parents before their children; those that a fold hides too.
        flows: For each pair of instructions of which one takes what the other gives, both and the spec of it.
        roles: Role of each instruction that has one.
        equations: Ids of the equations of each instruction.
        hidden: For each key that a fold hides, the key of the one that stands for it.
    """

    stage: str
    nodes: Mapping[str, GraphNode] = field(repr=False)
    flows: tuple[tuple[str, str, TensorSpec | None], ...] = field(repr=False)
    roles: Mapping[str, Role] = field(repr=False)
    equations: Mapping[str, tuple[str, ...]] = field(repr=False)
    hidden: Mapping[str, str] = field(repr=False)

    @cached_property
    def home(self) -> dict[str, str]:
        """The node in which each instruction stands."""
        return {id: node.key for node in self.nodes.values() for id in node.ids}

    def level(self, key: str = ROOT) -> tuple[GraphNode, ...]:
        """Return the nodes directly inside a node."""
        return tuple(self.nodes[child] for child in self.nodes[key].children)

    def stands_for(self, key: str) -> tuple[str, ...]:
        """Return the keys of all nodes that one stands for, its own first: inside of a fold, those of all rounds."""
        node = self.nodes[key]
        return node.members or (key, *self._twins.get(key, ()))

    @cached_property
    def _twins(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for key, stands in self.hidden.items():
            while stands in self.hidden:  # a fold inside of a fold
                stands = self.hidden[stands]
            if key in self.nodes and self.nodes[key].name == self.nodes[stands].name:
                found.setdefault(stands, []).append(key)
        return found

    def share(self, key: str, shares: Mapping[str, float]) -> float | None:
        """Return a block's share of the cost, with those that it stands for; `None` if that is not known.

        Where calls of one function are several nodes, nobody knows how much each has of what their path has.
        """
        if self.nodes[key].kind != "block" or self._parts[self.nodes[key].block] > 1:
            return None
        paths = dict.fromkeys(self.nodes[one].block for one in self.stands_for(key))
        known = [shares[path] for path in paths if path in shares]
        return sum(known) if known else None

    @cached_property
    def _parts(self) -> Counter[str]:
        shown = (node for key, node in self.nodes.items() if key not in self.hidden)
        return Counter(node.block for node in shown if node.kind == "block")

    def instructions_of(self, key: str) -> tuple[str, ...]:
        """Return the ids of all instructions in a node; in those that it stands for, too."""
        found: list[str] = []
        waiting = [*reversed(self.nodes[key].members or (key,))]
        while waiting:
            node = self.nodes[waiting.pop()]
            found.extend(node.ids)
            waiting.extend(reversed(node.children))
            waiting.extend(member for child in node.children for member in self.nodes[child].members[1:])
        return tuple(dict.fromkeys(found))

    def visible(self, opened: Collection[str] = ()) -> tuple[GraphNode, ...]:
        """Return the nodes that are seen when those of some keys are open: a parent comes before what is in it."""
        found: list[GraphNode] = []
        waiting = [*reversed(self.level())]
        while waiting:
            node = waiting.pop()
            found.append(node)
            if node.key in opened:
                waiting.extend(reversed(self.level(node.key)))
        return tuple(found)

    def edges(self, opened: Collection[str] = ()) -> tuple[GraphEdge, ...]:
        """Return what flows between visible nodes, bundled, in the order of the program."""
        visible = {node.key for node in self.visible(opened)}
        seen: dict[str, str] = {}
        bundles: dict[tuple[str, str], tuple[set[Role], dict[TensorSpec, None]]] = {}
        for source, target, spec in self.flows:
            tail, head = (self._shown(self.home[end], visible, seen) for end in (source, target))
            # What a frame takes goes on to what is inside of it, which has a flow of its own.
            if tail == head or head in opened or not tail or not head or self._inside(tail, head):
                continue
            if self._is_carried(self.home[source], self.home[target]):
                continue
            roles, specs = bundles.setdefault((tail, head), (set(), {}))
            if target in self.roles:
                roles.add(self.roles[target])
            if spec is not None:
                specs[spec] = None
        return tuple(
            GraphEdge(tail, head, tuple(role for role in ROLES if role in roles), shapes_text(specs))
            for (tail, head), (roles, specs) in bundles.items()
        )

    def first_view(self, most: int = MOST, shares: Mapping[str, float] | None = None) -> frozenset[str]:
        """Return which nodes to open so that the first picture has at most `most` nodes, and says as much as it can.

        What is dearest opens first: by its share of the cost if that is known, else by its instructions.
        """
        opened: set[str] = set()
        count = len(self.level())
        waiting = [node for node in self.level() if node.children]
        while waiting:
            waiting.sort(key=lambda node: (-self._weight(node, shares or {}), -sum(node.counts), node.key))
            node = waiting.pop(0)
            if count + len(node.children) <= most and self._says_more(node, len(self.level())):
                opened.add(node.key)
                count += len(node.children)
                waiting.extend(child for child in self.level(node.key) if child.children)
        return frozenset(opened)

    def _weight(self, node: GraphNode, shares: Mapping[str, float]) -> float:
        share = self.share(node.key, shares) if shares else None
        return sum(node.counts) / max(1, len(self.home)) if share is None else share

    def _says_more(self, node: GraphNode, top: int) -> bool:
        """Whether the first view is better with a node open: single instructions are for those who ask for them."""
        inside = self.level(node.key)
        if node.block in (LOSS, OPTIMIZER) or (len(inside) == 1 and not inside[0].children):
            return False
        return top < _FEW or node.kind in ("loop", "cond", "branch") or any(one.kind in _STRUCTURE for one in inside)

    def _shown(self, key: str, visible: set[str], seen: dict[str, str]) -> str:
        """Return the visible node in which a node is, or `""`."""
        if key not in seen:
            stands = self.hidden.get(key, key)
            if stands != key:
                seen[key] = self._shown(stands, visible, seen)
            else:
                outer = self._shown(self.nodes[key].parent, visible, seen) if key else ""
                shown_parent = not key or not self.nodes[key].parent or outer == self.nodes[key].parent
                seen[key] = key if key in visible and shown_parent else outer
        return seen[key]

    def _is_carried(self, source: str, target: str) -> bool:
        """Whether data flows from one to another of those that a node stands for: a picture of one has no such edge."""
        before = self._folds(source)
        return bool(before) and any(before.get(fold, member) != member for fold, member in self._folds(target).items())

    def _folds(self, key: str) -> dict[str, str]:
        """Return which member of each fold a node is in."""
        if key not in self._fold_cache:
            above = self._folds(self.nodes[key].parent) if key else {}
            fold = self._fold_of.get(key)
            self._fold_cache[key] = above if fold is None else {**above, fold: key}
        return self._fold_cache[key]

    @cached_property
    def _fold_of(self) -> dict[str, str]:
        return {member: node.key for node in self.nodes.values() for member in node.members}

    @cached_property
    def _fold_cache(self) -> dict[str, dict[str, str]]:
        return {}

    def _inside(self, outer: str, inner: str) -> bool:
        while inner:
            inner = self.nodes[inner].parent
            if inner == outer and outer:
                return True
        return False


def short_shape(spec: TensorSpec) -> str:
    """Return a spec in few characters: float32 goes without saying.

    Examples:
        >>> short_shape(TensorSpec((32, 64))), short_shape(TensorSpec((2,), "int32")), short_shape(TensorSpec(()))
        ('32×64', '2 int32', 'scalar')
    """
    sizes = "×".join(map(str, spec.shape)) or "scalar"
    return sizes if spec.dtype == "float32" else f"{sizes} {spec.dtype}"


def shapes_text(specs: Iterable[TensorSpec]) -> str:
    """Return the largest of some specs, and how many more there are.

    Examples:
        >>> shapes_text([TensorSpec((2,)), TensorSpec((3, 4))])
        '3×4 +1'
    """
    found = list(specs)
    if not found:
        return ""
    if len(found) == 1:
        return short_shape(found[0])
    largest = max(found, key=lambda spec: (_size(spec), str(spec)))
    return f"{short_shape(largest)} +{len(found) - 1}"


def _size(spec: TensorSpec) -> int:
    size = 1
    for dim in spec.shape:
        size *= dim if isinstance(dim, int) else 1
    return size
