"""Arrays that are not in the jaxpr, but that XLA allocates on CPU, such as copies in another axis order or dtype.

The rules are observed from the supported versions of JAX; `tests/cost/test_estimates.py` checks them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mithril_nb.cost.formulas.sizes import nbytes
from mithril_nb.cost.memory.liveness import TEMPORARIES, LiveRange
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.jax_versions import MULTIPLIES_NARROW
from mithril_nb.stages.records import Equation
from mithril_nb.stages.trace.dataflow import BEFORE, Value

_NARROW = ("bfloat16", "float16")
_PRODUCTS = ("dot_general", "conv_general_dilated")
"""Primitives that are computed by library calls on float32."""
_CUMULATIVE = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
# The length of the windows in XLA's ReduceWindowRewriter on CPU.
_WINDOW = 16
_AXES_IN_ORDER = re.compile(r"b*(k*n*|n*k*)")
"""Orders of the axes of an operand that the matrix product on CPU reads without a copy.

`b` is a batch axis, `k` a contracted axis, `n` any other axis.
"""
_SLICE = re.compile(r"(.*)\.x(\d+)")
_MOVED = ("transpose", "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "convert_element_type")


class CpuCopies:
    """The arrays that XLA's CPU compiler adds to a program, and the live ranges that it changes.

    In the attributes, a value is its index in `values`, and a position is an index in `equations`.

    Args:
        values: The arrays of the program.
        equations: The equations of the program.
        taken: Indices of the values that each equation uses.

    Attributes:
        lives: Live ranges of the added arrays.
        turned: Values that are written in another axis order, which the matrix product that uses them needs. They do
            not overwrite an operand, because their elements move.
        absorbed: Results of transposes that are not computed, because a product reads the operand of the transpose.
        first: A dict from each value that is allocated before the equation that computes it to this earlier position.
        last: A dict from each value that is freed before its last use to this earlier position.
    """

    def __init__(self, values: Sequence[Value], equations: Sequence[Equation], operands: Sequence[Sequence[int]]):
        self._values, self._equations, self._taken = values, equations, operands
        self._places = {equation.id: index for index, equation in enumerate(equations)}
        self._made: dict[int, list[int]] = {}
        for position, value in enumerate(values):
            self._made.setdefault(value.made, []).append(position)
        self.lives: list[LiveRange] = []
        self.turned: set[int] = set()
        self.absorbed: set[int] = set()
        self.first: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self._widened: dict[str, LiveRange] = {}
        self._windows: dict[TensorSpec, int] = {}
        """The position of the last `reduce_window` over each spec."""
        self._loop_ends = _ends_of_loops(equations)
        for position, equation in enumerate(equations):
            if not equation.is_used:
                continue
            if equation.primitive == "dot_general":
                self._turn(position, equation)
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
                if all(values[self._behind(operand)].is_argument for operand in operands[value.made]):
                    self.first[position] = 0
            # Users other than products need the transposed array itself.
            if any(equations[use].primitive != "dot_general" for use in value.uses):
                self.absorbed.discard(position)

    def _copy(self, id: str, block: str, size: int | None, first: int, last: int) -> LiveRange:
        life = LiveRange(id, TEMPORARIES, block, size or 0, first, max(first, last))
        self.lives.append(life)
        return life

    def _scatter(self, index: int, equation: Equation) -> None:
        """Add the two arrays of indices that XLA needs for a `select_and_scatter_add`, which becomes a scatter.

        If a `reduce_window` over an array of the same shape and dtype comes before, XLA computes the indices with it.
        """
        spec = equation.outputs[0]
        searched = self._windows.get(spec, index)
        self._copy(f"{equation.id}.places", equation.block, _indices(spec), 0, searched)
        self._copy(f"{equation.id}.found", equation.block, _indices(equation.inputs[0]), searched, index)
        for result in self._made.get(index, ()):  # the accumulator starts at zero
            self.first[result] = 0

    def _decompose(self, index: int, equation: Equation) -> None:
        """Add the copies for an `svd`: the column-major matrices of LAPACK, and singular vectors that are not used."""
        before = max(index - 1, 0)
        *batch, rows, columns = equation.inputs[0].shape
        shortest = min(rows, columns, key=int)
        is_full = equation.param.get("full_matrices", True)
        ids = {self._values[index].id for index in self._made.get(index, ())}
        for number, shape in (
            (1, (*batch, rows, rows if is_full else shortest)),
            (2, (*batch, columns if is_full else shortest, columns)),
        ):
            size = nbytes(TensorSpec(shape, equation.inputs[0].dtype))
            last = index if f"{equation.id}{{{number}}}" in ids else before
            self._copy(f"{equation.id}.x{number}", equation.block, size, before, last)
        for operand in self._taken[index]:
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

    def _turn(self, index: int, equation: Equation) -> None:
        """Add a copy of each operand of a product whose axes are not in an order that `_AXES_IN_ORDER` matches."""
        params: Any = equation.param["dimension_numbers"]
        if _computes_wide(equation) and any(spec.dtype in _NARROW for spec in equation.inputs):
            return  # operands are copied to float32 anyway
        for number, (spec, inner, batch) in enumerate(zip(equation.inputs, params[0], params[1], strict=True)):
            kinds = ["b" if axis in batch else "k" if axis in inner else "n" for axis in range(len(spec.shape))]
            # Values do not record which operand they are, so an operand is identified by its spec.
            operands = [index for index in self._taken[index] if self._values[index].spec == spec]
            by_transpose = [index for index in operands if self._maker(index) == "transpose"]
            if by_transpose:
                self._absorb(by_transpose[0], kinds)
                continue
            if _is_in_order(kinds, spec.shape):
                continue
            results = [index for index in operands if self._maker(index) not in ("", *_PRODUCTS)]
            if results:
                self.turned.update(results)
            else:
                self._copy(f"{equation.id}.x{number}", equation.block, nbytes(spec), index, index)

    def _absorb(self, index: int, kinds: Sequence[str]) -> None:
        """Mark the result of a transpose as absorbed if the product can read the operand of the transpose directly.

        Args:
            index: Index of the result of the transpose.
            kinds: A letter for each axis of this result: `"b"` for a batch axis, `"k"` for a contracted axis, `"n"` for
                any other axis.
        """
        transpose = self._equations[self._values[index].made]
        order: Any = transpose.param["permutation"]
        before = [""] * len(kinds)
        for kind, axis in zip(kinds, order, strict=True):
            before[axis] = kind
        if _is_in_order(before, transpose.inputs[0].shape):
            self.absorbed.add(index)

    def _maker(self, index: int) -> str:
        maker = self._values[index].made
        return "" if maker == BEFORE else self._equations[maker].primitive

    def _widen(self, index: int, equation: Equation) -> None:
        """Add the float32 copies of the 16-bit operands and results of an equation that computes in float32.

        Arguments are converted when the program starts. An array is also converted then, as a whole,
        if a `scan` uses one slice of it in each iteration.
        """
        for operand in self._taken[index]:
            if self._values[operand].spec.dtype not in _NARROW:
                continue
            value = self._values[self._behind(operand)]
            size = nbytes(value.spec) or 0
            is_slice = _SLICE.fullmatch(value.id) if value.made != BEFORE else None
            if is_slice is not None and is_slice[1] in self._places:
                loop = self._places[is_slice[1]]
                spec = self._equations[loop].inputs[int(is_slice[2])]
                taken_by_loop = (self._values[index] for index in self._taken[loop])
                is_given = any(value_.is_argument and value_.spec == spec for value_ in taken_by_loop)
                size = (nbytes(spec) or 0) * (1 if is_given else 1.5)
            if value.is_argument or is_slice is not None:
                id = f"{value.id}.float32"
                self._widened[id] = LiveRange(id, TEMPORARIES, value.block, int(2 * size), 0, self._loop_ends[index])
            else:
                is_shared = len(set(value.uses)) > 1
                first = index if is_shared else max(value.made, 0)  # if not shared, it is computed only in float32
                self._copy(f"{value.id}.float32", value.block, int(size * (1 + is_shared)), first, index)
        results = self._made.get(index, ()) if equation.outputs[0].dtype in _NARROW else ()
        for value in (self._values[index] for index in results):
            if not value.uses or not all(_computes_wide(self._equations[use]) for use in value.uses):
                last = max(value.uses, default=index) - 1  # its user overwrites it
                self._copy(f"{value.id}.float32", value.block, nbytes(value.spec), index, last)

    def _behind(self, index: int) -> int:
        """Return the index of the value that this value is a moved or converted copy of; `index` if it is no copy."""
        value = self._values[index]
        while value.made != BEFORE and self._equations[value.made].primitive in _MOVED and self._taken[value.made]:
            index = self._taken[value.made][0]
            if self._values[index].made >= value.made:  # for the result of a `cond`, `made` is its last equation
                break
            value = self._values[index]
        return index


def _sums_of_windows(equation: Equation) -> int | None:
    """Return the bytes of the temporary arrays of a cumulative operation such as `cumsum`.

    XLA's ReduceWindowRewriter first computes the sums of windows of 16 elements, then the sums of 16 of these sums, and
    so on. An axis whose length is not a multiple of 16 is copied with padding.
    """
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
    """Return the bytes of the indices of all elements of an array: an int32 for each element and axis."""
    return nbytes(TensorSpec((len(spec.shape), *spec.shape), "int32"))


def _ends_of_loops(equations: Sequence[Equation]) -> list[int]:
    """Return, for each equation, the position of the last equation in the outermost loop around it.

    For an equation outside loops, this is its own position.
    """
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
    """Return whether XLA computes an equation with 16-bit operands from float32 copies in memory."""
    if equation.primitive == "dot_general" and MULTIPLIES_NARROW:
        return any(spec.dtype not in _NARROW for spec in equation.inputs)
    return equation.primitive in _PRODUCTS or equation.primitive.startswith("reduce_window")
