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
    places: dict[Any, int] = {}
    examples: list[tuple[Equation, Expression | None]] = []
    devices, on_devices = devices_by_map(equations), list[int]()
    members: list[tuple[Equation, int]] = []
    for one in _without_bodies(equations, _estimated(equations)):
        if one.is_call:
            if one.primitive in ("scan", "while"):
                # A `while` has no length, so it is unknown how often its equations run.
                length: Any = one.param.get("length")
                lengths[one.id] = parse(length) if isinstance(length, str) else length
            elif one.primitive == "pallas_call":
                lengths[one.id] = _steps(one)
        if not has_cost(one) or _is_of_sizes(one):
            continue
        repeats: Expression | None = one.repeats
        if repeats is None:
            repeats = _product(lengths.get(holder, 1) for holder in _holders(one.id))
        on = devices_of(one.id, devices)
        key = (
            one.primitive,
            one.inputs,
            one.outputs,
            one.params,
            one.constants,
            one.is_used,
            repeats,
            "pallas" in one.transforms,
            on,
        )
        place = places.get(key)
        if place is None:
            place = places[key] = len(examples)
            examples.append((one, repeats))
            on_devices.append(on)
        members.append((one, place))
    conditions = tuple(one.id for one in equations if one.primitive == "cond" and one.is_call)
    return Kinds(tuple(examples), tuple(members), conditions, tuple(on_devices))


def devices_by_map(equations: Iterable[Equation]) -> dict[str, int]:
    """Return the number of devices of each `shard_map` by id."""
    return {one.id: int(str(one.param[DEVICES])) for one in equations if one.primitive == "shard_map" and one.is_call}


def devices_of(id: str, by_map: Mapping[str, int]) -> int:
    """Return the number of devices that run an equation, given the result of `devices_by_map`."""
    return prod(by_map.get(holder, 1) for holder in _holders(id)) if by_map else 1


def _estimated(equations: Iterable[Equation]) -> set[str]:
    """Return the ids of the kernels whose cost is that of a rule of the user, or the author's `cost_estimate`.

    The estimate counts if the cost of an equation of the kernel is unknown.
    """
    calls = {one.id: ESTIMATE in one.param for one in equations if one.primitive == "pallas_call" and one.is_call}
    found = set(calls) if "pallas_call" in USER_RULES else set[str]()
    for one in equations if calls else ():
        holders = [holder for holder in _holders(one.id) if calls.get(holder) and holder not in found]
        if holders and not one.is_call:
            each = counted(one)
            if one.repeats is None or each.flops is None or each.transcendentals is None:
                found.update(holders)
    return found


def _without_bodies(equations: Iterable[Equation], calls: set[str]) -> Iterator[Equation]:
    """Yield equations without those inside some calls, which are then no calls."""
    for one in equations:
        if one.id in calls:
            yield replace(one, is_call=False)
        elif not (calls and calls & {*_holders(one.id)}):
            yield one


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
    (known, *_), (made, *_) = equation.constants or (None,), equation.outputs
    return isinstance(known, str) and known.startswith(SIZE) and made.shape == ()


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
        found = self._specs.get(spec)
        if found is None:
            found = spec if spec.is_concrete else TensorSpec(tuple(map(self.dim, spec.shape)), spec.dtype)
            self._specs[spec] = found
        return found

    def specs(self, specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        """Return specs with replaced sizes."""
        found = self._groups.get(specs)
        if found is None:
            found = self._groups[specs] = tuple(map(self.spec, specs))
        return found

    def equation(self, one: Equation, repeats: int | None) -> Equation:
        """Return an equation with replaced sizes that runs `repeats` times; `None` if unknown."""
        inputs, outputs = self.specs(one.inputs), self.specs(one.outputs)
        params = tuple([(name, self.param(value) if name in _SIZES else value) for name, value in one.params])
        return Equation(
            one.id, one.primitive, one.block, one.role, inputs, outputs, one.source, repeats, one.is_call, params,
            one.origin, one.is_used, tuple(map(self.constant, one.constants)), one.transforms,
            one.library_source, one.source_range,
        )  # fmt: skip

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
    every = list(factors)
    return None if None in every else times(factor for factor in every if factor is not None)
