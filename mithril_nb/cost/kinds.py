"""Kinds: groups of equations that cost the same, so that each is counted once. `Numbers` replaces symbolic sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from mithril_nb.cost.analytic import equation_row, grid_of
from mithril_nb.cost.formulas.parsing import parse
from mithril_nb.cost.formulas.rules import USER_RULES, Counted, counted, has_cost
from mithril_nb.cost.formulas.sizes import times
from mithril_nb.cost.formulas.symbols import Expression, UndecidedError
from mithril_nb.cost.records import NO_TRIP_COUNT, CostRow
from mithril_nb.graph.spec import Dim, TensorSpec
from mithril_nb.stages.records import SIZE, Constant, Equation
from mithril_nb.stages.trace.params import DEVICES, ESTIMATE

_SIZES = frozenset(
    "shape new_sizes length dim sizes window_dimensions window_strides padding padding_config base_dilation "
    "window_dilation lhs_dilation rhs_dilation slice_sizes start_indices limit_indices strides fft_lengths".split()
)
"""Params of equations in which a string is a symbolic size. In other params, strings have another meaning."""


@dataclass(frozen=True)
class Kinds:
    """The equations of a program, grouped by kind.

    Equations of a kind have the same primitive, shapes, dtypes and params, and run equally often, so they cost the
    same. Their block, role and line may differ.

    Attributes:
        examples: For each kind, a pair: one equation, and how often it runs, or `None` if unknown.
        members: For each equation that has a cost row, a pair: the equation, and the index of its kind in `examples`.
        conditions: Ids of the `cond` equations, outer ones first.
        devices: For each kind, the number of devices of the `shard_map` around it, which all run it; 1 without one.
    """

    examples: tuple[tuple[Equation, Expression | None], ...]
    members: tuple[tuple[Equation, int], ...]
    conditions: tuple[str, ...]
    devices: tuple[int, ...]


def kinds_of(equations: tuple[Equation, ...]) -> Kinds:
    """Group the equations of a program by kind."""
    lengths: dict[str, Expression | None] = {}
    indices: dict[Any, int] = {}
    examples: list[tuple[Equation, Expression | None]] = []
    devices, on_devices = devices_by_map(equations), list[int]()
    members: list[tuple[Equation, int]] = []
    for equation in _without_bodies(equations, _estimated(equations)):
        if equation.is_call:
            if equation.primitive in ("scan", "while"):
                # A `while` has no length, so it is unknown how often its equations run.
                length: Any = equation.param.get("length")
                lengths[equation.id] = parse(length) if isinstance(length, str) else length
            elif equation.primitive == "pallas_call":
                lengths[equation.id] = _steps(equation)
        if not has_cost(equation) or _is_of_sizes(equation):
            continue
        repeats: Expression | None = equation.repeats
        if repeats is None:
            repeats = _product(lengths.get(holder, 1) for holder in _holders(equation.id))
        on = devices_of(equation.id, devices)
        key = (
            equation.primitive,
            equation.inputs,
            equation.outputs,
            equation.params,
            equation.constants,
            equation.is_used,
            repeats,
            "pallas" in equation.transforms,
            on,
        )
        index = indices.get(key)
        if index is None:
            index = indices[key] = len(examples)
            examples.append((equation, repeats))
            on_devices.append(on)
        members.append((equation, index))
    conditions = tuple(equation.id for equation in equations if equation.primitive == "cond" and equation.is_call)
    return Kinds(tuple(examples), tuple(members), conditions, tuple(on_devices))


def devices_by_map(equations: Iterable[Equation]) -> dict[str, int]:
    """Return the number of devices of each `shard_map` by id."""
    return {
        equation.id: int(str(equation.param[DEVICES]))
        for equation in equations
        if equation.primitive == "shard_map" and equation.is_call
    }


def devices_of(id: str, by_map: Mapping[str, int]) -> int:
    """Return the number of devices that run an equation, given the result of `devices_by_map`."""
    return prod(by_map.get(holder, 1) for holder in _holders(id)) if by_map else 1


def _estimated(equations: Iterable[Equation]) -> set[str]:
    """Return the ids of the kernels whose cost is that of a rule of the user, or the author's `cost_estimate`.

    The estimate counts if the cost of an equation of the kernel is unknown.
    """
    calls = {
        equation.id: ESTIMATE in equation.param
        for equation in equations
        if equation.primitive == "pallas_call" and equation.is_call
    }
    kernels = set(calls) if "pallas_call" in USER_RULES else set[str]()
    for inner in equations if calls else ():
        holders = [holder for holder in _holders(inner.id) if calls.get(holder) and holder not in kernels]
        if holders and not inner.is_call:
            each = counted(inner)
            if inner.repeats is None or each.flops is None or each.transcendentals is None:
                kernels.update(holders)
    return kernels


def _without_bodies(equations: Iterable[Equation], calls: set[str]) -> Iterator[Equation]:
    """Yield equations without those inside some calls, which are then no calls."""
    for equation in equations:
        if equation.id in calls:
            yield replace(equation, is_call=False)
        elif not (calls and calls & {*_holders(equation.id)}):
            yield equation


def _steps(kernel: Equation) -> Expression | None:
    try:
        return times(grid_of(kernel))
    except UndecidedError:
        return None


def row_of(put: Numbers, equation: Equation, times: Expression | None, each: Counted, devices: int) -> CostRow:
    """Return the row of an equation that costs `each` per run, and runs `times` times on each of some devices."""
    repeats = put.number(times)
    row = equation_row(equation, each, repeats, devices)
    if times is None or repeats is not None:
        return row
    return replace(row, rounds=str(times), formula=row.formula.removesuffix(f"; {NO_TRIP_COUNT}"))


def _is_of_sizes(equation: Equation) -> bool:
    """Return whether an equation only converts a symbolic size to an array. JAX traces none if sizes are numbers."""
    if equation.primitive != "convert_element_type":
        return equation.primitive == "dim_as_value"
    (constant, *_), (result, *_) = equation.constants or (None,), equation.outputs
    return isinstance(constant, str) and constant.startswith(SIZE) and result.shape == ()


class Numbers:
    """Replaces symbolic sizes by numbers in shapes, params and equations.

    Args:
        sizes: A dict from each symbolic size to a number; empty to replace nothing.
    """

    def __init__(self, sizes: Mapping[str, int]):
        self.sizes = sizes
        self._specs: dict[TensorSpec, TensorSpec] = {}
        self._groups: dict[tuple[TensorSpec, ...], tuple[TensorSpec, ...]] = {}
        self._dims: dict[str, Dim] = {}

    def number(self, value: Expression | None) -> int | None:
        """Return a value as a number; `None` if it is unknown, or depends on symbolic sizes that are not replaced."""
        if value is None or isinstance(value, int):
            return value
        return value.evaluate(**self.sizes) if self.sizes else None

    def dim(self, dim: Dim) -> Dim:
        """Return a dim as a number if it depends on replaced sizes."""
        if isinstance(dim, int) or not self.sizes:
            return dim
        if dim not in self._dims:
            self._dims[dim] = parse(dim).evaluate(**self.sizes)
        return self._dims[dim]

    def spec(self, spec: TensorSpec) -> TensorSpec:
        """Return a spec with replaced sizes."""
        replaced = self._specs.get(spec)
        if replaced is None:
            replaced = spec if spec.is_concrete else TensorSpec(tuple(map(self.dim, spec.shape)), spec.dtype)
            self._specs[spec] = replaced
        return replaced

    def specs(self, specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        """Return specs with replaced sizes."""
        replaced = self._groups.get(specs)
        if replaced is None:
            replaced = self._groups[specs] = tuple(map(self.spec, specs))
        return replaced

    def equation(self, equation: Equation, repeats: int | None) -> Equation:
        """Return an equation with replaced sizes that runs `repeats` times; `None` if unknown."""
        inputs, outputs = self.specs(equation.inputs), self.specs(equation.outputs)
        params = tuple([(name, self.param(value) if name in _SIZES else value) for name, value in equation.params])
        return Equation(
            equation.id,
            equation.primitive,
            equation.block,
            equation.role,
            inputs,
            outputs,
            equation.source,
            repeats,
            equation.is_call,
            params,
            equation.origin,
            equation.is_used,
            tuple(map(self.constant, equation.constants)),
            equation.transforms,
            equation.library_source,
            equation.source_range,
        )

    def param(self, value: Any) -> Any:
        """Return the value of a param with replaced sizes, also inside tuples."""
        if isinstance(value, tuple):
            return tuple(map(self.param, value))
        return self.dim(value) if isinstance(value, str) else value

    def constant(self, value: Constant) -> Constant:
        """Return a constant as a number if it is a replaced size."""
        if not isinstance(value, str) or not value.startswith(SIZE) or not self.sizes:
            return value
        return float(self.dim(value.removeprefix(SIZE)))


def _holders(id: str) -> list[str]:
    """Return the ids of the calls that contain an equation, outer ones first: `["12", "12.b1.3"]` for `"12.b1.3.0"`."""
    parts = id.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts)) if not parts[count - 1].startswith("b")]


def _product(factors: Iterable[Expression | None]) -> Expression | None:
    known_factors = list(factors)
    return None if None in known_factors else times(factor for factor in known_factors if factor is not None)
