"""Learn the effect of settings on a program's cost from a few traces, and the range in which that is exact."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mithril_nb.analysis.whatif.inferred import Inferred, agree
from mithril_nb.analysis.whatif.repeated import Repeated
from mithril_nb.analysis.whatif.settings import Settings, is_size, key_of
from mithril_nb.cost import Cost

Trace = Callable[[Settings], Cost]
"""Traces the program at some settings; raises if the program does not exist there."""
MOST_TRIES = 8
"""Number of small steps of a size to try: often only multiples of a head count or of a stride are possible."""
_DEPTH_NAME = re.compile("depth|layer|block|num_l|n_l")


@dataclass
class Learned:
    """The costs of a program as a function of several settings.

    Attributes:
        base: The settings from which it was learned.
        depth: The setting that repeats blocks, if there is one.
        inferred: The costs by the other settings, at one value of `depth`, or at the two values that determine it.
        reasons: Reasons why other settings could not be learned.
        most_deep: Largest depth for which costs are predicted.
    """

    base: Settings
    depth: str | None = None
    inferred: dict[int, Inferred] = field(default_factory=dict[int, Inferred])
    reasons: dict[str, str] = field(default_factory=dict[str, str])
    most_deep: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The learned settings."""
        inside = next(iter(self.inferred.values())).names if self.inferred else ()
        return (*inside, *((self.depth,) if self.depth else ()))

    def at(self, settings: Settings) -> Cost | None:
        """Return the cost at some settings; `None` if it is not known exactly."""
        names = self.names
        others = {name: value for name, value in settings.items() if name not in names}
        numbers = {name: value for name, value in settings.items() if name in names}
        if key_of(others) != key_of({name: self.base[name] for name in others if name in self.base}) or not names:
            return None
        if not all(is_size(value) for value in numbers.values()):
            return None
        if not all(one.covers(numbers) for one in self.inferred.values()):
            return None
        costs = {place: one.at(numbers) for place, one in self.inferred.items()}
        if self.depth is None:
            return next(iter(costs.values()))
        is_covered = min(self.inferred) <= numbers[self.depth] <= self.most_deep
        return Repeated(*costs.items()).at(int(numbers[self.depth])) if is_covered else None

    def input_shapes(self, settings: Settings) -> list[tuple[int, ...]] | None:
        """Return the shapes of the program's inputs; `None` if unknown: a deeper program has more inputs."""
        if self.depth is not None and settings[self.depth] not in self.inferred:
            return None
        place = 0 if self.depth is None else settings[self.depth]
        return self.inferred[place].input_shapes(settings)


def learn(trace: Trace, base: Settings, names: Sequence[str]) -> Learned:
    """Learn the cost of a program as a function of its sizes, jointly, and verify the result.

    Args:
        trace: Traces the program.
        base: Its settings.
        names: The settings that are sizes.
    """
    learned, starts = Learned(base), [base]
    kept: dict[str, list[int]] = {}
    for name in sorted(names, key=lambda name: _DEPTH_NAME.search(name) is None):
        found = _first(trace, starts[0], name, _near(base[name]))
        if found is None:
            learned.reasons[name] = "it cannot be traced at any other value"
        elif _shape(found[1]) == _shape(trace(starts[0])):
            kept[name] = [found[0]]
        elif learned.depth is None and _learn_depth(trace, learned, name):
            starts = [{**base, name: depth} for depth in learned.inferred]  # shallow programs trace fast
        else:
            learned.reasons.setdefault(name, f"its equations at {found[0]} differ from those at {base[name]}")
    for name in tuple(kept):
        problem = _widen(trace, starts[0], name, kept[name])
        if len(kept[name]) < 2:
            learned.reasons[name] = problem or "it can be traced at too few values"
            del kept[name]
    _infer(trace, learned, starts, kept)
    return learned


def first_mismatch(predict: Trace, trace: Trace, base: Settings, name: str) -> int | None:
    """Return a value of a setting, near or far from its base, where the prediction differs from tracing.

    Args:
        predict: Predicts costs without tracing.
        trace: Traces the program.
        base: Its settings.
        name: The setting.
    """
    for values in (_near(base[name]), _far(base[name])):
        found = _first(trace, base, name, values)
        if found is not None and not agree(predict({**base, name: found[0]}), found[1]):
            return found[0]
    return None


