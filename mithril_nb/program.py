"""Turn a graph into a pure function of parameters and inputs.

This file names no array library: a `Toolkit` provides the kernels, and the scopes that name the blocks of a program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any
from urllib.parse import quote

from mithril_nb.errors import UnknownOpError
from mithril_nb.graph.edit import remove
from mithril_nb.graph.paths import component, name_of
from mithril_nb.graph.records import BOUNDARY, Endpoint, LogicalGraph
from mithril_nb.models.shape_inference.flat import flat

Array = Any
Arrays = Mapping[str, Array]


@dataclass(frozen=True)
class Call:
    """The arguments of a kernel, except the arrays of its input ports.

    Attributes:
        options: Attributes of the block by name. If another block computes an attribute, this is the computed value.
        training: True if the program trains.
        key: Random key of this block; `None` if the block does not draw random numbers.
        outputs: Names of the outputs of a block that runs inner blocks; `()` for other blocks.
        bodies: For each inner block, by name, a function that runs it. It takes a dict of arrays by input port, the
            dict `inner`, and a random key or `None`. It returns a dict of arrays by output port.
        inner: Parameters of the inner blocks, by their name inside the block; empty for other blocks.
        dtype: Default dtype of floating-point arrays that a block creates; `None` uses the library's default.
    """

    options: Mapping[str, Any]
    training: bool
    key: Array | None
    outputs: tuple[str, ...] = ()
    bodies: Mapping[str, Callable[[Arrays, Arrays, Array | None], Arrays]] = field(default_factory=dict[str, Any])
    inner: Arrays = field(default_factory=dict[str, Any])
    dtype: str | None = None


CONNECTED = "<connected>"
"""Placeholder for the value of a connected attribute, used to decide whether a block draws random numbers."""
Kernel = Callable[[Call, Arrays], Arrays]
"""A function from arrays by input port to arrays by output port. It also returns the next value of each state port."""


@dataclass(frozen=True)
class Toolkit:
    """The functions that a backend provides to run a graph.

    Attributes:
        backend: Name of the backend, for error messages.
        kernels: A dict from the name of each op to its kernel.
        scope: A function from a name to a context manager. Operations traced inside it get this name, as with
            `jax.named_scope`.
        fold_in: A function that derives a new random key from a key and a number.
        draws: A function that returns whether an op draws random numbers, given its name, its attributes, and whether
            the program trains.
        dtype: Default dtype of floating-point arrays that a block creates; `None` uses the library's default.
    """

    backend: str
    kernels: Mapping[str, Kernel]
    scope: Callable[[str], AbstractContextManager[object]]
    fold_in: Callable[[Array, int], Array]
    draws: Callable[[str, Mapping[str, Any], bool], bool]
    dtype: str | None = None


def block_scope(name: str) -> str:
    """Return the name scope for a block.

    Examples:
        >>> block_scope("linear_0"), block_scope("a/b")
        ('block:linear_0', 'block:a%252Fb')
    """
    # JAX keeps it in compiled programs, which links them to the block.
    # For the path `mlp_0/linear_0`, there are two nested scopes: one for `mlp_0` and one for `linear_0`. Characters
    # such as `/` in the name of a block are escaped.
    return "block:" + quote(component(name), safe="", errors="surrogatepass")


def check_kernels(graph: LogicalGraph, toolkit: Toolkit) -> None:
    """Raise if the toolkit lacks the kernel of a block."""
    for path, node in graph.walk():
        if node.block.op and node.block.op not in toolkit.kernels:
            raise UnknownOpError(
                f"backend {toolkit.backend!r} has no kernel for op {node.block.op!r} (block {path!r}).",
                (("has", f"{', '.join(sorted(toolkit.kernels))} ({len(toolkit.kernels)} ops)"),),
                "build the block from these ops.",
                block=path,
            )


def draws_random_numbers(graph: LogicalGraph, toolkit: Toolkit, training: bool) -> bool:
    """Return whether any block of the graph needs a random key."""
    for op in flat(graph).ops:
        if op.block.graph is not None:
            if draws_random_numbers(op.block.graph, toolkit, training):
                return True
            continue
        # The value of a connected attribute is known only at run time.
        connected = {
            port.name: CONNECTED for port in op.block.inputs if port.role == "option" and port.name in op.sources
        }
        if toolkit.draws(op.block.op, {**op.block.options, **connected} if connected else op.block.options, training):
            return True
    return False


def run(
    graph: LogicalGraph,
    toolkit: Toolkit,
    params: Arrays,
    inputs: Arrays,
    *,
    state: Arrays | None = None,
    key: Array | None = None,
    training: bool = False,
) -> dict[str, Array]:
    """Return the outputs of a graph, as a pure function of parameters, inputs, state and random key.

    `state`: State after the previous step, by name (`"batch_norm_0.running_mean"`), for blocks with a state. `key`:
    Random key, for blocks that draw random numbers.

    Returns:
        Arrays by the name of the graph's output.
    """
    return run_with_state(graph, toolkit, params, inputs, state=state, key=key, training=training)[0]


def run_with_state(
    graph: LogicalGraph,
    toolkit: Toolkit,
    params: Arrays,
    inputs: Arrays,
    *,
    state: Arrays | None = None,
    key: Array | None = None,
    training: bool = False,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the outputs of a graph as `run` does, and the state for the next step."""
    ops = flat(graph)
    values: dict[Endpoint, Array] = {Endpoint(BOUNDARY, name): array for name, array in inputs.items()}
    arrays, after = {**params, **(state or {})}, dict(state or {})
    numbers = count(1)  # the key of a block depends on its position among the blocks that draw
    with _Scopes(toolkit) as scopes:
        for op in ops.ops:
            scopes.enter(op.path)
            operands: dict[str, Array] = {}
            connected: dict[str, Any] = {}
            for port in op.block.inputs:
                if port.name in op.sources:
                    target = connected if port.role == "option" else operands
                    target[port.name] = values[op.sources[port.name]]
                elif port.name in op.arrays:
                    operands[port.name] = arrays[op.arrays[port.name]]
            options = {**op.block.options, **connected} if connected else op.block.options
            of_bodies: dict[str, Any] = {}
            draws = toolkit.draws(op.block.op, options, training)
            if op.block.graph is not None:
                draws = draws_random_numbers(op.block.graph, toolkit, training)
                of_bodies["outputs"] = tuple(port.name for port in op.block.outputs)
                of_bodies["bodies"] = _bodies(op.block.graph, toolkit, training)
                of_bodies["inner"] = {name: arrays[source] for name, source in op.inner.items()}
            own = toolkit.fold_in(key, next(numbers)) if draws else None
            call = Call(options, training, own, dtype=toolkit.dtype, **of_bodies)
            results = toolkit.kernels[op.block.op](call, operands)
            values |= {end: results[port] for port, end in op.outputs.items()}
            for port in op.block.inputs:
                if port.role == "state" and port.name in op.arrays and port.name in results:
                    after[op.arrays[port.name]] = results[port.name]
    return {name: values[end] for name, end in ops.outputs.items()}, after


