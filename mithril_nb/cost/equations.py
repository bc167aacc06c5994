"""Costs of equations: each kind is counted once, and of a `cond` only the most expensive branch.

Sizes may be symbolic: costs are then formulas, and `Substitution` has numbers for them. Nothing is lowered or run.
Importing this module registers the cost rules of Pallas kernels and expansions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from mithril_nb.cost.by_name import with_outer
from mithril_nb.cost.formulas.communication import NOTHING, SENDS_MORE, UNKNOWN, Sent, sends_no_more
from mithril_nb.cost.formulas.parsing import parse, written_with
from mithril_nb.cost.formulas.rules import (
    NOT_SENT,
    USER_RULES,
    EquationCost,
    Formula,
    counted,
    estimated,
    has_cost,
    known,
    rule,
)
from mithril_nb.cost.formulas.sizes import as_size, bytes_of, count, product_of, repeated, sum_of, times
from mithril_nb.cost.formulas.symbols import Expression, Polynomial, UndecidedError, constant, total
from mithril_nb.cost.records import NO_TRIP_COUNT, NO_WORK, CostRow, is_unknown, only
from mithril_nb.cost.records import sum_of as sum_of_parts
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.figures import COUNTED, LOCAL, OF_XLA, SENT
from mithril_nb.graph.paths import is_within
from mithril_nb.graph.spec import Dim, TensorSpec
from mithril_nb.stages.inspect_options import fitting_numbers
from mithril_nb.stages.once import paused_collector
from mithril_nb.stages.param_names import example_of_params, why_unknown
from mithril_nb.stages.records import SIZE, Constant, Equation, quick_replace
from mithril_nb.stages.trace.params import BLOCKS, DEVICES, ESTIMATE, GRID, KERNEL, equations_of

if TYPE_CHECKING:
    from mithril_nb.stages.records import Input


COUNTS, IDLE, UNDECIDED, SENDS = "counts", "idle", "undecided", "sends"
# States of an equation in a branch of a `cond`:
# - COUNTS: the branch is the most expensive one, so the equation counts.
# - IDLE: another branch is more expensive, so the equation counts 0.
# - UNDECIDED: the most expensive branch depends on symbolic sizes or unknown costs.
# - SENDS: another branch is more expensive, but the equation is a collective and its branch may send more.


def _in_state(row: CostRow, state: str) -> CostRow:
    if state == UNDECIDED:  # costs that are not 0 become unknown
        costs = {key: 0 if getattr(row, key) == 0 else None for key in (*COUNTED, "macs")}
        has_rule = row.once is not None and row.once.flops is not None
        return replace(row, **costs, repeats=None, once=NO_WORK if has_rule else only(bytes_accessed=0))
    is_idle = state == IDLE
    costs = {key: 0 if is_idle or key not in SENT or getattr(row, key) == 0 else None for key in COUNTED}
    return replace(row, **costs, repeats=0, once=NO_WORK, formula="0: another branch costs more", macs=0)


def equation_row(
    equation: Equation, each: EquationCost, repeats: int | None, devices: int = 1, rounds: str = ""
) -> CostRow:
    """Return the row of an equation that costs `each` per run, and runs `repeats` times on each of some devices.

    Communication is that of one device. `rounds` is the number of runs as text if it depends on symbolic sizes.
    """
    # XLA removes unused equations, so they run 0 times whatever their loop does.
    repeats = repeats if equation.is_used else 0
    numbers = {key: value if isinstance(value, int) else None for key, value in each.figures.items()}
    if repeats == 0:
        numbers["bytes_accessed"] = 0
    runs = repeated(devices, repeats)
    is_open = repeats is None and not rounds and bool(numbers["flops"] or numbers["transcendentals"])
    products = numbers["products"]
    costs: dict[str, Any] = {key: repeated(numbers.get(key), repeats if key in SENT else runs) for key in COUNTED}
    return CostRow(
        equation.id,
        equation.primitive,
        ((equation.block, 1.0),) if equation.block else (),
        equation.role,
        repeats=runs,
        formula=f"{each.formula}; {NO_TRIP_COUNT}" if is_open else each.formula,
        once=only(**{key: numbers.get(key) for key in OF_XLA} | {"flops": numbers["once"]}),
        equations=(equation.id,),
        letters=tuple(
            (letter, value if isinstance(value, int) else str(value)) for letter, value in each.letters.items()
        ),
        rounds=rounds,
        macs=repeated(None if products is None else products // 2, runs),
        **costs,
    )


_MOVED: dict[str, Any] = {key: None if key in SENT else 0 for key in COUNTED}


def moved_rows(inputs: Iterable[Input]) -> tuple[CostRow, ...]:
    """Return a cost row for each argument that the program returns with another sharding.

    No equation moves this argument between devices: XLA does. The bytes that each device sends are unknown.
    """
    return tuple(
        CostRow(
            f"arg{index}",
            "parameter",
            ((argument.block, 1.0),) if argument.block else (),
            None,
            repeats=1,
            formula="0: moves data",
            once=NO_WORK,
            equations=(f"arg{index}",),
            macs=0,
            **_MOVED,
        )
        for index, argument in enumerate(inputs)
        if argument.is_moved
    )


def _indices_in_branches(kinds: Kinds) -> dict[str, dict[str, list[int]]]:
    indices: dict[str, dict[str, list[int]]] = {condition: {} for condition in kinds.conditions}
    for index, (equation, _) in enumerate(kinds.members if indices else ()):
        # Equation `12.b1.3` is the fourth one in branch 1 of the `cond` with id `12`.
        outer, _, inner = equation.id.partition(".b")
        while inner:
            if outer in indices:
                indices[outer].setdefault(inner.partition(".")[0], []).append(index)
            head, _, inner = inner.partition(".b")
            outer = f"{outer}.b{head}"
    return indices


def _pallas_bytes(equation: Equation) -> Expression | None:
    # The kernel visits the grid with the last axis fastest, and moves a block each time the index of the block
    # changes. If the index does not depend on the last axes, the block is not moved again while these axes
    # advance.
    grid = grid_of(equation)
    blocks: Any = equation.param.get(BLOCKS, ())
    moved: Expression = 0
    for shape, dtype, axes in blocks:
        size = bytes_of(TensorSpec(shape, dtype))
        if size is None:
            return None
        moved = moved + size * times(grid[:axes])
    return moved


@rule("pallas_call", flops="0", note="the equations of the kernel are counted", moved=_pallas_bytes)
def pallas_call(equation: Equation) -> Formula | str:
    """The author's `cost_estimate`, only used if the cost of an equation in the kernel is unknown."""
    estimate: Any = equation.param.get(ESTIMATE)
    return estimated(estimate) if estimate else "the kernel is not a jaxpr"


