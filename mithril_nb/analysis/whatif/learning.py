"""Rules for the effect of settings on a program's cost, learned from a few traces, and the range in which they hold.

A deeper program repeats the same blocks: `block_1` costs as much as `block_2`. Outside of the repeated blocks, each
further block adds the same rows. So the costs at two depths give the costs at any depth; a trace at a third must agree.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

from mithril_nb.analysis.whatif.inferred import Inferred, agree
from mithril_nb.analysis.whatif.settings import Settings, is_size, key_of
from mithril_nb.cost import Cost, CostRow, Source


class Repeated:
    """The costs of a program at any depth, the number of repeated blocks, from its costs at two depths.

    Args:
        shallow: A pair: a depth of 3 or more, and the cost at this depth.
        deeper: A pair: a larger depth, and the cost at this depth.
    """

    def __init__(self, shallow: tuple[int, Cost], deeper: tuple[int, Cost]):
        (self._depth, self._cost), (self._next, self._deeper) = shallow, deeper

    def matches(self, depth: int, cost: Cost) -> bool:
        """Return whether the predicted cost at a depth equals `cost`."""
        predicted = self.at(depth)
        return predicted is not None and comparable(predicted) == comparable(cost)

    def at(self, depth: int) -> Cost | None:
        """Return the cost at a depth, with rows sorted by block and without ids; `None` if it cannot be predicted."""
        first, templates = self._found
        if not templates and set(_paths(self._deeper)) != set(_paths(self._cost)):
            return None
        rows: list[CostRow] = []
        params: dict[str, int | None] = {}
        here, there = self._cost.params or {}, self._deeper.params or {}
        for path, (template, number) in self._numbered.items():
            if template is None:
                grown = self._grown(path, depth)
                if grown is None:
                    return None
                rows += grown
                if path in here:
                    count = _line(self._depth, self._next, here[path], there.get(path), depth)
                    if count is None:
                        return None
                    params[path] = count
            elif number == first and template == templates[0]:
                for index in range(first, first + depth):
                    is_last = index == first + depth - 1
                    like = first if index == first else first + self._depth - 1 if is_last else first + 1
                    for pattern in templates:
                        source, target = pattern.format(like), pattern.format(index)
                        rows += [replace(row, blocks=((target, 1.0),)) for row in self._rows[0].get(source, ())]
                        if source in here:
                            params[target] = here[source]
        once = [
            _line(self._depth, self._next, getattr(self._cost.once, field), getattr(self._deeper.once, field), depth)
            for field in ("flops", "transcendentals", "bytes")
        ]
        if self._cost.notes != self._deeper.notes:
            return None
        param_counts, deeper = None if self._cost.params is None else params, self._deeper.once
        outside = Source(self._cost.once.name, *once, unknown=deeper.unknown, unknown_bytes=deeper.unknown_bytes)
        return replace(self._cost, rows=tuple(rows), params=param_counts, once=outside, symbolic=None)

    def _grown(self, path: str, depth: int) -> list[CostRow] | None:
        """Return the rows at a depth of a block that is not repeated; `None` if their number is not linear in depth."""
        here, there = (Counter(rows.get(path, ())) for rows in self._rows)
        rows: list[CostRow] = []
        for row in {**here, **there}:
            count = _line(self._depth, self._next, here[row], there[row], depth)
            if count is None:
                return None
            rows += [row] * count
        return rows

    @cached_property
    def _numbered(self) -> dict[str, tuple[str | None, int]]:
        """The template and the number of each block, by path; `(None, 0)` if the block is not repeated."""
        first, templates = self._found
        indices = range(first, first + self._depth)
        instances = {template.format(index): (template, index) for template in templates for index in indices}
        return {path: instances.get(path, (None, 0)) for path in _paths(self._cost)}

    @cached_property
    def _found(self) -> tuple[int, tuple[str, ...]]:
        """The number in the path of the first repeated block, 0 or 1, and the templates of all repeated blocks.

        A template is a path with `{}` instead of the number, such as `"block_{}/mlp"`. Without repeated blocks, the
        tuple of templates is empty.
        """
        here, there = _paths(self._cost), _paths(self._deeper)
        new = [path for path in there if path not in set(here)]
        for first in (0, 1):
            number = first + self._next - 1
            templates = dict.fromkeys(
                template
                for path in new
                for template in _templates_of(path, number)
                if all(template.format(index) in here for index in range(first + 1, first + self._depth - 1))
            )
            # In the order of the program.
            order = {path: index for index, path in enumerate(here)}
            repeated = sorted(templates, key=lambda template: order.get(template.format(first + 1), len(order)))
            instances = {template.format(index) for template in repeated for index in range(first, first + self._next)}
            if repeated and set(new) <= instances:
                return first, tuple(repeated)
        return 0, ()

    @cached_property
    def _rows(self) -> tuple[dict[str, list[CostRow]], dict[str, list[CostRow]]]:
        """The rows by block at both depths."""
        return _by_block(self._cost), _by_block(self._deeper)


def _paths(cost: Cost) -> tuple[str, ...]:
    rows = (path for row in cost.rows for path, _ in row.blocks or (("", 1.0),))
    return tuple(dict.fromkeys(chain(rows, cost.params or ())))


def _by_block(cost: Cost) -> dict[str, list[CostRow]]:
    groups: dict[str, list[CostRow]] = {}
    for row in cost.rows:
        groups.setdefault(row.blocks[0][0] if row.blocks else "", []).append(_nameless(row))
    return groups


def _nameless(row: CostRow) -> CostRow:
    """Return a row without id and equations."""
    return replace(row, id="", equations=())


def _templates_of(path: str, number: int) -> Iterable[str]:
    """Yield a template for each occurrence of `number` in `path`, with `{}` instead of this occurrence."""
    escaped = path.replace("{", "{{").replace("}", "}}")
    for match in re.finditer(r"\d+", escaped):
        if match.group() == str(number):
            yield f"{escaped[: match.start()]}{{}}{escaped[match.end() :]}"


def _line(start: int, other: int, at_start: int | None, at_other: int | None, at: int) -> int | None:
    """Return the count at depth `at` of items whose number is linear in the depth, from the counts at two depths.

    Args:
        start: A depth.
        other: Another depth.
        at_start: The count at depth `start`; `None` if unknown.
        at_other: The count at depth `other`; `None` if unknown.
        at: The depth of the result.

    Returns:
        The count; `None` if a given count is unknown, or the result is not an integer of at least 0.
    """
    if at_start is None or at_other is None:
        return None
    grown, rest = divmod((at_other - at_start) * (at - start), other - start)
    return None if rest or at_start + grown < 0 else at_start + grown


def comparable(cost: Cost) -> list[Any]:
    """Return a value that is equal for costs with the same rows in any order, ignoring ids."""
    rows = Counter(_nameless(row) for row in cost.rows)
    return [rows, cost.params, cost.once.flops, cost.once.transcendentals, cost.once.bytes, cost.notes]


Trace = Callable[[Settings], Cost]
"""Returns the cost of the program at some settings; raises if the program does not exist there."""
MOST_TRIES = 8
"""Most small changes of a size to try. Often only multiples of a number are possible, such as the number of heads."""
_DEPTH_NAME = re.compile("depth|layer|block|num_l|n_l")


@dataclass
class Learned:
    """The costs of a program as a function of several settings.

    Attributes:
        base: The settings of the first trace.
        depth: Name of the setting that is the number of repeated blocks; `None` if there is none.
        inferred: The costs as a function of the other settings. Without `depth`, the only key is 0. With `depth`, the
            keys are the two values of this setting at which the costs were learned.
        reasons: The reason for each setting that could not be learned, by name.
        most_deep: Largest value of the setting `depth` at which costs are predicted.
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
        """Return the cost at some settings; `None` if it cannot be predicted there."""
        names = self.names
        others = {name: value for name, value in settings.items() if name not in names}
        numbers = {name: value for name, value in settings.items() if name in names}
        if key_of(others) != key_of({name: self.base[name] for name in others if name in self.base}) or not names:
            return None
        if not all(is_size(value) for value in numbers.values()):
            return None
        if not all(fit.covers(numbers) for fit in self.inferred.values()):
            return None
        costs = {depth: fit.at(numbers) for depth, fit in self.inferred.items()}
        if self.depth is None:
            return next(iter(costs.values()))
        is_covered = min(self.inferred) <= numbers[self.depth] <= self.most_deep
        return Repeated(*costs.items()).at(int(numbers[self.depth])) if is_covered else None

    def input_shapes(self, settings: Settings) -> list[tuple[int, ...]] | None:
        """Return the shapes of the program's inputs; `None` for a depth that was not traced."""
        if self.depth is not None and settings[self.depth] not in self.inferred:
            return None
        depth = 0 if self.depth is None else settings[self.depth]
        return self.inferred[depth].input_shapes(settings)


