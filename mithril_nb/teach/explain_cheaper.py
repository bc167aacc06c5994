"""What would make an equation cheaper, where algebra makes it certain: the numbers of both ways are computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from mithril_nb.inspection import Inspection
from mithril_nb.stages.records import Equation


def cheaper_ways(program: Inspection, equation: Equation, equations: Mapping[str, Equation]) -> Iterator[str]:
    """Yield cheaper ways to compute an equation and its only user; nothing if none is certain."""
    user = _only_user(program, equation, equations)
    product = _product(equation)
    if product is None or user is None or _is_result(program, equation):
        return
    (left, right), inner, sizes = product
    before = 2 * inner * prod(left) * prod(right)
    if user.primitive == "reduce_sum":
        axes: Any = user.param["axes"]
        for operand, first in ((left, 0), (right, len(left))):
            if axes and all(first <= axis < first + len(operand) for axis in axes):
                count = prod(sizes[axis] for axis in axes)
                sums = inner * prod(operand) // count * (count - 1)
                current, after = before + prod(sizes) // count * (count - 1), sums + before // count
                if after < current:
                    yield (
                        f"Only equation {user.id} uses the result: it sums over axes that come from one operand. If "
                        f"this operand is summed before the product, both need {after:,} FLOPs instead of {current:,}; "
                        "the result is the same up to rounding."
                    )
    second = _product(user)
    operands = [row.operands for row in program.stage("jaxpr").instructions if row.id == user.id]
    if second is None or not operands or operands[0].count(equation.id) != 1:
        return
    side = operands[0].index(equation.id)
    numbers: Any = user.param["dimension_numbers"]
    contracted = numbers[0][side]
    other, over = prod(second[0][1 - side]), second[1]
    for name, operand, rest, first in (("right", right, left, len(left)), ("left", left, right, 0)):
        if contracted and all(first <= axis < first + len(operand) for axis in contracted):
            free_size = prod(operand) // over
            current = before + 2 * over * prod(rest) * free_size * other
            after = 2 * over * inner * free_size * other + 2 * inner * prod(rest) * free_size * other
            if after < current:
                yield (
                    f"Its result is used only by equation {user.id}, another product. In the order that begins with "
                    f"the {name} operand and the other operand of equation {user.id}, both products need {after:,} "
                    f"FLOPs instead of {current:,}; the result is the same up to rounding."
                )


def _only_user(program: Inspection, equation: Equation, equations: Mapping[str, Equation]) -> Equation | None:
    """Return the equation of the same body that alone uses the only result of an equation, which is no result."""
    value = next((value for value in program.values if value.id == equation.id), None)
    uses = {*value.uses} if value is not None and not value.given else set[int]()
    rows = {row.id: (row.opcode, row.operands, row.attributes) for row in program.stage("jaxpr").instructions}
    # XLA computes equal equations once, so others may use the result, too.
    if len(uses) != 1 or [*rows.values()].count(rows[equation.id]) > 1:
        return None
    user = [*equations.values()][uses.pop()]
    is_near = user.id.rpartition(".")[0] == equation.id.rpartition(".")[0]
    return user if is_near and not user.is_call and user.repeats == equation.repeats else None


def _is_result(program: Inspection, equation: Equation) -> bool:
    """Return whether the program, or the body that contains the equation, also returns its result."""
    site = next(site for site in program.traced_program.sites if site.id == equation.id)
    parent = site.parent
    jaxprs = [program.traced_program.trace.closed.jaxpr] if parent is None else [body for body, _ in parent.bodies]
    return any(var is out for var in site.equation.outvars for jaxpr in jaxprs for out in jaxpr.outvars)


def _product(equation: Equation) -> tuple[tuple[Sequence[int], Sequence[int]], int, Sequence[int]] | None:
    """Return the free sizes of both operands of a product, the size of the sums, and the sizes of the result."""
    numbers: Any = equation.param.get("dimension_numbers")
    specs = (*equation.inputs, *equation.outputs)
    if equation.primitive != "dot_general" or not isinstance(numbers, tuple) or any(numbers[1]):
        return None
    # A complex product takes more FLOPs; with a size 0, there is nothing to save.
    sizes = [size for spec in specs for size in spec.shape]
    if len({spec.dtype for spec in specs}) > 1 or specs[0].dtype.startswith("complex"):
        return None
    if any(not isinstance(size, int) or not size for size in sizes):
        return None
    free = [
        [int(size) for axis, size in enumerate(spec.shape) if axis not in axes]
        for spec, axes in zip(equation.inputs, numbers[0], strict=True)
    ]
    inner = prod(int(equation.inputs[0].shape[axis]) for axis in numbers[0][0])
    return (free[0], free[1]), inner, [int(size) for size in equation.outputs[0].shape]
