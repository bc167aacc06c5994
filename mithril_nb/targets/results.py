"""What a function gives back: arrays, or what to do about it if there are none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from mithril_nb.errors import StageUnavailableError, short_repr
from mithril_nb.targets.sizes import no_array

NUMBERS = (bool, int, float, complex)
"""What Python computes with itself."""
_RESULTS = (jax.Array, np.generic, *NUMBERS)


def is_result(leaf: Any) -> bool:
    """Whether a program can give this back: an array, or a number."""
    return leaf.dtype.kind in "biufcV" if isinstance(leaf, np.ndarray) else isinstance(leaf, _RESULTS)


def checked_result(out: Any, title: str, effects: Callable[[], Collection[Any]] | None = None) -> Any:
    """Return what a function gave, if something of it is an array.

    Else nothing that it computes would be used, and all of its costs would be 0 without a word. What it gives beside
    arrays may be anything: it is left out.

    Args:
        out: What it gave.
        title: What to call the function.
        effects: What it does besides, if nothing is no result; by default nobody asks, as it may change its modules.

    Raises:
        StageUnavailableError: It gave no array, or what runs only when somebody goes through it.
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
    if out is None and effects is not None and not effects():  # an empty dict is meant, a missing return is not
        raise StageUnavailableError(
            f"{title!r} gives nothing back, so nothing that it computes is used.",
            (("gives", "None"),),
            "return what it computes, at its end.",
        )
    return out


def check_computes(out: Any, title: str, arguments: Mapping[str, Any]) -> None:
    """Raise if a function made its result of Python's numbers alone: Python computed it, and no program does.

    Args:
        out: What it gave.
        title: What to call the function.
        arguments: What it was called with, by name; there is no array among it.

    Raises:
        StageUnavailableError: It was so.
    """
    leaves: list[Any] = jax.tree.leaves(out)
    if not leaves or not all(isinstance(leaf, NUMBERS) for leaf in leaves):
        return
    sizes = no_array(arguments, title, f"Python has computed the result, {_told(out)}")
    if sizes is not None:
        raise sizes
    numbers = [value for value in arguments.values() if isinstance(value, NUMBERS)]
    if numbers:
        raise StageUnavailableError(
            f"{title!r} was given numbers and no array: Python has computed the result, and nothing is left for JAX.",
            (("given", ", ".join(map(repr, numbers))), ("gives", _told(out))),
            _as_array(numbers[0]),
        )


def _as_array(number: Any) -> str:
    """Return what to give in the place of a number, so that it is traced."""
    kind = jax.numpy.result_type(number)
    try:
        is_written = bool(np.isfinite(np.asarray(number, kind)))  # others are no Python as they are printed
    except OverflowError:
        return f'jax.ShapeDtypeStruct((), "{jax.numpy.result_type(0.0)}")  # {kind} has no room for {number!r}'
    shape = f'jax.ShapeDtypeStruct((), "{kind}")'
    return f"jax.numpy.asarray({number!r})  # or {shape}" if is_written else f"{shape}  # instead of {number!r}"


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
