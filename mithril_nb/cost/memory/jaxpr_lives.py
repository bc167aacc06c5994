"""Which arrays of a jaxpr will hold memory, from when to when: an estimate of what a compiler makes of it.

A compiler keeps less than a jaxpr has: it computes elementwise what it takes when it needs it, and writes a result over
an operand that is needed no more. The rules here are those by which XLA's fusion decides, as far as they can be told
from the equations alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from mithril_nb.cost.formulas.rules import nbytes
from mithril_nb.cost.memory.lives import ARGUMENTS, CONSTANTS, OUTPUTS, TEMPORARIES, Life
from mithril_nb.stages.records import Equation
from mithril_nb.stages.trace.dataflow import BEFORE, Value

_VIEWS = frozenset(
    "reshape squeeze expand_dims bitcast_convert_type stop_gradient sharding_constraint optimization_barrier "
    "pvary pcast copy_p mesh_cast reshard".split()
)
"""The result is the operand, read in another way."""
_CHEAP = frozenset(
    "add sub mul max min neg abs sign floor ceil round square and or xor not eq ne lt le gt ge select_n clamp "
    "convert_element_type is_finite broadcast_in_dim iota slice pad rev transpose copy dynamic_slice real imag "
    "shift_left shift_right_logical shift_right_arithmetic integer_pow add_any reduce_precision concatenate".split()
)
"""Computed anew wherever they are taken."""
_DEAR = frozenset(
    "div rem exp exp2 log log1p expm1 tanh logistic sin cos tan asin acos atan atan2 sinh cosh sqrt rsqrt cbrt pow erf "
    "erf_inv erfc lgamma digamma nextafter".split()
)
"""Computed where they are taken, if that is at one place."""
_ROWS = frozenset(
    "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or argmax argmin dynamic_update_slice "
    "reduce_precision".split()
)
"""Take what they need as it is computed; their own result is kept."""
_TAKES = _CHEAP | _DEAR | _ROWS | _VIEWS


def jaxpr_lives(values: Sequence[Value], equations: Sequence[Equation]) -> tuple[list[Life], int]:
    """Return the arrays that hold memory, and how many are left out as their size is not known.

    Args:
        values: The arrays of the program, in the order in which they are made.
        equations: Its equations.
    """
    end = max(len(equations) - 1, 0)
    return _Estimate(values, equations, end).lives()


class _Estimate:
    def __init__(self, values: Sequence[Value], equations: Sequence[Equation], end: int):
        self._values, self._equations, self._end = values, equations, end
        # Equal specs are mostly the same object: their size is worked out once.
        known = {key: nbytes(spec) for key, spec in {id(value.spec): value.spec for value in values}.items()}
        self._sizes = [known[id(value.spec)] for value in values]
        self._last = [self._last_use(value) for value in values]
        self._taken: list[list[int]] = [[] for _ in equations]
        """Which values each equation takes."""
        for place, value in enumerate(values):
            uses = value.uses
            for use in uses if len(uses) < 2 else set(uses):
                self._taken[use].append(place)

    def _last_use(self, value: Value) -> int:
        if _stays(value):
            return self._end
        return max(value.uses, default=max(value.made, 0))

    def lives(self) -> tuple[list[Life], int]:
        kept = self._kept()
        lives: list[Life] = []
        unknown = 0
        for place, value in enumerate(self._values):
            size = self._sizes[place]
            is_dropped = value.is_argument and not value.uses and not value.is_output  # as `jax.jit` does
            if not kept[place] or size == 0 or is_dropped:
                continue
            if size is None:
                unknown += 1
                continue
            first, last = max(value.made, 0), self._last[place]
            if not value.is_argument and value.made == BEFORE:
                kind, first, last = CONSTANTS, 0, self._end
            else:
                kind = ARGUMENTS if value.is_argument else OUTPUTS if value.is_output else TEMPORARIES
            if last < first:  # it is written over where it is made
                continue
            lives.append(Life(value.id, kind, value.block, size, first, last))
        return lives, unknown

    def _kept(self) -> list[bool]:
        """Whether each value gets memory of its own; what is needed of others for those that do not."""
        kept = [True] * len(self._values)
        # Last first: what takes a value that is not kept needs what that is made of.
        for place in range(len(self._values) - 1, -1, -1):
            value = self._values[place]
            if value.made == BEFORE or value.is_output:
                continue
            maker = self._equations[value.made]
            if maker.primitive in _VIEWS or self._is_fused(value, maker):
                kept[place] = False
                for taken in self._taken[value.made]:
                    self._last[taken] = max(self._last[taken], self._last[place])
        self._write_over(kept)
        return kept

    def _is_fused(self, value: Value, maker: Equation) -> bool:
        if maker.is_call:
            return False
        is_number = bool(maker.constants) and None not in maker.constants
        if maker.primitive not in _CHEAP and maker.primitive not in _DEAR and not is_number:
            return False
        if not is_number and maker.primitive in _DEAR and len(set(value.uses)) != 1:
            return False
        return all(self._equations[use].primitive in _TAKES for use in value.uses)

    def _write_over(self, kept: list[bool]) -> None:
        """Let results take the place of operands of their size that are needed no more."""
        for place, value in enumerate(self._values):
            if value.made == BEFORE or not kept[place]:
                continue
            maker = self._equations[value.made]
            if maker.primitive not in _TAKES and not maker.is_call:
                continue
            for taken in self._taken[value.made]:
                other = self._values[taken]
                if (
                    kept[taken]
                    and not _stays(other)
                    and self._last[taken] == value.made
                    and other.made < value.made
                    and self._sizes[taken] == self._sizes[place]
                ):
                    self._last[taken] = value.made - 1
                    break


def _stays(value: Value) -> bool:
    """Whether its memory is its own to the end of the program."""
    return value.is_output or (value.is_argument and not value.is_donated)
