"""Arithmetic, comparisons, logic, matrix products, and reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from mithril_nb.backends.jax.kernels.registry import in_floating, kernel, narrowed
from mithril_nb.errors import ShapeError
from mithril_nb.models.library.operations.reducing import summed
from mithril_nb.program import Arrays, Call

Function = Callable[..., jax.Array]


def elementwise(op: str, function: Function, *ports: str) -> None:
    """Register a function of the arrays at `ports`, in this order, as the kernel of an op."""

    @kernel(op, widens=False)
    def _run(call: Call, arrays: Arrays) -> Arrays:
        operands = [arrays[port] for port in ports]
        return {"output": narrowed(function(*operands), *operands)}


def scalar(call: Call, port: str, like: jax.Array) -> jax.Array:
    """Return the value of the attribute `port` of a block, as a scalar with the dtype of `like`.

    Raises:
        ShapeError: A connection provides the value, and the value is not a scalar.
    """
    value = call.options[port]
    if getattr(value, "shape", ()) != ():
        raise ShapeError(
            f"{port!r} expects a scalar but receives an array.",
            ((port, f"{tuple(value.shape)} {value.dtype}"), ("needs", "()")),
            f"{port}=1.0  # or a connection to a scalar",
            port=port,
        )
    return jnp.asarray(value).astype(like.dtype)


def absolute(x: jax.Array) -> jax.Array:
    """Return the absolute values. The gradient at 0 is 0; in `jnp.abs` it is 1."""
    return _absolute(x) if jnp.issubdtype(x.dtype, jnp.inexact) else jnp.abs(x)


@jax.custom_jvp
def _absolute(x: jax.Array) -> jax.Array:
    return jnp.abs(x)


@_absolute.defjvp
def _absolute_slope(primals: tuple[jax.Array], changes: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    (x,), (change,) = primals, changes
    # The derivative of |z| is Re(conj(z) dz) / |z|; conj and real do nothing to a real number.
    return jnp.abs(x), (jnp.conj(jnp.sign(x)) * change).real


_ELEMENTWISE: dict[tuple[str, ...], dict[str, Callable[..., Any]]] = {
    ("input",): {
        "buffer": lambda x: x,
        "stop_gradient": lax.stop_gradient,
        "absolute": absolute,
        "negate": jnp.negative,
        "sign": jnp.sign,
        "square": jnp.square,
        "floor": jnp.floor,
        "ceil": jnp.ceil,
        "round": jnp.round,
        "exp": jnp.exp,
        "expm1": jnp.expm1,
        "log1p": jnp.log1p,
        # lax, unlike jax.numpy, rejects integers. The same holds for erf.
        "rsqrt": lambda x: lax.rsqrt(in_floating(x)),
        "sin": jnp.sin,
        "cos": jnp.cos,
        "tan": jnp.tan,
        "arctan": jnp.arctan,
        "erf": lambda x: lax.erf(in_floating(x)),
        "is_nan": jnp.isnan,
        "logical_not": jnp.logical_not,
    },
    ("left", "right"): {
        "add": jnp.add,
        "subtract": jnp.subtract,
        "multiply": jnp.multiply,
        "minimum": jnp.minimum,
        "maximum": jnp.maximum,
        "matrix_multiply": jnp.matmul,
        "greater": jnp.greater,
        "less": jnp.less,
        "greater_equal": jnp.greater_equal,
        "less_equal": jnp.less_equal,
        "equal": jnp.equal,
        "not_equal": jnp.not_equal,
        "logical_and": jnp.logical_and,
        "logical_or": jnp.logical_or,
        "logical_xor": jnp.logical_xor,
    },
    ("numerator", "denominator"): {"divide": jnp.divide, "floor_divide": jnp.floor_divide, "mod": jnp.mod},
    ("input", "shift"): {"shift_left": jnp.left_shift, "shift_right": jnp.right_shift},
    ("cond", "input1", "input2"): {"where": jnp.where},
}
for _ports, _functions in _ELEMENTWISE.items():
    for _op, _function in _functions.items():
        elementwise(_op, _function, *_ports)


@kernel("power")
def _power(call: Call, arrays: Arrays) -> Arrays:
    base, exponent = arrays["base"], arrays["exponent"]
    dtype = jnp.promote_types(base.dtype, exponent.dtype)
    if not call.options["robust"] or not jnp.issubdtype(dtype, jnp.floating):
        plain = base
        if jnp.issubdtype(base.dtype, jnp.floating) and jnp.issubdtype(exponent.dtype, jnp.floating):
            # The derivative of 0**0 by the base would be 0 * 0**-1, NaN. JAX avoids it for integer exponents only.
            plain = jnp.where((base == 0) & (exponent == 0), 1, base)
        return {"output": narrowed(jnp.power(plain, exponent), base, exponent)}
    return {"output": _robust_power(base.astype(dtype), exponent.astype(dtype), call.options["threshold"])}


def _least(threshold: Any, dtype: Any) -> jax.Array:
    """Return the threshold of a robust op. The default and the minimum is the dtype's smallest normal number."""
    tiny = jnp.asarray(jnp.finfo(dtype).tiny, dtype)
    return tiny if threshold is None else jnp.maximum(jnp.asarray(threshold, dtype), tiny)


