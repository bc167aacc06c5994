"""Arithmetic and reductions whose kernels need several lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from mithril_nb.backends.jax.kernels.registry import Result, in_floating, kernel, narrowed
from mithril_nb.errors import ShapeError
from mithril_nb.program import Arrays, Call

Function = Callable[..., jax.Array]


def scalar(call: Call, port: str, like: Any) -> jax.Array:
    """Return the value of the attribute `port` of a block, as a scalar with the dtype of `like`.

    Raises:
        ShapeError: A connection provides the value, and the value is not a scalar.
    """
    value = call.options[port]
    if getattr(value, "shape", ()) != ():
        raise ShapeError(
            f"{port!r} expects a scalar but receives an array.",
            ((port, f"{tuple(value.shape)} {value.dtype}"), ("needs", "()")),
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


@kernel("power")
def _power(call: Call, arrays: Arrays) -> Result:
    base, exponent = arrays["base"], arrays["exponent"]
    dtype = jnp.promote_types(base.dtype, exponent.dtype)
    if not call.options["robust"] or not jnp.issubdtype(dtype, jnp.floating):
        plain = base
        if jnp.issubdtype(base.dtype, jnp.floating) and jnp.issubdtype(exponent.dtype, jnp.floating):
            # The derivative of 0**0 by the base would be 0 * 0**-1, NaN. JAX avoids it for integer exponents only.
            plain = jnp.where((base == 0) & (exponent == 0), 1, base)
        return narrowed(jnp.power(plain, exponent), base, exponent)
    return _robust_power(base.astype(dtype), exponent.astype(dtype), call.options["threshold"])


kernel("absolute")(lambda call, arrays: absolute(arrays["input"]))


def _least(threshold: Any, dtype: Any) -> jax.Array:
    # Not below the smallest normal number: CPUs flush smaller numbers to 0 in XLA's programs.
    tiny = jnp.asarray(jnp.finfo(dtype).tiny, dtype)
    return tiny if threshold is None else jnp.maximum(jnp.asarray(threshold, dtype), tiny)


def _robust_power(base: jax.Array, exponent: jax.Array, threshold: Any) -> jax.Array:
    # An overflow in the case that is not selected would make the gradients NaN, so this case gets other numbers.
    tiny = jnp.finfo(base.dtype).tiny
    grows = exponent > 0
    if threshold is None:
        # For a negative exponent e, the slope at t is about t**(e - 1): this t keeps it below 1 / sqrt(tiny).
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
def _sqrt(call: Call, arrays: Arrays) -> Result:
    x = in_floating(arrays["input"])
    if not call.options["robust"]:
        return jnp.sqrt(x)
    # Below t, the line through 0 with the root's value at t: its slope is finite.
    t = _least(call.options["threshold"], x.dtype)
    is_near = jnp.abs(x) < t
    far = jnp.where(x < 0, -1, 1).astype(x.dtype) * jnp.sqrt(jnp.where(is_near, t, jnp.abs(x)))
    return jnp.where(is_near, x * lax.rsqrt(t), far)


@kernel("log")
def _log(call: Call, arrays: Arrays) -> Result:
    x = in_floating(arrays["input"])
    if not call.options["robust"]:
        return jnp.log(x)
    # Below t, the logarithm is continued by point reflection, so that value and slope are continuous.
    t = _least(call.options["threshold"], x.dtype)
    is_low = x < t
    log = jnp.log(jnp.where(is_low, 2 * t - x, x))
    return jnp.where(is_low, 2 * jnp.log(t) - log, log)


@kernel("stable_reciprocal")
def _stable_reciprocal(call: Call, arrays: Arrays) -> Result:
    x = in_floating(arrays["input"])
    limits = jnp.finfo(x.dtype)
    t = limits.eps if call.options["threshold"] is None else lax.stop_gradient(scalar(call, "threshold", x))
    t = jnp.maximum(t, 2 / jnp.sqrt(limits.max)).astype(x.dtype)  # below this, the derivative overflows
    sign = jnp.where(x < 0, -1, 1).astype(x.dtype)
    return sign / jnp.where(jnp.abs(x) < t, t, jnp.abs(x))


@kernel("clamp")
def _clamp(call: Call, arrays: Arrays) -> Result:
    x = arrays["input"]
    if call.options["min_val"] is not None:
        x = jnp.maximum(x, _bound(call, "min_val", jnp.ceil, x))
    if call.options["max_val"] is not None:
        x = jnp.minimum(x, _bound(call, "max_val", jnp.floor, x))
    return x


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
def _nan_to_num(call: Call, arrays: Arrays) -> Result:
    x = arrays["input"]
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return x
    limits = jnp.finfo(x.dtype)
    posinf, neginf = (
        jnp.asarray(limit, x.dtype) if call.options[port] is None else scalar(call, port, x)
        for port, limit in (("posinf", limits.max), ("neginf", limits.min))
    )
    return jnp.nan_to_num(x, nan=scalar(call, "nan", x), posinf=posinf, neginf=neginf)


@kernel("norm")
def _norm(call: Call, arrays: Arrays) -> Result:
    x, p = absolute(in_floating(arrays["input"])), call.options["p"]
    axis, keepdim = call.options["axis"], bool(call.options["keepdim"])
    # Divide by the largest element, so that no power overflows. Neither the result nor its gradient depends on it.
    unit = lax.stop_gradient(jnp.max(x, axis, keepdims=True, initial=0.0))
    if p == float("inf"):
        # jnp.max has no identity for an empty axis without `initial`. Absolute values are at least 0.
        return jnp.max(x, axis, keepdims=keepdim, initial=0.0)
    is_zero = unit == 0
    scale = jnp.where(is_zero | ~jnp.isfinite(unit), 1, unit)
    parts = jnp.sum((x / scale) ** p, axis, keepdims=True)
    length = scale * jnp.where(is_zero, 1, parts) ** (1 / p)
    length = jnp.where(is_zero, 0, length)
    return length if keepdim else jnp.squeeze(length, axis)


@kernel("unique")
def _unique(call: Call, arrays: Arrays) -> Result:
    x, fill = arrays["input"], call.options["fill_value"]
    if x.dtype == bool and fill is not None:
        fill = bool(fill)
    # The number of distinct values depends on data, but XLA needs a fixed size.
    return jnp.unique(x, size=call.options["size"], fill_value=fill)
