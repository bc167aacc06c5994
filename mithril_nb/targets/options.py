"""The options of `ml.inspect`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.hardware import Device

OPTIONS = (
    "kwargs", "shapes", "variables", "params", "static_argnums", "static_argnames", "program", "loss", "optimizer",
    "name", "device", "compiler_options", "trips",
)  # fmt: skip
"""The options of `ml.inspect`. Other keyword arguments are passed to the target."""
TRAINING = ("program", "loss", "optimizer")
"""The options that select a program of a model or a module."""
OF_STAGES = ("name", "device", "compiler_options", "trips")
"""The options of all traced targets."""


def check_options(options: Mapping[str, Any]) -> None:
    """Raise if an option has a wrong type, because JAX reports it late or not at all.

    Examples:
        >>> check_options({"name": 3})
        Traceback (most recent call last):
        mithril_nb.errors.UnknownOptionError: the option name=3 is not valid.
            needs  a string
    """
    needs = {
        "kwargs": "a dict of arguments by name",
        "name": "a string",
        "device": "a jax.Device, an ml.Device or its name",
        "compiler_options": "a dict of XLA's options by name",
        "trips": "a dict of numbers by line or block",
    }
    for option in needs:
        value = options.get(option)
        kind = {"name": str, "device": jax.Device | Device}.get(option)
        if kind is None:
            is_valid = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
        else:
            is_valid = isinstance(value, kind)
        if value is not None and not is_valid:
            text = " ".join(short_repr(value, 60).split())  # an array takes several lines
            raise UnknownOptionError(f"the option {option}={text} is not valid.", (("needs", needs[option]),))


def check_applicable(options: Mapping[str, Any], applicable: Collection[str], title: str) -> None:
    """Raise if an option is given that does not apply to the target, which has the name `title`."""
    option = next((name for name, value in options.items() if value is not None and name not in applicable), None)
    if option is not None:
        takes = ", ".join(f"{name}=" for name in options if name in applicable)
        raise UnknownOptionError(f"{title!r} takes no {option}=.", (("takes", takes),))