def _widen(trace: Trace, start: Settings, name: str, values: list[int]) -> str:
    """Add a large and a small value at which the program follows the same rules; return the last error, if any.

    Costs are predicted only between these values: a cap, or a size that becomes 1, may lie beyond them.
    """
    problem = ""
    for candidates in (_far(start[name]), _low(start[name])):
        for value in candidates:
            try:
                points = [start, *({**start, name: one} for one in (*values, value))]
                Inferred(points, [trace(point) for point in points])
            except Exception as error:
                problem = first_line(error)
                continue
            values.append(value)
            break
    return problem


def _learn_depth(trace: Trace, learned: Learned, name: str) -> bool:
    depth: int = learned.base[name]
    first, second, last = (3, 4, depth) if depth > 4 else (max(3, depth), max(3, depth) + 1, max(3, depth) + 3)
    try:
        costs = {value: trace({**learned.base, name: value}) for value in (first, second, last)}
    except Exception as error:
        learned.reasons[name] = f"it cannot be traced at {first}, {second}, {last}: {first_line(error)}"
        return False
    repeated = Repeated((first, costs[first]), (second, costs[second]))
    if not repeated.matches(last, costs[last]):
        learned.reasons[name] = f"at {last} the program does not repeat the blocks found at {first} and {second}"
        return False
    learned.depth, learned.most_deep = name, 8 * last
    points = [{**learned.base, name: value} for value in (first, second)]
    learned.inferred = {point[name]: Inferred([point], [trace(point)]) for point in points}
    return True


def _infer(trace: Trace, learned: Learned, starts: Sequence[Settings], kept: dict[str, list[int]]) -> None:
    """Learn all sizes jointly; leave out sizes that fail together with the others."""
    while kept:
        joint = _joint(trace, starts[0], kept)
        points = [{name: value} for name, values in kept.items() for value in values] + joint
        found: dict[int, Inferred] = {}
        problem = "" if joint or len(kept) == 1 else "it cannot be traced together with the others"
        try:
            for start in starts:
                there: list[Settings] = [start, *({**start, **point} for point in points)]
                place = start[learned.depth] if learned.depth else 0
                found[place] = Inferred(there, [trace(point) for point in there])
        except Exception as error:
            problem = first_line(error)
        if not problem and learned.depth is not None:
            problem = _deep_problem(trace, learned, found, joint or points[:1])
        if not problem:
            learned.inferred = found
            return
        name, _ = kept.popitem()
        learned.reasons[name] = problem


def _deep_problem(trace: Trace, learned: Learned, found: dict[int, Inferred], points: Sequence[Settings]) -> str:
    """Return why a deeper program differs from the prediction by the two shallow ones, at changed sizes."""
    assert learned.depth is not None
    for point in points[:1]:
        settings = {**learned.base, **point}
        deep = settings[learned.depth] if learned.base[learned.depth] > 4 else max(found) + 2
        settings = {**settings, learned.depth: deep}
        first, second = ((depth, one.at(settings)) for depth, one in found.items())
        if not Repeated(first, second).matches(deep, trace(settings)):
            return f"at {learned.depth}={deep} its blocks do not repeat"
    return ""


def _joint(trace: Trace, start: Settings, kept: dict[str, list[int]]) -> list[dict[str, int]]:
    """Return settings with all sizes changed at which the program can be traced."""
    found: list[dict[str, int]] = []
    for place in (-1, 0, 1) if len(kept) > 1 else ():
        point = {name: values[place] for name, values in kept.items()}
        try:
            trace({**start, **point})
        except Exception:  # not every combination of values is possible
            continue
        found.append(point)
    return found[:2]


def _first(trace: Trace, base: Settings, name: str, values: Iterator[int]) -> tuple[int, Cost] | None:
    for value in values:
        try:
            return value, trace({**base, name: value})
        except Exception:  # the program need not exist for every value
            continue
    return None


def _near(size: int) -> Iterator[int]:
    """Yield the next values in the smallest possible steps, which reveal rounding up to a multiple."""
    yield from [size + step for step in range(1, size) if size % step == 0][:MOST_TRIES]
    yield 2 * size


def _far(size: int) -> Iterator[int]:
    yield from (64 * size, 8 * size, 4 * size, 2 * size, 3 * size // 2)


def _low(size: int) -> Iterator[int]:
    yield from (value for value in (2, size // 4, size // 2, 2 * size // 3) if 1 < value < size)


def _shape(cost: Cost) -> list[Any]:
    return [(row.opcode, row.blocks, row.role) for row in cost.rows]


def first_line(error: Exception) -> str:
    """Return the cause of an error in one line."""
    diagnostics = getattr(error, "diagnostics", ())
    text = diagnostics[0].shown().facts[0][1] if diagnostics and diagnostics[0].facts else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0]
