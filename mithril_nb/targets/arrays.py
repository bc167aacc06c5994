"""Checks of the arguments and results of a call: sizes, and leaves that are arrays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from mithril_nb.errors import MithrilError, ShapeError, StageUnavailableError, short_repr
from mithril_nb.graph.spec import read_spec

_LARGEST = 1 << 20
"""Maximum size of an axis in a tuple that may be meant as a shape."""


def check_sizes(arguments: Mapping[str, Any], title: str) -> None:
    """Raise if a size in a shape is text, a float or `None`, because JAX's error does not name the sizes it accepts.

    Raises:
        ShapeError: A size is neither a whole number nor a symbolic dimension.
    """
    for name, value in arguments.items():
        for leaf in jax.tree.leaves(value):
            if isinstance(leaf, jax.ShapeDtypeStruct) and any(map(_is_strange, leaf.shape)):
                raise _size_error(f"the argument {name!r} of {title!r}", leaf)


def _size_error(what: str, array: jax.ShapeDtypeStruct) -> ShapeError:
    sizes = [_whole(dim) if _is_strange(dim) else dim for dim in array.shape]
    shape, comment = str(tuple(sizes)), "  # // divides to whole numbers, / does not"
    if None in sizes:
        names = (
            str(size if size is not None else dim if isinstance(dim, str) and dim.isidentifier() else f"size_{axis}")
            for axis, (dim, size) in enumerate(zip(array.shape, sizes, strict=True))
        )
        shape, comment = f'jax.export.symbolic_shape("{", ".join(names)}")', ""
    first = next(filter(_is_strange, array.shape))
    return ShapeError(
        f"{what} has a size that is not {'a number' if _whole(first) is None else 'a whole number'}: {first!r}.",
        (("shape", str(array.shape)), ("needs", "whole numbers, or names from one call of jax.export.symbolic_shape")),
        f'jax.ShapeDtypeStruct({shape}, "{array.dtype}"){comment}',
    )


def sizes_given(value: Any) -> tuple[int, ...] | None:
    """Return the first tuple or list of positive whole numbers in a value, which may be a shape; `None` without one.

    Examples:
        >>> sizes_given((4, 64)), sizes_given({"x": [8, 2]}), sizes_given((4, 0.5)), sizes_given(4)
        ((4, 64), (8, 2), None, None)
    """
    if isinstance(value, Mapping):
        return next((sizes for one in value.values() if (sizes := sizes_given(one))), None)
    if not isinstance(value, list | tuple) or not value:
        return None
    if all(isinstance(size, int) and not isinstance(size, bool) and 0 < size <= _LARGEST for size in value):
        return tuple(value)
    return next((sizes for one in value if (sizes := sizes_given(one))), None)


@contextmanager
def explain_sizes(arguments: Mapping[str, Any], title: str) -> Iterator[None]:
    """Explain an error in the `with` block if the user passed a shape in place of an array; raise others unchanged.

    Raises:
        StageUnavailableError: The error is about a tuple or list, and an argument contains one that may be a shape.
    """
    try:
        yield
    except MithrilError:
        raise
    except Exception as error:
        because = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        found = no_array(arguments, title, because)
        if found is None or not re.search(
            r"\b(tuple|list)\b", because
        ):  # a tuple of sizes may be valid, as in a reshape
            raise
        raise found.with_traceback(error.__traceback__) from error  # points to the line of the user's Python


def no_array(arguments: Mapping[str, Any], title: str, because: str) -> StageUnavailableError | None:
    """Return the error for a shape in place of an array; `None` if no argument contains a shape."""
    found = [(name, value, sizes) for name, value in arguments.items() if (sizes := sizes_given(value))]
    if not found:
        return None
    name, value, sizes = found[0]
    return StageUnavailableError(
        f"the argument {name!r} of {title!r} contains sizes instead of an array.",
        (("given", short_repr(value)), ("because", because)),
        f'jax.ShapeDtypeStruct({sizes}, "float32")  # instead of the sizes',
    )


def written_spec(value: Any) -> str:
    """Return source code for an array from its type as text, such as `"f32[3,4]"`; `""` for any other value.

    Examples:
        >>> written_spec("f32[3,4]"), written_spec("bf16[]"), written_spec("relu")
        ('jax.ShapeDtypeStruct((3, 4), "float32")', 'jax.ShapeDtypeStruct((), "bfloat16")', '')
    """
    spec = read_spec(value) if isinstance(value, str) else None
    try:
        return "" if spec is None else f'jax.ShapeDtypeStruct({spec.shape}, "{jax.numpy.dtype(spec.dtype).name}")'
    except TypeError:  # no such dtype
        return ""


def _whole(dim: Any) -> int | None:
    """Return 16 for 16.0, 16.5 and "16"; `None` for sizes that are not numbers."""
    try:
        return int(dim)
    except (TypeError, ValueError, OverflowError):
        return None


def _is_strange(dim: Any) -> bool:
    return not isinstance(dim, int | np.integer) and not jax.export.is_symbolic_dim(dim)


NUMBERS = (bool, int, float, complex)
"""Python's types of numbers."""
_RESULTS = (jax.Array, np.generic, *NUMBERS)


def is_result(leaf: Any) -> bool:
    """Return whether a leaf is an array or a number, which a program can return."""
    return leaf.dtype.kind in "biufcV" if isinstance(leaf, np.ndarray) else isinstance(leaf, _RESULTS)


def results_of(out: Any) -> Any:
    """Return the result of a function with `None` in place of leaves that are neither arrays nor numbers."""
    return jax.tree.map(lambda leaf: leaf if is_result(leaf) else None, out)


def checked_result(out: Any, title: str) -> Any:
    """Return the result of a function unchanged, if a program can return it.

    Raises:
        StageUnavailableError: The result contains an iterator; or it is not empty, and has neither arrays nor numbers.
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
    return "return x  # with x, an array, or a tuple, list or dict of arrays"