def _robust_power(base: jax.Array, exponent: jax.Array, threshold: Any) -> jax.Array:
    """Compute the robust formula of `Power`, which has one case below the threshold and one above.

    Both cases are computed for each element. An overflow in the case that is not selected would make the gradients NaN,
    so this case gets other numbers.
    """
    tiny = jnp.finfo(base.dtype).tiny
    grows = exponent > 0
    if threshold is None:
        t = jnp.where(grows, tiny, jnp.power(tiny, 1 / (2 - 2 * jnp.minimum(exponent, 0)))).astype(base.dtype)
    else:
        t = _least(threshold, base.dtype)
    # The threshold depends on the exponent, but the formula treats it as a constant.
    t = lax.stop_gradient(t)
    is_even = exponent % 2 == 0
    # An even power has no sign. This `absolute` has a gradient of 0 at 0, and not 1.
    base = jnp.where(is_even, absolute(base), base)
    sign = jnp.where(base < 0, -1, 1).astype(base.dtype)
    is_near = jnp.abs(base) < t
    far = sign * jnp.power(jnp.where(is_near, t, jnp.abs(base)), exponent)
    line = base * jnp.power(t, jnp.where(grows, exponent - 1, 0))
    return jnp.where(is_near & grows, line, far)


@kernel("sqrt")
def _sqrt(call: Call, arrays: Arrays) -> Arrays:
    x = in_floating(arrays["input"])
    if not call.options["robust"]:
        return {"output": jnp.sqrt(x)}
    t = _least(call.options["threshold"], x.dtype)
    is_near = jnp.abs(x) < t
    far = jnp.where(x < 0, -1, 1).astype(x.dtype) * jnp.sqrt(jnp.where(is_near, t, jnp.abs(x)))
    return {"output": jnp.where(is_near, x * lax.rsqrt(t), far)}


@kernel("log")
def _log(call: Call, arrays: Arrays) -> Arrays:
    x = in_floating(arrays["input"])
    if not call.options["robust"]:
        return {"output": jnp.log(x)}
    t = _least(call.options["threshold"], x.dtype)
    is_low = x < t
    log = jnp.log(jnp.where(is_low, 2 * t - x, x))
    return {"output": jnp.where(is_low, 2 * jnp.log(t) - log, log)}


@kernel("stable_reciprocal")
def _stable_reciprocal(call: Call, arrays: Arrays) -> Arrays:
    x = in_floating(arrays["input"])
    limits = jnp.finfo(x.dtype)
    t = limits.eps if call.options["threshold"] is None else lax.stop_gradient(scalar(call, "threshold", x))
    t = jnp.maximum(t, 2 / jnp.sqrt(limits.max)).astype(x.dtype)  # below this, the derivative overflows
    sign = jnp.where(x < 0, -1, 1).astype(x.dtype)
    return {"output": sign / jnp.where(jnp.abs(x) < t, t, jnp.abs(x))}


@kernel("clamp")
def _clamp(call: Call, arrays: Arrays) -> Arrays:
    x = arrays["input"]
    if call.options["min_val"] is not None:
        x = jnp.maximum(x, _bound(call, "min_val", jnp.ceil, x))
    if call.options["max_val"] is not None:
        x = jnp.minimum(x, _bound(call, "max_val", jnp.floor, x))
    return {"output": x}


