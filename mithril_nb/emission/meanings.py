"""The meaning of the arrays of a program: means and variances by their pattern, gradients by what they belong to."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from mithril_nb.emission.program import Function, Number, Statement, Value
from mithril_nb.stages.records import Role

_VIEWS = frozenset("reshape transpose rev squeeze expand_dims convert_element_type copy".split())
_PRODUCTS = frozenset("mul dot_general conv_general_dilated".split())
_LINEAR = frozenset({"neg", *_VIEWS})


_CONSTANTS = {
    "1/sqrt(2)": 2**-0.5, "sqrt(2)": 2**0.5, "2/sqrt(pi)": 2 / math.pi**0.5, "sqrt(2/pi)": (2 / math.pi) ** 0.5,
    "1/sqrt(2 pi)": (2 * math.pi) ** -0.5, "log(2)": math.log(2), "1/log(2)": 1 / math.log(2), "pi": math.pi,
    "log(2 pi)/2": math.log(2 * math.pi) / 2,
}  # fmt: skip


def constant_note(one: Statement) -> str:
    """Return what the numbers of a statement are, for a comment; `""` for plain numbers.

    Examples:
        >>> x = Value("x", (), "float32")
        >>> constant_note(Statement("mul", (x, Number(-0.7071067690849304, "float32")), (x,)))
        '0.70710677 is 1/sqrt(2)'
    """
    notes: dict[str, None] = {}
    for number in one.inputs:
        if isinstance(number, Number) and isinstance(number.value, float) and math.isfinite(number.value):
            size = abs(number.value)
            name = next((name for name, exact in _CONSTANTS.items() if math.isclose(size, exact, rel_tol=2e-7)), "")
            if name:
                notes[f"{Number(size, number.dtype).text} is {name}"] = None
    return ", ".join(notes)


def meanings(main: Function) -> dict[Value, str]:
    """Return names for values whose pattern has a usual name.

    Examples:
        >>> x, n = Value("x", (2, 4), "float32"), Number(4.0, "float32")
        >>> total, ratio = Value("total", (2, 1), "float32"), Value("ratio", (2, 1), "float32")
        >>> add = Statement("reduce_sum", (x,), (total,), {"axes": (1,), "keepdims": True})
        >>> meanings(Function("", (x,), (ratio,), (add, Statement("div", (total, n), (ratio,)))))[ratio]
        'mean'
    """
    producers = {value: one for one in main.statements for value in one.outputs}
    found: dict[Value, str] = {}
    for one in main.statements:
        name = _meaning(one, producers, found)
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
        # A negation that joined another operation left its name.
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


def gradients(main: Function, roles: Mapping[Value, Role | None]) -> dict[Value, Value]:
    """Return the value of the forward pass that each value of the backward pass is the gradient of, where it is clear.

    For y = a * b, or a matrix product or convolution of a and b, the gradient of `a` is a product of d(loss)/dy and `b`
    in the same block. Sums of gradients of one value are its gradient too, and views and products with a number are
    followed back. Terms of such a sum are left out.
    """
    partners: dict[tuple[str, str, Value], set[Value]] = defaultdict(set)
    producers: dict[Value, Statement] = {}
    sources: dict[Value, Value] = {}  # of views
    found: dict[Value, Value] = {}
    whole: dict[Value, Value] = {}  # gradients before the sum over the axes along which their value is broadcast

    def note(value: Value, wanted: Value | None) -> None:
        if wanted is not None and value.size == wanted.size:
            found[value] = wanted
        elif wanted is not None and value.size > wanted.size:
            whole[value] = wanted

    for one in main.statements:
        producers.update(dict.fromkeys(one.outputs, one))
        if len(one.outputs) != 1:
            continue
        (output,) = one.outputs
        given = [value for value in one.inputs if isinstance(value, Value)]
        if one.primitive in _VIEWS and given:
            sources[output] = sources.get(given[0], given[0])
        if roles.get(output) != "backward":
            if one.primitive == "square":
                partners["mul", one.block, sources.get(given[0], given[0])].add(given[0])
            elif one.primitive in (*_PRODUCTS, "div") and len(given) == 2:
                first, second = given
                partners[one.primitive, one.block, sources.get(second, second)].add(first)
                if one.primitive != "div":
                    partners[one.primitive, one.block, sources.get(first, first)].add(second)
            continue
        inner = [found[value] for value in given if value in found]
        if one.primitive in ("add", "add_any"):
            note(output, inner[0] if len(inner) == len(given) and len(set(inner)) == 1 else None)
        elif one.primitive == "reduce_sum" and given and given[0] in whole:
            note(output, whole[given[0]])
        elif one.primitive == "reduce_sum" and inner:
            note(output, _repeated(inner[0], one.params["axes"], producers))
        elif one.primitive in _LINEAR or (one.primitive == "mul" and len(given) == 1):
            note(output, _through(one, inner[0], producers) if inner else whole.get(given[0]) if given else None)
        elif one.primitive in (*_PRODUCTS, "div") and len(given) == 2:
            note(output, _partner(one, given, roles, partners, sources, found, producers))
    terms = {
        value
        for one in main.statements
        if one.primitive in ("add", "add_any", "sub") and roles.get(one.outputs[0]) == "backward"
        for value in one.inputs
    }
    return {value: known for value, known in found.items() if value not in terms}


def _partner(
    one: Statement,
    given: list[Value],
    roles: Mapping[Value, Role | None],
    partners: Mapping[tuple[str, str, Value], set[Value]],
    sources: Mapping[Value, Value],
    found: Mapping[Value, Value],
    producers: Mapping[Value, Statement],
) -> Value | None:
    """Return the value whose gradient a product is: the other operand of the forward product with the same factor."""
    for factor, other in (given, reversed(given)):
        if roles.get(factor) == "backward" or roles.get(other) != "backward":
            continue
        factor = sources.get(factor, factor)
        product = producers.get(found[other]) if other in found else None
        if product is not None and product.primitive == one.primitive:
            rest = [x for x in product.inputs if isinstance(x, Value) and sources.get(x, x) is not factor]
            if len(rest) == 1 == len(product.inputs) - 1:
                return rest[0]
        known = partners.get((one.primitive, one.block, factor), set())
        equal = [value for value in known if value.size == one.outputs[0].size] if len(known) > 1 else [*known]
        if len(equal) == 1:
            return equal[0]
        made = producers.get(factor)
        if made is not None and made.primitive == "exp" and found.get(other) is factor:
            (value,) = made.inputs
            return value if isinstance(value, Value) else None
    return None


def _repeated(known: Value, axes: tuple[int, ...], producers: Mapping[Value, Statement]) -> Value | None:
    """Return the value that is broadcast along these axes to a known one."""
    made = producers.get(known)
    if made is None or made.primitive != "broadcast_in_dim" or not isinstance(made.inputs[0], Value):
        return None
    shape = [1] * len(known.shape)
    for axis, size in zip(made.params["broadcast_dimensions"], made.inputs[0].shape, strict=True):
        shape[axis] = size
    changed = [axis for axis, size in enumerate(known.shape) if size != shape[axis]]
    return made.inputs[0] if changed == sorted(axis for axis in axes if known.shape[axis] != 1) else None


def _through(one: Statement, known: Value, producers: Mapping[Value, Statement]) -> Value | None:
    """Return the value whose gradient a statement computes from the gradient of `known`, if it inverts its producer."""
    made = producers.get(known)
    if made is not None and made.primitive == one.primitive and made.block == one.block:
        values = [value for value in made.inputs if isinstance(value, Value)]
        return values[0] if len(values) == 1 else None
    return None
