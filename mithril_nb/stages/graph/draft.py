"""A node of a stage's graph while the graph is built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.graph.stage_graph import Kind, shapes_text, size_of_shape
from mithril_nb.stages.records import Role


def dtype_of(specs: Iterable[TensorSpec]) -> str:
    """Return the dtype of the spec with the most elements; `""` if there are no specs.

    Examples:
        >>> dtype_of([TensorSpec((2,), "int32"), TensorSpec(("n + 1", 4), "bfloat16")])
        'bfloat16'
    """
    largest = max(specs, key=size_of_shape, default=None)
    return "" if largest is None else str(largest.dtype)


@lru_cache(maxsize=1 << 12)  # a program has few distinct specs
def _result_of(specs: tuple[TensorSpec, ...]) -> tuple[str, str]:
    return shapes_text(specs), dtype_of(specs)


@dataclass
class Draft:
    """A `GraphNode` while its graph is built."""

    key: str
    name: str
    kind: Kind
    block: str
    parent: Draft | None
    children: dict[str, Draft] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    note: str = ""
    repeat: int = 1
    members: list[Draft] = field(default_factory=list)
    order: int = 0
    opcode: str = ""
    shapes: tuple[TensorSpec, ...] = ()
    takes: tuple[TensorSpec | None, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    reads: tuple[str, ...] = ()
    source: str = ""
    role: Role | None = None
    signature: int = 0
    counts: list[int] = field(default_factory=lambda: [0, 0, 0, 0])
    shape: str = ""
    dtype: str = ""

    def set_result(self, specs: tuple[TensorSpec, ...]) -> None:
        """Set shape and dtype from the specs of the node's result."""
        self.shape, self.dtype = _result_of(specs)

    def child(self, part: str, name: str, kind: Kind, block: str) -> Draft:
        """Return the child whose key is this node's key and `part`, joined by `/`."""
        # Create it if it is missing.
        child = self.children.get(part)
        if child is None:
            key = f"{self.key}/{part}" if self.key else part
            child = self.children[part] = Draft(key, name, kind, block, self)
        return child

    def walk(self) -> Iterator[Draft]:
        """Yield the node and all nodes inside it, each before its children."""
        stack: list[Draft] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def add_counts(self, others: Iterable[Draft]) -> None:
        """Add the counts of other nodes to `counts`."""
        self.counts = [sum(column) for column in zip(self.counts, *(other.counts for other in others), strict=True)]

    def rekey(self, key: str) -> None:
        """Change the key of this node, and the keys of all nodes inside it."""
        self.key = key
        for part, child in self.children.items():
            child.rekey(f"{key}/{part}")
