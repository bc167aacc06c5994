"""Numbers as text, with SI prefixes and units. An unknown number is the text `"unknown"`."""

from __future__ import annotations

import math
from decimal import Decimal

UNKNOWN = "unknown"
# From the first number on, `si` uses a power of ten instead of a prefix. From the second on, `exact` does, too.
#
# `Decimal` formats such numbers, because an int may be larger than any float.
_MOST_PREFIXED, _MOST_EXACT = 1e21, 1e30
_LARGE = ("", "k", "M", "G", "T", "P", "E")
_SMALL = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9))


def si(value: float | None, unit: str = "") -> str:
    """Format a number with three digits and an SI prefix. Whole numbers below 1000 have all digits and no prefix.

    Examples:
        >>> si(84_212_000, "FLOP"), si(28_700_000, "B"), si(12, "B"), si(None, "B"), si(999_999, "B"), si(10**400, "B")
        ('84.2 MFLOP', '28.7 MB', '12 B', 'unknown', '1.00 MB', '1.00e+400 B')
    """
    if value is None or value != value:
        return UNKNOWN
    sign = "-" if value < 0 else ""
    if abs(value) == math.inf:
        return f"{sign}∞ {unit}".rstrip()
    if abs(value) >= _MOST_PREFIXED:
        return f"{Decimal(value):.2e} {unit}".rstrip()
    amount, step = abs(value), 0
    # From 999.5 on, three digits would be 1000. Whole numbers below 1000 keep all digits.
    while step + 1 < len(_LARGE) and amount >= (999.5 if step else 1000):
        amount, step = amount / 1000, step + 1
    digits = f"{amount:.0f}" if not step and float(amount).is_integer() else three_figures(amount)
    return f"{sign}{digits} {_LARGE[step]}{unit}".rstrip()


def flops(value: float | None) -> str:
    """Format a number of FLOPs.

    Examples:
        >>> flops(262_144)
        '262 kFLOP'
    """
    return si(value, "FLOP")


def nbytes(value: float | None) -> str:
    """Format a number of bytes, in powers of 1000.

    Examples:
        >>> nbytes(41_216)
        '41.2 kB'
    """
    return si(value, "B")


def capacity(value: float | None) -> str:
    """Format the memory of a device, in powers of 1024, in which it is sold: GiB with three digits.

    Examples:
        >>> capacity(2**34), capacity(151 * 10**9), capacity(1000)
        ('16 GiB', '141 GiB', '1.00 kB')
    """
    if value is None or value < 2**20:
        return nbytes(value)
    size = value / 2**30
    return f"{size:{'.3g' if size < 100 else '.0f'}} GiB"


def seconds(value: float | None) -> str:
    """Format a duration, given in seconds.

    Examples:
        >>> seconds(0.31), seconds(0.0000021), seconds(75), seconds(7325)
        ('310 ms', '2.10 µs', '1 min 15 s', '2 h 2 min')
    """
    if value is None or value != value:
        return UNKNOWN
    if abs(value) == math.inf:
        return "∞ s"
    if value >= _MOST_PREFIXED:
        return f"{Decimal(value):.2e} s"
    # Three digits would be 60.0 s.
    if value >= 59.95:
        total = round(value)
        hours, minutes = total // 3600, total % 3600 // 60
        return f"{hours} h {minutes} min" if hours else f"{minutes} min {total % 60} s"
    if value <= 0:
        return "0 s"
    for unit, size in _SMALL:
        # Three digits of a slightly smaller number would be 1000 of the next unit.
        if value >= size * 0.9995:
            return f"{three_figures(value / size)} {unit}"
    return f"{three_figures(value / 1e-9)} ns"


def percent(share: float | None) -> str:
    """Format a share (0 to 1) in percent. Shares near 0 become `< 0.1 %`, and shares near 1 become `> 99.9 %`.

    Examples:
        >>> percent(0.979), percent(0.431), percent(0.0001), percent(0.0), percent(1.0), percent(None)
        ('97.9 %', '43.1 %', '< 0.1 %', '0 %', '100 %', 'unknown')
    """
    if share is None or math.isnan(share):
        return UNKNOWN
    if share == 0 or share == 1:
        return f"{share * 100:.0f} %"
    # A part of the whole is never shown as 0 %, nor all but a part as 100 %.
    if 0 < share < 0.001:
        return "< 0.1 %"
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return f"{share * 100:.1f} %"


def exact(value: float | None) -> str:
    """Format a number with all its digits in groups of three. Numbers from 1e30 have 21 digits and a power of ten.

    Examples:
        >>> exact(84212000)
        '84,212,000'
    """
    if value is None or value != value:
        return UNKNOWN
    if _MOST_EXACT <= abs(value) < math.inf:
        return f"{Decimal(value):.20e}"
    return f"{value:,.0f}" if abs(value) == math.inf or float(value).is_integer() else f"{value:,}"


def three_figures(value: float) -> str:
    """Format a number from 1 to 1000 with three digits, and a smaller number with two decimals.

    Examples:
        >>> three_figures(84.212), three_figures(310.0), three_figures(2.1)
        ('84.2', '310', '2.10')
    """
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def titled(title: str, *, own: bool, has_groups: bool = True) -> str:
    """Return the title of a cost. It states if the number of a block includes the blocks inside it.

    Examples:
        >>> titled("FLOPs", own=False), titled("FLOPs", own=True), titled("FLOPs", own=True, has_groups=False)
        ('FLOPs, with inner blocks', 'own FLOPs', 'FLOPs')
    """
    if not has_groups:
        return title
    return f"own {title}" if own else f"{title}, with inner blocks"
