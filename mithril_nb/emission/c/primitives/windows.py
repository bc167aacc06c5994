"""Pooling and its gradients in C."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext

from mithril_nb.emission.c.primitives.shapes import COMBINERS, combined
from mithril_nb.emission.c.types import C_TYPES, divided, is_number, literal, scaled, total
from mithril_nb.emission.c.writing import CBody, Index, rule
from mithril_nb.emission.params import neutral, windows_of
from mithril_nb.emission.program import POOLS, Operand, Statement

rule(*POOLS)(lambda to, op: _pool(to, op, POOLS[op.primitive], ""))


@rule("reduce_window")
def reduce_window(to: CBody, op: Statement) -> None:
    if len(op.inputs) != 2:  # the function combines one item of each array
        raise to.unsupported("windows of several arrays")
    _pool(to, op, to.combiner(op, COMBINERS), to.item(op.inputs[1], ()))


def _pool(to: CBody, op: Statement, name: str, start: str) -> None:
    form, dtype = to.reserve(op.output), op.dtype
    with to.loops(op.shape) as outer:
        local = to.new_name("window_item")
        to.add(f"{C_TYPES[dtype]} {local} = {start or literal(neutral(name, dtype), dtype)};")

        def write(index: Index) -> None:
            to.add(combined(to, name, dtype, local, to.item(op.operand, index)))

        _over_window(to, op, op.operand, op.output, outer, write)
        to.add(f"{form.item(outer)} = {local};")


@rule("select_and_scatter_add")
def unpool(to: CBody, op: Statement) -> None:
    source, form = op.operand, to.reserve(op.output)
    to.fill(form, literal(0, op.dtype))
    with to.loops(source.shape) as outer:
        position = _best_position(to, op, source, outer)
        text = to.item(source, outer)
        to.add(f"if ({position[0]} >= 0)")
        to.add(f"    {form.item(position)} += {text};")


@rule("select_and_gather_add")
def pool_of_other(to: CBody, op: Statement) -> None:
    form = to.reserve(op.output)
    with to.loops(op.shape) as outer:
        position = _best_position(to, op, op.output, outer)
        text = to.item(op.operand, position)
        # The tangent of a pooling may be a constant, which reads no index, and compilers warn about unused variables.
        for name in position[1:]:
            if not re.search(rf"\b{name}\b", text):
                to.add(f"(void){name};")
        to.add(f"{form.item(outer)} = {position[0]} < 0 ? {literal(0, op.dtype)} : {text};")


def _best_position(to: CBody, op: Statement, windows: Operand, outer: Index) -> Index:
    # The index is -1 if all items of the window are outside of the array.
    operand, sign = op.inputs[1], {"max": ">=", "min": "<="}[to.selected(op)]
    best = to.new_name("best")
    names = tuple([to.new_name(f"place_{axis}") for axis in range(len(outer))])
    to.add(f"{C_TYPES[operand.dtype]} {best} = 0;")
    to.add(f"int {', '.join(f'{name} = -1' for name in names)};")

    def write(index: Index) -> None:
        text = to.item(operand, index)
        with to.block(f"if ({names[0]} < 0 || !({best} {sign} {text}))"):  # negated, so that NaN wins, as in XLA
            to.add(f"{best} = {text};")
            for name, value in zip(names, index, strict=True):
                to.add(f"{name} = {value};")

    _over_window(to, op, operand, windows, outer, write)
    return names


def _over_window(
    to: CBody, op: Statement, array: Operand, windows: Operand, outer: Index, write: Callable[[Index], None]
) -> None:
    params = windows_of(op)
    with to.loops(params.sizes) as inner:
        index: list[str] = []
        tests: list[str] = []
        for axis, size in enumerate(array.shape):
            (low, _), stride = params.padding[axis], params.strides[axis]
            dilation, between = params.dilation[axis], params.base_dilation[axis]
            # Tests are written only for what the shapes do not exclude.
            text = total(scaled(outer[axis], stride), scaled(inner[axis], dilation, -low))
            steps = 0 if outer[axis] == "0" else windows.shape[axis] - 1
            largest = steps * stride + (params.sizes[axis] - 1) * dilation - low
            span = (size - 1) * between + 1
            if not text.isidentifier() and not is_number(text) and (low or largest >= span or between > 1):
                name = to.new_name("at")
                to.add(f"const int {name} = {text};")
                text = name
            if low > 0:
                tests.append(f"{text} >= 0")
            if largest >= span:
                tests.append(f"{text} < {span}")
            if between > 1:
                tests.append(f"{text} % {between} == 0")
                text = divided(text, between)
            index.append(text)
        with to.block(f"if ({' && '.join(tests)})") if tests else nullcontext():
            write(tuple(index))
