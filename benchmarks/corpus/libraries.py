"""Models of other libraries: Flax nnx, Flax linen and Equinox; nothing is allocated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.corpus.networks import mean_square
from benchmarks.corpus.program import Make, Program, adam_step, spec


def programs(full: bool) -> dict[str, Make]:
    """Return the programs of this family."""
    widths = (784, 512, 10) if full else (5, 7, 3)
    batch = 128 if full else 4
    return {
        "Flax nnx, forward": lambda: nnx_forward(widths, batch),
        "Flax nnx, train step": lambda: nnx_step(widths, batch),
        "Equinox, forward": lambda: equinox_forward(widths, batch),
        "Equinox, train step": lambda: equinox_step(widths, batch),
    }


def nnx_model(widths: tuple[int, ...]) -> Any:
    """Return an nnx module whose arrays are specs."""
    from flax import nnx

    class Net(nnx.Module):
        def __init__(self, rngs: nnx.Rngs):
            self.up, self.down = (nnx.Linear(widths[k], widths[k + 1], rngs=rngs) for k in range(2))
            self.norm = nnx.LayerNorm(widths[1], rngs=rngs)

        def hidden(self, x: Any) -> Any:
            return nnx.relu(self.norm(self.up(x)))

        def __call__(self, x: Any) -> Any:
            return self.down(self.hidden(x))

    return nnx.eval_shape(lambda: Net(nnx.Rngs(0)))


def nnx_parts(widths: tuple[int, ...]) -> tuple[Any, Any]:
    """Return an nnx module as a function of its state, and the spec of the state."""
    from flax import nnx

    graph, state = nnx.split(nnx_model(widths))
    return lambda state, x: nnx.merge(graph, state)(x), nnx.to_pure_dict(state)


def nnx_forward(widths: tuple[int, ...], batch: int) -> Program:
    """Return its forward pass."""
    forward, state = nnx_parts(widths)
    return forward, (state, spec(batch, widths[0]))


def nnx_step(widths: tuple[int, ...], batch: int) -> Program:
    """Return its train step."""
    forward, state = nnx_parts(widths)
    return adam_step(forward, state, spec(batch, widths[0]), spec(batch, widths[-1]), loss=mean_square)


def equinox_model(widths: tuple[int, ...]) -> Any:
    """Return an Equinox module whose arrays are specs."""
    import equinox as eqx

    class Net(eqx.Module):
        up: eqx.nn.Linear
        norm: eqx.nn.LayerNorm
        down: eqx.nn.Linear

        def __init__(self, key: Any):
            first, second = jax.random.split(key)
            self.up = eqx.nn.Linear(widths[0], widths[1], key=first)
            self.down = eqx.nn.Linear(widths[1], widths[2], key=second)
            self.norm = eqx.nn.LayerNorm(widths[1])

        def __call__(self, x: Any) -> Any:
            return self.down(jnp.tanh(self.norm(self.up(x))))

    return eqx.filter_eval_shape(Net, jax.random.key(0))


def equinox_forward(widths: tuple[int, ...], batch: int) -> Program:
    """Return its forward pass over a batch."""
    import equinox as eqx

    arrays, rest = eqx.partition(equinox_model(widths), lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def forward(arrays: Any, x: Any) -> Any:
        return jax.vmap(eqx.combine(arrays, rest))(x)

    return forward, (arrays, spec(batch, widths[0]))


def equinox_step(widths: tuple[int, ...], batch: int) -> Program:
    """Return its train step, with Equinox's filters."""
    import equinox as eqx

    optimizer = optax.adam(1e-3)
    arrays, rest = eqx.partition(equinox_model(widths), lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def loss(model: Any, x: Any, y: Any) -> Any:
        return mean_square(jax.vmap(model)(x), y)

    def step(arrays: Any, state: Any, x: Any, y: Any) -> Any:
        model = eqx.combine(arrays, rest)
        value, grads = eqx.filter_value_and_grad(loss)(model, x, y)
        updates, state = optimizer.update(grads, state, arrays)
        return eqx.partition(eqx.apply_updates(model, updates), eqx.is_array)[0], state, value

    return step, (arrays, jax.eval_shape(optimizer.init, arrays), spec(batch, widths[0]), spec(batch, widths[-1]))
