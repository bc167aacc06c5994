"""Loops and branches: recurrent cells and layers, and bodies run by one `lax.scan` or `lax.cond`."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from mithril_nb.backends.jax.kernels.registry import kernel, register
from mithril_nb.program import Array, Arrays, Call


@kernel("rnn_cell")
def _rnn_cell(call: Call, arrays: Arrays) -> Arrays:
    x = arrays["input"]
    before = arrays["prev_hidden"]
    rows = x.shape[0]
    hidden = jnp.tanh(x @ arrays["w_ih"] + before[:rows] @ arrays["w_hh"] + arrays["bias_h"])
    return _with_outputs(call, {"hidden": hidden}, before[rows:], arrays, "w_ho", "bias_o")


@kernel("gru_cell")
def _gru_cell(call: Call, arrays: Arrays) -> Arrays:
    x, before = arrays["input"], arrays["prev_hidden"]
    rows = x.shape[0]
    hidden = _gru_step(x @ arrays["w_ih"] + arrays["bias"], before[:rows], arrays["w_hh"], arrays["bias_n"])
    return _with_outputs(call, {"hidden": hidden}, before[rows:], arrays, "w_out", "bias_out")


@kernel("lstm_cell")
def _lstm_cell(call: Call, arrays: Arrays) -> Arrays:
    rows = arrays["input"].shape[0]
    cell, hidden = _gated(arrays, arrays["prev_hidden"][:rows], arrays["prev_cell"][:rows])
    states = {"hidden": hidden, "cell": cell}
    return _with_outputs(call, states, arrays["prev_hidden"][rows:], arrays, "w_out", "bias_out")


def _with_outputs(call: Call, states: Arrays, rest: Array, arrays: Arrays, weight: str, bias: str) -> Arrays:
    # The sequences that have ended are rows after those of the input, so that their states leave here.
    if call.options["use_complement"]:
        states = {**states, "hidden_compl": rest.astype(states["hidden"].dtype)}
    if call.options["use_output"]:
        states = {**states, "output": states["hidden"] @ arrays[weight] + arrays[bias]}
    return states


def _gated(arrays: Arrays, hidden: Array, cell: Array) -> tuple[Array, Array]:
    both = jnp.concatenate((arrays["input"], hidden), -1)
    forget, enter, new, leave = (both @ arrays[f"w_{gate}"] + arrays[f"bias_{gate}"] for gate in "fico")
    cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
    return cell, jax.nn.sigmoid(leave) * jnp.tanh(cell)


Step = Callable[[tuple[Array, ...], Array], tuple[Array, ...]]
"""A function of the states and of the input times its weights. It returns the next states, hidden state first."""


def _over_time(call: Call, arrays: Arrays, states: tuple[str, ...], step: Step) -> Arrays:
    # Multiply the inputs of all steps by their weights at once, outside of the loop.
    x = jnp.moveaxis(arrays["input"] @ arrays["w_ih"], -2, 0)
    x = x + arrays["bias"] if "bias" in arrays else x
    # `lax.scan` rejects a state whose dtype changes.
    initial = [arrays[f"initial_{state}"] for state in states if call.options["use_initial_state"]]
    dtype = jnp.result_type(x, arrays["w_hh"], *initial)
    zeros = jnp.zeros((*x.shape[1:-1], arrays["w_hh"].shape[0]), dtype)
    start = tuple(array.astype(dtype) for array in initial) or (zeros,) * len(states)
    keep = call.options["return_sequence"]

    def body(before: tuple[Array, ...], x: Array) -> tuple[tuple[Array, ...], Array | None]:
        after = step(before, x)
        return after, after[0] if keep else None

    final, hidden = lax.scan(body, start, x.astype(dtype), reverse=call.options["is_reversed"])
    output = final[0] if hidden is None else jnp.moveaxis(hidden, 0, -2)
    return {"output": output, **dict(zip(states, final, strict=True))}


@kernel("rnn")
def _rnn(call: Call, arrays: Arrays) -> Arrays:
    return _over_time(call, arrays, ("hidden",), lambda h, x: (jnp.tanh(x + h[0] @ arrays["w_hh"]),))


@kernel("lstm")
def _lstm(call: Call, arrays: Arrays) -> Arrays:
    def step(before: tuple[Array, ...], x: Array) -> tuple[Array, ...]:
        hidden, cell = before
        # The order of the gates is i, f, g, o, as in Equinox and PyTorch.
        enter, forget, new, leave = jnp.split(x + hidden @ arrays["w_hh"], 4, -1)
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        return jax.nn.sigmoid(leave) * jnp.tanh(cell), cell

    return _over_time(call, arrays, ("hidden", "cell"), step)


@kernel("gru")
def _gru(call: Call, arrays: Arrays) -> Arrays:
    bias = arrays.get("bias_n")
    return _over_time(call, arrays, ("hidden",), lambda h, x: (_gru_step(x, h[0], arrays["w_hh"], bias),))


def _gru_step(x: Array, hidden: Array, weight: Array, bias: Array | None) -> Array:
    reset, update, new = jnp.split(x, 3, -1)
    own_reset, own_update, own = jnp.split(hidden @ weight, 3, -1)
    # As in PyTorch and Equinox, the reset gate acts after the product with the weight, not on the state (Cho et al.).
    new = jnp.tanh(new + jax.nn.sigmoid(reset + own_reset) * (own if bias is None else own + bias))
    # h + z (h' - h), one product less than (1 - z) h + z h'.
    return new + jax.nn.sigmoid(update + own_update) * (hidden - new)


@kernel("scan")
def _scan(call: Call, arrays: Arrays) -> Arrays:
    axis, carry, fixed = call.options["axis"], dict(call.options["carry"]), set(call.options["fixed"])
    start = {port: arrays[port] for port in carry.values()}
    shared = {port: arrays[port] for port in fixed}
    along = {port: jnp.moveaxis(array, axis, 0) for port, array in arrays.items() if port not in {*start, *shared}}

    def round_(state, slices):
        held, number = state
        key = None if call.key is None else jax.random.fold_in(call.key, number)
        outputs = call.bodies["body"]({**shared, **held, **slices}, call.inner, key)
        # `lax.scan` rejects a state whose dtype changes.
        after = {target: outputs[source].astype(held[target].dtype) for source, target in carry.items()}
        return (after, number + 1), {port: value for port, value in outputs.items() if port not in carry}

    # A scan does not number its steps. A Python 0 would be int64 in x64 mode; fold_in casts to uint32.
    (last, _), each = lax.scan(round_, (start, jnp.uint32(0)), along)
    return {
        **{port: jnp.moveaxis(value, 0, axis) for port, value in each.items()},
        **{source: last[target] for source, target in carry.items()},
    }


@kernel("repeat")
def _repeat(call: Call, arrays: Arrays) -> Arrays:
    first, *fixed = arrays
    output, stacked = call.outputs[0], {} if call.options["is_shared"] else call.inner

    def round_(state, params):
        x, number = state
        key = None if call.key is None else jax.random.fold_in(call.key, number)
        outputs = call.bodies["body"]({first: x, **{port: arrays[port] for port in fixed}}, params or call.inner, key)
        return (outputs[output].astype(x.dtype), number + 1), None

    (last, _), _ = lax.scan(round_, (arrays[first], jnp.uint32(0)), stacked, length=call.options["count"])
    return {output: last}


@kernel("cond")
def _cond(call: Call, arrays: Arrays) -> Arrays:
    operands = {port: array for port, array in arrays.items() if port != "condition"}
    return lax.cond(
        arrays["condition"],
        lambda operands: call.bodies["then"](operands, call.inner, call.key),
        lambda operands: call.bodies["otherwise"](operands, call.inner, call.key),
        operands,
    )


register(
    {
        "lstm_cell_body": lambda call, arrays: jnp.concatenate(
            _gated(arrays, arrays["prev_hidden"], arrays["prev_cell"]), 0
        ),
        "rows_like": lambda call, arrays: arrays["input"][: arrays["like"].shape[0]],
    }
)