@rule("call_hi_primitive", flops="products + others", transcendentals="calls", note="written out")
def expanded(equation: Equation) -> Formula | str:
    """The equations that the lowering replaces the primitive with: `products` for matrix products and convolutions.

    JAX 0.12 has this primitive for `SearchSorted`. Primitives of other packages, such as Equinox, count the same way.
    """
    rows = SymbolicProgram("", equations_of(equation.param.get(KERNEL, ())), ()).costs()
    unknown = Counter(f"{row.opcode} ({row.unknown})" for row in rows if is_unknown(row))
    if unknown:
        return f"inside {', '.join(f'{count} × {opcode}' for opcode, count in unknown.items())}"
    figures, macs = sum_of_parts(rows), [row.macs for row in rows]
    products, calls = 2 * sum(count for count in macs if count), figures.transcendentals or 0
    letters = {"products": products, "others": (figures.flops or 0) - products, "calls": calls}
    return Formula(
        "products + others", letters, "calls" if calls else "0", note="written out",
        products=None if None in macs else "products",
    )  # fmt: skip


def grid_of(kernel: Equation) -> list[Expression]:
    """Return the size of each axis of a kernel's grid."""
    sizes: Any = kernel.param[GRID]
    # A dynamic size is `None` in the grid, and an operand of pallas_call. These operands come first.
    operands = iter(kernel.constants)
    axes: list[Expression] = []
    for size in sizes:
        length = next(operands, None) if size is None else size
        if length is None or length == "?":
            raise UndecidedError("the grid is known only when the program runs")
        axes.append(as_size(length.removeprefix(SIZE) if isinstance(length, str) else int(length)))
    return axes


