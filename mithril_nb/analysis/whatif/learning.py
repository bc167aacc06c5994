"""Rules for the effect of sizes on a program's cost, learned from a few traces and verified by others.

A dim of an operand is a setting, or a multiple, product, quotient or sum of settings: `batch*tokens`, `3*width`,
`floordiv(width, heads)`. A deeper program repeats the same blocks: `block_1` costs as much as `block_2`, and outside of
the repeated blocks, each further block adds the same rows. JAX's symbolic sizes would need no traces, but fail at the
first `if` on a size, at `range(depth)`, and at a square root of a size.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from typing import Any

from mithril_nb.analysis.whatif.subjects import Settings, is_size, key_of
from mithril_nb.cost import Cost, CostRow
from mithril_nb.cost.costs import of_equations
from mithril_nb.cost.equations import Substitution, SymbolicProgram
from mithril_nb.cost.formulas.symbols import Polynomial, constant, symbol
from mithril_nb.cost.records import group_by
from mithril_nb.display import UNATTRIBUTED_LABEL
from mithril_nb.figures import OF_XLA
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.records import Equation, quick_replace

Trace = Callable[[Settings], Cost]
"""Returns the cost of the program at some settings; raises if the program does not exist there."""
# Squares are pairs of tokens in attention; reciprocals are the width of a head.
_EXPONENTS = (1, -1, 2)
# Most small changes of a size to try. Often only multiples of a number are possible, such as the number of heads.
MOST_TRIES = 8
# Settings with such names are tried first: with a depth found, all others are learned on shallow programs, which trace
# fast.
_DEPTH_NAME = re.compile("depth|layer|block|num_l|n_l")


class NotInferredError(ValueError):
    """Raised if the equations change with the settings, or a size is not a simple function of the settings."""


Quotient = tuple[Polynomial, Polynomial]
"""A size as a quotient of polynomials in settings. A fraction means that the program does not exist at a point."""


class InferredCosts:
    """The costs of a program for any sizes between the traced ones.

    Args:
        points: The settings of each trace. The first is the base; the others differ from it in one or several settings.
        costs: The analytic cost of each trace.
    """

    def __init__(self, points: Sequence[Settings], costs: Sequence[Cost]):
        self._points = points
        self.names = tuple(name for name in points[0] if len({key_of({name: point[name]}) for point in points}) > 1)
        # Names of settings may contain dots; sizes in shapes are parsed, so they need names of Python.
        self._letters = {name: f"size_{index}" for index, name in enumerate(self.names)}
        self._sizes: dict[tuple[int, ...], Quotient] = {}
        self._program = self._program_of([cost.symbolic for cost in costs])
        for point, cost in zip(points, costs, strict=True):
            if comparable(self.at(point)) != comparable(cost):
                where = ", ".join(f"{name}={point[name]}" for name in self.names)
                raise NotInferredError(f"the predicted cost differs from a trace at {where}")

    def covers(self, point: Settings) -> bool:
        """Return whether each setting is between its traced values, and all predicted sizes are integers."""
        for name in self.names:
            values = [traced[name] for traced in self._points]
            if not min(values) <= point[name] <= max(values):
                return False
        numbers = self._numbers(point)
        sizes = [_value(quotient, numbers) for quotient in self._sizes.values()]
        return all(size.denominator == 1 and size >= 0 for size in sizes)

    def input_shapes(self, point: Settings) -> list[tuple[Any, ...]]:
        """Return the shapes of the program's inputs at a covered point."""
        numbers = Substitution(self._numbers(point))
        return [numbers.spec(argument.spec).shape for argument in self._program.inputs]

    def at(self, point: Settings) -> Cost:
        """Return the costs at a covered point."""
        template = self._program
        program = SymbolicProgram(
            template.name, template.equations, template.inputs, self._numbers(point), template.kinds
        )
        return of_equations(program.costs(), program)

    def _numbers(self, point: Settings) -> dict[str, int]:
        return {letter: int(point[name]) for name, letter in self._letters.items()}

    def _program_of(self, programs: Sequence[SymbolicProgram | None]) -> SymbolicProgram:
        traced = [program for program in programs if program is not None]
        if len({len(program.equations) for program in traced}) > 1:
            raise NotInferredError("the number of equations differs")
        equations = [self._equation(same) for same in zip(*(program.equations for program in traced), strict=True)]
        inputs = [
            replace(same[0], spec=self._merged([argument.spec for argument in same], "an input"))
            for same in zip(*(program.inputs for program in traced), strict=True)
        ]
        return SymbolicProgram(traced[0].name, tuple(equations), tuple(inputs))

    def _equation(self, same: tuple[Equation, ...]) -> Equation:
        first = same[0]
        if len({_structure(equation) for equation in same}) > 1:
            raise NotInferredError(f"equation {first.id} ({first.primitive}) differs")
        if all(equation == first for equation in same[1:]):
            return first
        where = f"{first.primitive} in {first.block or UNATTRIBUTED_LABEL}"
        changed = {name: [getattr(equation, name) for equation in same] for name in ("inputs", "outputs", "params")}
        constants = zip(*(equation.constants for equation in same), strict=True)
        return replace(
            first,
            **{name: self._merged(values, where) for name, values in changed.items()},
            # If they differ, the loops around the equation determine them.
            repeats=first.repeats if len({equation.repeats for equation in same}) == 1 else None,
            constants=tuple(_constant(values, where) for values in constants),
        )

    def _merged(self, same: Sequence[Any], where: str) -> Any:
        first = same[0]
        if all(value == first for value in same[1:]):
            return first
        if isinstance(first, TensorSpec):
            if len({(len(spec.shape), spec.dtype) for spec in same}) > 1:
                raise NotInferredError(f"ranks or dtypes differ in {where}")
            return TensorSpec(self._merged([spec.shape for spec in same], where), first.dtype)
        if isinstance(first, tuple) and all(isinstance(value, tuple) and len(value) == len(first) for value in same):
            return tuple(self._merged(values, where) for values in zip(*same, strict=True))
        if not all(type(value) is int for value in same):
            return first  # irrelevant if wrong: the costs are verified at every point
        values = tuple(same)
        if values not in self._sizes:
            self._sizes[values] = self._fitted(values, where)
        above, below = self._sizes[values]
        return str(above // below)

    def _fitted(self, values: tuple[int, ...], where: str) -> Quotient:
        base, start = self._points[0], values[0]
        above, below, total = _ONE, _ONE, constant(start)
        is_product = start != 0
        for name, letter in self._letters.items():
            # The trace in which only this setting differs.
            alone = ([setting for setting in base if point[setting] != base[setting]] for point in self._points)
            index = next((index for index, changed in enumerate(alone) if changed == [name]), None)
            if index is None or values[index] == start:
                continue
            size, before, after = symbol(letter), int(base[name]), int(self._points[index][name])
            total = total + (size - before) * Fraction(values[index] - start, after - before)
            powers = [power for power in _EXPONENTS if start * Fraction(after, before) ** power == values[index]]
            is_product = is_product and bool(powers)
            if powers and powers[0] < 0:
                above, below = above * before, below * size
            elif powers:
                above, below = above * size ** powers[0], below * before ** powers[0]
        points = list(map(self._numbers, self._points))
        for quotient in ((above * start, below), (total, _ONE))[not is_product :]:
            if all(_value(quotient, point) == value for point, value in zip(points, values, strict=True)):
                return quotient
        raise NotInferredError(f"the sizes {', '.join(map(str, values))} of {where} follow no simple rule")


_ONE = constant(1)


def _value(quotient: Quotient, point: Mapping[str, int]) -> Fraction:
    above, below = quotient
    return Fraction(above.value(point)) / below.value(point)


def _structure(equation: Equation) -> Any:
    names = tuple(name for name, _ in equation.params)
    flags = equation.is_call, equation.is_used, len(equation.inputs), len(equation.outputs)
    return equation.id, equation.primitive, equation.block, equation.role, flags, names


def _constant(same: Sequence[Any], where: str) -> Any:
    if all(constant == same[0] for constant in same[1:]):
        return same[0]
    # Costs depend on whether a constant is 0 or 1, as in `x + 0`.
    for is_alike in (lambda value: value > 1, lambda value: 0 < value < 1, lambda value: value < 0):
        if all(isinstance(constant, float) and is_alike(constant) for constant in same):
            return "?"
    raise NotInferredError(f"the constants {', '.join(map(str, same))} of {where} follow no simple rule")


def at_depth(shallow: tuple[int, Cost], deeper: tuple[int, Cost], depth: int) -> Cost | None:
    """Return the cost of a program at a depth, its number of repeated blocks, from its costs at two depths.

    Args:
        shallow: A pair: a depth of 3 or more, and the cost at this depth.
        deeper: A pair: a larger depth, and the cost at this depth.
        depth: The depth.

    Returns:
        The cost with rows sorted by block and without ids; `None` if it cannot be predicted.
    """
    (start, cost), (following, deep_cost) = shallow, deeper
    paths, deep_paths = _paths(cost), _paths(deep_cost)
    first, templates = _repeated_blocks(paths, deep_paths, start, following)
    if (not templates and set(deep_paths) != set(paths)) or cost.notes != deep_cost.notes:
        return None

    def extended(count: int | None, other: int | None) -> int:
        if count is None or other is None:
            raise NotInferredError("a count is unknown")
        grown, rest = divmod((other - count) * (depth - start), following - start)
        if rest or count + grown < 0:
            raise NotInferredError("a count is not linear in the depth")
        return count + grown

    last = first + start - 1
    instances = {template.format(index) for template in templates for index in range(first, last + 1)}
    (own, own_params), (other, other_params) = (
        (
            group_by(map(_nameless, each.rows), lambda row: row.blocks[0][0] if row.blocks else ""),
            each.params or {},
        )
        for each in (cost, deep_cost)
    )
    rows: list[CostRow] = []
    params: dict[str, int | None] = {}
    try:
        for path in paths:
            if templates and path == templates[0].format(first):
                for index in range(first, first + depth):
                    # The first and the last block may differ from those between: the gradient of the first one's input
                    # is not needed, and no block follows the last one.
                    like = first if index == first else last if index == first + depth - 1 else first + 1
                    for template in templates:
                        source, target = template.format(like), template.format(index)
                        rows += [quick_replace(row, blocks=((target, 1.0),)) for row in own.get(source, ())]
                        params |= {target: own_params[source]} if source in own_params else {}
            if path in instances:
                continue
            here, there = Counter(own.get(path, ())), Counter(other.get(path, ()))
            for row in {**here, **there}:
                rows += [row] * extended(here[row], there[row])
            if path in own_params:
                params[path] = extended(own_params[path], other_params.get(path))
        pairs = {key: (getattr(cost.once, key), getattr(deep_cost.once, key)) for key in OF_XLA}
        once: dict[str, Any] = {key: None if None in pair else extended(*pair) for key, pair in pairs.items()}
    except NotInferredError:
        return None
    known_params = None if cost.params is None else params
    return replace(
        cost, rows=tuple(rows), params=known_params, once=quick_replace(deep_cost.once, **once), symbolic=None
    )


def repeats(shallow: tuple[int, Cost], deeper: tuple[int, Cost], depth: int, cost: Cost) -> bool:
    """Return whether the cost at a depth is the one that `at_depth` predicts."""
    predicted = at_depth(shallow, deeper, depth)
    return predicted is not None and comparable(predicted) == comparable(cost)


def _repeated_blocks(here: Sequence[str], there: Sequence[str], depth: int, deeper: int) -> tuple[int, tuple[str, ...]]:
    # The number in the path of the first repeated block, 0 or 1, and the paths with `{}` instead of the number.
    order = {path: index for index, path in enumerate(here)}
    new = [path for path in there if path not in order]
    for first in (0, 1):
        inner = range(first + 1, first + depth - 1)
        templates = dict.fromkeys(
            template
            for path in new
            for template in _templates_of(path, first + deeper - 1)
            if all(template.format(index) in order for index in inner)
        )
        # In the order of the program.
        repeated = sorted(templates, key=lambda template: order.get(template.format(first + 1), len(order)))
        instances = {template.format(index) for template in repeated for index in range(first, first + deeper)}
        if repeated and set(new) <= instances:
            return first, tuple(repeated)
    return 0, ()


def _paths(cost: Cost) -> tuple[str, ...]:
    rows = (path for row in cost.rows for path, _ in row.blocks or (("", 1.0),))
    return tuple(dict.fromkeys(chain(rows, cost.params or ())))


def _nameless(row: CostRow) -> CostRow:
    # `dataclasses.replace` took a third of the time of an answer.
    return quick_replace(row, id="", equations=())


def _templates_of(path: str, number: int) -> Iterable[str]:
    # Names of blocks may contain braces, which `format` would take for fields.
    escaped = path.replace("{", "{{").replace("}", "}}")
    for match in re.finditer(r"\d+", escaped):
        if match.group() == str(number):
            yield f"{escaped[: match.start()]}{{}}{escaped[match.end() :]}"


def comparable(cost: Cost) -> list[Any]:
    """Return a value that is equal for costs with the same rows in any order, ignoring ids."""
    return [Counter(map(_nameless, cost.rows)), cost.params, *(getattr(cost.once, key) for key in OF_XLA), cost.notes]


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
    inferred: dict[int, InferredCosts] = field(default_factory=dict[int, InferredCosts])
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
        if not all(map(is_size, numbers.values())) or not all(fit.covers(numbers) for fit in self.inferred.values()):
            return None
        if self.depth is None:
            return next(iter(self.inferred.values())).at(numbers)
        if not min(self.inferred) <= numbers[self.depth] <= self.most_deep:
            return None
        first, second = ((depth, fit.at(numbers)) for depth, fit in self.inferred.items())
        return at_depth(first, second, int(numbers[self.depth]))

    def input_shapes(self, settings: Settings) -> list[tuple[Any, ...]] | None:
        """Return the shapes of the program's inputs; `None` for a depth that was not traced."""
        depth = 0 if self.depth is None else settings[self.depth]
        return self.inferred[depth].input_shapes(settings) if depth in self.inferred else None


def learn(trace: Trace, base: Settings, names: Sequence[str]) -> Learned:
    """Learn the cost of a program as a function of several sizes together, and verify it by further traces."""
    learned, starts = Learned(base), [base]
    sizes: dict[str, list[int]] = {}
    for name in sorted(names, key=lambda name: _DEPTH_NAME.search(name) is None):
        value = _first(trace, starts[0], name, _near(base[name]))
        tried = [trace(starts[0]), *([] if value is None else [trace({**starts[0], name: value})])]
        if value is None:
            learned.reasons[name] = "tracing fails at all other values"
        elif len({tuple((row.opcode, row.blocks, row.role) for row in cost.rows) for cost in tried}) == 1:
            sizes[name] = [value]
        elif learned.depth is None and _learn_depth(trace, learned, name):
            starts = [{**base, name: depth} for depth in learned.inferred]  # shallow programs trace fast
        else:
            learned.reasons.setdefault(name, f"the equations at {value} differ from those at {base[name]}")
    for name in tuple(sizes):
        problem = _widen(trace, starts[0], name, sizes[name])
        if len(sizes[name]) < 2:
            learned.reasons[name] = problem or "tracing succeeds at too few values"
            del sizes[name]
    while sizes:
        problem = _learn_together(trace, learned, starts, sizes)
        if not problem:
            break
        # The other sizes may still follow common rules.
        name, _ = sizes.popitem()
        learned.reasons[name] = problem
    return learned


def _widen(trace: Trace, start: Settings, name: str, values: list[int]) -> str:
    # Costs are predicted only between these values. Beyond them the equations may differ, for example if a size
    # is 1.
    problem = ""
    size = start[name]
    # The largest that works: between the traced values no further trace is needed.
    far = 64 * size, 8 * size, 4 * size, 2 * size, 3 * size // 2
    low = [value for value in (2, size // 4, size // 2, 2 * size // 3) if 1 < value < size]
    for candidates in (far, low):
        for value in candidates:
            try:
                points = [start, *({**start, name: traced} for traced in (*values, value))]
                InferredCosts(points, [trace(point) for point in points])
            except Exception as error:
                problem = first_line(error)
                continue
            values.append(value)
            break
    return problem


def _learn_depth(trace: Trace, learned: Learned, name: str) -> bool:
    depth: int = learned.base[name]
    # Three blocks are the fewest with a first, an inner and a last one.
    first, second, last = (3, 4, depth) if depth > 4 else (max(3, depth), max(3, depth) + 1, max(3, depth) + 3)
    try:
        costs = {value: trace({**learned.base, name: value}) for value in (first, second, last)}
    except Exception as error:
        learned.reasons[name] = f"tracing at {first}, {second} and {last} fails: {first_line(error)}"
        return False
    if not repeats((first, costs[first]), (second, costs[second]), last, costs[last]):
        learned.reasons[name] = f"at {last} the program does not repeat the blocks found at {first} and {second}"
        return False
    learned.depth, learned.most_deep = name, 8 * last
    learned.inferred = {
        value: InferredCosts([{**learned.base, name: value}], [costs[value]]) for value in (first, second)
    }
    return True


def _learn_together(trace: Trace, learned: Learned, starts: Sequence[Settings], sizes: dict[str, list[int]]) -> str:
    joint: list[Settings] = []
    # All sizes at once: products of two settings look like multiples while only one of them changes.
    for index in (-1, 0, 1) if len(sizes) > 1 else ():
        point = {name: values[index] for name, values in sizes.items()}
        with suppress(Exception):  # not every combination of values is possible
            trace({**starts[0], **point})
            joint.append(point)
    if len(sizes) > 1 and not joint:
        return "tracing fails if other settings change too"
    points: list[Settings] = [{name: value} for name, values in sizes.items() for value in values] + joint[:2]
    inferred: dict[int, InferredCosts] = {}
    try:
        for start in starts:
            traced: list[Settings] = [start, *({**start, **point} for point in points)]
            depth = start[learned.depth] if learned.depth else 0
            inferred[depth] = InferredCosts(traced, [trace(point) for point in traced])
        if learned.depth is not None:
            settings = {**learned.base, **(joint or points)[0]}
            deep = settings[learned.depth] if learned.base[learned.depth] > 4 else max(inferred) + 2
            settings[learned.depth] = deep
            first, second = ((depth, fit.at(settings)) for depth, fit in inferred.items())
            if not repeats(first, second, deep, trace(settings)):
                return f"at {learned.depth}={deep} the blocks do not repeat"
    except Exception as error:
        return first_line(error)
    learned.inferred = inferred
    return ""


def _first(trace: Trace, base: Settings, name: str, values: Iterable[int]) -> int | None:
    for value in values:
        with suppress(Exception):  # the program need not exist for every value
            trace({**base, name: value})
            return value
    return None


def _near(size: int) -> Iterator[int]:
    # Slightly larger values reveal sizes that are rounded up to a multiple.
    yield from [size + step for step in range(1, size) if size % step == 0][:MOST_TRIES]
    yield 2 * size


def first_line(error: Exception) -> str:
    """Return the cause of an error in one line, without the summary of a mithril_nb error."""
    diagnostics = getattr(error, "diagnostics", ())
    text = diagnostics[0].shortened().facts[0][1] if diagnostics and diagnostics[0].facts else str(error)
    return (text.strip().splitlines() or [type(error).__name__])[0]
