"""Limits on the contents of a model file, checked before any expensive work."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from mithril_nb.errors import ModelFileError, UnknownOptionError, short_repr
from mithril_nb.graph.edit import DEEPEST
from mithril_nb.graph.spec import MOST_AXES


@dataclass(frozen=True)
class LoadLimits:
    """The largest model that `ml.load` accepts; `ml.load(path, limits=...)` changes the limits.

    Attributes:
        file_bytes: Size of the file.
        nodes: Blocks at all levels, including the inner blocks of a block such as `MLP`.
        edges: Connections, labels and notes at all levels.
        ports: Inputs and outputs of all composite blocks; a long name counts as several. An open input of an inner
            block is an input at each level around it, so a small file can have many.
        depth: Levels of models in models, at most 50.
        name_length: Characters of the name of a block, a kind, a port or a dimension.
        text_length: Characters of a text in an attribute.
        list_length: Values in all lists of one block's attributes.
        rank: Dimensions of a declared shape, at most 64.

    Raises:
        UnknownOptionError: A limit is not a non-negative integer, or exceeds its maximum.

    Examples:
        >>> LoadLimits(nodes=1_000_000).nodes, LoadLimits().depth
        (1000000, 50)
    """

    file_bytes: int = 100_000_000
    nodes: int = 200_000
    edges: int = 1_000_000
    ports: int = 500_000
    depth: int = DEEPEST
    name_length: int = 1_000
    text_length: int = 100_000
    list_length: int = 2_000_000
    rank: int = MOST_AXES

    def __post_init__(self) -> None:
        for field in fields(self):
            value: Any = getattr(self, field.name)
            if type(value) is not int or not 0 <= value <= _MOST.get(field.name, value):
                needs = f"a whole number from 0 {f'to {_MOST[field.name]}' if field.name in _MOST else 'on'}"
                raise UnknownOptionError(
                    f"LoadLimits cannot take {field.name}={short_repr(value)}.",
                    (("needs", needs),),
                    f"ml.LoadLimits({field.name}={field.default})",
                )

    def check(self, name: str, found: int, what: str, block: str = "", *, is_all: bool = True) -> None:
        """Raise if a count exceeds its limit.

        Args:
            name: Name of the limit.
            found: The count.
            what: Plural noun of the counted items, such as `"blocks"`.
            block: Path of the block where it was found.
            is_all: True if all items have been counted; otherwise there may be more.

        Raises:
            ModelFileError: `found` is above the limit.
        """
        limit = getattr(self, name)
        if found <= limit:
            return
        changed = {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}
        wider = changed | {name: found if is_all else 10 * found}
        can_rise = found <= _MOST.get(name, found)
        raise ModelFileError(
            f"this model is too large{f' inside {block!r}' if block else ''}: "
            f"{'' if is_all else 'at least '}{found:,} {what}.",
            (("limit", f"{limit:,} {what} (LoadLimits.{name})"),),
            f"ml.load(path, limits=ml.LoadLimits({', '.join(f'{key}={value:_}' for key, value in wider.items())}))"
            if can_rise
            else f"a model with at most {limit:,} {what}.",
            block=block,
        )


_MOST = {"depth": DEEPEST, "rank": MOST_AXES}
"""Limits that cannot be raised: code that walks models and shapes relies on them."""