# Params of equations in which a string is a symbolic size. In other params, strings have another meaning.
_SIZES = frozenset(
    "shape new_sizes length dim sizes window_dimensions window_strides padding padding_config base_dilation "
    "window_dilation lhs_dilation rhs_dilation slice_sizes start_indices limit_indices strides fft_lengths".split()
)


@dataclass(frozen=True)
class Kinds:
    """The equations of a program, grouped by kind.

    Equations of a kind have the same primitive, shapes, dtypes and params, and run equally often, so they cost the
    same. Their block, role and line may differ.

    Attributes:
        examples: For each kind, a triple: one equation; how often it runs, or `None` if unknown; and the number of
            devices of the `shard_map` around it, which all run it, or 1 without one.
        members: For each equation that has a cost row, a pair: the equation, and the index of its kind in `examples`.
        conditions: Ids of the `cond` equations, outer ones first.
    """

    examples: tuple[tuple[Equation, Expression | None, int], ...]
    members: tuple[tuple[Equation, int], ...]
    conditions: tuple[str, ...]


def kinds_of(equations: tuple[Equation, ...]) -> Kinds:
    """Group the equations of a program by kind."""
    lengths: dict[str, Expression | None] = {}
    indices: dict[Any, int] = {}
    examples: list[tuple[Equation, Expression | None, int]] = []
    devices = devices_by_map(equations)
    members: list[tuple[Equation, int]] = []
    estimated = _estimated(equations)
    for equation in equations:
        if estimated and estimated & {*_holders(equation.id)}:
            continue
        if equation.id in estimated:
            equation = replace(equation, is_call=False)
        if equation.is_call:
            if equation.primitive in ("scan", "while"):
                # A `while` has no length, so it is unknown how often its equations run.
                length: Any = equation.param.get("length")
                lengths[equation.id] = parse(length) if isinstance(length, str) else length
            elif equation.primitive == "pallas_call":
                lengths[equation.id] = known(lambda kernel: times(grid_of(kernel)), equation)
        if not has_cost(equation) or _is_of_sizes(equation):
            continue
        repeats: Expression | None = equation.repeats
        if repeats is None:
            repeats = product_of(*(lengths.get(holder, 1) for holder in _holders(equation.id)))
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
            examples.append((equation, repeats, on))
        members.append((equation, index))
    conditions = tuple(equation.id for equation in equations if equation.primitive == "cond" and equation.is_call)
    return Kinds(tuple(examples), tuple(members), conditions)


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
    # The estimate counts if the cost of an equation of the kernel is unknown.
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
            if inner.repeats is None or None in (each.figures["flops"], each.figures["transcendentals"]):
                kernels.update(holders)
    return kernels


def _is_of_sizes(equation: Equation) -> bool:
    # JAX traces no such equation if sizes are numbers.
    if equation.primitive != "convert_element_type":
        return equation.primitive == "dim_as_value"
    (constant, *_), (result, *_) = equation.constants or (None,), equation.outputs
    return isinstance(constant, str) and constant.startswith(SIZE) and result.shape == ()


class Substitution:
    """Replaces symbolic sizes by numbers in shapes, params and equations.

    Args:
        sizes: A dict from each symbolic size to a number; empty to replace nothing.
    """

    def __init__(self, sizes: Mapping[str, int]):
        self.sizes = sizes
        # Thousands of equations have tens of specs.
        self.dim, self.spec = cache(self._dim), cache(self._spec)

    def number(self, value: Expression | None) -> int | None:
        """Return a value as a number; `None` if it is unknown, or depends on symbolic sizes that are not replaced."""
        if value is None or isinstance(value, int):
            return value
        return value.evaluate(**self.sizes) if self.sizes else None

    def _dim(self, dim: Dim) -> Dim:
        return dim if isinstance(dim, int) or not self.sizes else parse(dim).evaluate(**self.sizes)

    def _spec(self, spec: TensorSpec) -> TensorSpec:
        return spec if spec.is_concrete else TensorSpec(tuple(map(self.dim, spec.shape)), spec.dtype)

    def equation(self, equation: Equation) -> Equation:
        """Return one run of an equation with replaced sizes."""
        return quick_replace(
            equation,
            inputs=tuple(map(self.spec, equation.inputs)),
            outputs=tuple(map(self.spec, equation.outputs)),
            repeats=None,
            params=tuple([(name, self.param(value) if name in _SIZES else value) for name, value in equation.params]),
            constants=tuple(map(self.constant, equation.constants)),
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
    # `["12", "12.b1.3"]` for `"12.b1.3.0"`.
    parts = id.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts)) if not parts[count - 1].startswith("b")]


