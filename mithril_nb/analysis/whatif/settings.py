"""Settings of a program: validating and formatting their values."""

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
"""Values of `precision`, as in `jax.default_matmul_precision`."""

NOT_SWEPT: Settings = {}
_EXAMPLES = {"batch": (32, 64), "linear_0.dimension": (256, 512)}


def key_of(settings: Settings) -> Key:
    """Return a hashable key that is equal for equal settings; values need not be hashable.

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
            elements: Sequence[Any] = value
            return tuple((type(element), _hashable(element)) for element in elements)
        if isinstance(value, dict):
            named: dict[Any, Any] = value
            return tuple((name, type(element), _hashable(element)) for name, element in named.items())
        if hasattr(value, "shape") and hasattr(value, "dtype"):  # the repr of a long array omits its middle
            array = np.asarray(value)
            return array.shape, array.dtype.name, array.tobytes()
        return repr(value)
    return value


def is_size(value: Any) -> bool:
    """Return whether a value is an integer; truth values are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def plain(value: Any) -> Any:
    """Return a value for JSON: numbers, strings, truth values and `None` unchanged, others as a short text.

    Examples:
        >>> plain(np.int64(3)), plain(None), plain(np.dtype("float32"))
        (3, None, 'float32')
    """
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return format_value(value)


def format_value(value: Any) -> str:
    """Format a value as a short text. A dtype, as a NumPy dtype or scalar type, is formatted as its name.

    Examples:
        >>> format_value("bfloat16"), format_value(np.float32), format_value(64)
        ('bfloat16', 'float32', '64')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, np.dtype | type):
        with suppress(TypeError):  # a class that is not a dtype
            return np.dtype(value).name
    return short_repr(value, 40)


def format_setting(name: str, values: Sequence[Any], is_swept: bool = False) -> str:
    """Format a setting as Python code: with the last of `values`, or with all of them if the setting is swept.

    Examples:
        >>> format_setting("batch", (8, 16)), format_setting("batch", (8, 16), is_swept=True)
        ('batch=16', 'batch=[8, 16]')
        >>> format_setting("a.dimension", ("x",)), format_setting("a.dimension", (8,), is_swept=True)
        ('{"a.dimension": "x"}', 'changes={"a.dimension": [8]}')
    """
    text = format_literal([*values] if is_swept else values[-1])
    if name.isidentifier():
        return f"{name}={text}"
    return f'{"changes=" * is_swept}{{"{name}": {text}}}'


def format_literal(value: Any) -> str:
    """Format a value as Python code, with strings in double quotes."""
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
    """Return all settings with the changes applied.

    Args:
        base: The settings before.
        changes: The new values.
        program: Name of the program, for errors.
        takes_any: True if the program accepts settings that are not in `base`.
        is_made: True if a user's function makes the program. The error then suggests a new parameter of this function.
        swept: For a call of `ml.sweep`, the values of each swept setting, for errors.

    Raises:
        UnknownOptionError: A setting does not exist, or a size has an invalid value.
    """
    for name, value in by_name(changes).items():
        if name not in base and not takes_any:
            near = alike(name, base)
            raise UnknownOptionError(
                f"{program} has no setting {name!r}.",
                (("settings", ", ".join(base) or "none"),),
                format_setting(near[0], swept.get(name, (value,)), name in swept)
                if near
                else f"def make({format_setting(name, (value,))}): ...  # use {name} in the function"
                if is_made and name.isidentifier()
                else make_call(name, swept.get(name, (value,)), name in swept, f"{_function_in(program)}, (x,)"),
            )
        check_size(name, base.get(name), value, program, name in swept)
    return {**base, **changes}


def make_call(name: str, values: Sequence[Any], is_swept: bool = False, returns: str = "function, (x,)") -> str:
    """Return code for an error about an unknown setting: a function with this setting that makes the program.

    Args:
        name: Name of the setting.
        values: Values of the setting.
        is_swept: True for a call of `ml.sweep`, false for `ml.what_if`.
        returns: Code for what the function returns.

    Examples:
        >>> make_call("depth", (3,))
        'def make(depth=3): return function, (x,)  # use depth in it; then ml.what_if(make)(depth=3)'
    """
    setting = format_setting(name, values) if name.isidentifier() else "..."
    called = f"ml.sweep(make, {format_setting(name, values, is_swept)})" if is_swept else f"ml.what_if(make)({setting})"
    used = name if name.isidentifier() else "the setting"
    return f"def make({setting}): return {returns}  # use {used} in it; then {called}"


def _function_in(program: str) -> str:
    """Return the name of the function of a program, as quoted in messages; `"function"` if it has no name."""
    name = program.strip("'")
    return name if name.isidentifier() and name not in ("forward", "train") else "function"


def by_name(changes: Any, is_swept: bool = False) -> Settings:
    """Validate a dict of changes and return it; return an empty dict for `None`.

    Raises:
        UnknownOptionError: `changes` is not a dict with string keys.
    """
    if changes is None:
        return {}
    names: Any = changes
    if not isinstance(changes, Mapping) or not all(isinstance(name, str) for name in names):
        both = [format_setting(name, values, is_swept) for name, values in _EXAMPLES.items()]
        text = " ".join(short_repr(changes, 40).split())
        raise UnknownOptionError(
            f"settings must be keyword arguments or a dict with string keys, got {text}.",
            advice=f"{both[0]}  # or {both[1]} for names with a dot",
        )
    return changes  # pyright: ignore[reportUnknownVariableType]


def check_size(name: str, before: Any, value: Any, program: str, is_swept: bool = False) -> None:
    """Check the new value of a setting that is an integer; do nothing for other settings.

    Raises:
        UnknownOptionError: The new value is not an integer, or is negative and the previous value is not.
    """
    if is_size(before) and (not is_size(value) or (value < 0 <= before)):
        subject = f"each value of {name!r}" if is_swept else f"setting {name!r}"
        least = " of at least 0" * (before >= 0)
        raise UnknownOptionError(
            f"{subject} of {program} must be an integer{least}, not {short_repr(value, 40)}.",
            (("current value", str(before)),),
            format_setting(name, (before, max(1, 2 * before)), is_swept),
        )


def values_of(name: str, values: Any) -> tuple[Any, ...]:
    """Return the values of a swept setting without duplicates.

    Raises:
        UnknownOptionError: The values are not a sequence or an array, or there are none.
    """
    is_list = isinstance(values, Sequence | range) and not isinstance(values, str)
    if not (is_list or (isinstance(values, np.ndarray) and values.ndim)) or not len(values):
        raise UnknownOptionError(
            f"the values of {name!r} must be a non-empty list, not {short_repr(values, 40)}.",
            advice=f"{name}=[8, 16, 32]",
        )
    unpacked: list[Any] = list(values)
    listed: list[Any] = [value.item() if isinstance(value, np.generic) else value for value in unpacked]
    return tuple({key_of({name: value}): value for value in listed}.values())
