"""The kinds of blocks there are, by name: what the palette shows and what a file may name."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from mithril_nb.errors import UnknownBlockError

if TYPE_CHECKING:
    from mithril_nb.models.model import Model

KINDS: dict[str, type[Model]] = {}
"""Every kind of block that has a constructor, by kind."""


def kind_named(kind: str) -> type[Model]:
    """Return the class of a kind of block.

    Raises:
        UnknownBlockError: There is none of that name.

    Examples:
        >>> import mithril_nb.models
        >>> kind_named("Linear").__name__
        'Linear'
    """
    if kind in KINDS:
        return KINDS[kind]
    near = difflib.get_close_matches(kind, KINDS, 1, 0.5)
    raise UnknownBlockError(
        f"unknown kind of block {kind!r}.",
        (("known", ", ".join(sorted(KINDS))),),
        f"{near[0]}(...)" if near else "one of these kinds.",
    )
