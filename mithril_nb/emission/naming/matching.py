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
        steps: For each item that the backward loop reads, the value of the forward body that was stacked.
        gradients: For each input of the backward body that is a gradient, or a term of one, the value of the forward
            body to which it belongs.
        totals: Number of values at the start of the carry that are gradients of arrays that every step reads, such as
            weights. They are sums over all steps. The rest of the carry belongs to the carry of the forward loop.
    """

    forward: Statement
    steps: Mapping[Value, Value]
    gradients: Mapping[Value, Value]
    totals: int


def backward_loop(
    loop: Statement, producers: Mapping[Value, Statement], known: Mapping[Value, Value]
) -> BackwardLoop | None:
    """Return a `scan` of the backward pass and the forward loop to which it belongs, or `None` if there is none.

    Args:
        loop: The `scan`.
        producers: The statement that computes each value of the program.
        known: The value of the forward pass to which each gradient belongs, as far as known before the loop.
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
    """Return x if `one` computes d_x = 2 * d_y, and y = 2 * x is `known`; also for other linear operations.

    Return `None` if the statement that computed `known` is another operation.
    """
    made = producers.get(known)
    if made is None or made.primitive != one.primitive or made.block != one.block:
        return None
    values = [value for value in made.inputs if isinstance(value, Value)]
    numbers = [[each.value for each in part.inputs if isinstance(each, Number)] for part in (made, one)]
    return values[0] if len(values) == 1 and numbers[0] == numbers[1] else None
