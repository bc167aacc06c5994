"""Match a loop of the backward pass with the loop of the forward pass whose gradients it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mithril_nb.emission.program import Function, Operand, Statement, Value


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
