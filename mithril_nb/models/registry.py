"""All kinds of blocks by name, for the palette and for files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril_nb.errors import NameTakenError, UnknownBlockError, similar
from mithril_nb.graph.records import LogicalGraph

KINDS: dict[str, type[Any]] = {}
"""Every kind of block with a constructor, by name."""


def kind_named(kind: str) -> type[Any]:
    """Return the class of a kind of block.

    Raises:
        UnknownBlockError: No kind has this name.

    Examples:
        >>> import mithril_nb.models
        >>> kind_named("Linear").__name__
        'Linear'
    """
    if kind in KINDS:
        return KINDS[kind]
    near = similar(kind, KINDS)
    raise UnknownBlockError(
        f"unknown kind of block {kind!r}.",
        (("known", "list(mithril_nb.models.KINDS)"), ("yours", "import or define your own class first")),
        repr(near[0]) if near else "use one of the known kinds.",
    )


def construct(kind: str, graph: LogicalGraph | None, attributes: Mapping[str, Any]) -> Any:
    """Call the constructor of a kind of block, and return the model.

    Args:
        kind: The kind.
        graph: The inner graph of a block that runs others, whose blocks are arguments too.
        attributes: The other arguments.

    Raises:
        UnknownBlockError: No kind has this name.
        Exception: The constructor rejects an argument.
    """
    found = kind_named(kind)
    parts = {} if graph is None else {node.name: found.of_block(node.block) for node in graph.nodes}
    return found(**parts, **attributes)


def refuse_second(new: type, what: str, name: str, old: type | None) -> None:
    """Raise if a name is registered for another class. Running a cell again redefines the same class, which is allowed.

    Raises:
        NameTakenError: Another class has the name.
    """
    if old is None or (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__):
        return
    raise NameTakenError(
        f"cannot define {new.__name__}: the {what} {name!r} exists.",
        (("defined by", f"{old.__module__}.{old.__qualname__}"),),
        f'op = "my_{name}"' if what == "op" else f"class My{name}(Operator)",
    )
