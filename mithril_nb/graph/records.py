"""The logical graph: frozen records of blocks, ports and edges, compared by structure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal, NamedTuple

from mithril_nb.display import Shown
from mithril_nb.graph.paths import component, join_path, name_of
from mithril_nb.graph.spec import Dim, Spec, TensorSpec, Value, exactly

PortRole = Literal["data", "param", "state", "option"]
__all__ = [
    "BOUNDARY",
    "Block",
    "BlockSpecs",
    "Edge",
    "Endpoint",
    "LogicalGraph",
    "Node",
    "Note",
    "Port",
    "PortRole",
    "Value",
]

BOUNDARY = ""
"""Stands for the graph itself in an `Endpoint`: its own inputs and outputs."""


@dataclass(frozen=True)
class Port:
    """A named place on a block where data goes in or out.

    Attributes:
        name: Its name, unique among the inputs and among the outputs of the block.
        role: `"data"` for what must come from somewhere. The others may be left open: a `"param"` is then a trainable
            array of the model; a `"state"` an array that a step hands to the next one, as running statistics; an
            `"option"` has the value of the block's attribute of that name.
    """

    name: str
    role: PortRole = "data"


class Endpoint(NamedTuple):
    """One end of an edge: a port of a node, or of the graph's own boundary if `node` is `""`.

    As text it is `"linear_0.output"`, or the port's name alone at the boundary; names are written as in paths, so that
    the text can be read back.

    Examples:
        >>> str(Endpoint("a.b", "output")), Endpoint.parse("a%2Eb.output").node
        ('a%2Eb.output', 'a.b')
    """

    node: str
    port: str

    def __str__(self) -> str:
        return f"{component(self.node)}.{component(self.port)}" if self.node else component(self.port)

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Return the endpoint that a text stands for; one without a dot is at the boundary."""
        node, _, port = text.rpartition(".")
        return cls(name_of(node), name_of(port))


class Edge(NamedTuple):
    """Data flows from `source` (a node's output, or a graph input) to `target` (a node's input, or a graph output)."""

    source: Endpoint
    target: Endpoint

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


@dataclass(frozen=True, eq=False)
class Block(Shown):
    """A part of a model, without a place in it: an op with attributes, or a graph of further blocks.

    Attributes are compared with their types, so that programs of `Constant(1)` and `Constant(1.0)` are kept apart.

    Attributes:
        kind: What people call it: `"Linear"`, `"MLP"`, `"Model"`.
        attributes: Pairs of name and value, as its constructor takes them.
        inputs: Its input ports.
        outputs: Its output ports.
        op: Name of the op a backend has a kernel for; `""` for a composite.
        graph: What is inside a composite, or inside an op that runs other blocks; `None` for other ops.
    """

    kind: str
    attributes: tuple[tuple[str, Value], ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    op: str = ""
    graph: LogicalGraph | None = None

    def __reduce__(self):
        return Block, (self.kind, self.attributes, self.inputs, self.outputs, self.op, self.graph)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Block):
            return NotImplemented
        return self is other or (self._hash == other._hash and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _key(self) -> tuple[object, ...]:
        return self.kind, exactly(self.attributes), self.inputs, self.outputs, self.op, self.graph

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    @property
    def is_composite(self) -> bool:
        """Whether it is nothing but the blocks inside it; one that runs others, as a loop does, is an op."""
        return self.graph is not None and not self.op

    @cached_property
    def options(self) -> Mapping[str, Value]:
        """The attributes as a read-only mapping."""
        return MappingProxyType(dict(self.attributes))


@dataclass(frozen=True)
class Node:
    """A block at its place in a graph, under a name that is unique there."""

    name: str
    block: Block


@dataclass(frozen=True)
class Note:
    """What a person said of a graph input, of a block's output, or of a param port, beyond its connections.

    Attributes:
        shape: Its shape, as far as it is said.
        dtype: Its dtype.
        is_trainable: Whether training changes it; `None` leaves that to the block.
        is_exposed: Whether an output is an output of the graph even if a block reads it.
        initializer: How a parameter starts, as text; `None` leaves that to the block.
    """

    shape: tuple[Dim, ...] | None = None
    dtype: str | None = None
    is_trainable: bool | None = None
    is_exposed: bool = False
    initializer: str | None = None

    def over(self, other: Note) -> Note:
        """Return the note with what only the other one says."""
        return Note(
            other.shape if self.shape is None else self.shape,
            self.dtype or other.dtype,
            other.is_trainable if self.is_trainable is None else self.is_trainable,
            self.is_exposed or other.is_exposed,
            self.initializer or other.initializer,
        )


@dataclass(frozen=True)
class LogicalGraph(Shown):
    """A frozen graph of blocks. Every data input of every node has exactly one edge into it.

    Attributes:
        nodes: The blocks, in an order that runs: as they were added, but for those that wait for a later one.
        edges: The connections. Boundary inputs are sources and boundary outputs are targets with node `""`.
        inputs: Ports of the graph's own boundary, in order.
        outputs: The same for what it gives.
        labels: Pairs of a name that a person gave and what has it: a node's output, also when it is no longer a graph
            output, or a graph input.
        notes: Pairs of an endpoint and what a person said of it: a graph input, a node's output, a node's param port.
    """

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    labels: tuple[tuple[str, Endpoint], ...] = ()
    notes: tuple[tuple[Endpoint, Note], ...] = ()

    def __reduce__(self):
        return LogicalGraph, (self.nodes, self.edges, self.inputs, self.outputs, self.labels, self.notes)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:  # caches ask for it again and again
        return hash((self.nodes, self.edges, self.inputs, self.outputs, self.labels, self.notes))

    @cached_property
    def note_at(self) -> Mapping[Endpoint, Note]:
        """Notes by endpoint."""
        return MappingProxyType(dict(self.notes))

    @cached_property
    def by_name(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return MappingProxyType({node.name: node for node in self.nodes})

    @cached_property
    def source_of(self) -> Mapping[Endpoint, Endpoint]:
        """Where each node input and each graph output gets its data from."""
        return MappingProxyType({edge.target: edge.source for edge in self.edges})

    @cached_property
    def targets_of(self) -> Mapping[Endpoint, tuple[Endpoint, ...]]:
        """Where each node output and each graph input goes to."""
        targets: dict[Endpoint, list[Endpoint]] = {}
        for edge in self.edges:
            targets.setdefault(edge.source, []).append(edge.target)
        return MappingProxyType({source: tuple(found) for source, found in targets.items()})

    @cached_property
    def depth(self) -> int:
        """Levels of graphs: 1 if it has no composite blocks."""
        return 1 + max((node.block.graph.depth for node in self.nodes if node.block.graph is not None), default=0)

    def walk(self, prefix: str = "") -> Iterator[tuple[str, Node]]:
        """Yield path and node of every block in it, parents before their children."""
        for node in self.nodes:
            path = join_path(prefix, node.name)
            yield path, node
            if node.block.graph is not None:
                yield from node.block.graph.walk(path)


@dataclass(frozen=True)
class BlockSpecs:
    """What shape inference found at one block.

    Attributes:
        inputs: Spec of each input that is fed, `None` where it is not known.
        params: Spec of each param and state port.
        outputs: Spec of each output.
    """

    inputs: Mapping[str, Spec | None] = field(default_factory=dict[str, Spec | None])
    params: Mapping[str, TensorSpec | None] = field(default_factory=dict[str, TensorSpec | None])
    outputs: Mapping[str, Spec | None] = field(default_factory=dict[str, Spec | None])
