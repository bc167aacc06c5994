"""A stage as a graph of nested nodes: blocks, loops and branches, with the instructions inside. Equal nodes are folded.

Forward pass, backward pass and update of a block are one node with three counts, so that a train step looks like its
model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Literal

from mithril_nb.display import Shown
from mithril_nb.graph.reach import Reach
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.records import LOSS, OPTIMIZER, Role, quick_to_make

Kind = Literal[
    "block", "loop", "cond", "branch", "call", "repeat", "lines", "bucket", "instruction", "input", "failure"
]
Flow = tuple[str, str, TensorSpec | None]
"""Producer and user of data, and its spec."""
Gradient = tuple[str, str, bool]
"""The user of a value, its producer, and whether the value goes to the next round of a loop."""
ROOT = ""
FAILURE = "(failure)"
"""Key of the node of the equation that failed to trace."""
# With fewer top-level nodes than this, the first view opens blocks even if they contain only instructions.
_FEW = 4
# A first view with fewer nodes than this shows too little. It may be scaled down to `_SMALLEST`, to open more nodes.
_FEW_NODES = 9
_SMALLEST, _SMALL = 0.7, 0.95
_NAMED = frozenset({"block", "loop", "cond", "branch"})
MOST = 25
"""Default maximum number of nodes on one level. A level with more is folded further."""


@quick_to_make
@dataclass(frozen=True)
class GraphNode:
    """One node of a stage's graph.

    Attributes:
        key: Identifies the node in its graph; `""` for the root.
        name: Label of the node.
        kind: Kind of the node, such as `"block"` or `"loop"`.
        block: Path of the block that the node is, or that contains it.
        parent: Key of the node that contains this one; `""` for the root, and for the nodes directly in the root.
        children: Keys of the nodes inside, in program order.
        ids: Ids of the instructions directly inside, without those of `children`.
        counts: Numbers of instructions inside, at any depth: of role forward, backward, update, and unknown.
        shape: Shape of the node's result as text, such as `"32×64"`; `""` if unknown.
        repeat: Number of equal nodes that this node represents, or of repetitions of the sequence of nodes inside it.
        members: Keys of the equal nodes that this node represents, its own key first; `()` if there are no others.
        note: Further information, such as `"×10 rounds"`; `""` for none.
        dtype: Dtype of the largest array of the node's result; `""` if unknown.
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
    dtype: str = ""


@dataclass(frozen=True)
class GraphLink:
    """All data that flows from one node to another.

    Attributes:
        source: Key of the node that produces the data.
        target: Key of the node that uses the data.
        roles: The roles of the instructions that use the data: `"forward"`, `"backward"`, `"update"`.
        specs: The specs of the data.
        loop: Key of the loop if the data goes to the loop's next iteration, else `""`.
        is_gradient: True for a gradient that passes through sums, for which the program has no direct data flow.
        is_between_rounds: True if the data flows between equal nodes, or sequences of nodes, that are shown as one.
    """

    source: str
    target: str
    roles: frozenset[Role]
    specs: tuple[TensorSpec, ...]
    loop: str = ""
    is_gradient: bool = False
    is_between_rounds: bool = False