def learn(trace: Trace, base: Settings, names: Sequence[str]) -> Learned:
    """Learn the cost of a program as a function of several sizes together, and verify it by further traces.

    Args:
        trace: Function that returns the cost of the program at some settings.
        base: The settings of the first trace.
        names: Names of the settings to learn, which are all sizes.
    """
    learned, starts = Learned(base), [base]
    sizes: dict[str, list[int]] = {}
    for name in sorted(names, key=lambda name: _DEPTH_NAME.search(name) is None):
        trial = _first(trace, starts[0], name, _near(base[name]))
        if trial is None:
            learned.reasons[name] = "tracing fails at all other values"
        elif _shape(trial[1]) == _shape(trace(starts[0])):
            sizes[name] = [trial[0]]
        elif learned.depth is None and _learn_depth(trace, learned, name):
            starts = [{**base, name: depth} for depth in learned.inferred]  # shallow programs trace fast
        else:
            learned.reasons.setdefault(name, f"the equations at {trial[0]} differ from those at {base[name]}")
    for name in tuple(sizes):
        problem = _widen(trace, starts[0], name, sizes[name])
        if len(sizes[name]) < 2:
            learned.reasons[name] = problem or "tracing succeeds at too few values"
            del sizes[name]
    _infer(trace, learned, starts, sizes)
    return learned