@dataclass(frozen=True)
class SymbolicProgram:
    """The equations of a program whose sizes may be symbolic.

    Attributes:
        name: Name of the program.
        equations: The equations. The equations inside a call, such as `jit`, follow the call.
        inputs: The inputs of the program.
        sizes: A dict from each symbolic size to a number; empty to keep the sizes symbolic.
        known_kinds: The result of `kinds_of` for the equations if it is known already, else `None`.
        check: A function that raises an error if the program cannot have the given sizes; `None` if all are valid.
    """

    name: str
    equations: tuple[Equation, ...]
    inputs: tuple[Input, ...]
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    known_kinds: Kinds | None = None
    check: Callable[[Mapping[str, int]], None] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The names of the symbolic sizes, in the order of the inputs; empty if numbers replace them."""
        if self.sizes:
            return ()
        names: dict[str, None] = {}
        for spec in (argument.spec for argument in self.inputs):
            for dim in spec.shape:
                if isinstance(dim, str):
                    names.update(dict.fromkeys(sorted(parse(dim).names)))
        return tuple(names)

    @cached_property
    def params(self) -> dict[str, int | None] | None:
        """A dict from each block with parameters to their number; `None` if it is unknown which inputs are parameters.

        A number is `None` if it depends on a symbolic size.
        """
        if unknown_params(self.inputs) is not None:
            return None
        params: dict[str, int | None] = {}
        substitution = Substitution(self.sizes)
        for argument in self.inputs:
            if argument.is_param:
                before, size = params.get(argument.block, 0), substitution.spec(argument.spec).size
                params[argument.block] = None if before is None or size is None else before + size
        return params

    def at(self, sizes: Mapping[str, int]) -> SymbolicProgram:
        """Return the same program with numbers for the symbolic sizes. `Cost.at` documents arguments and errors."""
        self._check(sizes)
        if self.check is not None and sizes:
            self.check(sizes)
        # The kinds do not depend on the numbers, so they are passed on.
        return SymbolicProgram(self.name, self.equations, self.inputs, dict(sizes), self.kinds)

    @cached_property
    def kinds(self) -> Kinds:
        """The equations grouped by kind."""
        return self.known_kinds or kinds_of(self.equations)

    def costs(self) -> tuple[CostRow, ...]:
        """Return the cost rows of all equations, then those of `moved_rows`.

        The cost of each kind of equation is computed only once.
        """
        number = Substitution(self.sizes).number
        with paused_collector():
            rows: list[CostRow] = []
            for (equation, times, devices), each in zip(self.kinds.examples, self.counted, strict=True):
                repeats = number(times)
                rounds = str(times) if repeats is None and times is not None else ""
                rows.append(equation_row(equation, each, repeats, devices, rounds))
            states = self._branches
            costs = [
                quick_replace(
                    _in_state(like, states[equation.id]) if equation.id in states else like,
                    id=equation.id,
                    blocks=((equation.block, 1.0),) if equation.block else (),
                    role=equation.role,
                    equations=(equation.id,),
                )
                for equation, index in self.kinds.members
                for like in [rows[index]]
            ]
        return (*costs, *moved_rows(self.inputs))

    @cached_property
    def counted(self) -> tuple[EquationCost, ...]:
        """The cost of one run of an equation of each kind; costs that depend on symbolic sizes are polynomials."""
        substitution = Substitution(self.sizes)
        return tuple([counted(substitution.equation(equation)) for equation, *_ in self.kinds.examples])

    def polynomial(self, path: str = "", field: str = "flops", role: str | None = None) -> tuple[Polynomial, list[str]]:
        """Return the total cost of a block, as a polynomial in the symbolic sizes."""
        self._check_names(path, field, role)
        if field == "params":
            why = unknown_params(self.inputs)
            if why is not None and not role:
                return total([]), [why[0]]
            own = [argument.spec for argument in self.inputs if argument.is_param and is_within(argument.block, path)]
            substitution = Substitution(self.sizes)
            return total([] if role else [count(substitution.spec(spec)) for spec in own]), []
        added, unknown = self._added(self._chosen(path, role), field)
        moved = [argument for argument in self.inputs if argument.is_moved and is_within(argument.block, path)]
        if moved and field in SENT and not role:
            unknown = [*unknown, f"{len(moved)} × parameter: {NOT_SENT}"]
        return added, unknown

    def formulas_of(self, path: str) -> dict[str, str]:
        """Return the formulas of a block, with the blocks inside it: `{"flops": "2·B·I·O", "params": "I·O"}`.

        Costs that do not depend on symbolic sizes are left out.
        """
        fields = (*COUNTED, "params") if self.symbols else ()
        return {field: text for field in fields if (text := _open(*self.polynomial(path, field, None)))}

    @cached_property
    def formulas(self) -> Mapping[str | None, Mapping[str, str]]:
        """The formulas of each block, without the blocks inside it: `{"net": {"flops": "2·B·I·O"}}`.

        The key `""` has the unattributed cost, `None` the whole program. Costs that do not depend on symbolic sizes are
        left out. A formula that leaves out unknown costs begins with `"≥ "`.
        """
        if not self.symbols:
            return {}
        params: dict[str | None, list[Expression]] = {}
        for argument in self.inputs:
            for path in (None, argument.block) if argument.is_param else ():
                params.setdefault(path, []).append(count(argument.spec))
        formulas = self.formulas_by(lambda equation: equation.block)
        for path, counts in params.items():
            if text := _open(total(counts), []):
                formulas.setdefault(path, {})["params"] = text
        return formulas

    def formulas_by(self, group_of: Callable[[Equation], str]) -> dict[str | None, dict[str, str]]:
        """Return formulas like `formulas`, without `"params"`, for groups that `group_of` assigns to equations."""
        chosen: dict[str | None, dict[_Kind, int]] = {None: self._chosen("", None)}
        for equation, index in self.kinds.members:
            kind = index, self._branches.get(equation.id, COUNTS)
            if kind in chosen[None]:
                own = chosen.setdefault(group_of(equation), {})
                own[kind] = own.get(kind, 0) + 1
        return {
            group: {field: text for field in COUNTED if (text := _open(*self._added(kinds, field)))}
            for group, kinds in chosen.items()
        }

    def _added(self, chosen: Mapping[_Kind, int], field: str) -> tuple[Polynomial, list[str]]:
        parts: list[Expression] = []
        unknown: dict[str, int] = {}
        for (index, state), number in chosen.items():
            (equation, _, devices), each = self.kinds.examples[index], self.counted[index]
            repeats = self._repeats(index)
            value = each.figures.get(field)
            if value == 0 or (state == SENDS and field not in SENT):
                continue
            if state != COUNTS or value is None or repeats is None:
                if state == UNDECIDED:
                    why = "the most expensive branch " + ("depends on sizes" if self.symbols else "is unknown")
                elif state == SENDS:
                    why = SENDS_MORE
                else:
                    why = NO_TRIP_COUNT if value is not None else each.why_unknown(field)
                reason = f"{equation.primitive}: {why}"
                unknown[reason] = unknown.get(reason, 0) + number
            else:
                number *= 1 if field in SENT else devices
                parts.append(constant(value) * repeats * number)
        return total(parts), [f"{times} × {reason}" for reason, times in unknown.items()]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on unknown costs of a program with symbolic sizes."""
        numbers = ", ".join(f"{name}={number}" for name, number in self.example.items())
        symbolic = (
            f"costs that depend on {', '.join(self.symbols)} have no number: use cost.at({numbers}) or cost.formula()"
        )
        return (symbolic, *[f"{field} of {reason}" for field in LOCAL for reason in self.polynomial("", field)[1]])

    @cached_property
    def example(self) -> Mapping[str, int]:
        """A dict from each symbolic size to an example number, such as `{"batch": 32}`."""
        return fitting_numbers(self.symbols, self.check)

    def in_numbers(self, path: str, field: str, role: str | None) -> str:
        """Return the total cost of a block as a sum of products of numbers: `"2·32·784·10 + 320"`; `""` if it is 0.

        The arguments are those of `polynomial`.
        """
        terms: dict[str, int] = {}
        values: dict[str, Any] = {}
        for (index, state), number in self._chosen(path, role).items():
            rule, repeats = self.counted[index].rule, self._repeats(index)
            number *= self.kinds.examples[index][2]
            if rule is not None and state == COUNTS and isinstance(repeats, int) and repeats:
                text, value = getattr(rule, field), self.counted[index].figures[field]
                if value:
                    term = written_with(text, rule.letters)
                    terms[term] = terms.get(term, 0) + number * repeats
                    values[term] = value
        ordered = sorted(terms, key=lambda term: (-values[term] * terms[term], term))
        texts = [_times(terms[term], term) for term in ordered]
        return " + ".join(texts)

    def _repeats(self, index: int) -> Expression | None:
        equation, repeats, _ = self.kinds.examples[index]
        if not equation.is_used:
            return 0
        return repeats if repeats is None or not self.sizes else constant(repeats).evaluate(**self.sizes)

    def _chosen(self, path: str, role: str | None) -> dict[_Kind, int]:
        counts: dict[_Kind, int] = {}
        for equation, index in self.kinds.members:
            if is_within(equation.block, path) and role in (None, equation.role):
                key = index, self._branches.get(equation.id, COUNTS)
                if key[1] != IDLE:
                    counts[key] = counts.get(key, 0) + 1
        return counts

    @cached_property
    def _branches(self) -> Mapping[str, str]:
        """The state of each equation in a branch that is not the most expensive one, by id.

        The most expensive branch has the largest sum of FLOPs and transcendentals. A branch with unknown costs may be
        more expensive than it, and a cheaper branch may send more to other devices.
        """
        states: dict[str, str] = {}
        members, indices = self.kinds.members, _indices_in_branches(self.kinds)
        weigh, sent = cache(self._weigh), cache(self._sent)

        def summed(branch: Sequence[int]) -> tuple[Expression, bool, Sent]:
            weights: list[Expression] = []
            parts: list[Sent] = [NOTHING]
            is_known = True
            for equation, kind in (members[index] for index in branch):
                state = states.get(equation.id)
                if state in (None, UNDECIDED):
                    weight, is_weight_known = weigh(kind)
                    is_known = is_known and is_weight_known and (state is None or weight == 0)
                    weights += [weight] if state is None else []
                if state != IDLE:
                    part = sent(kind)
                    parts.append(part if state is None or part == NOTHING else UNKNOWN)
            has_sizes = any(isinstance(weight, Polynomial) for weight in weights)
            payload, wire = (sum_of(*sizes) for sizes in zip(*parts, strict=True))
            return total(weights) if has_sizes else sum(weights), is_known, (payload, wire)

        # Inner conditions first: the weight of an outer branch contains only the counting branch of an inner one.
        for condition in reversed(self.kinds.conditions):
            branches = indices[condition]
            if len(branches) < 2:
                continue
            sums = {name: summed(branch) for name, branch in branches.items()}
            best = None
            with suppress(UndecidedError):  # the order depends on symbolic sizes
                best = max(sums, key=lambda name: sums[name][0])  # of equal branches the first, as in XLA
            for name, branch in branches.items():
                if name == best:
                    continue
                is_cheaper = best is not None and sums[name][1]
                sends_no_more_than_best = best is not None and sends_no_more(sums[name][2], sums[best][2])
                for equation, kind in (members[index] for index in branch):
                    if states.get(equation.id) not in (IDLE, SENDS):
                        is_idle = sends_no_more_than_best or sent(kind) == NOTHING
                        states[equation.id] = UNDECIDED if not is_cheaper else IDLE if is_idle else SENDS
        return states

    def _sent(self, index: int) -> Sent:
        figures, repeats = self.counted[index].figures, self._repeats(index)
        return repeated(figures["payload_bytes"], repeats), repeated(figures["wire_bytes"], repeats)

    def _weigh(self, index: int) -> tuple[Expression, bool]:
        figures, repeats = self.counted[index].figures, self._repeats(index)
        flops, transcendentals = figures["flops"], figures["transcendentals"]
        operations = None if flops is None or transcendentals is None else flops + transcendentals
        weight = repeated(operations, repeats)
        # If the number of runs is unknown, the cost of one run decides.
        if weight is None:
            return (figures["once"] or 0) + (transcendentals or 0), False
        return weight * self.kinds.examples[index][2], True

    def _check_names(self, path: object, field: object, role: object) -> None:
        blocks = sorted(
            {equation.block for equation, _ in self.kinds.members}
            | {argument.block for argument in self.inputs if argument.is_param}
        )
        paths, figures = ["", *with_outer(blocks)], [*COUNTED, "params"]
        roles = ["forward", "backward", "update"]
        for noun, name, names, listed in (
            ("block", path, paths, blocks),
            ("cost", field, figures, figures),
            ("role", role, [None, "", *roles], roles),
        ):
            if not isinstance(name, str | None) or name not in names:
                raise UnknownOptionError(
                    f"cannot write a formula: program {self.name!r} has no {noun} {short_repr(name)}.",
                    ((f"{noun}s", (", ".join(filter(None, listed[:20])) or "none") + ", ..." * (len(listed) > 20)),),
                )

    def _check(self, sizes: Mapping[str, int]) -> None:
        # `isinstance` would accept True, which is an int.
        wrong = {name: value for name, value in sizes.items() if type(value) is not int or value < 1}
        missing = [name for name in self.symbols if name not in sizes]
        unknown = [name for name in sizes if name not in self.symbols]
        if not (wrong or missing or unknown):
            return
        texts = ", ".join(f"{name}={value!r}" for name, value in sizes.items())
        example = ", ".join(f"{name}={number}" for name, number in self.example.items())
        raise UnknownOptionError(
            f"{texts or 'no sizes'} cannot replace the symbolic sizes of program {self.name!r}.",
            (("symbolic sizes", ", ".join(self.symbols) or "none"),),
            f"cost.at({example})" if self.symbols else "cost.total",
        )


