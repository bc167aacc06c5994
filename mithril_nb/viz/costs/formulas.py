"""Costs that depend on sizes without numbers, as formulas: added up, and short enough for a cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mithril_nb.display import AT_LEAST

COMMUNICATION = ("payload_bytes", "wire_bytes")
"""Figures that data leave out where they are 0: most programs send nothing to other devices."""
_WIDEST = 40
"""About how many letters of a formula a cell shows."""


def value_of(figures: Mapping[str, Any], key: str) -> Any:
    """Return a figure: its number, or its formula if it depends on sizes without numbers, or `None`.

    Examples:
        >>> value_of({"flops": None, "formulas": {"flops": "2·B"}}, "flops"), value_of({"params": 3}, "params")
        ('2·B', 3)
        >>> value_of({"flops": 5}, "wire_bytes"), value_of({"wire_bytes": None}, "wire_bytes")
        (0, None)
    """
    value = figures.get(key, 0 if key in COMMUNICATION else None)
    return figures.get("formulas", {}).get(key) if value is None else value


def short_formula(formula: str) -> str:
    """Return the first terms of a formula, as many as a cell has room for; at least one.

    Examples:
        >>> short_formula("2·B·I·O + B·O"), short_formula("24·batch·time·width² + 4·batch·time²·width + 9·batch·time")
        ('2·B·I·O + B·O', '24·batch·time·width² + …')
    """
    if len(formula) <= _WIDEST:
        return formula
    terms = formula.split(" + ")
    kept = 1
    while kept < len(terms) and len(" + ".join(terms[: kept + 1])) <= _WIDEST:
        kept += 1
    return " + ".join([*terms[:kept], "…"]) if kept < len(terms) else formula


def added(parts: Sequence[str | int | None]) -> str:
    """Return the sum of formulas and numbers as a formula; `""` if no part is one.

    Args:
        parts: Those that begin with `"≥ "` are lower bounds, of `None` nothing is known: then the sum is one.

    Examples:
        >>> added(["2·B·I + B", 5, "B"]), added(["≥ B", "B"]), added([3, 4])
        ('2·B·I + 2·B + 5', '≥ 2·B', '')
    """
    formulas = [part for part in parts if isinstance(part, str)]
    if not formulas:
        return ""
    # The room of costs loads JAX, which who has formulas has loaded; the help of the command line has neither.
    from mithril_nb.cost.formulas.symbols import parse, total

    numbers = sum(part for part in parts if isinstance(part, int))
    whole = total([numbers, *(parse(formula.removeprefix(AT_LEAST)) for formula in formulas)])
    is_bound = None in parts or any(formula.startswith(AT_LEAST) for formula in formulas)
    return f"{AT_LEAST if is_bound else ''}{whole}"
