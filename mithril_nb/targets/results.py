"""What a function gives back: arrays, or what to do about it if there are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from mithril_nb.errors import StageUnavailableError, short_repr

NUMBERS = (bool, int, float, complex)
"""What Python computes with itself."""
_RESULTS = (jax.Array, np.generic, *NUMBERS)


def is_result(leaf: Any) -> bool:
    """Whether a program can give this back: an array, or a number."""
    return leaf.dtype.kind in "biufcV" if isinstance(leaf, np.ndarray) else isinstance(leaf, _RESULTS)


def results_of(out: Any) -> Any:
    """Return what a program can give of a function's result: arrays and numbers, `None` for the rest."""
    return jax.tree.map(lambda leaf: leaf if is_result(leaf) else None, out)


def checked_result(out: Any, title: str) -> Any:
    """Return what a function gave, if something of it is an array, or if it gave nothing.

    What it gives beside arrays may be anything: it is left out.

    Args:
        out: What it gave.
        title: What to call the function.

    Raises:
        StageUnavailableError: It gave no array, or an iterator, which is not computed yet.
    """
    leaves: list[Any] = jax.tree.leaves(out, is_leaf=_is_lazy)
    lazy = [leaf for leaf in leaves if _is_lazy(leaf)]
    if lazy:
        raise StageUnavailableError(
            f"{title!r} gives what is not computed before somebody goes through it.",
            (("gives", _told(lazy[0])),),
            "return list(...)  # which JAX takes",
        )
    if leaves and not any(map(is_result, leaves)):
        raise StageUnavailableError(f"{title!r} gives no array.", (("gives", _told(out)),), _advice(leaves[0]))
    return out


def article(noun: str) -> str:
    """Return `"an"` before a vowel, else `"a"`."""
    return "an" if noun[0] in "AEIOUaeiou" else "a"


def _is_lazy(value: Any) -> bool:
    return isinstance(value, Iterator)


def _told(out: Any) -> str:
    text = " ".join(short_repr(out, 60).split())
    if " at 0x" in text:
        kind = type(out).__name__
        return f"{article(kind)} {kind}"  # its address tells nobody anything
    return f"{text} ({type(out).__name__})"


def _advice(leaf: Any) -> str:
    arrays = [name for name, value in getattr(leaf, "__dict__", {}).items() if isinstance(value, jax.Array)]
    if arrays:
        kind = type(leaf).__name__
        found = ", ".join(f'"{name}": result.{name}' for name in arrays)
        return f"return {{{found}}}  # or jax.tree_util.register_dataclass({kind}), if it is a dataclass"
    return "return the arrays that it computes: one, or a tuple, a list or a dict of them."