def _bodies(
    graph: LogicalGraph, toolkit: Toolkit, training: bool
) -> dict[str, Callable[[Arrays, Arrays, Array | None], Arrays]]:

    def body(name: str) -> Callable[[Arrays, Arrays, Array | None], Arrays]:
        block = graph.by_name[name].block
        subgraph = part(graph, name)
        takes = {port.name for port in block.inputs if port.role == "data"}

        def run_one(arrays: Arrays, inner: Arrays, key: Array | None) -> Arrays:
            inputs = {f"{name}_{port}": array for port, array in arrays.items() if port in takes}
            outputs = run(subgraph, toolkit, inner, inputs, key=key, training=training)
            return {port.name: outputs[f"{name}_{port.name}"] for port in block.outputs}

        return run_one

    return {node.name: body(node.name) for node in graph.nodes}


@lru_cache(maxsize=256)
def part(graph: LogicalGraph, name: str) -> LogicalGraph:
    """Return a graph with only one of the blocks."""
    # This block must not read from the other blocks.
    return remove(graph, [node.name for node in graph.nodes if node.name != name])


class _Scopes:
    def __init__(self, toolkit: Toolkit):
        self.toolkit = toolkit
        self.open: list[tuple[str, AbstractContextManager[object]]] = []

    def __enter__(self) -> _Scopes:
        return self

    def __exit__(self, *error: object) -> None:
        self.leave(0)

    def enter(self, path: str) -> None:
        names = path.split("/")
        same = 0
        # The innermost scope is always reopened; consecutive blocks never have the same path.
        while same < min(len(names) - 1, len(self.open)) and self.open[same][0] == names[same]:
            same += 1
        self.leave(same)
        for part in names[same:]:
            scope = self.toolkit.scope(block_scope(name_of(part)))
            scope.__enter__()
            self.open.append((part, scope))

    def leave(self, depth: int) -> None:
        while len(self.open) > depth:
            self.open.pop()[1].__exit__(None, None, None)