def _bound(call: Call, port: str, rounding: Function, x: jax.Array) -> jax.Array:
    if jnp.issubdtype(x.dtype, jnp.floating):
        return scalar(call, port, x)
    limits = jnp.iinfo(x.dtype)
    bound = rounding(in_floating(scalar(call, port, jnp.float32(0))))
    # A plain cast would not do: float32(2**31 - 1) is 2**31, which does not fit int32.
    outside = jnp.where(bound < limits.min, limits.min, limits.max).astype(x.dtype)
    fits = (bound >= limits.min) & (bound < float(limits.max))
    return jnp.where(fits, jnp.where(fits, bound, 0).astype(x.dtype), outside)


@kernel("nan_to_num")
def _nan_to_num(call: Call, arrays: Arrays) -> Arrays:
    x = arrays["input"]
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return {"output": x}
    limits = jnp.finfo(x.dtype)
    posinf, neginf = (
        jnp.asarray(limit, x.dtype) if call.options[port] is None else scalar(call, port, x)
        for port, limit in (("posinf", limits.max), ("neginf", limits.min))
    )
    return {"output": jnp.nan_to_num(x, nan=scalar(call, "nan", x), posinf=posinf, neginf=neginf)}


def _reduction(op: str, function: Callable[..., jax.Array], **fixed: Any) -> None:
    @kernel(op)
    def _run(call: Call, arrays: Arrays) -> Arrays:
        return {"output": function(arrays["input"], **_where(call), **fixed)}


def _where(call: Call) -> dict[str, Any]:
    return {"axis": call.options["axis"], "keepdims": bool(call.options["keepdim"])}


def _summed(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return a sum or product with the dtype of the shape rule. In x64 mode, JAX would return 64-bit integers."""
    return lambda x, **where: function(x.astype(summed(str(x.dtype))), **where, promote_integers=False)


def _place(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    # In x64 mode, JAX returns int64.
    return lambda x, **where: function(x, **where).astype("int32")


_reduction("mean", jnp.mean)
_reduction("sum", _summed(jnp.sum))
_reduction("prod", _summed(jnp.prod))
_reduction("max", jnp.max)
_reduction("min", jnp.min)
_reduction("log_sum_exp", jax.nn.logsumexp)
_reduction("arg_max", _place(jnp.argmax))
_reduction("arg_min", _place(jnp.argmin))
elementwise("trapezoid", jnp.trapezoid, "y", "x")


@kernel("variance")
def _variance(call: Call, arrays: Arrays) -> Arrays:
    x = in_floating(arrays["input"])
    correction: Any = scalar(call, "correction", x)  # jnp.var is annotated with float, but accepts arrays
    return {"output": jnp.var(x, **_where(call), correction=correction)}


@kernel("norm")
def _norm(call: Call, arrays: Arrays) -> Arrays:
    x, p = absolute(in_floating(arrays["input"])), call.options["p"]
    axis, keepdim = call.options["axis"], bool(call.options["keepdim"])
    # Divide by the largest element, so that no power overflows. Neither the result nor its gradient depends on it.
    unit = lax.stop_gradient(jnp.max(x, axis, keepdims=True, initial=0.0))
    if p == float("inf"):
        # jnp.max has no identity for an empty axis without `initial`. Absolute values are at least 0.
        return {"output": jnp.max(x, axis, keepdims=keepdim, initial=0.0)}
    is_zero = unit == 0
    scale = jnp.where(is_zero | ~jnp.isfinite(unit), 1, unit)
    parts = jnp.sum((x / scale) ** p, axis, keepdims=True)
    length = scale * jnp.where(is_zero, 1, parts) ** (1 / p)
    length = jnp.where(is_zero, 0, length)
    return {"output": length if keepdim else jnp.squeeze(length, axis)}


@kernel("cumsum")
def _cumsum(call: Call, arrays: Arrays) -> Arrays:
    x = arrays["input"]
    # Accumulate 16-bit elements in float32, because each of the many steps rounds.
    wide = "float32" if x.dtype in ("float16", "bfloat16") else summed(str(x.dtype))
    return {"output": jnp.cumsum(x.astype(wide), call.options["axis"]).astype(summed(str(x.dtype)))}


@kernel("unique")
def _unique(call: Call, arrays: Arrays) -> Arrays:
    x, fill = arrays["input"], call.options["fill_value"]
    if x.dtype == bool and fill is not None:
        fill = bool(fill)
    # The number of distinct values depends on data, but XLA needs a fixed size.
    return {"output": jnp.unique(x, size=call.options["size"], fill_value=fill)}
