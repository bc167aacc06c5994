"""What is said once, and stops nothing: an option that this platform cannot honour, a program that is compiled anew."""

from __future__ import annotations

import sys
import warnings

_OURS = {__name__.partition(".")[0], "jax", "contextlib", "functools", "importlib"}
"""Packages whose lines are not the person's own; JAX calls what it traces."""


class MithrilWarning(UserWarning):
    """Something that was asked for and has no effect here, or an effect that costs; the message says which and why."""


def notice(text: str) -> None:
    """Warn at the line of the person's own code that led here; Python shows it once for each such line.

    Args:
        text: What, by name, and why.
    """
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, MithrilWarning, stacklevel=level)
