"""Sizes in a program as functions of its settings, inferred from a few traces and verified at others.

A dim of an operand is a setting, or a multiple, product, quotient or sum of settings: `batch*tokens`, `3*width`,
`floordiv(width, heads)`. Traces with one changed setting determine this function. Traces with several changed settings
must agree with it, and the costs computed with these sizes must equal the costs of all traces. JAX's symbolic sizes
need no such tests, but fail at the first `if` on a size, at `range(depth)`, and at a square root of a size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm, prod
from typing import Any

from mithril_nb.cost import Cost
from mithril_nb.cost.costs import of_equations
from mithril_nb.cost.symbolic import SymbolicProgram
from mithril_nb.display import UNATTRIBUTED_LABEL
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.records import Equation, Input

Point = Mapping[str, int]
"""Value of each setting."""
_EXPONENTS = (1, -1, 2)
_Values = tuple[int, ...]


class NotInferredError(ValueError):
    """Raised if the equations change with the settings, or a size is not a simple function of the settings."""


@dataclass(frozen=True)
class Size:
    """One size as a function of settings: a product of powers such as `3*width`, or a sum such as `2*tokens - 1`.

    Attributes:
        factor: Factor of the product, or constant term of the sum.
        powers: For a product, the exponent of each setting.
        slopes: For a sum, the factor of each setting.
    """

    factor: Fraction
    powers: tuple[tuple[str, int], ...] = ()
    slopes: tuple[tuple[str, Fraction], ...] = ()

    def at(self, point: Point) -> Fraction:
        """Return the size at a point. A fraction means that the program does not exist there."""
        if self.slopes:
            return self.factor + sum(slope * point[name] for name, slope in self.slopes)
        return self.factor * prod((Fraction(point[name]) ** power for name, power in self.powers), start=Fraction(1))

    def text(self, letters: Mapping[str, str]) -> str:
        """Format the size as JAX formats symbolic sizes.

        Args:
            letters: The name to write for each setting.

        Examples:
            >>> Size(Fraction(3, 2), (("width", 1), ("heads", -1))).text({"width": "width", "heads": "h"})
            'floordiv(3*width, 2*h)'
            >>> Size(Fraction(-1), slopes=(("tokens", Fraction(2)),)).text({"tokens": "t"})
            '(2)*t + (-1)'
        """
        if self.slopes:
            below = lcm(self.factor.denominator, *(slope.denominator for _, slope in self.slopes))
            terms = [f"({int(slope * below)})*{letters[name]}" for name, slope in self.slopes]
            above = " + ".join([*terms, f"({int(self.factor * below)})"])
            return above if below == 1 else f"floordiv({above}, {below})"
        upper = [str(self.factor.numerator)] * (self.factor.numerator != 1)
        lower = [str(self.factor.denominator)] * (self.factor.denominator != 1)
        for name, power in self.powers:
            (upper if power > 0 else lower).extend([letters[name]] * abs(power))
        above = "*".join(upper) or "1"
        return f"floordiv({above}, {'*'.join(lower)})" if lower else above


class Inferred:
    """The costs of a program for any sizes between the traced ones.

    Args:
        points: A dict of settings for each trace. The first is the base; the others differ from it in one or several
            settings.
        costs: The analytic cost of each trace.

    Attributes:
        names: The settings that vary.

    Raises:
        NotInferredError: The equations differ between traces, a size follows no simple rule, or predicted costs differ
            from those of a trace.
    """

    def __init__(self, points: Sequence[Point], costs: Sequence[Cost]):
        self._points, self._costs = points, costs
        self.names = tuple(name for name in points[0] if len({point[name] for point in points}) > 1)
        letters = [name if name.isidentifier() else f"size_{index}" for index, name in enumerate(self.names)]
        self._letters = dict(zip(self.names, letters, strict=True))
        self._sizes: dict[_Values, Size] = {}
        self._specs: dict[tuple[TensorSpec, ...], TensorSpec] = {}
        self._program = self._inferred()
        for point, cost in zip(points, costs, strict=True):
            if not agree(self.at(point), cost):
                where = ", ".join(f"{name}={point[name]}" for name in self.names)
                raise NotInferredError(f"the predicted cost differs from a trace at {where}")

    def covers(self, point: Point) -> bool:
        """Return whether costs can be predicted at a point, which has a value for each setting.

        Each value must be between the smallest and the largest traced value of its setting, and all predicted sizes
        must be integers.
        """
        for name in self.names:
            values = [traced[name] for traced in self._points]
            if not min(values) <= point[name] <= max(values):
                return False
        sizes = [size.at(point) for size in self._sizes.values()]
        return all(value.denominator == 1 and value >= 0 for value in sizes)

    def input_shapes(self, point: Point) -> list[tuple[int, ...]]:
        """Return the shapes of the program's inputs at a covered point."""
        texts = {size.text(self._letters): size for size in self._sizes.values()}
        return [
            tuple(int(texts[dim].at(point)) if isinstance(dim, str) else dim for dim in argument.spec.shape)
            for argument in self._program.inputs
        ]

    def at(self, point: Point) -> Cost:
        """Return the costs at a covered point."""
        numbers = {self._letters[name]: int(point[name]) for name in self.names}
        template = self._program
        program = SymbolicProgram(template.name, template.equations, template.inputs, numbers, template.kinds)
        return of_equations(program.costs(), program)

    # From traces to sizes

    def _inferred(self) -> SymbolicProgram:
        traced = [cost.symbolic for cost in self._costs]
        programs = [program for program in traced if program is not None]
        if len(programs) < len(traced) or len({len(program.equations) for program in programs}) > 1:
            raise NotInferredError("the number of equations differs")
        equations = [self._equation(same) for same in zip(*(program.equations for program in programs), strict=True)]
        inputs: list[Input] = []
        for same in zip(*(program.inputs for program in programs), strict=True):
            inputs.append(replace(same[0], spec=self._spec(tuple(argument.spec for argument in same), "an input")))
        return SymbolicProgram(programs[0].name, tuple(equations), tuple(inputs))

    def _equation(self, same: tuple[Equation, ...]) -> Equation:
        first = same[0]
        if len({_kind(equation) for equation in same}) > 1:
            raise NotInferredError(f"equation {first.id} ({first.primitive}) differs")
        if all(equation == first for equation in same[1:]):
            return first
        where = f"{first.primitive} in {first.block or UNATTRIBUTED_LABEL}"
        params: list[tuple[str, Any]] = []
        for pairs in zip(*(equation.params for equation in same), strict=True):
            params.append((pairs[0][0], self._param(tuple(value for _, value in pairs), where)))
        repeats = {equation.repeats for equation in same}
        return replace(
            first,
            inputs=tuple(
                self._spec(specs, where) for specs in zip(*(equation.inputs for equation in same), strict=True)
            ),
            outputs=tuple(
                self._spec(specs, where) for specs in zip(*(equation.outputs for equation in same), strict=True)
            ),
            params=tuple(params),
            repeats=first.repeats if len(repeats) == 1 else None,  # then the loops around it determine it
            constants=tuple(
                _constant(each, where) for each in zip(*(equation.constants for equation in same), strict=True)
            ),
        )

    def _spec(self, same: tuple[TensorSpec, ...], where: str) -> TensorSpec:
        merged = self._specs.get(same)
        if merged is None:
            if len({(len(spec.shape), spec.dtype) for spec in same}) > 1:
                raise NotInferredError(f"ranks or dtypes differ in {where}")
            dims = tuple(self._size(dims, where) for dims in zip(*(spec.shape for spec in same), strict=True))
            merged = self._specs[same] = TensorSpec(dims, same[0].dtype)
        return merged

    def _param(self, same: tuple[Any, ...], where: str) -> Any:
        if all(param == same[0] for param in same[1:]):
            return same[0]
        if all(type(param) is int for param in same):
            return self._size(same, where)
        if all(isinstance(param, tuple) for param in same) and len({len(param) for param in same}) == 1:
            return tuple(self._param(each, where) for each in zip(*same, strict=True))
        return same[0]  # irrelevant if wrong: the costs are verified at every point

    def _size(self, values: tuple[Any, ...], where: str) -> Any:
        if values.count(values[0]) == len(values):
            return values[0]
        if values not in self._sizes:
            size = self._fitted(values) if all(type(value) is int for value in values) else None
            if size is None:
                raise NotInferredError(f"the sizes {', '.join(map(str, values))} of {where} follow no simple rule")
            self._sizes[values] = size
        return self._sizes[values].text(self._letters)

    def _fitted(self, values: _Values) -> Size | None:
        base, start = self._points[0], values[0]
        powers: list[tuple[str, int]] = []
        slopes: list[tuple[str, Fraction]] = []
        is_product = start != 0
        for name in self.names:
            index = next((index for index, point in enumerate(self._points) if _differs_in(point, base, name)), None)
            if index is None or values[index] == start:
                continue
            before, after = base[name], self._points[index][name]
            slopes.append((name, Fraction(values[index] - start, after - before)))
            fitting = [
                exponent for exponent in _EXPONENTS if start * Fraction(after, before) ** exponent == values[index]
            ]
            is_product = is_product and bool(fitting)
            powers += [(name, fitting[0])] if fitting else []
        candidates: list[Size] = []
        if is_product and powers:
            divisor = prod((Fraction(base[name] ** power) for name, power in powers if power > 0), start=Fraction(1))
            parts = prod((Fraction(base[name] ** -power) for name, power in powers if power < 0), start=Fraction(1))
            candidates.append(Size(start * parts / divisor, tuple(powers)))
        if slopes:
            rest = start - sum((slope * base[name] for name, slope in slopes), Fraction(0))
            candidates.append(Size(rest, slopes=tuple(slopes)))
        samples = list(zip(self._points, values, strict=True))
        return next((size for size in candidates if all(size.at(point) == value for point, value in samples)), None)


