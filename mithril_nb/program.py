"""Binding a graph to a pure function of parameters and inputs.

No array library is named here: a `Toolkit` brings the kernels, and the scopes in which the program names its blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from mithril_nb.errors import UnknownOpError
from mithril_nb.graph.order import run_order
from mithril_nb.graph.paths import component, join_path, parameter_name
from mithril_nb.graph.records import BOUNDARY, Endpoint, LogicalGraph, Node, Value

Array = Any
Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Call:
    """What a kernel gets to know besides its arrays.

    Attributes:
        options: Attributes of the block.
        training: Whether the program trains.
        key: Random key of this block alone; `None` if the block draws nothing.
    """

    options: Mapping[str, Value]
    training: bool
    key: Array | None


Kernel = Callable[[Call, Arrays], Arrays]
"""Arrays of the input ports in, arrays of the output ports out."""


@dataclass(frozen=True)
class Toolkit:
    """What a backend brings to run a graph.

    Attributes:
        backend: Its name, for messages.
        kernels: What runs each op.
        scope: Names what is traced inside it.
        fold_in: Makes a new random key from one and a number.
        draws: Whether an op with these options draws random numbers, given whether the program trains.
    """

    backend: str
    kernels: Mapping[str, Kernel]
    scope: Callable[[str], AbstractContextManager[object]]
    fold_in: Callable[[Array, int], Array]
    draws: Callable[[str, Mapping[str, Value], bool], bool]


def block_scope(name: str) -> str:
    """Return the scope of one level of a block path, which the stages read back.

    Examples:
        >>> block_scope("linear_0"), block_scope("a/b")
        ('block:linear_0', 'block:a%252Fb')
    """
    return "block:" + quote(component(name), safe="", errors="surrogatepass")


def check_kernels(graph: LogicalGraph, toolkit: Toolkit) -> None:
    """Raise if the toolkit cannot run a block.

    Raises:
        UnknownOpError: It has no kernel for an op.
    """
    for path, node in graph.walk():
        if node.block.graph is None and node.block.op not in toolkit.kernels:
            raise UnknownOpError(
                f"backend {toolkit.backend!r} has no kernel for op {node.block.op!r} (block {path!r}).",
                (("has", f"{', '.join(sorted(toolkit.kernels))} ({len(toolkit.kernels)} ops)"),),
                "build it from these ops.",
                block=path,
            )


def draws_random_numbers(graph: LogicalGraph, toolkit: Toolkit, training: bool) -> bool:
    """Return whether any block of the graph needs a random key."""
    return any(
        node.block.graph is None and toolkit.draws(node.block.op, node.block.options, training)
        for _, node in graph.walk()
    )


def run(
    graph: LogicalGraph,
    toolkit: Toolkit,
    params: Arrays,
    inputs: Arrays,
    *,
    key: Array | None = None,
    training: bool = False,
) -> dict[str, Array]:
    """Run a graph: the pure function that every stage, cost and training step is made from.

    Args:
        graph: The graph.
        toolkit: The backend's kernels.
        params: Parameters by name (`"linear_0.weight"`).
        inputs: Arrays by the name of the graph's input.
        key: Random key, for blocks that draw.
        training: Whether blocks such as Dropout act as in training.

    Returns:
        Arrays by the name of the graph's output.
    """
    top = {port.name: params[parameter_name("", port.name)] for port in graph.inputs if port.role == "param"}
    return _run_level(_Run(toolkit, params, training, _Keys(toolkit, key)), graph, "", {**top, **inputs})


class _Keys:
    """Gives each block that draws a key of its own, by its place in the order of running."""

    def __init__(self, toolkit: Toolkit, key: Array | None):
        self.toolkit, self.key, self.count = toolkit, key, 0

    def next(self) -> Array:
        self.count += 1
        return self.toolkit.fold_in(self.key, self.count)


@dataclass(frozen=True)
class _Run:
    toolkit: Toolkit
    params: Arrays
    training: bool
    keys: _Keys


def _run_level(job: _Run, graph: LogicalGraph, prefix: str, given: Arrays) -> dict[str, Array]:
    values: dict[Endpoint, Array] = {Endpoint(BOUNDARY, name): array for name, array in given.items()}
    for node in run_order(graph):
        with job.toolkit.scope(block_scope(node.name)):
            for name, array in _run_node(job, graph, node, prefix, values).items():
                values[Endpoint(node.name, name)] = array
    return {edge.target.port: values[edge.source] for edge in graph.edges if edge.target.node == BOUNDARY}


def _run_node(
    job: _Run, graph: LogicalGraph, node: Node, prefix: str, values: Mapping[Endpoint, Array]
) -> Mapping[str, Array]:
    path, block = join_path(prefix, node.name), node.block
    arrays: dict[str, Array] = {}
    for port in block.inputs:
        source = graph.source_of.get(Endpoint(node.name, port.name))
        arrays[port.name] = values[source] if source else job.params[parameter_name(path, port.name)]
    if block.graph is not None:
        return _run_level(job, block.graph, path, arrays)
    draws = job.toolkit.draws(block.op, block.options, job.training)
    call = Call(block.options, job.training, job.keys.next() if draws else None)
    return job.toolkit.kernels[block.op](call, arrays)
