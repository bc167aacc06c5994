"""Replace a broadcast by a reshape to axes of size 1, if elementwise operations broadcast the reshaped array anyway."""

from __future__ import annotations

from dataclasses import replace

from mithril_nb.emission.program import ELEMENTWISE, Function, Number, Operand, Statement, Value


def narrow(function: Function) -> Function:
    """Return the function with broadcasts replaced by reshapes that insert axes of size 1.

    A broadcast is replaced only if all statements that read it are elementwise, and each of them has another operand
    with the shape of the result. These statements then broadcast the reshaped array.
    """
    uses = function.uses()
    instead: dict[Operand, Operand] = {}
    found: list[Statement] = []
    broadcasts = {one.outputs[0] for one in function.statements if one.primitive == "broadcast_in_dim"}
    for statement in function.statements:
        inputs = tuple([instead.get(one, one) for one in statement.inputs])
        statement = replace(statement, inputs=inputs, bodies=tuple(map(narrow, statement.bodies)))
        small = _narrowed(statement, uses, broadcasts)
        if small is not None:
            instead[statement.outputs[0]] = small.outputs[0]
            statement = small
        found.append(statement)
    return replace(function, statements=tuple(found))


def _narrowed(
    statement: Statement, uses: dict[Value, list[Statement | None]], broadcasts: set[Value]
) -> Statement | None:
    if statement.primitive != "broadcast_in_dim" or isinstance(statement.inputs[0], Number):
        return None
    (source,), (output,) = statement.inputs, statement.outputs
    dimensions = statement.params["broadcast_dimensions"]
    shape = [1] * len(output.shape)
    for axis, size in zip(dimensions, source.shape, strict=True):
        shape[axis] = size
    small = Value(output.name, tuple(shape), output.dtype)
    if small.shape == output.shape:
        return None
    for use in uses[output]:
        if use is None or use.primitive not in ELEMENTWISE:
            return None
        # The operand with the full shape must not be a broadcast, which may be replaced too.
        others = [one for one in use.inputs if one not in broadcasts]
        if not any(one.shape == use.outputs[0].shape for one in others):
            return None
    return as_reshape(statement, small)


def as_reshape(statement: Statement, output: Value) -> Statement:
    """Return a reshape of the operand of a statement, with the result `output`."""
    params = {"new_sizes": output.shape, "dimensions": None}
    return replace(statement, primitive="reshape", outputs=(output,), params=params)
