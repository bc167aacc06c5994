"""The options of `ml.inspect`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax

from mithril_nb.errors import UnknownOptionError, alike, short_repr

OPTIONS = (
    "kwargs", "shapes", "variables", "params", "static_argnums", "static_argnames", "program", "loss", "optimizer",
    "name", "device", "compiler_options", "trips",
)  # fmt: skip
"""The options of `ml.inspect`. Other keyword arguments are passed to the target."""
OF_MODULES = tuple(one for one in OPTIONS if one not in ("shapes", "params", "static_argnums", "static_argnames"))
"""The options for modules of Flax, Equinox and Haiku."""
OF_FUNCTIONS = tuple(one for one in OPTIONS if one not in ("shapes", "variables", "program", "loss", "optimizer"))
"""The options for plain functions."""
_ALIKE = 0.6


def meant(name: str, known: Collection[str] = OPTIONS, least: float = _ALIKE) -> str | None:
    """Return the known name that is most similar to a misspelt one; `None` if the similarity (0 to 1) is below `least`.

    Examples:
        >>> meant("optimiser"), meant("peak", ["peak_bytes", "flops"]), meant("backend")
        ('optimizer', 'peak_bytes', None)
    """
    return next(iter(alike(name, known, least)), None)


def check_options(options: Mapping[str, Any]) -> None:
    """Raise if an option has a wrong type, because JAX reports it late or not at all.

    Raises:
        UnknownOptionError: `kwargs`, `name`, `device` or `compiler_options` has a wrong type.

    Examples:
        >>> check_options({"name": 3})
        Traceback (most recent call last):
        mithril_nb.errors.UnknownOptionError: the option name=3 is not valid.
            needs  a string
            Try: name="my step"
    """
    name, device = options.get("name"), options.get("device")
    if not _is_by_name(options.get("kwargs")):
        _refuse("kwargs", options["kwargs"], "a dict of arguments by name", 'kwargs={"axis": 0}')
    if name is not None and not isinstance(name, str):
        _refuse("name", name, "a string", 'name="my step"')
    if device is not None and not isinstance(device, jax.Device):
        here = ", ".join(f"{one.platform}:{one.id}" for one in jax.devices())
        _refuse("device", device, "a jax.Device", "device=jax.devices()[0]", (("present", here),))
    if not _is_by_name(options.get("compiler_options")):
        example = 'compiler_options={"xla_cpu_enable_fast_math": True}'
        _refuse("compiler_options", options["compiler_options"], "a dict of XLA's options by name", example)
    if not _is_by_name(options.get("trips")):
        _refuse("trips", options["trips"], "a dict of numbers by line or block", 'trips={"solver.py:12": 20}')


def _is_by_name(value: Any) -> bool:
    names: Any = () if value is None else value
    return value is None or (isinstance(value, Mapping) and all(isinstance(name, str) for name in names))


def _refuse(option: str, value: Any, needs: str, example: str, facts: tuple[tuple[str, str], ...] = ()) -> None:
    given = " ".join(short_repr(value, 60).split())  # an array takes several lines
    raise UnknownOptionError(f"the option {option}={given} is not valid.", (("needs", needs), *facts), example)
