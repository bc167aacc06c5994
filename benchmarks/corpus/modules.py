"""Flax nnx and Equinox modules as users pass them to `ml.inspect`: alone, and in a hand-written train step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import optax

import mithril_nb as ml
from benchmarks import gpt
from benchmarks.corpus.libraries import equinox_model, nnx_model
from benchmarks.corpus.networks import mean_square
from benchmarks.corpus.program import cross_entropy, ints, spec
from mithril_nb.inspection import Inspection

Make = Callable[[], Inspection]


def steps(full: bool) -> dict[str, tuple[Make, Make]]:
    """Return, by name, functions that inspect a train step and the forward pass of the same module.

    Args:
        full: Whether the modules are GPT-2 small instead of small ones for tests.
    """
    if full:
        equinox, nnx, x, y, loss = _equinox_gpt(), _nnx_gpt(), ints(2, 128), ints(2, 128), cross_entropy
    else:
        widths = (5, 7, 3)
        equinox, nnx, x, y, loss = equinox_model(widths), nnx_model(widths), spec(4, 5), spec(4, 3), mean_square
    name = "GPT-2 small" if full else "net"
    batched, one = partial(ml.inspect, jax.vmap(equinox), x), jax.ShapeDtypeStruct(x.shape[1:], x.dtype)
    optimizer = optax.adam(1e-3)
    by_equinox, state = equinox_step(equinox, optimizer, loss)
    by_nnx, held = nnx_step(nnx, optimizer, loss)
    ours: dict[str, Any] = {"loss": "cross_entropy" if full else "mean_squared_error", "optimizer": optimizer}
    return {
        f"{name} of Flax nnx, mithril_nb train step": (
            partial(ml.inspect, nnx, x, **ours),
            partial(ml.inspect, nnx, x),
        ),
        f"{name} of Flax nnx, hand-written train step": (
            partial(ml.inspect, by_nnx, nnx, held, x, y),
            partial(ml.inspect, nnx, x),
        ),
        f"{name} of Equinox, mithril_nb train step": (
            partial(ml.inspect, equinox, one, **ours),
            partial(ml.inspect, equinox, one),
        ),
        f"{name} of Equinox, hand-written train step": (partial(ml.inspect, by_equinox, equinox, state, x, y), batched),
    }


def _equinox_gpt() -> Any:
    import equinox as eqx

    return eqx.filter_eval_shape(gpt.equinox_model, jax.random.key(0))


def _nnx_gpt() -> Any:
    from flax import nnx

    return nnx.eval_shape(gpt.nnx_model)


def equinox_step(module: Any, optimizer: Any, loss: Callable[..., Any]) -> tuple[Callable[..., Any], Any]:
    """Return a typical Equinox train step over a batch, and the spec of the optimizer's state."""
    import equinox as eqx

    @eqx.filter_jit
    def step(model: Any, state: Any, x: Any, y: Any) -> Any:
        def compute_loss(model: Any) -> Any:
            return loss(jax.vmap(model)(x), y)

        value, grads = eqx.filter_value_and_grad(compute_loss)(model)
        updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_array))
        return eqx.apply_updates(model, updates), state, value

    arrays = eqx.filter(module, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))
    return step, jax.eval_shape(optimizer.init, arrays)


def nnx_step(module: Any, optimizer: Any, loss: Callable[..., Any]) -> tuple[Callable[..., Any], Any]:
    """Return a typical Flax nnx train step, and its optimizer."""
    from flax import nnx

    @nnx.jit
    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        def compute_loss(model: Any) -> Any:
            return loss(model(x), y)

        value, grads = nnx.value_and_grad(compute_loss)(model)
        optimizer.update(model, grads)
        return value

    return step, nnx.eval_shape(lambda: nnx.Optimizer(module, optimizer, wrt=nnx.Param))
