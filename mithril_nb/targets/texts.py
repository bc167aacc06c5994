"""Errors for text in place of an array: `"f32[3,4]"` instead of `jax.ShapeDtypeStruct((3, 4), "float32")`."""

from __future__ import annotations

from typing import Any

import jax

from mithril_nb.errors import StageUnavailableError, short_repr
from mithril_nb.targets.arguments import Arguments, argument_names, title_of
from mithril_nb.targets.calls import shown, variable_of
from mithril_nb.targets.entry_point import EntryPoint
from mithril_nb.targets.results import NUMBERS
from mithril_nb.targets.sizes import written_spec

_USUAL = 'jax.ShapeDtypeStruct((4, 64), "float32")  # instead of the text'


def no_array_but_text(
    given: Arguments, because: str, entry: EntryPoint, target: Any = None
) -> StageUnavailableError | None:
    """Return the error for text in place of an array; `None` if no traced argument contains text.

    Args:
        given: The arguments.
        because: The failure.
        entry: The function that the user called.
        target: The module that receives the arguments: it rejects only text that is an array's type, as `"f32[3]"`.
            `None` for a function, which rejects any text.
    """
    found = {
        name: [leaf for leaf in jax.tree.leaves(value) if isinstance(leaf, str)]
        for name, value in given.by_name.items()
        if name not in given.static
    }
    typed = [name for name, texts in found.items() if any(map(written_spec, texts))]
    names = typed or ([] if target is not None else [name for name, texts in found.items() if texts])
    if not names:
        return None
    title = title_of(given.fn if target is None else target)
    return StageUnavailableError(
        f"the argument {names[0]!r} of {title!r} contains text instead of an array.",
        (("given", short_repr(given.by_name[names[0]])), ("because", because)),
        _advice(given, entry, given.fn if target is None else target, found[names[0]]),
    )


def _advice(given: Arguments, entry: EntryPoint, target: Any, texts: list[str]) -> str:
    """Return the call with an array for each text that is an array's type; otherwise, how to write an array."""
    args, kwargs = given.call(given.values)
    if not any(map(written_spec, given.values)):  # inside a container: its other elements have no names
        return next((f"{written_spec(text)}  # instead of {text!r}" for text in texts if written_spec(text)), _USUAL)
    values = [_written(name, value) for name, value in zip(argument_names(given.fn, args), args, strict=True)]
    values += [f"{name}={_written(name, value)}" for name, value in kwargs.items()]
    return entry.call(variable_of(target), *values)


def _written(name: str, value: Any) -> str:
    is_plain = isinstance(value, (str, *NUMBERS))
    return written_spec(value) or (shown(value) if is_plain else name)
