"""What a program costs whose sizes have names: with numbers in their place, and as formulas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mithril_nb.cost.records import EquationCost
from mithril_nb.cost.report import cost_equation, dearest_branches
from mithril_nb.cost.symbols import Expression, parse
from mithril_nb.errors import UnknownOptionError
from mithril_nb.graph.spec import Dim, TensorSpec
from mithril_nb.stages.collector import paused_collector
from mithril_nb.stages.records import SIZE, Constant, Equation

if TYPE_CHECKING:
    from mithril_nb.stages.traced import Input

_SIZES = frozenset(
    "shape new_sizes length dim sizes window_dimensions window_strides padding padding_config base_dilation "
    "window_dilation lhs_dilation rhs_dilation slice_sizes start_indices limit_indices strides fft_lengths".split()
)
"""Params in which JAX writes sizes; in others a text is a text."""


@dataclass(frozen=True)
class Kinds:
    """The equations of a program, those together that differ only in where they stand.

    Attributes:
        examples: One equation of each kind, and how often it runs; `None` if nobody knows.
        members: Every equation that is not just a call of others, with the place of its kind in `examples`.
        conditions: Ids of the conditions that hold branches, those that hold others first.
    """

    examples: tuple[tuple[Equation, Expression | None], ...]
    members: tuple[tuple[Equation, int], ...]
    conditions: tuple[str, ...]


@dataclass(frozen=True)
class SymbolicProgram:
    """The equations of a program, some of whose sizes may have names and no numbers.

    Attributes:
        name: Name of the program.
        equations: Its equations, those of nested jaxprs after the one that holds them.
        inputs: What it takes.
        sizes: The numbers that are put in the place of names.
        known_kinds: Its equations, equal ones together, if that is known already.
    """

    name: str
    equations: tuple[Equation, ...]
    inputs: tuple[Input, ...]
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    known_kinds: Kinds | None = None

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The names of its sizes, in the order of its inputs; none if all have numbers."""
        if self.sizes:
            return ()
        found: dict[str, None] = {}
        for spec in (one.spec for one in self.inputs):
            for dim in spec.shape:
                if isinstance(dim, str):
                    found.update(dict.fromkeys(sorted(parse(dim).names)))
        return tuple(found)

    @cached_property
    def params(self) -> dict[str, int | None]:
        """The number of parameters of each block; `None` if it depends on a size without a number."""
        found: dict[str, int | None] = {}
        put = _Numbers(self.sizes)
        for one in self.inputs:
            if one.is_param:
                before, size = found.get(one.block, 0), put.spec(one.spec).size
                found[one.block] = None if before is None or size is None else before + size
        return found

    def at(self, sizes: Mapping[str, int]) -> SymbolicProgram:
        """Return the same program with numbers in the place of names.

        Args:
            sizes: A number for each of `symbols`.

        Raises:
            UnknownOptionError: A name that is missing or that it does not have, or a number that is no size.
        """
        self._check(sizes)
        return SymbolicProgram(self.name, self.equations, self.inputs, dict(sizes), self.kinds)

    @cached_property
    def kinds(self) -> Kinds:
        """Its equations, equal ones together."""
        return self.known_kinds or _kinds(self.equations)

    def costs(self) -> tuple[EquationCost, ...]:
        """Return what each equation costs that is not just a call of others; equal ones are looked at once.

        Of the branches of a condition only the dearest counts, as in XLA.
        """
        put = _Numbers(self.sizes)
        with paused_collector():
            found = [cost_equation(put.equation(one, put.number(times))) for one, times in self.kinds.examples]
            costs = tuple(
                [
                    EquationCost(
                        one.id, one.primitive, one.block, one.role, like.flops, like.transcendentals, like.bytes,
                        like.repeats, like.each, like.once, like.formula,
                    )
                    for one, place in self.kinds.members
                    for like in [found[place]]
                ]
            )  # fmt: skip
        return dearest_branches(self.kinds.conditions, costs)

    def _check(self, sizes: Mapping[str, int]) -> None:
        wrong = {name: value for name, value in sizes.items() if type(value) is not int or value < 1}
        missing = [name for name in self.symbols if name not in sizes]
        unknown = [name for name in sizes if name not in self.symbols]
        if not (wrong or missing or unknown):
            return
        facts = [("sizes", ", ".join(self.symbols) or "none: all of them have numbers")]
        facts += [("missing", ", ".join(missing))] if missing else []
        facts += [("not there", ", ".join(unknown))] if unknown else []
        facts += [("no size", ", ".join(f"{name}={value!r}" for name, value in wrong.items()))] if wrong else []
        example = ", ".join(f"{name}={8 * 2**place}" for place, name in enumerate(self.symbols))
        raise UnknownOptionError(
            f"the sizes of program {self.name!r} are not those that were given.",
            tuple(facts),
            f"cost.at({example})" if self.symbols else "cost.total, which needs no sizes",
        )