def first_mismatch(predict: Trace, trace: Trace, base: Settings, name: str) -> int | None:
    """Return a value of a setting at which a prediction differs from a trace; `None` if it agrees.

    Two values are tried: one near to the base value, and one far from it.
    """
    for values in (_near(base[name]), _far(base[name])):
        trial = _first(trace, base, name, values)
        if trial is not None and not agree(predict({**base, name: trial[0]}), trial[1]):
            return trial[0]
    return None


def _widen(trace: Trace, start: Settings, name: str, values: list[int]) -> str:
    """Add to `values` a larger and a smaller value of a setting at which the program follows the same rules.

    Costs are predicted only between these values. Beyond them the equations may differ, for example if a size is 1.

    Args:
        trace: Function that returns the cost of the program at some settings.
        start: The settings of the first trace.
        name: Name of the setting.
        values: The other values of the setting that were traced.

    Returns:
        The text of the last error; `""` if there was none.
    """
    problem = ""
    for candidates in (_far(start[name]), _low(start[name])):
        for value in candidates:
            try:
                points = [start, *({**start, name: size} for size in (*values, value))]
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
        learned.reasons[name] = f"tracing at {first}, {second} and {last} fails: {first_line(error)}"
        return False
    repeated = Repeated((first, costs[first]), (second, costs[second]))
    if not repeated.matches(last, costs[last]):
        learned.reasons[name] = f"at {last} the program does not repeat the blocks found at {first} and {second}"
        return False
    learned.depth, learned.most_deep = name, 8 * last
    points = [{**learned.base, name: value} for value in (first, second)]
    learned.inferred = {point[name]: Inferred([point], [trace(point)]) for point in points}
    return True


def _infer(trace: Trace, learned: Learned, starts: Sequence[Settings], sizes: dict[str, list[int]]) -> None:
    """Learn all `sizes` together. While that fails, leave out the last size, with the reason."""
    while sizes:
        joint = _joint(trace, starts[0], sizes)
        points = [{name: value} for name, values in sizes.items() for value in values] + joint
        inferred: dict[int, Inferred] = {}
        problem = "" if joint or len(sizes) == 1 else "tracing fails if other settings change too"
        try:
            for start in starts:
                there: list[Settings] = [start, *({**start, **point} for point in points)]
                depth = start[learned.depth] if learned.depth else 0
                inferred[depth] = Inferred(there, [trace(point) for point in there])
        except Exception as error:
            problem = first_line(error)
        if not problem and learned.depth is not None:
            problem = _deep_problem(trace, learned, inferred, joint or points[:1])
        if not problem:
            learned.inferred = inferred
            return
        name, _ = sizes.popitem()
        learned.reasons[name] = problem


def _deep_problem(trace: Trace, learned: Learned, inferred: dict[int, Inferred], points: Sequence[Settings]) -> str:
    """Return an error if the cost of a deeper program with changed sizes differs from the prediction, else `""`."""
    assert learned.depth is not None
    for point in points[:1]:
        settings = {**learned.base, **point}
        deep = settings[learned.depth] if learned.base[learned.depth] > 4 else max(inferred) + 2
        settings = {**settings, learned.depth: deep}
        first, second = ((depth, fit.at(settings)) for depth, fit in inferred.items())
        if not Repeated(first, second).matches(deep, trace(settings)):
            return f"at {learned.depth}={deep} the blocks do not repeat"
    return ""


def _joint(trace: Trace, start: Settings, sizes: dict[str, list[int]]) -> list[dict[str, int]]:
    """Return at most two settings at which all sizes have changed and the program can be traced."""
    points: list[dict[str, int]] = []
    for index in (-1, 0, 1) if len(sizes) > 1 else ():
        point = {name: values[index] for name, values in sizes.items()}
        try:
            trace({**start, **point})
        except Exception:  # not every combination of values is possible
            continue
        points.append(point)
    return points[:2]


def _first(trace: Trace, base: Settings, name: str, values: Iterator[int]) -> tuple[int, Cost] | None:
    for value in values:
        try:
            return value, trace({**base, name: value})
        except Exception:  # the program need not exist for every value
            continue
    return None


def _near(size: int) -> Iterator[int]:
    """Yield slightly larger values, which reveal sizes that are rounded up to a multiple; then twice the size."""
    yield from [size + step for step in range(1, size) if size % step == 0][:MOST_TRIES]
    yield 2 * size


def _far(size: int) -> Iterator[int]:
    yield from (64 * size, 8 * size, 4 * size, 2 * size, 3 * size // 2)


def _low(size: int) -> Iterator[int]:
    yield from (value for value in (2, size // 4, size // 2, 2 * size // 3) if 1 < value < size)


def _shape(cost: Cost) -> list[Any]:
    return [(row.opcode, row.blocks, row.role) for row in cost.rows]


def first_line(error: Exception) -> str:
    """Return the cause of an error in one line, without the summary of a mithril_nb error."""
    diagnostics = getattr(error, "diagnostics", ())
    text = diagnostics[0].shown().facts[0][1] if diagnostics and diagnostics[0].facts else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0]
