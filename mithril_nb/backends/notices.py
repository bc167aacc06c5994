"""Warnings that are shown once: an option without effect on this platform, or a recompilation."""

from __future__ import annotations

import sys
import warnings

_OURS = {__name__.partition(".")[0], "jax", "contextlib", "functools", "importlib"}
"""Packages to skip in the call stack. JAX is among them, because it calls the functions that it traces."""


class MithrilWarning(UserWarning):
    """An option has no effect here, or an expensive one. The message names it and gives the reason."""


def notice(text: str) -> None:
    """Warn at the line of the user's code that caused it. Python shows the warning once per line.

    Args:
        text: The warning, with the name of the option and the reason.
    """
    level, frame = 1, sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, MithrilWarning, stacklevel=level)
