"""Patterns of operations that compute a known function: softmax, norms and activations.

A pattern describes operations by their structure:
- A string is the name of an operand. Everywhere in a pattern, the same name is the same operand.
- A dict is an operand with a name, and the pattern that it must match.
- A float is a number.
- A tuple is an operation: its primitive, and the patterns of its operands.
- A list contains alternatives.

An operation has the attributes `primitive`, `inputs`, `outputs`, `params`, `block` and `role`. An operand has `shape`,
`size` and `dtype`; a number also has `value`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

DETACH = "detach"
"""Primitive of a `stop_gradient` that emitted source keeps, because its library may differentiate it."""
# The distance from 1 to the next number of each dtype.
_EPS = {"float16": 2**-10, "bfloat16": 2**-7, "float32": 2**-23, "float64": 2**-52}
_COMMUTATIVE = frozenset({"add", "mul", "max"})
Made = tuple[Sequence[Any], dict[str, Any]]
"""The inputs and params of a fused statement."""


@dataclass(frozen=True)
class Match:
    """Operands and statements that match a pattern.

    Attributes:
        bound: The operands, by their name in the pattern.
        statements: The statements. The first computes the result.
    """

    bound: dict[str, Any] = field(default_factory=dict[str, Any])
    statements: tuple[Any, ...] = ()

    def with_primitive(self, *primitives: str) -> list[Any]:
        """Return the statements with one of these primitives."""
        return [statement for statement in self.statements if statement.primitive in primitives]


def _square(x: Any) -> Any:
    return [("square", x), ("mul", x, x)]


def _mean(x: Any) -> Any:
    return ("div", ("reduce_sum", x), "count")


def _reshaped(x: Any) -> Any:
    return [x, ("reshape", x)]


def _normalized(x: Any, variance: Any) -> list[Any]:
    total = ("add", _reshaped([variance, ("max", 0.0, variance)]), "eps")
    inverse = _reshaped([("rsqrt", total), ("div", 1.0, ("sqrt", total))])
    unit = [("mul", x, inverse), ("div", x, _reshaped(("sqrt", total)))]
    scaled = [("mul", unit, "weight"), ("mul", x, ("mul", inverse, "weight"))]
    return [("add", scaled, "bias"), *scaled, *unit]


def _shifted(x: Any) -> Any:
    # Neither the result nor its gradients depend on the maximum. So the pattern allows a `detach` of the maximum.
    return ("sub", x, _reshaped([("reduce_max", "x"), (DETACH, ("reduce_max", "x"))]))


def softmax_of(x: Any) -> Any:
    """Return the pattern of the softmax of `x`."""
    return ("div", {"exp": ("exp", _shifted(x))}, _reshaped(("reduce_sum", "exp")))


def _half_of(y: Any) -> list[Any]:
    return [("mul", ("mul", 0.5, "x"), y), ("mul", "x", ("mul", 0.5, y)), ("mul", 0.5, ("mul", "x", y))]


_CENTERED = ("sub", "x", _reshaped(_mean("x")))
_VARIANCE = [_mean(_square(_CENTERED)), ("sub", _mean(_square("x")), _square(_mean("x")))]
_ERFC = [("mul", "x", -(2**-0.5)), ("div", "x", -(2**0.5))]
_ERF = [("mul", "x", 2**-0.5), ("div", "x", 2**0.5)]
_CUBE = [("integer_pow", "x"), ("mul", "x", _square("x"))]
_TANH = ("tanh", ("mul", (2 / math.pi) ** 0.5, ("add", "x", ("mul", 0.044715, _CUBE))))


def axes_of(match: Match) -> tuple[int, ...] | None:
    """Return the axes of all reductions of the operand `x` in a match."""
    # Return `None` if the reductions have different axes, or `x` is empty. Also return `None` if an elementwise
    # statement reads an array, other than the weight and the bias, that has another shape and is not constant along
    # these axes.
    x, others = match.bound["x"], [match.bound.get("weight"), match.bound.get("bias")]
    reductions = match.with_primitive("reduce_sum", "reduce_max")
    axes = {tuple(sorted(reduction.params["axes"])) for reduction in reductions}
    if len(axes) != 1 or not x.size:
        return None
    (own,) = axes
    reduced_shape = tuple([1 if axis in own else size for axis, size in enumerate(x.shape)])
    for statement in match.statements:
        is_row_wise = statement not in reductions and statement.primitive not in ("dot_general", "ge", "select_n")
        is_whole = is_row_wise and statement.outputs[0].shape == x.shape
        if is_whole and any(
            each.shape not in (x.shape, reduced_shape, ()) for each in statement.inputs if each not in others
        ):
            return None
        if statement.primitive == "reshape" and statement.outputs[0].shape != reduced_shape:
            return None
    return own


def _softmax(match: Match) -> Made | None:
    axes = axes_of(match)
    return ((match.bound["x"],), {"axis": axes[0]}) if axes and len(axes) == 1 else None


def _norm(match: Match) -> Made | None:
    x, count, eps = (match.bound[name] for name in ("x", "count", "eps"))
    affine = [match.bound[name] for name in ("weight", "bias") if name in match.bound]
    axes = axes_of(match)
    if not axes or axes != tuple(range(len(x.shape) - len(axes), len(x.shape))):
        return None
    shape = tuple([x.shape[axis] for axis in axes])
    if not (_is_number(count) and _is_number(eps) and count.value == math.prod(shape)):
        return None
    return ((x, *affine), {"shape": shape, "eps": eps}) if all(array.shape == shape for array in affine) else None


def _elementwise(match: Match) -> Made | None:
    x = match.bound["x"]
    is_cube = all(power.params["y"] == 3 for power in match.with_primitive("integer_pow"))
    return ((x,), {}) if is_cube and not _is_number(x) else None


Pattern = tuple[str, Any, Callable[[Match], Made | None]]
"""A name, a pattern, and a function that returns operands and params, or `None` if the operations do not compute it."""

FUNCTIONS: tuple[Pattern, ...] = (
    ("layer_norm", _normalized(_CENTERED, _VARIANCE), _norm),
    ("rms_norm", _normalized("x", _mean(_square("x")))[1:], _norm),
    ("softmax", softmax_of("x"), _softmax),
    (
        "log_softmax",
        ("sub", {"shifted": _shifted("x")}, _reshaped(("log", ("reduce_sum", ("exp", "shifted"))))),
        _softmax,
    ),
    ("gelu", [*_half_of(("erfc", _ERFC)), *_half_of(("add", 1.0, ("erf", _ERF)))], _elementwise),
    ("gelu_tanh", _half_of(("add", 1.0, _TANH)), _elementwise),
    ("silu", ("mul", "x", ("logistic", "x")), _elementwise),
)


def functions(
    root: Any, patterns: Sequence[Pattern], producers: Mapping[Any, Any]
) -> Iterator[tuple[str, Match, Made]]:
    """Yield the functions that the operations up to `root` compute: name, match, and operands with params.

    `patterns`: Functions such as those in `FUNCTIONS`. `producers`: A dict from operands to the operations that compute
    them.
    """
    for name, pattern, condition in patterns:
        for match in _matches(pattern, root.outputs[0], Match(), producers):
            fused = condition(match)
            dtypes = {operand.dtype for operand in (*fused[0], *root.outputs)} if fused is not None else set[str]()
            if fused is not None and len(dtypes) == 1 and dtypes <= _EPS.keys():
                yield name, match, fused


def _matches(pattern: Any, operand: Any, match: Match, producers: Mapping[Any, Any]) -> Iterator[Match]:
    if isinstance(pattern, list):
        for alternative in pattern:
            yield from _matches(alternative, operand, match, producers)
    elif isinstance(pattern, dict):
        ((name, inner),) = pattern.items()
        yield from _matches(inner, operand, replace(match, bound={**match.bound, name: operand}), producers)
    elif isinstance(pattern, str):
        if match.bound.get(pattern, operand) == operand:
            yield replace(match, bound={**match.bound, pattern: operand})
    elif isinstance(pattern, float):
        if _is_number(operand) and is_rounded(operand, pattern):
            yield match
    elif (alternative := producers.get(operand)) is not None:
        name, *inner = pattern
        first = match.statements[0] if match.statements else alternative
        if (alternative.primitive, alternative.block, alternative.role) == (name, first.block, first.role):
            match = replace(match, statements=(*match.statements, alternative))
            yield from _all_match(inner, alternative.inputs, match, producers)
            if name in _COMMUTATIVE:
                yield from _all_match(inner, alternative.inputs[::-1], match, producers)


def _all_match(
    patterns: Sequence[Any], operands: Sequence[Any], match: Match, producers: Mapping[Any, Any]
) -> Iterator[Match]:
    if not patterns:
        yield match
        return
    for extended in _matches(patterns[0], operands[0], match, producers):
        yield from _all_match(patterns[1:], operands[1:], extended, producers)


def _is_number(operand: Any) -> bool:
    return hasattr(operand, "value")


def is_rounded(number: Any, exact: float) -> bool:
    """Return whether a number is `exact` rounded to its dtype."""
    return number.dtype in _EPS and math.isclose(number.value.real, exact, rel_tol=_EPS[number.dtype])