def _kinds(equations: tuple[Equation, ...]) -> Kinds:
    lengths: dict[str, Expression | None] = {}
    places: dict[Any, int] = {}
    examples: list[tuple[Equation, Expression | None]] = []
    members: list[tuple[Equation, int]] = []
    for one in equations:
        if one.is_call:
            if one.primitive in ("scan", "while"):
                length: Any = one.param.get("length")
                lengths[one.id] = parse(length) if isinstance(length, str) else length
            continue
        if is_of_sizes(one):
            continue
        repeats: Expression | None = one.repeats
        if repeats is None:
            repeats = _product(lengths.get(holder, 1) for holder in _holders(one.id))
        key = one.primitive, one.inputs, one.outputs, one.params, one.constants, one.is_used, repeats
        place = places.get(key)
        if place is None:
            place = places[key] = len(examples)
            examples.append((one, repeats))
        members.append((one, place))
    conditions = tuple(one.id for one in equations if one.primitive == "cond" and one.is_call)
    return Kinds(tuple(examples), tuple(members), conditions)


def is_of_sizes(equation: Equation) -> bool:
    """Whether it only makes an array of a size: where sizes have numbers, JAX makes no such equation."""
    if equation.primitive != "convert_element_type":
        return equation.primitive == "dim_as_value"
    (known, *_), (made, *_) = equation.constants or (None,), equation.outputs
    return isinstance(known, str) and known.startswith(SIZE) and made.shape == ()


class _Numbers:
    """Puts numbers in the place of names; each spec, each tuple of params is looked at once."""

    def __init__(self, sizes: Mapping[str, int]):
        self.sizes = sizes
        self._specs: dict[TensorSpec, TensorSpec] = {}
        self._groups: dict[tuple[TensorSpec, ...], tuple[TensorSpec, ...]] = {}
        self._dims: dict[str, Dim] = {}

    def number(self, value: Expression | None) -> int | None:
        if value is None or isinstance(value, int):
            return value
        return value.evaluate(**self.sizes) if self.sizes else None

    def dim(self, dim: Dim) -> Dim:
        if isinstance(dim, int) or not self.sizes:
            return dim
        if dim not in self._dims:
            self._dims[dim] = parse(dim).evaluate(**self.sizes)
        return self._dims[dim]

    def spec(self, spec: TensorSpec) -> TensorSpec:
        found = self._specs.get(spec)
        if found is None:
            found = spec if spec.is_concrete else TensorSpec(tuple(map(self.dim, spec.shape)), spec.dtype)
            self._specs[spec] = found
        return found

    def specs(self, specs: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
        found = self._groups.get(specs)
        if found is None:
            found = self._groups[specs] = tuple(map(self.spec, specs))
        return found

    def equation(self, one: Equation, repeats: int | None) -> Equation:
        inputs, outputs = self.specs(one.inputs), self.specs(one.outputs)
        params = tuple([(name, self.param(value) if name in _SIZES else value) for name, value in one.params])
        return Equation(
            one.id, one.primitive, one.block, one.role, inputs, outputs, one.source, repeats, one.is_call, params,
            one.origin, one.is_used, tuple(map(self.constant, one.constants)), one.transforms,
        )  # fmt: skip

    def param(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self.param, value))
        return self.dim(value) if isinstance(value, str) else value

    def constant(self, value: Constant) -> Constant:
        if not isinstance(value, str) or not value.startswith(SIZE) or not self.sizes:
            return value
        return float(self.dim(value.removeprefix(SIZE)))


def _holders(id: str) -> list[str]:
    """The ids of the equations that hold an equation: `"12"`, `"12.b1.3"` of `"12.b1.3.0"`."""
    parts = id.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts)) if not parts[count - 1].startswith("b")]


def _product(factors: Iterable[Expression | None]) -> Expression | None:
    product: Expression = 1
    for factor in factors:
        if factor is None:
            return None
        product = factor * product if isinstance(factor, int) else product * factor
    return product
