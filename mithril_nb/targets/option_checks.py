"""What `ml.inspect` is told besides the program: which names there are, which one was meant, and what they take."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax

from mithril_nb.errors import UnknownOptionError, alike, short_repr
from mithril_nb.targets.entry_point import door

OPTIONS = (
    "kwargs", "shapes", "variables", "params", "static_argnums", "static_argnames", "program", "loss", "optimizer",
    "name", "device", "compiler_options",
)  # fmt: skip
"""The arguments of `ml.inspect` that are none of the program's."""
OF_MODULES = tuple(one for one in OPTIONS if one not in ("shapes", "params", "static_argnums", "static_argnames"))
"""Those that a module of another library takes."""
OF_FUNCTIONS = tuple(one for one in OPTIONS if one not in ("shapes", "variables", "program", "loss", "optimizer"))
"""Those that a plain function takes."""
_ALIKE = 0.6


def meant(name: str, known: Collection[str] = OPTIONS, least: float = _ALIKE) -> str | None:
    """Return the name that is most like one that nothing has; `None` if none is like it.

    Args:
        name: What a person wrote.
        known: The names that there are.
        least: How much of them has to agree.

    Examples:
        >>> meant("optimiser"), meant("peak", ["peak_bytes", "flops"]), meant("backend")
        ('optimizer', 'peak_bytes', None)
    """
    return next(iter(alike(name, known, least)), None)


def options_written(options: Mapping[str, Any]) -> list[str]:
    """Return options as a person writes them in a call: those that were given.

    Examples:
        >>> options_written({"shapes": {"input": [4, 64]}, "loss": None})
        ["shapes={'input': [4, 64]}"]
    """
    return [f"{name}={short_repr(value)}" for name, value in options.items() if value is not None]


def check_options(
    kwargs: Any = None,
    name: Any = None,
    device: Any = None,
    compiler_options: Any = None,
) -> None:
    """Raise if an option is what it cannot be: JAX would say so only when a stage is made, or not at all.

    Args:
        kwargs: As `ml.inspect` takes it.
        name: The same.
        device: The same.
        compiler_options: The same.

    Raises:
        UnknownOptionError: One of them is no such thing.
    """
    if not _is_by_name(kwargs):
        _refuse("kwargs", kwargs, "a dict of arguments by name", 'kwargs={"axis": 0}')
    if name is not None and not isinstance(name, str):
        _refuse("name", name, "a text", 'name="my step"')
    if device is not None and not isinstance(device, jax.Device):
        here = ", ".join(f"{one.platform}:{one.id}" for one in jax.devices())
        _refuse("device", device, "a jax.Device", "device=jax.devices()[0]", (("present", here),))
    if not _is_by_name(compiler_options):
        example = 'compiler_options={"xla_cpu_enable_fast_math": True}'
        _refuse("compiler_options", compiler_options, "a dict of XLA's options by name", example)


def check_handed_on(options: Mapping[str, Any]) -> None:
    """Raise if an option is what it cannot be, of what a function hands on to `ml.inspect`.

    Args:
        options: What it hands on.

    Raises:
        UnknownOptionError: One of them is no such thing.

    Examples:
        >>> check_handed_on({"name": 3})
        Traceback (most recent call last):
        mithril_nb.errors.UnknownOptionError: ml.inspect cannot take name=3.
            needs  a text
            Try: name="my step"
    """
    check_options(*(options.get(name) for name in ("kwargs", "name", "device", "compiler_options")))


def _is_by_name(value: Any) -> bool:
    names: Any = () if value is None else value
    return value is None or (isinstance(value, Mapping) and all(isinstance(name, str) for name in names))


def _refuse(option: str, value: Any, needs: str, example: str, facts: tuple[tuple[str, str], ...] = ()) -> None:
    given = " ".join(short_repr(value, 60).split())  # an array takes several lines
    raise UnknownOptionError(f"{door().name} cannot take {option}={given}.", (("needs", needs), *facts), example)
