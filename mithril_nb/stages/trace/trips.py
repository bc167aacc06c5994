"""Trip count of a `while` that counts to a number, read from its jaxprs.

`jax.lax.fori_loop` creates such loops. XLA computes the same number, `known_trip_count`, when it compiles the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from mithril_nb.stages import jax_versions
from mithril_nb.stages.records import Constant

# Constants are stored as floats, which are not exact for integers from this one on.
_EXACT = 2**53
# The comparison `b ? a` that is the same as `a ? b`.
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "ne": "ne"}
_SAME_VALUE = frozenset({"convert_element_type", "copy"})


def trip_count(equation: Any, constants: Sequence[Constant]) -> int | None:
    """Return the number of iterations of a `while` or scan, or of steps of a kernel's grid; 1 for other equations.

    `constants`: The value of each operand before the program runs, as in `Equation.constants`.

    Returns:
        The number of iterations; `None` if it depends on run-time values, or if the length of a scan is symbolic.
    """
    if equation.primitive.name == "pallas_call":
        # A dynamic size of the grid is an operand. These operands come first.
        operands = iter(constants)
        grid = equation.params["grid_mapping"].grid
        sizes = [size if isinstance(size, int) else _whole(next(operands, None)) for size in grid]
        return None if None in sizes else prod(size or 0 for size in sizes)
    loop = jax_versions.while_parts(equation)
    return jax_versions.trip_count(equation) if loop is None else _CountedWhile(loop, constants).rounds()


@dataclass(frozen=True)
class _CountedWhile:
    """A `while`, and the values of its operands as in `Equation.constants`."""

    loop: jax_versions.While
    constants: Sequence[Constant]

    def rounds(self) -> int | None:
        test = _producer(self.loop.condition, self.loop.condition.outvars[0])
        if test is None or test.primitive.name not in _MIRRORED:
            return None
        left, right = (self._operand(self.loop.condition, self.loop.condition_constants, atom) for atom in test.invars)
        how = test.primitive.name
        if isinstance(right, _Carried) and not isinstance(left, _Carried):
            left, right, how = right, left, _MIRRORED[how]
        if not isinstance(left, _Carried) or right is None or isinstance(right, _Carried):
            return None
        start, step = self._start(left.index), self._step(left.index)
        if start is None or step is None:
            return None
        dtype = self.loop.condition.invars[self.loop.condition_constants + left.index].aval.dtype
        return rounds(how, start, step, right, str(dtype))

    def _operand(self, jaxpr: Any, constants: int, atom: Any) -> int | _Carried | None:
        atom = _original(jaxpr, atom)
        if jax_versions.is_literal(atom):
            return _whole(float(atom.val) if jax_versions.is_number(atom.val) else None)
        if atom not in jaxpr.invars:
            return None
        index = list(jaxpr.invars).index(atom)
        if index < constants:
            # The operands of a `while`: constants of the condition, constants of the body, carries.
            first = 0 if jaxpr is self.loop.condition else self.loop.condition_constants
            return _whole(self.constants[first + index])
        index -= constants
        inside = self.loop.body.invars[self.loop.body_constants + index]
        if self.loop.body.outvars[index] is inside:  # loop invariant
            return self._start(index)
        # Only integers: sums of floats are rounded, so the count would not be exact.
        return _Carried(index) if np.issubdtype(atom.aval.dtype, np.integer) and not atom.aval.shape else None

    def _start(self, index: int) -> int | None:
        return _whole(self.constants[self.loop.condition_constants + self.loop.body_constants + index])

    def _step(self, index: int) -> int | None:
        body = self.loop.body
        producer = _producer(body, body.outvars[index])
        if producer is None or producer.primitive.name not in ("add", "sub"):
            return None
        operands = [self._operand(body, self.loop.body_constants, atom) for atom in producer.invars]
        # `1 + i` is the same as `i + 1`.
        if producer.primitive.name == "add" and isinstance(operands[0], int):
            operands.reverse()
        first, second = operands
        if not isinstance(first, _Carried) or first.index != index or not isinstance(second, int):
            return None
        return -second if producer.primitive.name == "sub" else second


@dataclass(frozen=True)
class _Carried:
    index: int


def rounds(how: str, start: int, step: int, end: int, dtype: str = "int32") -> int | None:
    """Return the number of iterations of `while counter HOW end: counter += step`; `None` if it never ends.

    Examples:
        >>> rounds("lt", 0, 3, 7), rounds("ge", 5, -1, 0), rounds("ne", 0, 2, 6), rounds("lt", 9, 1, 7)
        (3, 6, 3, 0)
        >>> rounds("lt", 0, -1, 7), rounds("ne", 0, 2, 7), rounds("le", 0, 1, 255, "uint8")
        (None, None, None)
    """
    far, by = (start - end, -step) if how in ("gt", "ge") else (end - start, step)
    # `i <= 7` is the same as `i < 8`.
    far += how in ("le", "ge")
    if far == 0 or (far < 0 and how != "ne"):
        return 0
    if far * by <= 0 or (how == "ne" and far % by):
        return None
    count = -(-far // by)  # rounded up
    return count if np.iinfo(dtype).min <= start + step * count <= np.iinfo(dtype).max else None


def _producer(jaxpr: Any, atom: Any) -> Any:
    """Return the equation that computes a value before lossless conversions; `None` for an input or a literal."""
    atom = _original(jaxpr, atom)
    return None if jax_versions.is_literal(atom) else _maker(jaxpr, atom)


def _original(jaxpr: Any, atom: Any) -> Any:
    while not jax_versions.is_literal(atom):
        producer = _maker(jaxpr, atom)
        if producer is None or producer.primitive.name not in _SAME_VALUE:
            break
        if not np.can_cast(producer.invars[0].aval.dtype, producer.outvars[0].aval.dtype, "safe"):
            break
        atom = producer.invars[0]
    return atom


def _maker(jaxpr: Any, atom: Any) -> Any:
    return next((equation for equation in jaxpr.eqns if atom in equation.outvars), None)


def _whole(value: Constant) -> int | None:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < _EXACT
    return int(value) if is_whole and isinstance(value, float) else None
