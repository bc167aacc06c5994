"""Checks of the options of cost pictures, such as their width."""

from __future__ import annotations

from numbers import Real

from mithril_nb.errors import UnknownOptionError, short_repr

_WIDEST = 10_000
"""About five screens in px; a larger width is a mistake."""


def validate_width(given: object, least: int, called: str) -> int:
    """Validate a width and return it in whole px.

    Args:
        given: The width given by the user.
        least: Smallest width of the picture; smaller values are raised to it.
        called: The function called by the user.

    Raises:
        UnknownOptionError: The width is not valid.

    Examples:
        >>> validate_width(720, 240, "cost.treemap"), validate_width(100.5, 240, "cost.treemap")
        (720, 240)
    """
    if not isinstance(given, Real) or isinstance(given, bool) or not 0 < float(given) <= _WIDEST:
        raise option_error(
            called, "width", given, f"a number of px above 0, at most {_WIDEST:,}", f"{called}(width=720)"
        )
    return max(least, round(float(given)))


def option_error(called: str, option: str, given: object, needs: str, example: str) -> UnknownOptionError:
    """Return the error for an invalid option.

    Args:
        called: The function called by the user.
        option: Name of the option.
        given: The value given.
        needs: Description of valid values.
        example: Code of the advice.

    Examples:
        >>> print(option_error("cost.treemap", "width", "wide", "a number of px", "cost.treemap(width=720)"))
        cost.treemap cannot take width='wide'.
            needs  a number of px
            Try: cost.treemap(width=720)
    """
    value = " ".join(short_repr(given, 60).split())  # the repr of an array has several lines
    return UnknownOptionError(f"{called} cannot take {option}={value}.", (("needs", needs),), example)
