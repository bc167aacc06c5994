"""The results of a traced function: arrays and numbers, or an error with advice if there are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from mithril_nb.errors import StageUnavailableError, short_repr

NUMBERS = (bool, int, float, complex)
"""Types of Python's own numbers."""
_RESULTS = (jax.Array, np.generic, *NUMBERS)


def is_result(leaf: Any) -> bool:
    """Return whether a program can return this leaf: an array or a number."""
    return leaf.dtype.kind in "biufcV" if isinstance(leaf, np.ndarray) else isinstance(leaf, _RESULTS)


def results_of(out: Any) -> Any:
    """Return a function's result with `None` for every leaf that is neither an array nor a number."""
    return jax.tree.map(lambda leaf: leaf if is_result(leaf) else None, out)


def checked_result(out: Any, title: str) -> Any:
    """Return a function's result unchanged if it contains an array, or is empty.

    Leaves that are not arrays may be anything; the caller drops them.

    Args:
        out: The result.
        title: The function's name in messages.

    Raises:
        StageUnavailableError: The result contains no array, or an iterator, which is not computed yet.
    """
    leaves: list[Any] = jax.tree.leaves(out, is_leaf=_is_lazy)
    lazy = [leaf for leaf in leaves if _is_lazy(leaf)]
    if lazy:
        raise StageUnavailableError(
            f"{title!r} returns an iterator, which JAX cannot trace.",
            (("returned", _describe(lazy[0])),),
            "return list(...)",
        )
    if leaves and not any(map(is_result, leaves)):
        raise StageUnavailableError(f"{title!r} returns no array.", (("returned", _describe(out)),), _advice(leaves[0]))
    return out


def article(noun: str) -> str:
    """Return `"an"` before a vowel, else `"a"`."""
    return "an" if noun[0] in "AEIOUaeiou" else "a"


def _is_lazy(value: Any) -> bool:
    return isinstance(value, Iterator)


def _describe(out: Any) -> str:
    text = " ".join(short_repr(out, 60).split())
    if " at 0x" in text:
        kind = type(out).__name__
        return f"{article(kind)} {kind}"  # without the memory address
    return f"{text} ({type(out).__name__})"


def _advice(leaf: Any) -> str:
    arrays = [name for name, value in getattr(leaf, "__dict__", {}).items() if isinstance(value, jax.Array)]
    if arrays:
        kind = type(leaf).__name__
        found = ", ".join(f'"{name}": result.{name}' for name in arrays)
        return f"return {{{found}}}  # or jax.tree_util.register_dataclass({kind}), if it is a dataclass"
    return "return an array, or a tuple, list or dict of arrays."
