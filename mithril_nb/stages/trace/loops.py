"""Trip counts that the user states for loops whose number of iterations depends on values, such as those of solvers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from mithril_nb.errors import UnknownOptionError, nearest, short_repr
from mithril_nb.graph.paths import is_within
from mithril_nb.stages.records import Equation, lines_of_source
from mithril_nb.stages.trace.params import GRID, TRIPS

# Equations `12.3` and `12.b1.3` are inside equation `12`, the latter in the jaxpr with index 1.
_INSIDE = re.compile(r"(.*?)(?:\.b(\d+))?\.\d+")


def with_trips(equations: Sequence[Equation], trips: Mapping[str, int], call: str) -> tuple[Equation, ...]:
    """Return the equations of a program whose loops run as often as the user states.

    `equations`: The equations. `trips`: Numbers of iterations by line (`"solver.py:12"`) or block of the loop; they
    hold for all loops of unknown trip count there.
    """
    loops = [
        equation
        for equation in equations
        if equation.primitive == "while" and equation.is_call and equation.param.get(TRIPS) is None
    ]
    stated: dict[str, int] = {}
    for key, count in trips.items():
        matching: list[str] = []
        for loop in loops:
            file, first, last = lines_of_source(loop.source_lines)
            lines = [f"{file}:{line}" for line in range(first, last + 1)]
            matching += [loop.id] if (key in lines if ":" in key else is_within(loop.block, key)) else []
        if not matching or type(count) is not int or count < 0:
            names = list(dict.fromkeys(name for loop in loops for name in (loop.source, loop.block) if name))
            near = nearest(key, names) or next(iter(names), "solver.py:12")
            raise UnknownOptionError(
                f"cannot set the trip count of {short_repr(key)} to {short_repr(count)}.",
                (("needs", "a number of iterations, by line or block"), ("loops", ", ".join(names) or "none unknown")),
                call.format(f'{{"{near}": 20}}'),
            )
        stated.update(dict.fromkeys(matching, count))
    updated: dict[str, Equation] = {}
    for equation in equations:
        repeats, params = equation.repeats, equation.params
        if equation.id in stated:
            params = tuple((name, stated[equation.id] if name == TRIPS else value) for name, value in params)
        if repeats is None and (inside := _INSIDE.fullmatch(equation.id)):
            around = updated[inside[1]]
            runs = _runs(around, inside[2])
            repeats = None if around.repeats is None or runs is None else around.repeats * runs
        updated[equation.id] = replace(equation, repeats=repeats, params=params)
    return tuple(updated.values())


def _runs(around: Equation, body: str | None) -> int | None:
    if around.primitive in ("emit_pipeline", "parallel_loop"):
        return None
    if around.primitive == "pallas_call":
        sizes: Any = around.param[GRID]
        return None if None in sizes else prod(sizes)
    count: Any = around.param.get({"while": TRIPS, "scan": "length"}.get(around.primitive, ""), 1)
    # The condition of a loop, which is its first jaxpr, runs once more than the body.
    return count + (around.primitive == "while" and body == "0") if isinstance(count, int) else None
