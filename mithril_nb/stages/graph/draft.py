"""A node of a stage's graph while the graph is built."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import lru_cache

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.graph.stage_graph import Kind, shapes_text, size_of_shape
from mithril_nb.stages.records import UNATTRIBUTED, Instruction, Role

# Attributes that choose a part of an array.
_PLACES = frozenset({"start_indices", "limit_indices", "slice", "index"})


def block_of(instruction: Instruction) -> str:
    """Return the path of the block with the largest share in an instruction."""
    return instruction.shares[0][0] if instruction.shares else UNATTRIBUTED


def options_of(instruction: Instruction, shared: Set[str]) -> tuple[tuple[str, str], ...]:
    """Return the attributes of an instruction, as pairs of name and value, that count when blocks are compared."""
    # If the instruction reads one of the arrays `shared`, whose parts go to several blocks, the position of the part
    # does not count.
    if instruction.opcode == "get-tuple-element":
        return ()
    # Equal blocks may read different parts of one array of all parameters, and call separate copies of one function.
    positions = _PLACES if not shared.isdisjoint(instruction.operands) else ()
    return tuple(
        pair for pair in instruction.attributes if pair[0] not in positions and not pair[1].startswith(("%", "@"))
    )


def shared_arrays(by_id: Mapping[str, Instruction]) -> set[str]:
    """Return the ids of arrays that several blocks share, each reading a part, such as one array of all parameters."""
    cut: dict[str, set[str]] = {}
    for instruction in by_id.values():
        if any(name in _PLACES for name, _ in instruction.attributes):
            for operand in instruction.operands:
                cut.setdefault(operand, set()).add(block_of(instruction))
    return {id for id, blocks in cut.items() if len(blocks) > 1}


@lru_cache(maxsize=1 << 12)  # a program has few distinct specs
def _result_of(specs: tuple[TensorSpec, ...]) -> tuple[str, str]:
    largest = max(specs, key=size_of_shape, default=None)
    return shapes_text(specs), "" if largest is None else str(largest.dtype)


@dataclass
class NodeDraft:
    """A `GraphNode` while its graph is built."""

    key: str
    name: str
    kind: Kind
    block: str
    parent: NodeDraft | None
    children: dict[str, NodeDraft] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    note: str = ""
    repeat: int = 1
    members: list[NodeDraft] = field(default_factory=list)
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

    def child(self, part: str, name: str, kind: Kind, block: str) -> NodeDraft:
        """Return the child whose key is this node's key and `part`, joined by `/`."""
        # Create it if it is missing.
        child = self.children.get(part)
        if child is None:
            key = f"{self.key}/{part}" if self.key else part
            child = self.children[part] = NodeDraft(key, name, kind, block, self)
        return child

    def walk(self) -> Iterator[NodeDraft]:
        """Yield the node and all nodes inside it, each before its children."""
        stack: list[NodeDraft] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def add_counts(self, others: Iterable[NodeDraft]) -> None:
        """Add the counts of other nodes to `counts`."""
        self.counts = [sum(column) for column in zip(self.counts, *(other.counts for other in others), strict=True)]

    def rekey(self, key: str) -> None:
        """Change the key of this node, and the keys of all nodes inside it."""
        self.key = key
        for part, child in self.children.items():
            child.rekey(f"{key}/{part}")
