"""Settings of a program: their values, which of them fit, and how they are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from mithril_nb.errors import UnknownOptionError, alike, short_repr

Settings = Mapping[str, Any]
"""Value of each setting by name."""
Key = tuple[Any, ...]
PRECISIONS = ("default", "high", "highest", "bfloat16", "tensorfloat32", "float32")
"""Values of `precision`, as `jax.default_matmul_precision` takes them."""

NOT_SWEPT: Settings = {}
_EXAMPLES = {"batch": (32, 64), "linear_0.dimension": (256, 512)}


def key_of(settings: Settings) -> Key:
    """Return what two settings have in common if they are the same; values need not be hashable.

    Examples:
        >>> key_of({"a": 1, "b": [2]}) == key_of({"b": [2], "a": 1}), key_of({"a": 1}) == key_of({"a": True})
        (True, False)
    """
    return tuple((name, type(settings[name]), _hashable(settings[name])) for name in sorted(settings))


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        if isinstance(value, list | tuple):
            every: Sequence[Any] = value
            return tuple((type(one), _hashable(one)) for one in every)
        if isinstance(value, dict):
            named: dict[Any, Any] = value
            return tuple((name, type(one), _hashable(one)) for name, one in named.items())
        if hasattr(value, "shape") and hasattr(value, "dtype"):  # of a long array only the ends are printed
            array = np.asarray(value)
            return array.shape, array.dtype.name, array.tobytes()
        return repr(value)
    return value


def is_size(value: Any) -> bool:
    """Whether a value is a whole number, and no truth value."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def plain(value: Any) -> Any:
    """Return a value as JSON takes it: numbers, text and truth values as they are, others as a short text.

    Examples:
        >>> plain(np.int64(3)), plain(None), plain(np.dtype("float32"))
        (3, None, 'float32')
    """
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return told(value)


def told(value: Any) -> str:
    """Return a value as a short text: a dtype by its name, whatever it is given as.

    Examples:
        >>> told("bfloat16"), told(np.float32), told(64)
        ('bfloat16', 'float32', '64')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, np.dtype | type):
        with suppress(TypeError):  # a class that is no number's
            return np.dtype(value).name
    return short_repr(value, 40)


def as_written(name: str, values: Sequence[Any], is_swept: bool = False) -> str:
    """Return a setting as a person writes it: its last value, or all of them where it is swept.

    Examples:
        >>> as_written("batch", (8, 16)), as_written("batch", (8, 16), is_swept=True)
        ('batch=16', 'batch=[8, 16]')
        >>> as_written("a.dimension", ("x",)), as_written("a.dimension", (8,), is_swept=True)
        ('{"a.dimension": "x"}', 'changes={"a.dimension": [8]}')
    """
    text = value_written([*values] if is_swept else values[-1])
    if name.isidentifier():
        return f"{name}={text}"
    return f'{"changes=" * is_swept}{{"{name}": {text}}}'


def value_written(value: Any) -> str:
    """Return a value as it stands in a call, texts in double quotes."""
    text = short_repr(value, 40)
    return text if '"' in text else text.replace("'", '"')


def checked(
    base: Settings,
    changes: Settings,
    program: str,
    takes_any: bool = False,
    is_made: bool = True,
    swept: Settings = NOT_SWEPT,
) -> dict[str, Any]:
    """Return all settings, some of them changed.

    Args:
        base: The settings before.
        changes: Those that are to be others.
        program: What takes them, for errors.
        takes_any: Whether it takes settings that it does not name.
        is_made: Whether it is a person's own function, which could take more of them.
        swept: The values that a sweep was given for them.

    Raises:
        UnknownOptionError: A setting that there is not, or a value that cannot take the place of a size.
    """
    for name, value in by_name(changes).items():
        if name not in base and not takes_any:
            near = alike(name, base)
            raise UnknownOptionError(
                f"{program} has no setting {name!r}.",
                (("settings", ", ".join(base) or "none"),),
                as_written(near[0], swept.get(name, (value,)), name in swept)
                if near
                else f"def make({as_written(name, (value,))}): ...  # and use it there"
                if is_made and name.isidentifier()
                else by_making(name, swept.get(name, (value,)), name in swept),
            )
        check_size(name, base.get(name), value, program, name in swept)
    return {**base, **changes}


def by_making(name: str, values: Sequence[Any], is_swept: bool = False) -> str:
    """Return how to ask for what can be no setting of a program as it stands: by a function that makes it.

    Examples:
        >>> by_making("depth", (3,))
        'ml.what_if(make)  # make(depth=3) returns the program for it'
    """
    setting = as_written(name, values) if name.isidentifier() else "..."
    called = f"ml.sweep(make, {as_written(name, values, is_swept)})" if is_swept else "ml.what_if(make)"
    return f"{called}  # make({setting}) returns the program for it"


def by_name(changes: Any, is_swept: bool = False) -> Settings:
    """Return changes that are given in a dict; none if nothing is given.

    Args:
        changes: The changes.
        is_swept: Whether their values are lists.

    Raises:
        UnknownOptionError: They are no dict of settings by name.
    """
    if changes is None:
        return {}
    names: Any = changes
    if not isinstance(changes, Mapping) or not all(isinstance(name, str) for name in names):
        both = [as_written(name, values, is_swept) for name, values in _EXAMPLES.items()]
        raise UnknownOptionError(
            f"settings are told by name, and not as {' '.join(short_repr(changes, 40).split())}.",
            advice=f"{both[0]}  # or {both[1]} for names with a dot",
        )
    return changes  # pyright: ignore[reportUnknownVariableType]


def check_size(name: str, before: Any, value: Any, program: str, is_swept: bool = False) -> None:
    """Raise if a size is to become what is none.

    Raises:
        UnknownOptionError: The value before is a whole number, and the new one is none, or below 0.
    """
    if is_size(before) and (not is_size(value) or (value < 0 <= before)):
        raise UnknownOptionError(
            f"setting {name!r} of {program} must be a whole number, not {short_repr(value, 40)}.",
            (("before", str(before)),),
            as_written(name, (before, max(1, 2 * before)), is_swept),
        )


def values_of(name: str, values: Any) -> tuple[Any, ...]:
    """Return the values that a setting is to take one after the other, without those that are said again.

    Raises:
        UnknownOptionError: No value, or what is no list.
    """
    is_list = isinstance(values, Sequence | range) and not isinstance(values, str)
    if not (is_list or (isinstance(values, np.ndarray) and values.ndim)) or not len(values):
        raise UnknownOptionError(
            f"the values of {name!r} must be a list with something in it, not {short_repr(values, 40)}.",
            advice=f"{name}=[8, 16, 32]",
        )
    every: list[Any] = list(values)
    listed: list[Any] = [value.item() if isinstance(value, np.generic) else value for value in every]
    return tuple({key_of({name: value}): value for value in listed}.values())