_MOST_HOLDERS = 3
# The index of a kind of equation in `Kinds.examples`, and a state such as `COUNTS`.
_Kind = tuple[int, str]


def unknown_params(inputs: Iterable[Input]) -> tuple[str, str] | None:
    """Return why it is unknown which inputs are parameters, and example code `params=...`; `None` if it is known."""
    all_inputs = tuple(inputs)
    if all(argument.is_param is not None for argument in all_inputs):
        return None
    arguments = list(dict.fromkeys(argument.argument for argument in all_inputs))
    first = [*likely_holders(all_inputs), *arguments]
    return why_unknown(arguments), example_of_params(first, [argument.name for argument in all_inputs])


def likely_holders(inputs: Iterable[Input]) -> list[str]:
    """Return the names of the first arguments that look like parameters: containers of several float arrays."""
    counts = Counter(
        argument.argument
        for argument in inputs
        if argument.name != argument.argument and "float" in argument.spec.dtype
    )
    return [name for name, count in counts.items() if count > 1][:_MOST_HOLDERS]


def _open(polynomial: Polynomial, unknown: Sequence[str]) -> str:
    return f"{'≥ ' if unknown else ''}{polynomial}" if polynomial.names else ""


def _times(times: int, term: str) -> str:
    if times == 1 or term == "1":
        return term if times == 1 else str(times)
    return f"{times}·({term})" if " " in term else f"{times}·{term}"
