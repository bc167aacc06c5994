"""The context and the registry of the rules of GGML, and its sizes of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mithril_nb.emission.program import Number, Operand, Statement
from mithril_nb.emission.python_text import PythonEmitter
from mithril_nb.emission.rules import Rules

MOST_AXES = 4
"""A GGML tensor has at most four axes."""
MOST_PLACES = 2**24
"""Positions in an array are computed in float32, which represents every integer up to this one."""


class GgmlContext(PythonEmitter):
    """The context of the rules, which return the expression of a primitive."""

    backend = "ggml"

    def call(self, name: str, *arguments: object) -> str:
        """Return a call of GGML: `ggml.ggml_add(ctx, x, y)`."""
        return f"ggml.ggml_{name}({', '.join(map(str, ('ctx', *arguments)))})"

    def helper(self, name: str, *arguments: object) -> str:
        self.helpers.add(name)
        return f"{name}({', '.join(map(str, ('ctx', *arguments)))})"

    def number(self, number: Number) -> str:
        value = number.value
        if isinstance(value, float) and not math.isfinite(value):  # their repr is no Python
            return "math.nan" if value != value else f"{'-' if value < 0 else ''}math.inf"
        return str(int(value)) if isinstance(value, bool) else number.text

    def array(self, operand: Operand) -> str:
        """Return the expression of an operand. A number becomes a tensor with one item."""
        return self.helper("full", self.number(operand)) if isinstance(operand, Number) else operand.name

    def shaped(self, operand: Operand, shape: Sequence[int]) -> str:
        if isinstance(operand, Number):
            return self.helper("full", self.number(operand), *shape)
        return operand.name if ne(operand.shape) == ne(shape) else self.call("repeat_4d", operand.name, *ne(shape))

    def all_shaped(self, op: Statement) -> list[str]:
        return [self.shaped(operand, op.shape) for operand in op.inputs]

    def reshaped(self, text: str, old: Sequence[int], new: Sequence[int]) -> str:
        """Return the expression that reshapes a tensor `text` from shape `old` to shape `new`."""
        if ne(old) == ne(new):
            return text
        rank = min(max(len(new), 1), MOST_AXES)  # a number is a tensor with one axis
        return self.call(f"reshape_{rank}d", text, *ne(new)[:rank])

    def permuted(self, text: str, order: Sequence[int]) -> str:
        """Return the expression of a contiguous tensor whose axis i is axis `order[i]` of the tensor `text`."""
        rank = len(order)
        if list(order) == list(range(rank)):
            return text
        if list(order) == [*range(rank - 2), rank - 1, rank - 2]:  # GGML transposes two axes only
            return self.helper("transposed", text)
        return self.helper("permuted", text, *order)

    def transposed(self, op: Statement, order: Sequence[int]) -> str:
        """Return the expression of a statement's first operand with its axes in another order.

        If the operand has more than four axes, axes that stay neighbours are merged.
        """
        text, shape = self.array(op.operand), op.operand.shape
        if len(shape) <= MOST_AXES:
            return self.permuted(text, order)
        long = [axis for axis, size in enumerate(shape) if size > 1]
        runs: list[list[int]] = []
        for axis in order:
            if shape[axis] == 1:
                continue
            if runs and long.index(axis) == long.index(runs[-1][-1]) + 1:
                runs[-1].append(axis)
            else:
                runs.append([axis])
        if len(runs) > MOST_AXES:
            raise self.unsupported(f"a transpose of {len(shape)} axes; GGML has {MOST_AXES}")
        old = sorted(runs)
        text = self.reshaped(text, shape, [math.prod(shape[axis] for axis in run) for run in old])
        text = self.permuted(text, [old.index(run) for run in runs])
        merged = [math.prod(shape[axis] for axis in run) for run in runs]
        return self.reshaped(text, merged, [shape[axis] for axis in order])


RULES: Rules[GgmlContext, str] = Rules()
"""The rule of each primitive, except control flow."""
rule = RULES.rule


def ne(shape: Sequence[int]) -> tuple[int, ...]:
    """Return GGML's four sizes for a shape, the last axis first. Axes before the last three are merged to one.

    Examples:
        >>> ne((5, 8)), ne(()), ne((2, 3, 4, 5, 6))
        ((8, 5, 1, 1), (1, 1, 1, 1), (6, 5, 4, 6))
    """
    four = (*(1,) * (MOST_AXES - len(shape)), *map(int, shape))
    return (four[-1], four[-2], four[-3], math.prod(four[:-3]))


def broadcasts(shape: Sequence[int], output: Sequence[int]) -> bool:
    """Return whether GGML can broadcast a shape to `output`. GGML merges the axes before the last three to one."""
    first = (*(1,) * (len(output) - len(shape)), *shape)[:-3]
    return len(output) <= MOST_AXES or math.prod(first) == 1 or first == tuple(output[:-3])


def dim(operand: Operand, axis: int) -> int:
    """Return GGML's number of an axis. GGML counts from the end: the last axis is dimension 0."""
    return len(operand.shape) - 1 - int(axis)


def check_indices(to: GgmlContext, count: int) -> None:
    if count > MOST_PLACES:
        raise to.unsupported(f"an array with {count} items: GGML's float32 indices are exact up to {MOST_PLACES}")
