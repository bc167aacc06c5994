"""Estimated live ranges of the arrays of a jaxpr in the compiled program.

A compiled program has fewer arrays in memory than the jaxpr: elementwise operations are fused into their users, and
results overwrite operands that are not used again. The rules are estimates of XLA's decisions from the equations alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from mithril_nb.cost.formulas.sizes import nbytes
from mithril_nb.cost.memory.cpu_copies import CpuCopies
from mithril_nb.cost.memory.liveness import ARGUMENTS, CONSTANTS, OUTPUTS, TEMPORARIES, LiveRange
from mithril_nb.stages.jax_versions import CALL_NAMES
from mithril_nb.stages.records import Equation
from mithril_nb.stages.trace.dataflow import BEFORE, Value

_VIEWS = frozenset(
    "reshape squeeze expand_dims bitcast_convert_type stop_gradient sharding_constraint optimization_barrier "
    "pvary pcast copy_p mesh_cast reshard".split()
)
"""Primitives whose result is a view of the operand."""
_CHEAP = frozenset(
    "add sub mul max min neg abs sign floor ceil round square and or xor not eq ne lt le gt ge select_n clamp "
    "convert_element_type is_finite broadcast_in_dim iota slice pad rev transpose copy dynamic_slice real imag "
    "shift_left shift_right_logical shift_right_arithmetic integer_pow add_any reduce_precision concatenate".split()
)
"""Cheap primitives: XLA recomputes the result in each of its users instead of storing it."""
_TURNED = frozenset({"transpose", "rev", "sort"})
"""Primitives that move elements, so the result cannot overwrite the operand."""
_EXPENSIVE = frozenset(
    "div rem exp exp2 log log1p expm1 tanh logistic sin cos tan asin acos atan atan2 sinh cosh sqrt rsqrt cbrt pow erf "
    "erf_inv erfc lgamma digamma nextafter".split()
)
"""Expensive primitives: XLA fuses them into the user of the result if there is only one, and else stores the result."""
_ROWS = frozenset(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin dynamic_update_slice "
    "reduce_precision cumsum cumprod cummax cummin cumlogsumexp".split()
)
"""Primitives whose operands may be fused into them, but whose result is stored in memory."""
_HANDS_ON = CALL_NAMES - {"remat2", "checkpoint"}
"""Calls that do not use their operands: the equations inside the call do."""
_TAKES = _CHEAP | _EXPENSIVE | _ROWS | _VIEWS


def jaxpr_lives(
    values: Sequence[Value], equations: Sequence[Equation], is_cpu: bool = False
) -> tuple[list[LiveRange], int]:
    """Estimate the live ranges of the arrays of a program, with the copies that XLA adds on CPU if `is_cpu` is true.

    Also return the number of arrays left out because their size is unknown.
    """
    end = max(len(equations) - 1, 0)
    return _Estimate(values, equations, end, is_cpu).lives()


class _Estimate:
    def __init__(self, values: Sequence[Value], equations: Sequence[Equation], end: int, is_cpu: bool):
        self._values, self._equations, self._end = values, equations, end
        # Equal specs are mostly the same object, so their size is computed once.
        sizes = {key: nbytes(spec) for key, spec in {id(value.spec): value.spec for value in values}.items()}
        self._sizes = [sizes[id(value.spec)] for value in values]
        self._given_up = self._donated()
        self._last = [self._last_use(index) for index in range(len(values))]
        self._taken: list[list[int]] = [[] for _ in equations]
        """Indices of the values that each equation uses."""
        for number, value in enumerate(values):
            uses = value.uses
            # `x + x` uses x twice. Most values have one use, for which a set would only take time.
            for use in uses if len(uses) < 2 else set(uses):
                self._taken[use].append(number)
        self._copies = CpuCopies(values, equations, self._taken) if is_cpu else None
        for number, last in ({} if self._copies is None else self._copies.last).items():
            self._last[number] = last

    def _donated(self) -> set[int]:
        """Return the indices of the donated arguments whose memory a result reuses.

        A result reuses one argument of its shape and dtype; the result of a transpose, `rev` or `sort` reuses none.
        """
        left = Counter(
            value.spec
            for value in self._values
            if value.is_output and not (value.made != BEFORE and self._equations[value.made].primitive in _TURNED)
        )
        donated: set[int] = set()
        for index, value in enumerate(self._values):
            if value.is_donated and (value.uses or value.is_output) and left[value.spec]:
                left[value.spec] -= 1
                donated.add(index)
        return donated

    def _stays(self, index: int) -> bool:
        """Return whether a value keeps its memory to the end of the program."""
        value = self._values[index]
        return value.is_output or (value.is_argument and index not in self._given_up)

    def _last_use(self, index: int) -> int:
        value = self._values[index]
        if self._stays(index):
            return self._end
        return max(value.uses, default=max(value.made, 0))

    def lives(self) -> tuple[list[LiveRange], int]:
        stored = self._kept()
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
            if self._copies is not None:
                first = self._copies.first.get(index, first)
            if not value.is_argument and value.made == BEFORE:
                kind, first, last = CONSTANTS, 0, self._end
            else:
                kind = ARGUMENTS if value.is_argument else OUTPUTS if value.is_output else TEMPORARIES
            if last < first:  # overwritten where it is produced
                continue
            lives.append(LiveRange(value.id, kind, value.block, size, first, last))
            # Arguments and results have separate memory, so a value that is both is copied.
            copies = value.given - (not value.is_argument or index in self._given_up)
            lives += [
                LiveRange(f"{value.id}.copy{number}", OUTPUTS, value.block, size, self._end, self._end)
                for number in range(copies)
            ]
        return [*lives, *(self._copies.lives if self._copies is not None else ())], unknown

    def _kept(self) -> list[bool]:
        """Return for each value whether it has its own memory, and update the ends of live ranges.

        A value that is fused or a view has no memory: its users read the operands that it is computed from. These
        operands live until the last use of the value.
        """
        stored = [True] * len(self._values)
        absorbed = self._copies.absorbed if self._copies is not None else frozenset[int]()
        # In reverse order, so that the last use of a value is final before it extends the live ranges of operands.
        for index in range(len(self._values) - 1, -1, -1):
            value = self._values[index]
            if value.made == BEFORE or value.is_output:
                continue
            maker = self._equations[value.made]
            if value.is_in_place:
                stored[index] = False
            elif maker.primitive in _VIEWS or index in absorbed or self._is_fused(value, maker):
                stored[index] = False
                for operand in self._taken[value.made]:
                    self._last[operand] = max(self._last[operand], self._last[index])
            elif maker.primitive in _CHEAP and not maker.is_call:
                self._compute_again(index, value)
        self._write_over(stored)
        return stored

    def _compute_again(self, index: int, value: Value) -> None:
        """End the live range of a cheap value at the last user that reads it from memory.

        Later users recompute the value, so its operands live until the last use of the value.
        """
        takers = [self._equations[use].primitive for use in value.uses]
        stored = [
            use for use, primitive in zip(value.uses, takers, strict=True) if primitive not in (*_TAKES, *_HANDS_ON)
        ]
        if stored and stored[-1] < self._last[index] and self._equations[value.made].repeats == 1:
            for operand in self._taken[value.made]:
                self._last[operand] = max(self._last[operand], self._last[index])
            self._last[index] = stored[-1]

    def _is_fused(self, value: Value, maker: Equation) -> bool:
        if maker.is_call:
            return False
        is_number = bool(maker.constants) and None not in maker.constants
        if maker.primitive not in _CHEAP and maker.primitive not in _EXPENSIVE and not is_number:
            return False
        if not is_number and maker.primitive in _EXPENSIVE and len(set(value.uses)) != 1:
            return False
        takers = _TAKES | _HANDS_ON if maker.primitive in _CHEAP else _TAKES
        return all(self._equations[use].primitive in takers for use in value.uses)

    def _write_over(self, stored: list[bool]) -> None:
        """End the live range of an operand one position earlier if a result of the same size overwrites it."""
        turned = self._copies.turned if self._copies is not None else frozenset[int]()
        ending = {(self._last[index], size) for index, size in enumerate(self._sizes) if stored[index]}
        for number, value in enumerate(self._values):
            if value.made == BEFORE or not stored[number] or number in turned:
                continue
            if (value.made, self._sizes[number]) not in ending:
                continue
            maker = self._equations[value.made]
            of_branch = "" if self._is_made_by(value, maker) else f"{value.id.partition('{')[0]}.b"
            is_scatter = maker.primitive.startswith("scatter")
            if not (maker.primitive in _TAKES or maker.is_call or is_scatter or of_branch):
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

    @staticmethod
    def _is_made_by(value: Value, equation: Equation) -> bool:
        """Return whether a value is a result of `equation`, which is the equation at index `value.made`.

        It is not if the value is the result of a `cond`: `made` is then the last equation in the branches.
        """
        return value.id.partition("{")[0] == equation.id

    def _is_turned(self, value: Value) -> bool:
        """Return whether a value is a transposed array of more than two axes.

        A transposed matrix needs no computation: the product before it can write the matrix in either axis order.
        """
        return self._equations[value.made].primitive == "transpose" and len(value.spec.shape) > 2

    def _held_for(self, equation: int, size: int | None, stored: Sequence[bool]) -> Iterator[int]:
        """Yield the indices of the operands of an equation that hold memory, according to `stored`.

        A fused operand holds no memory. If it has `size` bytes, the operands that it is computed from are searched.
        """
        left = [(operand, equation) for operand in reversed(self._taken[equation])]
        seen: set[int] = set()
        while left:
            candidate, by = left.pop()
            if stored[candidate]:
                yield candidate
            elif (
                candidate not in seen
                and self._sizes[candidate] == size
                and self._values[candidate].made < by  # not a result of a `cond`, see `_is_made_by`
                and not self._is_turned(self._values[candidate])
            ):
                seen.add(candidate)
                inside = self._values[candidate].made
                left += [(inner, inside) for inner in reversed(self._taken[inside])]
