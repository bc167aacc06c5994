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

    Args:
        equations: The equations. The equations inside a loop follow the loop.
        trips: Numbers of iterations by line (`"solver.py:12"`) or block of the loop; they hold for all loops of unknown
            trip count there.
        call: The call to suggest in an error; a dict replaces `{}`.

    Raises:
        UnknownOptionError: No loop of unknown trip count is at a line or in a block, or a number is no count.
    """
    loops = [one for one in equations if one.primitive == "while" and one.is_call and one.param.get(TRIPS) is None]
    stated: dict[str, int] = {}
    for key, count in trips.items():
        matching = [one.id for one in loops if _is_at(one, key)]
        if not matching or type(count) is not int or count < 0:
            places = list(dict.fromkeys(name for one in loops for name in (one.source, one.block) if name))
            near = nearest(key, places) or next(iter(places), "solver.py:12")
            raise UnknownOptionError(
                f"cannot set the trip count of {short_repr(key)} to {short_repr(count)}.",
                (("needs", "a number of iterations, by line or block"), ("loops", ", ".join(places) or "none unknown")),
                call.format(f'{{"{near}": 20}}'),
            )
        stated.update(dict.fromkeys(matching, count))
    found: dict[str, Equation] = {}
    for one in equations:
        repeats, params = one.repeats, one.params
        if one.id in stated:
            params = tuple((name, stated[one.id] if name == TRIPS else value) for name, value in params)
        if repeats is None and (inside := _INSIDE.fullmatch(one.id)):
            around = found[inside[1]]
            runs = _runs(around, inside[2])
            repeats = None if around.repeats is None or runs is None else around.repeats * runs
        found[one.id] = replace(one, repeats=repeats, params=params)
    return tuple(found.values())


def _is_at(loop: Equation, key: str) -> bool:
    file, first, last = lines_of_source(loop.place)
    return is_within(loop.block, key) if ":" not in key else key in (f"{file}:{n}" for n in range(first, last + 1))


def _runs(around: Equation, body: str | None) -> int | None:
    """Return how often a body of an equation runs when the equation runs once; `None` if unknown."""
    if around.primitive in ("emit_pipeline", "parallel_loop"):
        return None
    if around.primitive == "pallas_call":
        sizes: Any = around.param[GRID]
        return None if None in sizes else prod(sizes)
    count: Any = around.param.get({"while": TRIPS, "scan": "length"}.get(around.primitive, ""), 1)
    # The condition of a loop, which is its first jaxpr, runs once more than the body.
    return count + (around.primitive == "while" and body == "0") if isinstance(count, int) else None
