"""Match statements and loops of the backward pass with those of the forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mithril_nb.emission.program import Function, Number, Operand, Statement, Value


@dataclass(frozen=True)
class BackwardLoop:
    """A loop of the backward pass, which runs over the steps of a forward loop in reverse.

    Attributes:
        forward: The forward loop.
        steps: A dict from inputs of the backward body to values of the forward body. The forward loop stacks this value
            over its steps, and the backward loop reads it step by step.
        gradients: A dict from inputs of the backward body to values of the forward body. The input is the gradient of
            this value, or one of the terms of the gradient.
        totals: Number of sums over all steps at the start of the backward carry, such as the gradients of weights. The
            other values of the carry are gradients of the forward carry. 0 also if the two carries do not match.
    """

    forward: Statement
    steps: Mapping[Value, Value]
    gradients: Mapping[Value, Value]
    totals: int


def backward_loop(
    loop: Statement, producers: Mapping[Value, Statement], known: Mapping[Value, Value]
) -> BackwardLoop | None:
    """Return the forward loop whose steps a `scan` reverses, and how values of both correspond; `None` if unknown.

    Args:
        loop: The `scan`.
        producers: The statement that computes each value of the program.
        known: A dict from the gradients found so far to the values whose gradients they are.
    """
    (body,), count = loop.bodies, loop.params["num_carry"]
    forward: Statement | None = None
    steps, gradients = dict[Value, Value](), dict[Value, Value]()
    for array, item in zip(loop.inputs[count:], body.inputs[count:], strict=True):
        if not isinstance(array, Value):
            continue
        stacked = known.get(array, array)
        made = producers.get(stacked)
        if made is None or made.primitive != "scan" or made.params["reverse"] == loop.params["reverse"]:
            continue
        place = made.outputs.index(stacked)
        step = made.bodies[0].outputs[place]
        if place >= made.params["num_carry"] and isinstance(step, Value):
            forward = made
            (gradients if array in known else steps)[item] = step
    if forward is None:
        return None
    inner = forward.bodies[0]
    carry = [place for place in range(forward.params["num_carry"]) if "float" in inner.inputs[place].dtype]
    totals = count - len(carry)
    is_matched = totals >= 0 and all(_is_total(body, place, producers) for place in range(totals))
    ends = body.inputs[max(totals, 0) : count]
    if not is_matched or [one.shape for one in ends] != [inner.inputs[place].shape for place in carry]:
        return BackwardLoop(forward, steps, gradients, 0)
    results: list[Operand] = [inner.outputs[place] for place in carry]
    gradients |= {end: one for end, one in zip(ends, results, strict=True) if isinstance(one, Value)}
    return BackwardLoop(forward, steps, gradients, totals)


def _is_total(body: Function, place: int, producers: Mapping[Value, Statement]) -> bool:
    """Return whether a step only adds to the value of the carry with the index `place`."""
    result = body.outputs[place]
    made = producers.get(result) if isinstance(result, Value) else None
    return made is not None and made.primitive in ("add", "add_any") and body.inputs[place] in made.inputs


def repeated(known: Value, axes: tuple[int, ...], producers: Mapping[Value, Statement]) -> Value | None:
    """Return the value from which a `broadcast_in_dim` along exactly these axes computes `known`, or `None`."""
    made = producers.get(known)
    if made is None or made.primitive != "broadcast_in_dim" or not isinstance(made.inputs[0], Value):
        return None
    shape = [1] * len(known.shape)
    for axis, size in zip(made.params["broadcast_dimensions"], made.inputs[0].shape, strict=True):
        shape[axis] = size
    changed = [axis for axis, size in enumerate(known.shape) if size != shape[axis]]
    return made.inputs[0] if changed == sorted(axis for axis in axes if known.shape[axis] != 1) else None


def operand_through(one: Statement, known: Value, producers: Mapping[Value, Statement]) -> Value | None:
    """Return the value whose gradient the statement `one` computes from the gradient of the value `known`.

    This works if both statements are the same linear operation: if `known` is 2 * x, then `one` multiplies the gradient
    by 2, and the result is x. Return `None` if the operations differ.
    """
    made = producers.get(known)
    if made is None or made.primitive != one.primitive or made.block != one.block:
        return None
    values = [value for value in made.inputs if isinstance(value, Value)]
    numbers = [[each.value for each in part.inputs if isinstance(each, Number)] for part in (made, one)]
    return values[0] if len(values) == 1 and numbers[0] == numbers[1] else None
