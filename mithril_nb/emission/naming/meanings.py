"""Find the usual names of arrays, such as the mean or the softmax, by the pattern of statements that computes them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mithril_nb.emission.program import Function, Number, Statement, Value

RESULT_NAMES = {
    "attention": "attended", "layer_norm": "normalized", "rms_norm": "normalized", "gelu": "activated",
    "gelu_tanh": "activated", "silu": "activated", "linear": "projected",
}  # fmt: skip
"""Names for the results of fused statements."""


def meanings(main: Function) -> dict[Value, str]:
    """Return a dict from the results of known patterns of statements to their usual names, such as `"softmax"`.

    Examples:
        >>> x, n = Value("x", (2, 4), "float32"), Number(4.0, "float32")
        >>> total, ratio = Value("total", (2, 1), "float32"), Value("ratio", (2, 1), "float32")
        >>> add = Statement("reduce_sum", (x,), (total,), {"axes": (1,), "keepdims": True})
        >>> meanings(Function("", (x,), (ratio,), (add, Statement("div", (total, n), (ratio,)))))[ratio]
        'mean'
    """
    producers = {value: one for one in main.walk() for value in one.outputs}
    found: dict[Value, str] = {}
    for one in main.walk():
        name = _meaning(one, producers, found) if one.outputs else ""  # a debug callback has no results
        if name:
            found[one.outputs[0]] = name
    return found


def _meaning(one: Statement, producers: Mapping[Value, Statement], found: Mapping[Value, str]) -> str:
    inputs = one.inputs

    def before(place: int, *primitives: str) -> Statement | None:
        value = inputs[place]
        made = producers.get(value) if isinstance(value, Value) else None
        return made if made is not None and made.primitive in primitives else None

    def named(place: int) -> str:
        value = inputs[place]
        return found.get(value, "") if isinstance(value, Value) else ""

    if one.primitive == "broadcast_in_dim" and isinstance(inputs[0], Number) and inputs[0].value == 0:
        return "zeros"
    if one.primitive == "square" or (one.primitive == "mul" and inputs[0] is inputs[1]):
        return "squared"
    if one.primitive == "sub" and named(1) == "mean":
        return "centered"
    if one.primitive == "mul" and "centered" in (named(0), named(1)) and (before(0, "rsqrt") or before(1, "rsqrt")):
        return "normalized"
    if one.primitive == "integer_pow" and one.params["y"] == -2:
        return "inverse_square"
    if one.primitive == "mul" and isinstance(inputs[0], Number) and inputs[0].value == -0.5:
        ratio = before(1, "div")
        root = producers.get(ratio.inputs[0]) if ratio is not None and isinstance(ratio.inputs[0], Value) else None
        if ratio is not None and root is not None and root.primitive == "rsqrt" and root.inputs[0] is ratio.inputs[1]:
            return "rsqrt_slope"
    if one.primitive != "div":
        # If the clean-up merged a negation into this statement, the result still has the name of the old primitive.
        usual = {"mul": "scaled", "sub": "difference", "add": "added"}
        return usual.get(one.primitive, "") if one.outputs[0].name in ("negated", *usual.values()) else ""
    total, divisor = before(0, "reduce_sum"), inputs[1]
    if total is not None and isinstance(divisor, Number):
        source = total.inputs[0]
        count = math.prod(source.shape[axis] for axis in total.params["axes"])
        if divisor.value != count or not isinstance(source, Value):
            return ""
        if found.get(source) != "squared":
            return "mean"
        squared = producers[source].inputs[0]
        return "variance" if isinstance(squared, Value) and found.get(squared) == "centered" else "mean_square"
    sums, exponentials = before(1, "reduce_sum"), before(0, "exp")
    if sums is not None and exponentials is not None and sums.inputs[0] is inputs[0]:
        return "softmax"
    return ""
