"""Edits inside composite blocks. They rebuild the enclosing blocks, and errors name the whole path."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from mithril_nb.errors import MithrilError, UnknownBlockError
from mithril_nb.graph.edit import Edit, composite, rename, swap, with_names
from mithril_nb.graph.paths import component
from mithril_nb.graph.records import Endpoint, LogicalGraph, Node, node_of

_INSIDE = "inside"
"""Label of the error fact that names the enclosing blocks."""


def inside(graph: LogicalGraph, names: tuple[str, ...], edit: Edit) -> LogicalGraph:
    """Apply an edit to the graph of the composite block at a path, and rebuild the enclosing blocks.

    A composite built from attributes, such as an MLP, becomes a plain model, because its attributes no longer apply.

    `names` are the names of the blocks on the path to the composite; `()` refers to `graph` itself.

    Raises:
        UnknownBlockError: No composite block has this path.
    """
    if not names:
        return edit(graph)
    before = _inside_of(graph, names[0])
    with placed(names[0], is_inside=True):
        after = inside(before, names[1:], edit)
    return swap(graph, names[0], composite(after))


def rename_inside(graph: LogicalGraph, names: tuple[str, ...], new: str) -> LogicalGraph:
    """Rename the block at a path.

    Ports of the enclosing blocks whose names were generated from the old name are renamed too, and stay connected.

    Args:
        graph: The outermost graph.
        names: Names of the blocks on the path to the block, and its own.
        new: The new name.

    Raises:
        UnknownBlockError: No block has this path.
        NameTakenError: `new` is empty or taken.

    Examples:
        >>> from mithril_nb.models import MLP, Model
        >>> graph = rename_inside((Model() + MLP(4, [3], 2)).graph, ("mlp_0", "linear_0"), "encoder")
        >>> [path for path, _ in graph.walk()]
        ['mlp_0', 'mlp_0/encoder', 'mlp_0/relu_0', 'mlp_0/linear_1']
    """
    name, *rest = names
    if not rest:
        return rename(graph, name, new)
    before = _inside_of(graph, name)
    with placed(name, is_inside=True):
        after = rename_inside(before, tuple(rest), new)
    if after == before:
        return graph
    inputs, outputs = (
        {Endpoint(name, port.name): Endpoint(name, now.name) for port, now in zip(*ports, strict=True)}
        for ports in ((before.inputs, after.inputs), (before.outputs, after.outputs))
    )
    nodes = tuple(Node(name, composite(after)) if node.name == name else node for node in graph.nodes)
    old_path, new_path = (".".join(map(component, path)) for path in (names, (*names[:-1], new)))
    return with_names(
        graph, nodes, lambda end: outputs.get(end, end), lambda end: inputs.get(end, end), (old_path, new_path)
    )


def _inside_of(graph: LogicalGraph, name: str) -> LogicalGraph:
    block = node_of(graph, name).block
    if block.graph is None or not block.is_composite:
        raise UnknownBlockError(
            f"block {name!r} has nothing inside: {block.kind} is an op.",
            (
                (
                    "composite blocks",
                    ", ".join(repr(node.name) for node in graph.nodes if node.block.is_composite) or "none",
                ),
            ),
            f"edit the block {name!r} itself.",
            block=component(name),
        )
    return block.graph


@contextmanager
def placed(name: str, *, is_inside: bool = False) -> Generator[None]:
    """Add the name of the edited block to the block path of an error that the `with` statement raises.

    Args:
        name: Name of the block.
        is_inside: True if a block inside it is edited: its name is put before the path. False if the block itself is
            edited: its name becomes the path, unless the error has a path already.
    """
    try:
        yield
    except MithrilError as error:
        first, *more = error.diagnostics
        if not is_inside:
            raise type(error)(replace(first, block=first.block or component(name)), more=tuple(more)) from None
        inner, facts = "", first.facts
        if facts and facts[0][0] == _INSIDE:
            (_, inner), *facts = facts
        path, block = ("/".join(part for part in (component(name), tail) if part) for tail in (inner, first.block))
        facts = ((_INSIDE, path), *facts)
        raise type(error)(replace(first, block=block, facts=facts), more=tuple(more)) from None
