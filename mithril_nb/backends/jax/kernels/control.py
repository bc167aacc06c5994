"""Loops and branches: one `lax.scan` or `lax.cond` each."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from mithril_nb.backends.jax.kernels.registry import kernel
from mithril_nb.program import Arrays, Call


@kernel("scan")
def _scan(call: Call, arrays: Arrays) -> Arrays:
    axis, carry, fixed = call.options["axis"], dict(call.options["carry"]), set(call.options["fixed"])
    start = {port: arrays[port] for port in carry.values()}
    whole = {port: arrays[port] for port in fixed}
    along = {port: jnp.moveaxis(array, axis, 0) for port, array in arrays.items() if port not in {*start, *whole}}

    def round_(state, given):
        held, number = state
        key = None if call.key is None else jax.random.fold_in(call.key, number)
        found = call.bodies["body"]({**whole, **held, **given}, call.inner, key)
        after = {target: found[source].astype(held[target].dtype) for source, target in carry.items()}
        return (after, number + 1), {port: value for port, value in found.items() if port not in carry}

    (last, _), each = lax.scan(round_, (start, jnp.uint32(0)), along)
    return {
        **{port: jnp.moveaxis(value, 0, axis) for port, value in each.items()},
        **{source: last[target] for source, target in carry.items()},
    }


@kernel("repeat")
def _repeat(call: Call, arrays: Arrays) -> Arrays:
    first, *fixed = arrays
    output = call.outputs[0]

    def round_(state, params):
        x, number = state
        key = None if call.key is None else jax.random.fold_in(call.key, number)
        found = call.bodies["body"]({first: x, **{port: arrays[port] for port in fixed}}, params, key)
        return (found[output].astype(x.dtype), number + 1), None

    (last, _), _ = lax.scan(round_, (arrays[first], jnp.uint32(0)), call.inner, length=call.options["count"])
    return {output: last}


@kernel("cond")
def _cond(call: Call, arrays: Arrays) -> Arrays:
    given = {port: array for port, array in arrays.items() if port != "condition"}
    return lax.cond(
        arrays["condition"],
        lambda given: call.bodies["then"](given, call.inner, call.key),
        lambda given: call.bodies["otherwise"](given, call.inner, call.key),
        given,
    )
