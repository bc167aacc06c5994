"""Names of blocks and connections: lookup, default names and checks."""

from __future__ import annotations

from functools import cache

from mithril_nb.errors import ConnectionError, UnknownBlockError, listed, short_repr, similar
from mithril_nb.graph.records import LogicalGraph, Node


def node_of(graph: LogicalGraph, name: str) -> Node:
    """Return the node with this name.

    Raises:
        UnknownBlockError: No block has this name.
    """
    node = graph.by_name.get(name)
    if node is None:
        near = similar(name, graph.by_name)
        raise UnknownBlockError(
            f"the model has no block {name!r}.",
            (("blocks", listed(map(repr, graph.by_name))),),
            repr(near[0]) if near else "use one of the blocks." if graph.nodes else "add a block first.",
        )
    return node


def free_name(graph: LogicalGraph, kind: str) -> str:
    """Return the default name of the next block of this kind: `linear_0`, then `linear_1`, ..."""
    number = sum(node.block.kind == kind for node in graph.nodes)
    while default_name(kind, number) in graph.by_name:
        number += 1
    return default_name(kind, number)


@cache
def _stem(kind: str) -> str:
    words: list[str] = []
    for index, char in enumerate(kind):
        is_capital, follows = char.isupper(), kind[index + 1 : index + 2]
        # A capital starts a word before a small letter (RBF|Kernel), or after a word of over two letters: not in SiLU.
        starts = is_capital and (follows.islower() or (index and kind[index - 1].islower() and len(words[-1]) > 2))
        if starts or not words:
            words.append(char)
        else:
            words[-1] += char
    return "_".join(words).lower()


def default_name(kind: str, number: int) -> str:
    """Return the name of the block with this kind and number.

    Examples:
        >>> default_name("MaxPool2d", 3), default_name("RBFKernel", 0), default_name("SiLU", 0)
        ('max_pool2d_3', 'rbf_kernel_0', 'silu_0')
    """
    return f"{_stem(kind)}_{number}"


def checked_name(name: object) -> str:
    """Return a valid name for an input or an output.

    Raises:
        ConnectionError: It is not a string, is empty, or has a dot, which separates a block from its port.

    Examples:
        >>> checked_name("hidden")
        'hidden'
    """
    if isinstance(name, str) and name and "." not in name:
        return name
    if not isinstance(name, str) or not name:
        raise ConnectionError(
            f"cannot name a connection {short_repr(name)}.", (("needs", "a non-empty string"),), "'hidden'"
        )
    raise ConnectionError(
        f"cannot name a connection {name!r}: a dot separates a block from its port.",
        (("needs", "a name without dots"),),
        f"{name.strip('.').replace('.', '_') or 'hidden'!r}",
    )
