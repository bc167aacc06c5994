"""Reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from mithril_nb.backends.jax.kernels.arithmetic import absolute, elementwise, scalar
from mithril_nb.backends.jax.kernels.dtypes import in_floating
from mithril_nb.backends.jax.kernels.registry import kernel
from mithril_nb.models.library.operations.reducing import summed
from mithril_nb.program import Arrays, Call


def _reduction(op: str, function: Callable[..., jax.Array], **fixed: Any) -> None:
    @kernel(op)
    def _run(call: Call, arrays: Arrays) -> Arrays:
        return {"output": function(arrays["input"], **_where(call), **fixed)}


def _where(call: Call) -> dict[str, Any]:
    return {"axis": call.options["axis"], "keepdims": bool(call.options["keepdim"])}


def _summed(function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """Return a sum or product in the dtype of the shape rule. In x64 mode, JAX would use 64 bits."""
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
