"""Large programs of several shapes: long chains, layers, calls, nested loops, vmaps, an optimizer."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import lax

from benchmarks.corpus import Make, Program
from benchmarks.corpus.program import adam_step, ints, spec
from benchmarks.gpt import plain_forward, plain_shapes


def large_programs(full: bool) -> dict[str, Make]:
    """Return programs of 1,000 to 50,000 equations of several shapes, by name; GPT-2 medium only if `full`."""
    found: dict[str, Make] = {
        f"flat, {count:,} equations": functools.partial(flat, count) for count in (1_000, 5_000, 20_000, 50_000)
    }
    found["MLP of 100 layers, train step"] = functools.partial(deep, 100)
    found["MLP of 1,000 layers, train step"] = functools.partial(deep, 1_000)
    found["500 calls of shared functions"] = functools.partial(calling, 500)
    found["loops and conditions in each other, 30 deep"] = functools.partial(nested, 30, 100)
    found["GRU of 8 layers, train step"] = functools.partial(recurrent, 8)
    found["optax, update of 300 parameters"] = functools.partial(updating, 300)
    found["vmap of vmap, 500 steps"] = functools.partial(mapped, 500)
    return found | ({"GPT-2 medium, train step": medium_gpt} if full else {})


def flat(count: int) -> Program:
    """Return a program with a chain of `count` equations."""

    def program(x: Any) -> Any:
        for _ in range(count // 2):
            x = jnp.sin(x) * 2.0
        return x

    return program, (spec(16),)


def deep(layers: int) -> Program:
    """Return a train step of an MLP with `layers` layers of width 32."""

    def loss(params: Any, x: Any) -> Any:
        for weight, bias in params:
            x = jnp.tanh(x @ weight + bias)
        return (x**2).mean()

    def step(params: Any, x: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, x)
        return value, jax.tree.map(lambda param, slope: param - 0.1 * slope, params, gradient)

    return step, ([(spec(32, 32), spec(32))] * layers, spec(8, 32))


def calling(count: int) -> Program:
    """Return a program that calls the same jitted functions `count` times."""

    @jax.jit
    def shared(x: Any) -> Any:
        return jax.nn.relu(x) * jnp.where(x > 0, x, 1.0)

    def program(x: Any) -> Any:
        for _ in range(count):
            x = shared(x) + jax.nn.gelu(x)
        return x

    return program, (spec(16, 16),)


def nested(depth: int, count: int) -> Program:
    """Return a program of nested scans, conditions and loops, each with `count` further equations."""

    def level(left: int, x: Any) -> Any:
        for _ in range(count // 2):
            x = jnp.sin(x) * 2.0
        if not left:
            return x
        inner = functools.partial(level, left - 1)
        if left % 3 == 0:
            return lax.scan(lambda carry, _: (inner(carry), None), x, length=3)[0]
        if left % 3 == 1:
            return lax.cond(x[0] > 0, inner, jnp.cos, x)
        return lax.while_loop(lambda y: y[0] > 0, inner, x)

    def program(x: Any) -> Any:
        return level(depth, x)

    return program, (spec(16),)


def recurrent(layers: int, width: int = 64) -> Program:
    """Return a train step of a stack of GRUs: one gradient of a scan for each."""

    def cell(layer: Any, state: Any, x: Any) -> Any:
        update, reset = (jax.nn.sigmoid(x @ layer["x"][gate] + state @ layer["h"][gate]) for gate in (0, 1))
        new = jnp.tanh(x @ layer["x"][2] + (reset * state) @ layer["h"][2] + layer["bias"])
        return (1 - update) * new + update * state

    def forward(params: Any, x: Any) -> Any:
        for layer in params["layers"]:

            def step(state: Any, x: Any, layer: Any = layer) -> Any:
                state = cell(layer, state, x)
                return state, state

            x = lax.scan(step, jnp.zeros((x.shape[1], width)), x)[1]
        return x[-1] @ params["out"]

    one = {"x": spec(3, width, width), "h": spec(3, width, width), "bias": spec(width)}
    return adam_step(forward, {"layers": [one] * layers, "out": spec(width, 10)}, spec(20, 8, width), ints(8))


def updating(count: int) -> Program:
    """Return the update of an optax chain for the gradients of `count` parameters."""
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(optax.cosine_decay_schedule(1e-3, 1_000), weight_decay=1e-4),
    )
    params = {f"weight_{index}": spec(16, 16) for index in range(count)}

    def step(params: Any, state: Any, gradients: Any) -> Any:
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    return step, (params, jax.eval_shape(optimizer.init, params), params)


def mapped(steps: int) -> Program:
    """Return a program that JAX maps over two axes."""

    def one(weight: Any, x: Any) -> Any:
        for _ in range(steps):
            x = jnp.where(x > 0, jnp.tanh(weight @ x), jax.nn.softmax(x)) + jnp.linalg.norm(x)
        return x

    def program(weights: Any, x: Any) -> Any:
        return jax.vmap(jax.vmap(one, (None, 0)))(weights, x)

    return program, (spec(4, 8, 8), spec(4, 5, 8))


def medium_gpt() -> Program:
    """Return a train step of GPT-2 medium."""
    params = {name: spec(*shape) for name, shape in plain_shapes(layers=24, width=1024, vocabulary=50257).items()}
    tokens = ints(2, 64)
    return adam_step(functools.partial(plain_forward, layers=24, heads=16), params, tokens, tokens)
