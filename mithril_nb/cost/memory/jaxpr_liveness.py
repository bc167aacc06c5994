"""Estimated live ranges of the arrays of a jaxpr in the compiled program, and arrays that XLA adds on CPU.

A compiled program has fewer arrays in memory than the jaxpr: elementwise operations are fused into their users, and
results overwrite operands that are not used again. On CPU, XLA allocates further ones, such as copies in another axis
order or dtype. The rules are estimates of XLA's decisions from the equations alone, observed from the supported
versions of JAX; `tests/cost/test_estimates.py` checks them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from mithril_nb.cost.formulas.sizes import nbytes
from mithril_nb.cost.memory.liveness import ARGUMENTS, CONSTANTS, OUTPUTS, TEMPORARIES, LiveRange
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.jax_versions import CALL_NAMES, MULTIPLIES_NARROW
from mithril_nb.stages.records import Equation
from mithril_nb.stages.trace.dataflow import BEFORE, Value

_NARROW = ("bfloat16", "float16")
# Primitives that are computed by library calls on float32.
_PRODUCTS = ("dot_general", "conv_general_dilated")
_CUMULATIVE = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
# The length of the windows in XLA's ReduceWindowRewriter on CPU.
_WINDOW = 16
# Orders of the axes of an operand that the matrix product on CPU reads without a copy.
# `b` is a batch axis, `k` a contracted axis, `n` any other axis.
_AXES_IN_ORDER = re.compile(r"b*(k*n*|n*k*)")
_SLICE = re.compile(r"(.*)\.x(\d+)")
_MOVED = ("transpose", "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "convert_element_type")


class CpuCopies:
    """The arrays that XLA's CPU compiler adds to a program, and the live ranges that it changes.

    In the attributes, a value is its index in `values`, and a position is an index in `equations`.

    Args:
        values: The arrays of the program.
        equations: The equations of the program.
        operands: Indices of the values that each equation uses.

    Attributes:
        lives: Live ranges of the added arrays.
        turned: Values that are written in another axis order, which the matrix product that uses them needs. They do
            not overwrite an operand, because their elements move.
        absorbed: Results of transposes that are not computed, because a product reads the operand of the transpose.
        first: A dict from each value that is allocated before the equation that computes it to this earlier position.
        last: A dict from each value that is freed before its last use to this earlier position.
    """

    def __init__(self, values: Sequence[Value], equations: Sequence[Equation], operands: Sequence[Sequence[int]]):
        self._values, self._equations, self._operands = values, equations, operands
        self._positions = {equation.id: index for index, equation in enumerate(equations)}
        self._results: dict[int, list[int]] = {}
        for position, value in enumerate(values):
            self._results.setdefault(value.made, []).append(position)
        self.lives: list[LiveRange] = []
        self.turned: set[int] = set()
        self.absorbed: set[int] = set()
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self._widened: dict[str, LiveRange] = {}
        # The position of the last `reduce_window` over each spec.
        self._windows: dict[TensorSpec, int] = {}
        self._loop_ends = _ends_of_loops(equations)

    def add(self) -> None:
        """Find the added arrays and the changed live ranges; before, there are none."""
        values, equations = self._values, self._equations
        for position, equation in enumerate(equations):
            if not equation.is_used:
                continue
            if equation.primitive == "dot_general":
                self._copy_in_axis_order(position, equation)
            if _computes_wide(equation):
                self._widen(position, equation)
            if equation.primitive.startswith("reduce_window"):
                self._windows[equation.inputs[0]] = position
            if equation.primitive == "select_and_scatter_add":
                self._scatter(position, equation)
            if equation.primitive in _CUMULATIVE:
                self._copy(f"{equation.id}.windows", equation.block, _sums_of_windows(equation), position, position)
            if equation.primitive == "svd":
                self._decompose(position, equation)
        self.lives += self._widened.values()
        for position, value in enumerate(values):
            if value.made != BEFORE and equations[value.made].primitive == "convert_element_type":
                # XLA converts arguments when the program starts, not where the jaxpr does.
                if all(values[self._origin(operand)].is_argument for operand in self._operands[value.made]):
                    self.first[position] = 0
            # Users other than products need the transposed array itself.
            if any(equations[use].primitive != "dot_general" for use in value.uses):
                self.absorbed.discard(position)

    def _copy(self, id: str, block: str, size: int | None, first: int, last: int) -> None:
        self.lives.append(LiveRange(id, TEMPORARIES, block, size or 0, first, max(first, last)))

    def _scatter(self, index: int, equation: Equation) -> None:
        # If a `reduce_window` over an array of the same shape and dtype comes before, XLA computes the
        # indices with it.
        spec = equation.outputs[0]
        searched = self._windows.get(spec, index)
        self._copy(f"{equation.id}.places", equation.block, _indices(spec), 0, searched)
        self._copy(f"{equation.id}.found", equation.block, _indices(equation.inputs[0]), searched, index)
        for result in self._results.get(index, ()):  # the accumulator starts at zero
            self.first[result] = 0

    def _decompose(self, index: int, equation: Equation) -> None:
        # XLA copies the operand and the results to and from the column-major matrices of LAPACK, and allocates singular
        # vectors that are not used.
        before = max(index - 1, 0)
        *batch, rows, columns = equation.inputs[0].shape
        shortest = min(rows, columns, key=int)
        is_full = equation.param.get("full_matrices", True)
        ids = {self._values[result].id for result in self._results.get(index, ())}
        for number, shape in (
            (1, (*batch, rows, rows if is_full else shortest)),
            (2, (*batch, columns if is_full else shortest, columns)),
        ):
            size = nbytes(TensorSpec(shape, equation.inputs[0].dtype))
            last = index if f"{equation.id}{{{number}}}" in ids else before
            self._copy(f"{equation.id}.x{number}", equation.block, size, before, last)
        for operand in self._operands[index]:
            value = self._values[operand]
            if value.is_argument or value.is_output or max(value.uses) > index:
                # LAPACK overwrites a copy of the operand. The copy is freed before the results are copied to row-major
                # order, so it does not count at the position of the `svd`.
                is_apart = index > 0 or len(ids) == 1
                self._copy(
                    f"{equation.id}.columns", equation.block, nbytes(value.spec) if is_apart else 0, before, before
                )
            elif value.made < before:
                self.last[operand] = before

    def _copy_in_axis_order(self, index: int, equation: Equation) -> None:
        # The matrix product on CPU needs a copy of an operand whose axes are not in an order of `_AXES_IN_ORDER`.
        params: Any = equation.param["dimension_numbers"]
        if _computes_wide(equation) and any(spec.dtype in _NARROW for spec in equation.inputs):
            return  # operands are copied to float32 anyway
        for number, (spec, inner, batch) in enumerate(zip(equation.inputs, params[0], params[1], strict=True)):
            kinds = ["b" if axis in batch else "k" if axis in inner else "n" for axis in range(len(spec.shape))]
            # Values do not record which operand they are, so an operand is identified by its spec.
            operands = [operand for operand in self._operands[index] if self._values[operand].spec == spec]
            by_transpose = [operand for operand in operands if self._producer(operand) == "transpose"]
            if by_transpose:
                self._absorb_transpose(by_transpose[0], kinds)
                continue
            if _is_in_order(kinds, spec.shape):
                continue
            results = [operand for operand in operands if self._producer(operand) not in ("", *_PRODUCTS)]
            if results:
                self.turned.update(results)
            else:
                self._copy(f"{equation.id}.x{number}", equation.block, nbytes(spec), index, index)

    def _absorb_transpose(self, index: int, kinds: Sequence[str]) -> None:
        # The product may read the operand of the transpose directly. `kinds` has a letter for each axis of
        # its result.
        transpose = self._equations[self._values[index].made]
        order: Any = transpose.param["permutation"]
        before = [""] * len(kinds)
        for kind, axis in zip(kinds, order, strict=True):
            before[axis] = kind
        if _is_in_order(before, transpose.inputs[0].shape):
            self.absorbed.add(index)

    def _producer(self, index: int) -> str:
        producer = self._values[index].made
        return "" if producer == BEFORE else self._equations[producer].primitive

    def _widen(self, index: int, equation: Equation) -> None:
        # Arguments are converted when the program starts. An array is also converted then, as a whole, if a
        # `scan` uses one slice of it in each iteration.
        for operand in self._operands[index]:
            if self._values[operand].spec.dtype not in _NARROW:
                continue
            value = self._values[self._origin(operand)]
            size = nbytes(value.spec) or 0
            is_slice = _SLICE.fullmatch(value.id) if value.made != BEFORE else None
            if is_slice is not None and is_slice[1] in self._positions:
                loop = self._positions[is_slice[1]]
                spec = self._equations[loop].inputs[int(is_slice[2])]
                taken_by_loop = (self._values[operand] for operand in self._operands[loop])
                is_given = any(value_.is_argument and value_.spec == spec for value_ in taken_by_loop)
                size = (nbytes(spec) or 0) * (1 if is_given else 1.5)
            if value.is_argument or is_slice is not None:
                id = f"{value.id}.float32"
                self._widened[id] = LiveRange(id, TEMPORARIES, value.block, int(2 * size), 0, self._loop_ends[index])
            else:
                is_shared = len(set(value.uses)) > 1
                first = index if is_shared else max(value.made, 0)  # if not shared, it is computed only in float32
                self._copy(f"{value.id}.float32", value.block, int(size * (1 + is_shared)), first, index)
        results = self._results.get(index, ()) if equation.outputs[0].dtype in _NARROW else ()
        for value in (self._values[result] for result in results):
            if not value.uses or not all(_computes_wide(self._equations[use]) for use in value.uses):
                last = max(value.uses, default=index) - 1  # its user overwrites it
                self._copy(f"{value.id}.float32", value.block, nbytes(value.spec), index, last)

    def _origin(self, index: int) -> int:
        value = self._values[index]
        while value.made != BEFORE and self._equations[value.made].primitive in _MOVED and self._operands[value.made]:
            index = self._operands[value.made][0]
            if self._values[index].made >= value.made:  # for the result of a `cond`, `made` is its last equation
                break
            value = self._values[index]
        return index


def _sums_of_windows(equation: Equation) -> int | None:
    # XLA's ReduceWindowRewriter first computes the sums of windows of 16 elements, then the sums of 16 of these
    # sums, and so on. An axis whose length is not a multiple of 16 is copied with padding.
    spec, axis = equation.outputs[0], int(str(equation.param["axis"]))
    size, length = nbytes(spec), int(spec.shape[axis])
    if size is None or length <= _WINDOW:
        return 0
    return size // length * _items_of_windows(length)


def _items_of_windows(length: int) -> int:
    if length <= _WINDOW:
        return length + 1
    windows = -(-length // _WINDOW)
    sums = _WINDOW * windows
    return sums + max(sums if length % _WINDOW else 0, _items_of_windows(windows))


def _indices(spec: TensorSpec) -> int | None:
    return nbytes(TensorSpec((len(spec.shape), *spec.shape), "int32"))


def _ends_of_loops(equations: Sequence[Equation]) -> list[int]:
    # The position of the last equation in the outermost loop around each equation; outside loops its own position.
    ends = list(range(len(equations)))
    loop, start = "", 0
    for index, equation in enumerate(equations):
        if loop and not equation.id.startswith(f"{loop}."):
            ends[start:index] = [index - 1] * (index - start)
            loop = ""
        if not loop and equation.primitive in ("scan", "while"):
            loop, start = equation.id, index
    if loop:
        ends[start:] = [len(equations) - 1] * (len(equations) - start)
    return ends


def _is_in_order(kinds: Sequence[str], shape: Sequence[Any]) -> bool:
    return bool(_AXES_IN_ORDER.fullmatch("".join(kind for kind, size in zip(kinds, shape, strict=True) if size != 1)))


def _computes_wide(equation: Equation) -> bool:
    if equation.primitive == "dot_general" and MULTIPLIES_NARROW:
        return any(spec.dtype not in _NARROW for spec in equation.inputs)
    return equation.primitive in _PRODUCTS or equation.primitive.startswith("reduce_window")


# Primitives whose result is a view of the operand.
_VIEWS = frozenset(
    "reshape squeeze expand_dims bitcast_convert_type stop_gradient sharding_constraint optimization_barrier "
    "pvary pcast copy_p mesh_cast reshard".split()
)
# Cheap primitives: XLA recomputes the result in each of its users instead of storing it.
_CHEAP = frozenset(
    "add sub mul max min neg abs sign floor ceil round square and or xor not eq ne lt le gt ge select_n clamp "
    "convert_element_type is_finite broadcast_in_dim iota slice pad rev transpose copy dynamic_slice real imag "
    "shift_left shift_right_logical shift_right_arithmetic integer_pow add_any reduce_precision concatenate".split()
)
# Primitives that move elements, so the result cannot overwrite the operand.
_REORDERING = frozenset({"transpose", "rev", "sort"})
# Expensive primitives: XLA fuses them into the user of the result if there is only one, and else stores the result.
_EXPENSIVE = frozenset(
    "div rem exp exp2 log log1p expm1 tanh logistic sin cos tan asin acos atan atan2 sinh cosh sqrt rsqrt cbrt pow erf "
    "erf_inv erfc lgamma digamma nextafter".split()
)
# Primitives whose operands may be fused into them, but whose result is stored in memory.
_ROWS = frozenset(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin dynamic_update_slice "
    "reduce_precision cumsum cumprod cummax cummin cumlogsumexp".split()
)
# Calls that do not use their operands: the equations inside the call do.
_PASSING_ON = CALL_NAMES - {"remat2", "checkpoint"}
_FUSING = _CHEAP | _EXPENSIVE | _ROWS | _VIEWS


def jaxpr_lives(
    values: Sequence[Value], equations: Sequence[Equation], is_cpu: bool = False
) -> tuple[list[LiveRange], int]:
    """Estimate the live ranges of the arrays of a program, with the copies that XLA adds on CPU if `is_cpu` is true.

    Also return the number of arrays left out because their size is unknown.
    """
    return _Estimate(values, equations, is_cpu).lives()


class _Estimate:
    def __init__(self, values: Sequence[Value], equations: Sequence[Equation], is_cpu: bool):
        self._values, self._equations, self._end = values, equations, max(len(equations) - 1, 0)
        # Equal specs are mostly the same object, so their size is computed once.
        sizes = {key: nbytes(spec) for key, spec in {id(value.spec): value.spec for value in values}.items()}
        self._sizes = [sizes[id(value.spec)] for value in values]
        self._reused = self._donated()
        self._last = [
            self._end if self._stays(index) else max(value.uses, default=max(value.made, 0))
            for index, value in enumerate(values)
        ]
        # Indices of the values that each equation uses.
        self._operands: list[list[int]] = [[] for _ in equations]
        for number, value in enumerate(values):
            uses = value.uses
            # `x + x` uses x twice. Most values have one use, for which a set would only take time.
            for use in uses if len(uses) < 2 else set(uses):
                self._operands[use].append(number)
        self._copies = CpuCopies(values, equations, self._operands)
        if is_cpu:
            self._copies.add()
        for number, last in self._copies.last.items():
            self._last[number] = last

    def _donated(self) -> set[int]:
        # A result reuses one argument of its shape and dtype; the result of a transpose, `rev` or `sort`
        # reuses none.
        left = Counter(
            value.spec
            for value in self._values
            if value.is_output and not (value.made != BEFORE and self._equations[value.made].primitive in _REORDERING)
        )
        donated: set[int] = set()
        for index, value in enumerate(self._values):
            if value.is_donated and (value.uses or value.is_output) and left[value.spec]:
                left[value.spec] -= 1
                donated.add(index)
        return donated

    def _stays(self, index: int) -> bool:
        value = self._values[index]
        return value.is_output or (value.is_argument and index not in self._reused)

    def lives(self) -> tuple[list[LiveRange], int]:
        stored = self._stored()
        lives: list[LiveRange] = []
        unknown = 0
        for index, value in enumerate(self._values):
            size = self._sizes[index]
            is_dropped = value.is_argument and not value.uses and not value.is_output  # as `jax.jit` does
            if not stored[index] or size == 0 or is_dropped:
                continue
            if size is None:
                unknown += 1
                continue
            first, last = max(value.made, 0), self._last[index]
            first = self._copies.first.get(index, first)
            if not value.is_argument and value.made == BEFORE:
                kind, first, last = CONSTANTS, 0, self._end
            else:
                kind = ARGUMENTS if value.is_argument else OUTPUTS if value.is_output else TEMPORARIES
            if last < first:  # overwritten where it is produced
                continue
            lives.append(LiveRange(value.id, kind, value.block, size, first, last))
            # Arguments and results have separate memory, so a value that is both is copied.
            copies = value.given - (not value.is_argument or index in self._reused)
            lives += [
                LiveRange(f"{value.id}.copy{number}", OUTPUTS, value.block, size, self._end, self._end)
                for number in range(copies)
            ]
        return [*lives, *self._copies.lives], unknown

    def _stored(self) -> list[bool]:
        # A value that is fused or a view has no memory: its users read the operands that it is computed from.
        # These operands live until the last use of the value.
        stored = [True] * len(self._values)
        # In reverse order, so that the last use of a value is final before it extends the live ranges of operands.
        for index in range(len(self._values) - 1, -1, -1):
            value = self._values[index]
            if value.made == BEFORE or value.is_output:
                continue
            producer = self._equations[value.made]
            if value.is_in_place:
                stored[index] = False
            elif producer.primitive in _VIEWS or index in self._copies.absorbed or self._is_fused(value, producer):
                stored[index] = False
                for operand in self._operands[value.made]:
                    self._last[operand] = max(self._last[operand], self._last[index])
            elif producer.primitive in _CHEAP and not producer.is_call:
                self._compute_again(index, value)
        self._write_over(stored)
        return stored

    def _compute_again(self, index: int, value: Value) -> None:
        # Later users recompute the value, so its operands live until the last use of the value.
        takers = [self._equations[use].primitive for use in value.uses]
        stored = [
            use for use, primitive in zip(value.uses, takers, strict=True) if primitive not in (*_FUSING, *_PASSING_ON)
        ]
        if stored and stored[-1] < self._last[index] and self._equations[value.made].repeats == 1:
            for operand in self._operands[value.made]:
                self._last[operand] = max(self._last[operand], self._last[index])
            self._last[index] = stored[-1]

    def _is_fused(self, value: Value, producer: Equation) -> bool:
        if producer.is_call:
            return False
        is_number = bool(producer.constants) and None not in producer.constants
        if producer.primitive not in _CHEAP and producer.primitive not in _EXPENSIVE and not is_number:
            return False
        if not is_number and producer.primitive in _EXPENSIVE and len(set(value.uses)) != 1:
            return False
        takers = _FUSING | _PASSING_ON if producer.primitive in _CHEAP else _FUSING
        return all(self._equations[use].primitive in takers for use in value.uses)

    def _write_over(self, stored: list[bool]) -> None:
        ending = {(self._last[index], size) for index, size in enumerate(self._sizes) if stored[index]}
        for number, value in enumerate(self._values):
            if value.made == BEFORE or not stored[number] or number in self._copies.turned:
                continue
            if (value.made, self._sizes[number]) not in ending:
                continue
            producer = self._equations[value.made]
            # `made` of the result of a `cond` is the last equation in the branches, not the `cond`.
            made_by = value.id.partition("{")[0]
            of_branch = "" if made_by == producer.id else f"{made_by}.b"
            is_scatter = producer.primitive.startswith("scatter")
            if not (producer.primitive in _FUSING or producer.is_call or is_scatter or of_branch):
                continue
            for operand in self._held_for(value.made, self._sizes[number], stored):
                other = self._values[operand]
                if (
                    not self._stays(operand)
                    and self._last[operand] == value.made
                    and (other.made < value.made or (of_branch and other.id.startswith(of_branch)))
                    and self._sizes[operand] == self._sizes[number]
                ):
                    self._last[operand] = value.made - 1
                    break

    def _held_for(self, equation: int, size: int | None, stored: Sequence[bool]) -> Iterator[int]:
        # A fused operand holds no memory. If it has `size` bytes, the operands that it is computed from are
        # searched.
        left = [(operand, equation) for operand in reversed(self._operands[equation])]
        seen: set[int] = set()
        while left:
            candidate, by = left.pop()
            if stored[candidate]:
                yield candidate
            elif (
                candidate not in seen
                and self._sizes[candidate] == size
                and self._values[candidate].made < by  # not a result of a `cond`, see `_write_over`
                # A transposed matrix needs no computation: the product before it can write it in either axis order.
                and not (
                    self._equations[self._values[candidate].made].primitive == "transpose"
                    and len(self._values[candidate].spec.shape) > 2
                )
            ):
                seen.add(candidate)
                inside = self._values[candidate].made
                left += [(inner, inside) for inner in reversed(self._operands[inside])]
