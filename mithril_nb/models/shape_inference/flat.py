"""A model without its nesting: the ops in topological order, and the sources of their inputs.

Also finds the outputs that an activation reads, for the initializers of the blocks before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from weakref import WeakKeyDictionary

from mithril_nb.graph.boundary import is_array
from mithril_nb.graph.check import run_order
from mithril_nb.graph.paths import component, join_path, parameter_name
from mithril_nb.graph.records import BOUNDARY, Block, Endpoint, LogicalGraph, Note, PortRole
from mithril_nb.models.rules import OPS, BodyRules


@dataclass(frozen=True)
class FlatOp:
    """One op of a model, at any nesting level.

    Attributes:
        path: Path of the block.
        block: The block.
        sources: A dict from each connected input port to its source: path of an op and name of its output, or `""` and
            the name of a model input.
        arrays: A dict from each port for a parameter or state to the name of this array: `"linear_0.weight"`.
        origins: The sources as text for messages, by port. If a source is inside a composite block, this text names the
            output of the composite block instead.
        inner: For a block that runs others, such as `Repeat`, a dict from each parameter name in its inner graph to the
            name in the model: `{"body.weight": "repeat_0.body.weight"}`.
    """

    path: str
    block: Block
    sources: Mapping[str, Endpoint]
    arrays: Mapping[str, str]
    origins: Mapping[str, str]
    inner: Mapping[str, str] = field(default_factory=dict[str, str])

    @cached_property
    def outputs(self) -> Mapping[str, Endpoint]:
        """The endpoint of each output."""
        return {port.name: Endpoint(self.path, port.name) for port in self.block.outputs}


@dataclass(frozen=True)
class Flat:
    """All ops of a model.

    Attributes:
        ops: The ops in topological order.
        outputs: A dict from each output of the model to its source: an output of an op, or an input of the model.
        groups: A dict from the path of each composite block to two dicts: the sources of its connected inputs, and the
            sources of its outputs.
        notes: The user's annotations, such as shapes. A key is an output of an op, an input of the model, or the name
            of a parameter.
    """

    ops: tuple[FlatOp, ...]
    outputs: Mapping[str, Endpoint]
    groups: Mapping[str, tuple[Mapping[str, Endpoint], Mapping[str, Endpoint]]]
    notes: Mapping[Endpoint | str, Note]

    @cached_property
    def op_at(self) -> Mapping[str, FlatOp]:
        """The ops by path."""
        return {op.path: op for op in self.ops}


_KNOWN: WeakKeyDictionary[LogicalGraph, Flat] = WeakKeyDictionary()
"""The results of `flat` by graph. An entry is freed with its graph."""


def flat(graph: LogicalGraph) -> Flat:
    """Return the ops of a graph and of all graphs inside it.

    A block that runs others, such as `Scan`, is one op: its inner blocks are not in the result.

    Examples:
        >>> from mithril_nb.models import MLP
        >>> [op.path for op in flat(MLP(4, [3], 2).graph).ops]
        ['linear_0', 'relu_0', 'linear_1']
    """
    # Inference, compilation and tables need the same result of one graph, and graphs compare by value.
    cached = _KNOWN.get(graph)
    if cached is None:
        work = _Flattening([], {}, {})
        fed = {port.name: Endpoint(BOUNDARY, port.name) for port in graph.inputs if port.role == "data"}
        arrays = {port.name: parameter_name("", port.name) for port in graph.inputs if port.role in _ARRAYS}
        outputs = work.level(graph, "", fed, arrays, {name: str(end) for name, end in fed.items()})
        cached = _KNOWN[graph] = Flat(tuple(work.ops), outputs, work.groups, work.notes)
    return cached


_ARRAYS: tuple[PortRole, ...] = ("param", "state")


@dataclass(frozen=True)
class _Flattening:
    ops: list[FlatOp]
    groups: dict[str, tuple[Mapping[str, Endpoint], Mapping[str, Endpoint]]]
    notes: dict[Endpoint | str, Note]

    def level(
        self,
        graph: LogicalGraph,
        prefix: str,
        fed: Mapping[str, Endpoint],
        arrays: Mapping[str, str],
        origins: Mapping[str, str],
    ) -> dict[str, Endpoint]:
        """Add the ops of a graph and of the composite blocks inside it, and return the source of each output.

        Args:
            graph: The graph.
            prefix: Path of the block that contains the graph.
            fed: A dict from each connected data input of the graph to its source in the model.
            arrays: A dict from each other input to the name of its parameter or state.
            origins: The sources in `fed` as text for messages.
        """
        # From an endpoint of this graph to its source in the flat model.
        source_of: dict[Endpoint, Endpoint] = {Endpoint(BOUNDARY, name): source for name, source in fed.items()}
        for end, _ in graph.notes:
            if is_array(end):
                self.note(graph, end, f"{prefix.replace('/', '.')}.{end.port}" if prefix else end.port)
        for node in run_order(graph):
            path, block = join_path(prefix, node.name), node.block
            sources: dict[str, Endpoint] = {}
            names: dict[str, str] = {}
            seen: dict[str, str] = {}
            for port in block.inputs:
                end = Endpoint(node.name, port.name)
                source = graph.source_of.get(end)
                if source is None:
                    if port.role in _ARRAYS:
                        names[port.name] = parameter_name(path, port.name)
                        # The note at an input of an inner graph belongs to the source outside.
                        self.note(graph, end, names[port.name])
                elif source in source_of:
                    sources[port.name] = source_of[source]
                    seen[port.name] = (
                        f"{join_path(prefix, source.node)}.{component(source.port)}"
                        if source.node
                        else origins[source.port]
                    )
                else:
                    names[port.name] = arrays[source.port]
            # A block that runs others is one op: its steps share one name in a program.
            if block.graph is None or not block.is_composite:
                inner = (
                    {} if block.graph is None else {name: f"{path.replace('/', '.')}.{name}" for name in inside(block)}
                )
                self.ops.append(FlatOp(path, block, sources, names, seen, inner))
                outputs = self.ops[-1].outputs
            else:
                outputs = self.level(block.graph, path, sources, names, seen)
                self.groups[path] = (sources, outputs)
            for name, source in outputs.items():
                end = Endpoint(node.name, name)
                source_of[end] = source
                self.note(graph, end, source)
        for name, source in fed.items():
            self.note(graph, Endpoint(BOUNDARY, name), source)
        for name, array in arrays.items():
            self.note(graph, Endpoint(BOUNDARY, name), array)
        return {edge.target.port: source_of[edge.source] for edge in graph.edges if edge.target.node == BOUNDARY}

    def note(self, graph: LogicalGraph, end: Endpoint, target: Endpoint | str) -> None:
        if end in graph.note_at:
            note = graph.note_at[end]
            # Inner graphs come first here, and a note nearer to the op wins.
            self.notes[target] = self.notes[target].over(note) if target in self.notes else note


def inside(block: Block) -> tuple[str, ...]:
    """Return the names of all parameters inside a block that runs others, as the inner graph names them.

    Examples:
        >>> from mithril_nb.models import Linear, Repeat
        >>> inside(Repeat(Linear(3), 2).block)
        ('body.weight', 'body.bias')
    """
    assert block.graph is not None
    return tuple(
        dict.fromkeys(name for op in flat(block.graph).ops for name in (*op.arrays.values(), *op.inner.values()))
    )


def origin(end: Endpoint) -> str:
    """Return an endpoint as shown in messages: `"mlp_0/linear_0.output"`, or the name of a model input.

    Examples:
        >>> origin(Endpoint("mlp_0/linear_0", "output")), origin(Endpoint("", "input"))
        ('mlp_0/linear_0.output', 'input')
    """
    return f"{end.node}.{component(end.port)}" if end.node else str(end)


def activated(model: Flat, outputs: Iterable[str] = ()) -> set[Endpoint]:
    """Return the outputs of ops, and inputs of the model, that an activation reads.

    An activation may also read them through blocks that keep the scale of values, such as Dropout.

    Args:
        model: The model.
        outputs: Names of the model's outputs that an activation outside the model reads.

    Examples:
        >>> from mithril_nb.models import Dropout, Linear, Relu, Sequential
        >>> model = Sequential(Linear(8), Dropout(), Relu(), Linear(8))
        >>> sorted(end.node for end in activated(flat(model.graph)))
        ['dropout_0', 'linear_0']
    """
    ends = {model.outputs[name] for name in outputs if name in model.outputs}
    # Backwards, because an activation marks the outputs that it reads, and a Dropout passes the mark on.
    for op in reversed(model.ops):
        rule = OPS.get(op.block.op)
        if rule is None:
            continue
        if rule.is_activation or (rule.keeps_scale and is_activated(op, ends)):
            ends.update(op.sources.values())
        elif op.block.graph is not None:
            inner = activated(flat(op.block.graph), activated_inside(op, ends))
            inputs = {end.port for end in inner if end.node == BOUNDARY}
            for port, source in op.sources.items():
                # The inner graph names its inputs by part and port, see `Control`.
                if any(f"{part.name}_{port}" in inputs for part in op.block.graph.nodes):
                    ends.add(source)
    return ends


def is_activated(op: FlatOp, ends: set[Endpoint]) -> bool:
    """Return whether an output of an op is in `ends`, the endpoints that activations read."""
    return any(end in ends for end in op.outputs.values())


def activated_inside(op: FlatOp, ends: set[Endpoint]) -> set[str]:
    """Return the names of the outputs of a block's inner graph that an activation reads.

    The activation is outside the block, or inside it if the block feeds the output back, as `Scan` does with its carry.

    Args:
        op: A block that runs others.
        ends: The outputs of ops and inputs of the model that activations read.
    """
    rule, graph = OPS[op.block.op], op.block.graph
    assert graph is not None
    assert issubclass(rule, BodyRules)
    parts = [part.name for part in graph.nodes]
    names = {f"{part}_{port}" for part in parts for port, end in op.outputs.items() if end in ends}
    while True:
        inner = activated(flat(graph), names)
        again = {
            f"{part}_{source}"
            for part in parts
            for source, target in rule.fed_back(op.block).items()
            if Endpoint(BOUNDARY, f"{part}_{target}") in inner
        }
        # The carry of the next step may mark more outputs. Each round adds one, so the loop ends.
        if again <= names:
            return names
        names |= again
