"""Control flow in ONNX: a `Loop` for `scan` and `while`, an `If` for `cond`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mithril_nb.emission.onnx.graph import Body, Graph, rule
from mithril_nb.emission.onnx.shapes import reversed_along
from mithril_nb.emission.program import Function, Operand, Statement, Value
from mithril_nb.emission.sizes import number

_STEP, _FLAG = Value("step", (), "int64"), Value("flag", (), "bool")


@rule("scan")
def _scan(to: Graph, one: Statement) -> list[str]:
    (body,), count, length = one.bodies, one.params["num_carry"], number(one.params["length"])
    carry = [to.tensor(each) for each in one.inputs[:count]]
    arrays = [to.tensor(each) for each in one.inputs[count:]]
    if not length:
        return [*carry, *(to.full(0, value.shape, value.dtype) for value in one.outputs[count:])]

    def step(names: list[str]) -> list[str]:
        place, flag, *carry = names
        if one.params["reverse"]:
            place = to.add("Sub", to.scalar(length - 1), place)
        items = [to.add("Gather", array, place, axis=0) for array in arrays]
        return [flag, *_results(to, body, [*carry, *items])]

    carried = body.inputs[:count]
    items = [Value(value.name, value.shape[1:], value.dtype) for value in one.outputs[count:]]
    inner = _body(to, (_STEP, _FLAG, *carried), (_FLAG, *carried, *items), step)
    found = to.add_all("Loop", len(one.outputs), to.scalar(length), "", *carry, body=inner)
    if one.params["reverse"]:
        found[count:] = [reversed_along(to, name, [0]) for name in found[count:]]
    return found


@rule("while")
def _while(to: Graph, one: Statement) -> list[str]:
    condition, body = one.bodies
    carry = [to.tensor(each) for each in one.inputs]
    (first,) = _results(to, condition, carry)

    def step(names: list[str]) -> list[str]:
        results = _results(to, body, names[2:])
        return [*_results(to, condition, results), *results]

    inner = _body(to, (_STEP, _FLAG, *body.inputs), (_FLAG, *body.inputs), step)
    return to.add_all("Loop", len(carry), "", first, *carry, body=inner)


@rule("cond")
def _cond(to: Graph, one: Statement) -> list[str]:
    return _chosen(to, one.inputs[0], one.bodies, one.outputs)


def _chosen(
    to: Graph, which: Operand, branches: Sequence[Function], outputs: tuple[Value, ...], first: int = 0
) -> list[str]:
    """Return the names of the results of the branch whose index is the value of `which`, a number or a boolean.

    ONNX has no switch, so this function adds one `If` for each branch except the last. `first` is the index of the
    first item of `branches`.
    """
    branch, *rest = branches
    if not rest:
        return _results(to, branch, [])
    is_later = to.tensor(which)
    if which.dtype != "bool":
        is_later = to.add("Greater", is_later, to.constant(first, which.dtype))
    now = _body(to, (), outputs, lambda _: _results(to, branch, []))
    later = _body(to, (), outputs, lambda _: _chosen(to, which, rest, outputs, first + 1))
    return to.add_all("If", len(outputs), is_later, then_branch=later, else_branch=now)


def _body(
    to: Graph, inputs: Sequence[Value], outputs: Sequence[Value], write: Callable[[list[str]], list[str]]
) -> Body:
    """Return a body with the nodes that `write` adds. `write` takes the names of the inputs and returns the results."""
    given = [(to.new_name(value.name), value) for value in inputs]
    outside, to.nodes = to.nodes, []
    results = write([name for name, _ in given])
    returned = [(to.add("Identity", name), value) for name, value in zip(results, outputs, strict=True)]
    inner, to.nodes = Body(tuple(to.nodes), tuple(given), tuple(returned)), outside
    return inner


def _results(to: Graph, function: Function, given: list[str]) -> list[str]:
    """Add the nodes of a function that receives the tensors `given`, and return its results."""
    to.tensors.update(zip(function.inputs, given, strict=True))
    to.write(function)
    return [to.tensor(each) for each in function.outputs]
