"""Sizes of the arrays that a function is called with: numbers, or names that JAX knows of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mithril_nb.errors import ShapeError


def check_sizes(arguments: Mapping[str, Any], title: str) -> None:
    """Raise if a size is only a text: JAX refuses that, and does not say what it would take.

    Args:
        arguments: The arguments by name.
        title: What to call what they are for.

    Raises:
        ShapeError: There is such a size.
    """
    strange = {name: leaf for name, value in arguments.items() for leaf in _specs(value) if _strange(leaf.shape)}
    if not strange:
        return
    name, leaf = next(iter(strange.items()))
    shape = leaf.shape
    names = list(dict.fromkeys(_name(dim) for one in strange.values() for dim in _strange(one.shape)))
    written = _tuple([_name(dim) if _is_strange(dim) else str(dim) for dim in shape])
    raise ShapeError(
        f"the argument {name!r} of {title!r} has a size that is no number: {_strange(shape)[0]!r}.",
        (("shape", str(shape)), ("needs", "numbers, or names that jax.export.symbolic_shape makes, all at once")),
        f'{_tuple(names)} = jax.export.symbolic_shape("{", ".join(names)}"), '
        f'and then jax.ShapeDtypeStruct({written}, "{leaf.dtype}")',
    )


def _specs(value: Any) -> list[jax.ShapeDtypeStruct]:
    return [leaf for leaf in jax.tree.leaves(value) if isinstance(leaf, jax.ShapeDtypeStruct)]


def _strange(shape: tuple[Any, ...]) -> list[Any]:
    return [dim for dim in shape if _is_strange(dim)]


def _is_strange(dim: Any) -> bool:
    return not isinstance(dim, int | np.integer) and not jax.export.is_symbolic_dim(dim)


def _tuple(texts: Sequence[str]) -> str:
    return f"({', '.join(texts)}{',' * (len(texts) == 1)})"


def _name(dim: Any) -> str:
    return dim if isinstance(dim, str) and dim.isidentifier() else "batch"
