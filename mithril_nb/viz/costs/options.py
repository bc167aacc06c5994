"""What a person may tell a picture of costs: how wide it is; refused in words where that is nothing to draw by."""

from __future__ import annotations

from numbers import Real

from mithril_nb.errors import UnknownOptionError, short_repr

_WIDEST = 10_000
"""Some screens side by side, in px: who asks for more has slipped."""


def width_of(given: object, least: int, called: str) -> int:
    """Return how wide a picture is drawn, in whole px.

    Args:
        given: What somebody said.
        least: What has no room in less is drawn this wide.
        called: What the person called.

    Raises:
        UnknownOptionError: It is no width.

    Examples:
        >>> width_of(720, 240, "cost.treemap"), width_of(100.5, 240, "cost.treemap")
        (720, 240)
    """
    if not isinstance(given, Real) or isinstance(given, bool) or not 0 < float(given) <= _WIDEST:
        raise refusal(called, "width", given, f"a number of px above 0, at most {_WIDEST:,}", f"{called}(width=720)")
    return max(least, round(float(given)))


def refusal(called: str, option: str, given: object, needs: str, example: str) -> UnknownOptionError:
    """Return the error for an option that is what it cannot be.

    Args:
        called: What the person called.
        option: Which option it is.
        given: What was given.
        needs: What it may be.
        example: What to write instead.

    Examples:
        >>> print(refusal("cost.treemap", "width", "wide", "a number of px", "cost.treemap(width=720)"))
        cost.treemap cannot take width='wide'.
            needs  a number of px
            Try: cost.treemap(width=720)
    """
    told = " ".join(short_repr(given, 60).split())  # an array takes several lines
    return UnknownOptionError(f"{called} cannot take {option}={told}.", (("needs", needs),), example)