def agree(cost: Cost, other: Cost) -> bool:
    """Return whether two costs are equal, row by row, ignoring the ids of equations."""
    return _figures(cost) == _figures(other)


def _figures(cost: Cost) -> list[Any]:
    rows = [
        (row.opcode, row.blocks, row.role, row.flops, row.transcendentals, row.bytes_accessed, row.repeats, row.letters)
        for row in cost.rows
    ]
    return [rows, cost.params, cost.notes, cost.once]


def _kind(equation: Equation) -> Any:
    names = tuple(name for name, _ in equation.params)
    return (
        equation.id,
        equation.primitive,
        equation.block,
        equation.role,
        equation.is_call,
        equation.is_used,
        len(equation.inputs),
        len(equation.outputs),
        names,
    )


def _constant(same: tuple[Any, ...], where: str) -> Any:
    """Return a constant of an equation for all settings, or `"?"` if costs do not depend on its value.

    Args:
        same: The value of the constant in each trace.
        where: Description of the equation, for the error.

    Raises:
        NotInferredError: The values differ, and costs may depend on them: they are not floats that are all above 1, all
            between 0 and 1, or all negative.
    """
    if all(constant == same[0] for constant in same[1:]):
        return same[0]
    if all(isinstance(constant, float) and constant > 1 for constant in same) or all(
        isinstance(constant, float) and 0 < constant < 1 for constant in same
    ):
        return "?"
    if all(isinstance(constant, float) and constant < 0 for constant in same):
        return "?"
    raise NotInferredError(f"the constants {', '.join(map(str, same))} of {where} follow no simple rule")


def _differs_in(point: Point, base: Point, name: str) -> bool:
    return point[name] != base[name] and all(point[setting] == base[setting] for setting in base if setting != name)