@dataclass(frozen=True)
class StageGraph(Shown):
    """A stage as a graph of nested nodes.

    Attributes:
        stage: Name of the stage.
        nodes: All nodes by key, parents before their children. It includes the nodes in `hidden`.
        flows: For each pair of instructions with data flow: id of the instruction that computes the data, id of the one
            that uses it, and spec. A loop's result is computed by an instruction in its body.
        roles: A dict from the id of each instruction with a known role to `"forward"`, `"backward"` or `"update"`.
        equations: A dict from the id of each instruction to the ids of the jaxpr's equations that it came from.
        hidden: A dict from the key of each node that is not shown to the key of the node that represents it.
        carried: The same as `flows`, for data that a loop passes to its next iteration.
        gradients: For each gradient that passes through sums: ids of the instructions that use and compute the value,
            and whether a loop passes the value to its next iteration.
    """

    stage: str
    nodes: Mapping[str, GraphNode] = field(repr=False)
    flows: tuple[Flow, ...] = field(repr=False)
    roles: Mapping[str, Role] = field(repr=False)
    equations: Mapping[str, tuple[str, ...]] = field(repr=False)
    hidden: Mapping[str, str] = field(repr=False)
    carried: tuple[Flow, ...] = field(repr=False, default=())
    gradients: tuple[Gradient, ...] = field(repr=False, default=())

    @cached_property
    def home(self) -> dict[str, str]:
        """A dict from the id of an instruction to the key of the node that directly contains it."""
        return {id: node.key for node in self.nodes.values() for id in node.ids}

    def level(self, key: str = ROOT) -> tuple[GraphNode, ...]:
        """Return the nodes directly inside a node."""
        return tuple(self.nodes[child] for child in self.nodes[key].children)

    def represented_by(self, key: str) -> tuple[str, ...]:
        """Return the keys of the nodes that a node represents: its own key, then those of the equal hidden nodes."""
        node = self.nodes[key]
        return node.members or (key, *self._twins.get(key, ()))

    @cached_property
    def _twins(self) -> dict[str, list[str]]:
        twins: dict[str, list[str]] = {}
        for key, visible_key in self.hidden.items():
            while visible_key in self.hidden:  # a fold inside another
                visible_key = self.hidden[visible_key]
            if key in self.nodes and self.nodes[key].name == self.nodes[visible_key].name:
                twins.setdefault(visible_key, []).append(key)
        return twins

    def is_whole_block(self, key: str) -> bool:
        """Return whether a node is a whole block. A block that is split into several nodes has no such node."""
        return self.nodes[key].kind == "block" and self._parts[self.nodes[key].block] <= 1

    @cached_property
    def _parts(self) -> Counter[str]:
        visible = (node for key, node in self.nodes.items() if key not in self.hidden)
        return Counter(node.block for node in visible if node.kind == "block")

    def instructions_of(self, key: str) -> tuple[str, ...]:
        """Return the ids of all instructions in a node and in the nodes folded into it."""
        ids: list[str] = []
        waiting = [*reversed(self.nodes[key].members or (key,))]
        while waiting:
            node = self.nodes[waiting.pop()]
            ids.extend(node.ids)
            waiting.extend(reversed(node.children))
            waiting.extend(member for child in node.children for member in self.nodes[child].members[1:])
        return tuple(dict.fromkeys(ids))

    def ancestors(self, key: str) -> tuple[str, ...]:
        """Return the keys of the nodes whose data reaches a node, in program order.

        Nodes that contain other nodes are left out. If the node has instructions of the forward pass, only data of the
        forward pass counts.

        Args:
            key: Key of the node. Nodes inside it are left out too.

        Examples:
            >>> import jax.numpy as jnp
            >>> from mithril_nb.inspection import inspect_function as inspect
            >>> graph = inspect(lambda x: jnp.exp(jnp.sin(x)) + 1, jnp.zeros(3)).graph()
            >>> [graph.nodes[one].name for one in graph.ancestors(graph.home["1"])]
            ['x', 'sin']
        """
        starts = self._inside(key)
        return self._leaves(self._reach(key).before(starts), starts)

    def descendants(self, key: str) -> tuple[str, ...]:
        """Return the keys of the nodes that the data of a node reaches; see `ancestors`."""
        starts = self._inside(key)
        return self._leaves(self._reach(key).after(starts), starts)

    def between(self, source: str, target: str) -> tuple[str, ...] | None:
        """Return the keys of the nodes on all paths from one node to another; `None` if there is no path."""
        starts, ends = self._inside(source), self._inside(target)
        reach = self._reach(source)
        after = reach.after(starts)
        return None if after.isdisjoint(ends) else self._leaves(after & reach.before(ends), starts | ends)

    def _inside(self, key: str) -> set[str]:
        if key not in self.nodes:
            raise KeyError(key)
        visible_key = self._visible_key(key, {})
        return {visible_key, *(node.key for node in self.visible(self.nodes) if visible_key in self._above(node.key))}

    def _reach(self, key: str) -> Reach[str]:
        # Search nodes instead of instructions, as `search/reach.ts` does: a saved page has no instructions.
        is_forward = self.nodes[self._visible_key(key, {})].counts[0] > 0
        return Reach(
            (link.source, link.target)
            for link in self.links
            if not link.is_gradient and (not is_forward or not link.roles or "forward" in link.roles)
        )

    def _leaves(self, keys: Collection[str], ends: Collection[str]) -> tuple[str, ...]:
        """Return the `keys` that are not in `ends` and whose nodes contain no others, in program order."""
        nodes = (node for node in self.visible(self.nodes) if node.key in keys and node.key not in ends)
        return tuple(node.key for node in nodes if not node.children)

    def visible(self, opened: Collection[str] = ()) -> tuple[GraphNode, ...]:
        """Return the nodes that are visible if the nodes with these keys are open, parents before children."""
        nodes: list[GraphNode] = []
        waiting = [*reversed(self.level())]
        while waiting:
            node = waiting.pop()
            nodes.append(node)
            if node.key in opened:
                waiting.extend(reversed(self.level(node.key)))
        return tuple(nodes)

    @cached_property
    def links(self) -> tuple[GraphLink, ...]:
        """The links between the nodes if all are open, in program order."""
        seen: dict[str, str] = {}
        fold_of = {member: node.key for node in self.nodes.values() for member in node.members}
        folds_around: dict[str, dict[str, str]] = {}  # by node: for each fold around it, the member that contains it
        for key, node in self.nodes.items():
            above = folds_around[node.parent] if key else {}
            folds_around[key] = {**above, fold_of[key]: key} if key in fold_of else above
        homes = {id: (self._visible_key(key, seen), folds_around[key]) for id, key in self.home.items()}
        bundles: dict[tuple[str, str, str, bool, bool], tuple[set[Role], dict[TensorSpec, None]]] = {}

        def add(flow: Flow, *, is_carried: bool = False, is_gradient: bool = False) -> None:
            source, target, spec = flow
            (tail, folds), (head, others) = homes[source], homes[target]
            if not tail or not head:
                return
            # Whether the data flows between different members of a fold.
            is_next = folds is not others and bool(folds)
            is_next = is_next and any(folds.get(fold, member) != member for fold, member in others.items())
            loop = ""
            if is_carried and not is_next:
                around_target = {*self._above(self.home[target])}
                around_both = (key for key in self._above(self.home[source]) if key in around_target)
                loop = next((key for key in around_both if self.nodes[key].kind == "loop"), "")
                loop = self._visible_key(loop, seen)
            if is_gradient if is_next else not loop and (is_carried or tail == head):
                return
            roles, specs = bundles.setdefault((tail, head, loop, is_gradient, is_next), (set(), {}))
            if target in self.roles:
                roles.add(self.roles[target])
            if spec is not None:
                specs[spec] = None

        for flow in self.flows:
            add(flow)
        for flow in self.carried:
            add(flow, is_carried=True)
        for user, producer, is_carried in self.gradients:
            add((user, producer, None), is_carried=is_carried, is_gradient=True)
        return tuple(
            GraphLink(tail, head, frozenset(roles), tuple(specs), loop, is_gradient, is_next)
            for (tail, head, loop, is_gradient, is_next), (roles, specs) in bundles.items()
        )

    def _above(self, key: str) -> Iterator[str]:
        while key:
            key = self.nodes[key].parent
            yield key

    def first_view(
        self,
        most: int = MOST,
        shares: Mapping[str, float] | None = None,
        fits: Callable[[Collection[str], float], bool] = lambda opened, scale: True,
    ) -> frozenset[str]:
        """Return the keys of the nodes to open in the first picture, which shows at most `most` nodes.

        The most expensive node opens first: by its share of the cost if known, else by its number of instructions.

        Args:
            most: Maximum number of nodes.
            shares: A dict from the key of each node to its share of the total cost; `None` if unknown.
            fits: A function that returns whether the picture has enough space, given the open nodes and a scale.
        """
        opened: set[str] = set()
        top = count = len(self.level())
        shares, number = shares or {}, max(1, len(self.home))
        waiting = [node for node in self.level() if node.children]
        while waiting:
            waiting.sort(
                key=lambda node: (-shares.get(node.key, sum(node.counts) / number), -sum(node.counts), node.key)
            )
            node = waiting.pop(0)
            after, inside = count + len(node.children), self.level(node.key)
            if after > most or node.block in (LOSS, OPTIMIZER) or (len(inside) == 1 and not inside[0].children):
                continue
            is_open = top < _FEW or node.kind in ("loop", "cond", "branch")
            if not is_open and not any(map(self._has_name, inside)):
                continue
            if fits({*opened, node.key}, _SMALLEST if count < _FEW_NODES else _SMALL):
                opened.add(node.key)
                count = after
                waiting.extend(child for child in self.level(node.key) if child.children)
        return frozenset(opened)

    def _has_name(self, node: GraphNode) -> bool:
        """Return whether a node is a block, loop, conditional or branch, or a repetition of these."""
        return node.kind in _NAMED or (node.kind == "repeat" and any(map(self._has_name, self.level(node.key))))

    def _visible_key(self, key: str, seen: dict[str, str]) -> str:
        """Return the key of the node that represents a node if all nodes are open."""
        if key not in seen:
            if key in self.hidden:
                seen[key] = self._visible_key(self.hidden[key], seen)
            else:
                outer = self._visible_key(self.nodes[key].parent, seen) if key else ""
                seen[key] = key if not key or outer == self.nodes[key].parent else outer
        return seen[key]


def short_shape(spec: TensorSpec) -> str:
    """Return a spec as short text; the dtype is omitted if it is float32.

    Examples:
        >>> short_shape(TensorSpec((32, 64))), short_shape(TensorSpec((2,), "int32")), short_shape(TensorSpec(()))
        ('32×64', '2 int32', 'scalar')
    """
    sizes = "×".join(map(str, spec.shape)) or "scalar"
    return sizes if spec.dtype == "float32" else f"{sizes} {spec.dtype}"


def size_of_shape(spec: TensorSpec) -> tuple[int, str]:
    """Return a key that sorts specs by their number of elements."""
    return prod(dim for dim in spec.shape if isinstance(dim, int)), str(spec)


def shapes_text(specs: Iterable[TensorSpec]) -> str:
    """Return the largest spec and the number of the others as text; `""` if there are no specs.

    Examples:
        >>> shapes_text([TensorSpec((2,)), TensorSpec((3, 4))])
        '3×4 +1'
    """
    listed = list(specs)
    if not listed:
        return ""
    if len(listed) == 1:
        return short_shape(listed[0])
    largest = max(listed, key=size_of_shape)
    return f"{short_shape(largest)} +{len(listed) - 1}"
