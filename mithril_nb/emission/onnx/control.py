"""Control flow in ONNX: a `Loop` for `scan` and `while`, an `If` for `cond`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mithril_nb.emission.onnx.graph import OnnxBody, OnnxGraph, rule
from mithril_nb.emission.onnx.shapes import reversed_along
from mithril_nb.emission.program import Function, Operand, Statement, Value
from mithril_nb.emission.sizes import number

_STEP, _FLAG = Value("step", (), "int64"), Value("flag", (), "bool")


@rule("scan")
def _scan(to: OnnxGraph, op: Statement) -> list[str]:
    (body,), count, length = op.bodies, op["num_carry"], number(op["length"])
    carry = [to.tensor(each) for each in op.inputs[:count]]
    arrays = [to.tensor(each) for each in op.inputs[count:]]
    if not length:
        return [*carry, *(to.full(0, value.shape, value.dtype) for value in op.outputs[count:])]

    def step(names: list[str]) -> list[str]:
        step_index, flag, *carry = names  # the flag of a scan stays true
        if op["reverse"]:
            step_index = to.Sub(to.scalar(length - 1), step_index)
        items = [to.Gather(array, step_index, axis=0) for array in arrays]
        return [flag, *_results(to, body, [*carry, *items])]

    carried = body.inputs[:count]
    items = [Value(value.name, value.shape[1:], value.dtype) for value in op.outputs[count:]]
    inner = _body(to, (_STEP, _FLAG, *carried), (_FLAG, *carried, *items), step)
    result = to.add_all("Loop", len(op.outputs), to.scalar(length), "", *carry, body=inner)
    if op["reverse"]:
        result[count:] = [reversed_along(to, name, [0]) for name in result[count:]]
    return result


@rule("while")
def _while(to: OnnxGraph, op: Statement) -> list[str]:
    condition, body = op.bodies
    carry = [to.tensor(each) for each in op.inputs]
    (first,) = _results(to, condition, carry)

    def step(names: list[str]) -> list[str]:
        # ONNX tests the flag after a step, so the first test comes before the loop.
        results = _results(to, body, names[2:])
        return [*_results(to, condition, results), *results]

    inner = _body(to, (_STEP, _FLAG, *body.inputs), (_FLAG, *body.inputs), step)
    return to.add_all("Loop", len(carry), "", first, *carry, body=inner)


@rule("cond")
def _cond(to: OnnxGraph, op: Statement) -> list[str]:
    return _chosen(to, op.operand, op.bodies, op.outputs)


def _chosen(
    to: OnnxGraph, which: Operand, branches: Sequence[Function], outputs: tuple[Value, ...], first: int = 0
) -> list[str]:
    # ONNX has no switch, so each branch except the last gets an `If`; `first` is the index of the first branch.
    branch, *rest = branches
    if not rest:
        return _results(to, branch, [])
    is_later = to.tensor(which)
    if which.dtype != "bool":
        is_later = to.Greater(is_later, to.constant(first, which.dtype))
    now = _body(to, (), outputs, lambda _: _results(to, branch, []))
    later = _body(to, (), outputs, lambda _: _chosen(to, which, rest, outputs, first + 1))
    return to.add_all("If", len(outputs), is_later, then_branch=later, else_branch=now)


def _body(
    to: OnnxGraph, inputs: Sequence[Value], outputs: Sequence[Value], write: Callable[[list[str]], list[str]]
) -> OnnxBody:
    operand = [(to.new_name(value.name), value) for value in inputs]
    # A body reads tensors around it by their names, which are unique in the whole model.
    outside, to.nodes = to.nodes, []
    results = write([name for name, _ in operand])
    # onnxruntime rejects a body that returns a tensor from outside directly.
    returned = [(to.Identity(name), value) for name, value in zip(results, outputs, strict=True)]
    inner, to.nodes = OnnxBody(tuple(to.nodes), tuple(operand), tuple(returned)), outside
    return inner


def _results(to: OnnxGraph, function: Function, names: list[str]) -> list[str]:
    to.tensors.update(zip(function.inputs, names, strict=True))
    to.write(function)
    return [to.tensor(each) for each in function.outputs]
