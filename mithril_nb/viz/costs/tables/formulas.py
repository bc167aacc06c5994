"""Costs that depend on symbolic sizes, as formulas: sums, and short forms for table cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mithril_nb.display import AT_LEAST

COMMUNICATION = ("payload_bytes", "wire_bytes")
"""Figures left out of the data if they are 0: most programs send nothing to other devices."""
_WIDEST = 40
"""Rough number of characters of a formula that a cell shows."""


def value_of(figures: Mapping[str, Any], key: str) -> Any:
    """Return a figure: its number, its formula if it depends on symbolic sizes, or `None`.

    Examples:
        >>> value_of({"flops": None, "formulas": {"flops": "2·B"}}, "flops"), value_of({"params": 3}, "params")
        ('2·B', 3)
        >>> value_of({"flops": 5}, "wire_bytes"), value_of({"wire_bytes": None}, "wire_bytes")
        (0, None)
    """
    value = figures.get(key, 0 if key in COMMUNICATION else None)
    return figures.get("formulas", {}).get(key) if value is None else value


def short_formula(formula: str) -> str:
    """Return the first terms of a formula that fit into a cell; at least one.

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


def add_formulas(parts: Sequence[str | int | None]) -> str:
    """Return the sum of formulas and numbers as a formula; `""` if no part is a formula.

    Args:
        parts: Parts that start with `"≥ "` are lower bounds and `None` is unknown; the sum is then a lower bound.

    Examples:
        >>> add_formulas(["2·B·I + B", 5, "B"]), add_formulas(["≥ B", "B"]), add_formulas([3, 4])
        ('2·B·I + 2·B + 5', '≥ 2·B', '')
    """
    formulas = [part for part in parts if isinstance(part, str)]
    if not formulas:
        return ""
    # `mithril_nb.cost` imports JAX. Data with formulas come from a process with JAX; the command line's help does not.
    from mithril_nb.cost.formulas.parsing import parse
    from mithril_nb.cost.formulas.symbols import total

    numbers = sum(part for part in parts if isinstance(part, int))
    whole = total([numbers, *(parse(formula.removeprefix(AT_LEAST)) for formula in formulas)])
    is_bound = None in parts or any(formula.startswith(AT_LEAST) for formula in formulas)
    return f"{AT_LEAST if is_bound else ''}{whole}"
