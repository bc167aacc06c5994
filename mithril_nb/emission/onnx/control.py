"""Control flow in ONNX: a `while` is a loop, a `scan` is unrolled, and every branch of a condition is computed."""

from __future__ import annotations

import numpy as np

from mithril_nb.emission.onnx.elementwise import select
from mithril_nb.emission.onnx.graph import Body, Graph, rule
from mithril_nb.emission.onnx.shapes import stacked
from mithril_nb.emission.program import Function, Statement, Value

_LONGEST = 4096
"""Most steps of a loop that is unrolled."""


@rule("scan")
def _scan(to: Graph, one: Statement) -> list[str]:
    (body,), count, length = one.bodies, one.params["num_carry"], int(one.params["length"])
    if length > _LONGEST:
        raise to.unsupported(one, f"loops of more than {_LONGEST} steps: this one has {length}")
    carry = [to.tensor(each) for each in one.inputs[:count]]
    arrays = [to.tensor(each) for each in one.inputs[count:]]
    stacks: list[list[str]] = []
    for step in reversed(range(length)) if one.params["reverse"] else range(length):
        place = to.constant(step, np.int64)
        to.tensors.update(zip(body.inputs[:count], carry, strict=True))
        for value, array in zip(body.inputs[count:], arrays, strict=True):
            to.tensors[value] = to.add("Gather", array, place, axis=0)
        to.write(body)
        results = [to.tensor(each) for each in body.outputs]
        carry = results[:count]
        stacks.append(results[count:])
    stacks = stacks[::-1] if one.params["reverse"] else stacks
    if not length:
        return [*carry, *(to.constant(np.zeros(value.shape), value.dtype) for value in one.outputs[count:])]
    return [*carry, *(stacked(to, list(names)) for names in zip(*stacks, strict=True))]


@rule("while")
def _while(to: Graph, one: Statement) -> list[str]:
    condition, body = one.bodies
    carry = [to.tensor(each) for each in one.inputs]
    (first,) = _results(to, condition, carry)
    step, flag = Value("step", (), "int64"), Value("flag", (), "bool")
    inputs = [(to.new_name(value.name), value) for value in (step, flag, *body.inputs)]
    outside, to.nodes = to.nodes, []
    results = _results(to, body, [name for name, _ in inputs[2:]])
    (goes_on,) = _results(to, condition, results)
    outputs = [
        (to.add("Identity", name), value) for name, value in zip((goes_on, *results), (flag, *body.inputs), strict=True)
    ]
    inner, to.nodes = Body(tuple(to.nodes), tuple(inputs), tuple(outputs)), outside
    return to.add_all("Loop", len(carry), "", first, *carry, body=inner)


def _results(to: Graph, function: Function, given: list[str]) -> list[str]:
    """Add the nodes of a body for some inputs, and return its results."""
    to.tensors.update(zip(function.inputs, given, strict=True))
    to.write(function)
    return [to.tensor(each) for each in function.outputs]


@rule("cond")
def _cond(to: Graph, one: Statement) -> list[str]:
    branches: list[list[str]] = []
    for branch in one.bodies:
        to.write(branch)
        branches.append([to.tensor(each) for each in branch.outputs])
    which = to.tensor(one.inputs[0])
    return [select(to, which, one.inputs[0].dtype, list(cases)) for cases in zip(*branches, strict=True)]
