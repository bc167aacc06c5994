"""The logical graph: frozen records of blocks, ports and edges, compared by structure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from mithril_nb.display import Shown
from mithril_nb.errors import UnknownBlockError, listed, similar
from mithril_nb.graph.paths import component, is_within, join_path, name_of, next_name, split_path
from mithril_nb.graph.reach import Reach
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
    "free_name",
    "node_of",
]

BOUNDARY = ""
"""Node name in an `Endpoint` for an input or an output of the whole graph."""
ADD_BLOCK = "model |= Linear(64)  # add a block first"
"""Advice for a model without blocks."""


@dataclass(frozen=True)
class Port:
    """A named input or output of a block.

    Attributes:
        name: Name of the port. It is unique among the inputs, or among the outputs, of the block.
        role: `"data"`, `"param"`, `"state"` or `"option"`. A `"data"` port must be connected, the others need not be.
            Without a connection, a `"param"` is a trainable array of the model, and a `"state"` is an array that one
            training step passes to the next, such as running statistics. An `"option"` has the value of the block's
            attribute with that name.
    """

    name: str
    role: PortRole = "data"


class Endpoint(NamedTuple):
    """One end of an edge: a port of a block, or an input or output of the whole graph if `node` is `""`.

    As text it is `"linear_0.output"`, or only `"x"` for an input or output of the graph. Special characters of names
    are escaped as in block paths.

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
        """Parse the text of an endpoint. Text without a dot is an input or output of the whole graph."""
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
    """A part of a model, without a name: an op with attributes, or a composite, which contains other blocks.

    Attributes are compared with their types, so `Constant(1)` and `Constant(1.0)` are different blocks.

    Attributes:
        kind: The display name: `"Linear"`, `"MLP"`, `"Model"`.
        attributes: Pairs of name and value, the arguments of the constructor.
        inputs: The input ports.
        outputs: The output ports.
        op: Name of the op, which a backend implements as a kernel; `""` for a composite.
        graph: The blocks inside a composite, or inside an op that runs other blocks, such as a loop; `None` for other
            ops.
    """

    kind: str
    attributes: tuple[tuple[str, Value], ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    op: str = ""
    graph: LogicalGraph | None = None

    # Without the cached properties, which `functools` stores in `__dict__`.
    def __reduce__(self):
        return Block, (self.kind, self.attributes, self.inputs, self.outputs, self.op, self.graph)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Block):
            return NotImplemented
        # The hash first: most comparisons of large blocks end there.
        return self is other or (self._hash == other._hash and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _key(self) -> tuple[object, ...]:
        # 1 == 1.0 == True in Python, but they give programs of different dtypes.
        return self.kind, exactly(self.attributes), self.inputs, self.outputs, self.op, self.graph

    @cached_property
    def _hash(self) -> int:
        return hash(self._key)

    @property
    def is_composite(self) -> bool:
        """True if the block only groups the blocks inside it. A block that runs others, such as a loop, is an op."""
        return self.graph is not None and not self.op

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """The attributes as a read-only mapping."""
        return MappingProxyType(dict(self.attributes))


@dataclass(frozen=True)
class Node:
    """A block in a graph, with a name that is unique in the graph."""

    name: str
    block: Block


@dataclass(frozen=True)
class Note:
    """The user's annotations of a graph input, of an output of a block, or of a parameter.

    Attributes:
        shape: The declared shape; `None` if undeclared.
        dtype: The declared dtype; `None` if undeclared.
        is_trainable: True if training changes the array; `None` leaves the choice to the block.
        is_exposed: True makes an output of a block a graph output, even if another block reads it.
        initializer: The text of the parameter's initializer; `None` leaves the choice to the block.
        order: Position among the inputs or outputs of the graph; `None` for after those that have one.
    """

    shape: tuple[Dim, ...] | None = None
    dtype: str | None = None
    is_trainable: bool | None = None
    is_exposed: bool = False
    initializer: str | None = None
    order: int | None = None

    def over(self, other: Note) -> Note:
        """Return this note, with undeclared fields taken from the other note."""
        return Note(
            # `()` is a shape, and false is a setting, so these two are compared with None.
            other.shape if self.shape is None else self.shape,
            self.dtype or other.dtype,
            other.is_trainable if self.is_trainable is None else self.is_trainable,
            self.is_exposed or other.is_exposed,
            self.initializer or other.initializer,
            self.order if other.order is None else other.order,
        )


@dataclass(frozen=True)
class LogicalGraph(Shown):
    """A frozen graph of blocks. Every data input of every node has exactly one edge into it.

    Attributes:
        nodes: The blocks in the order of addition, except that each block comes after the blocks that it reads.
        edges: The connections, including those from the graph's inputs and to its outputs.
        inputs: The inputs of the graph, in order.
        outputs: The outputs of the graph, in order.
        labels: Pairs of a name that the user has given and the named endpoint: a graph input or a block's output. An
            output keeps its label when a block reads it and it is no graph output any more.
        notes: Pairs of an endpoint and the user's note. The endpoint is a graph input, an output of a block or a
            parameter of a block.
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
    def _hash(self) -> int:  # computed once, because caches need it often
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
        """The source of each node input and each graph output."""
        return MappingProxyType({edge.target: edge.source for edge in self.edges})

    @cached_property
    def targets_of(self) -> Mapping[Endpoint, tuple[Endpoint, ...]]:
        """The targets of each node output and each graph input."""
        targets: dict[Endpoint, list[Endpoint]] = {}
        for edge in self.edges:
            targets.setdefault(edge.source, []).append(edge.target)
        return MappingProxyType({source: tuple(ends) for source, ends in targets.items()})

    @cached_property
    def depth(self) -> int:
        """Levels of nested graphs: 1 without composite blocks."""
        return 1 + max((node.block.graph.depth for node in self.nodes if node.block.graph is not None), default=0)

    def walk(self, prefix: str = "") -> Iterator[tuple[str, Node]]:
        """Yield path and node of every block, parents before their children."""
        for node in self.nodes:
            path = join_path(prefix, node.name)
            yield path, node
            if node.block.graph is not None:
                yield from node.block.graph.walk(path)

    def ancestors(self, path: str) -> tuple[str, ...]:
        """Return the paths of the blocks whose data reaches a block, in the order of the graph.

        Instead of a composite block, the result contains the blocks inside it whose data reaches the block.

        Args:
            path: Path of the block, which may be composite.

        Examples:
            >>> from mithril_nb.models import MLP, Linear, Model
            >>> (Model() + MLP(4, [3], 2) + Linear(2)).graph.ancestors("linear_0")
            ('mlp_0/linear_0', 'mlp_0/relu_0', 'mlp_0/linear_1')
        """
        return self._named(self._reach.before(self._inside(path)), path)

    def descendants(self, path: str) -> tuple[str, ...]:
        """Return the paths of the blocks that the data of a block reaches; see `ancestors`.

        Examples:
            >>> from mithril_nb.models import MLP, Linear, Model
            >>> (Model() + MLP(4, [3], 2) + Linear(2)).graph.descendants("mlp_0/relu_0")
            ('mlp_0/linear_1', 'linear_0')
        """
        return self._named(self._reach.after(self._inside(path)), path)

    def between(self, source: str, target: str) -> tuple[str, ...] | None:
        """Return the paths of the blocks between two blocks: data flows from `source` through them to `target`.

        Returns:
            The paths, in the order of the graph; `None` if no data flows from `source` to `target`.

        Examples:
            >>> from mithril_nb.models import MLP, Linear, Model
            >>> graph = (Model() + MLP(4, [3], 2) + Linear(2)).graph
            >>> graph.between("mlp_0/linear_0", "linear_0"), graph.between("linear_0", "mlp_0")
            (('mlp_0/relu_0', 'mlp_0/linear_1'), None)
        """
        ends = self._inside(target)
        after = self._reach.after(self._inside(source))
        return self._named(after & self._reach.before(ends), source, target) if not after.isdisjoint(ends) else None

    @cached_property
    def _reach(self) -> Reach[tuple[str, ...]]:
        return Reach(self._flows(""))

    @cached_property
    def _vertices(self) -> tuple[tuple[str, ...], ...]:
        """The vertices of `_reach`: `(path,)` for an op, and `(path, side, port)` for each port of a composite."""
        # Ports of composites are vertices of their own: data passes a composite only through connected ports.
        blocks = tuple((path,) for path, node in self.walk() if not node.block.is_composite)
        return (*blocks, *dict.fromkeys(end for flow in self._flows("") for end in flow if len(end) > 1 and end[0]))

    def _flows(self, prefix: str) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
        for edge in self.edges:
            yield self._vertex(edge.source, prefix, "out", "in"), self._vertex(edge.target, prefix, "in", "out")
        for node in self.nodes:
            if node.block.is_composite and node.block.graph is not None:
                yield from node.block.graph._flows(join_path(prefix, node.name))

    def _vertex(self, end: Endpoint, prefix: str, side: str, side_of_boundary: str) -> tuple[str, ...]:
        if not end.node:
            return prefix, side_of_boundary, end.port
        path = join_path(prefix, end.node)
        return (path, side, end.port) if self.by_name[end.node].block.is_composite else (path,)

    def _inside(self, path: str) -> set[tuple[str, ...]]:
        graph: LogicalGraph = self
        *outer, last = split_path(path) or ("",)
        for name in outer:
            block = node_of(graph, name).block
            # A path through an op has no blocks inside; the error then lists none.
            graph = block.graph if block.is_composite and block.graph is not None else LogicalGraph()
        node_of(graph, last)
        return {vertex for vertex in self._vertices if is_within(vertex[0], path)}

    def _named(self, vertices: set[tuple[str, ...]], *ends: str) -> tuple[str, ...]:
        ops = (vertex for vertex in self._vertices if len(vertex) == 1 and vertex in vertices)
        return tuple(path for (path,) in ops if not any(is_within(path, end) for end in ends))


def node_of(graph: LogicalGraph, name: str) -> Node:
    """Return the node with this name."""
    node = graph.by_name.get(name)
    if node is None:
        near = similar(name, graph.by_name)
        raise UnknownBlockError(
            f"the model has no block {name!r}.",
            (("blocks", listed(map(repr, graph.by_name))),),
            repr(near[0])
            if near
            else f"{graph.nodes[0].name!r}  # or another of these blocks"
            if graph.nodes
            else ADD_BLOCK,
        )
    return node


def free_name(graph: LogicalGraph, kind: str) -> str:
    """Return the default name of the next block of this kind: `linear_0`, then `linear_1`, ..."""
    return next_name(kind, sum(node.block.kind == kind for node in graph.nodes), graph.by_name)


@dataclass(frozen=True)
class BlockSpecs:
    """The inferred specs of one block, by name of the port. A spec is `None` if unknown.

    Attributes:
        inputs: Specs of the connected inputs.
        params: Specs of the ports with the role `"param"` or `"state"`.
        outputs: Specs of the outputs.
    """

    inputs: Mapping[str, Spec | None] = field(default_factory=dict[str, Spec | None])
    params: Mapping[str, TensorSpec | None] = field(default_factory=dict[str, TensorSpec | None])
    outputs: Mapping[str, Spec | None] = field(default_factory=dict[str, Spec | None])
