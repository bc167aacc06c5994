"""The programs of the benchmarks: each as a mithril_nb model, and in plain JAX over the same params."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import mithril_nb as ml
from benchmarks.gpt import plain_forward
from mithril_nb.compilation import PhysicalModel
from mithril_nb.models import CNN, GPT, Linear, Model, Relu

CLASSES = 10


@dataclass(frozen=True)
class Workload:
    """A model and the same program in plain JAX.

    Attributes:
        name: Display name.
        model: Composes the model, from an input `input` to logits `output`.
        forward: The same in plain JAX: a function from params by name and the input to logits.
        shape: Shape of the input, with the batch first.
        bar: Largest acceptable ratio of our time to plain JAX's.
        tokens: Vocabulary size if the input is tokens with one target each; else 0.
    """

    name: str
    model: Callable[[], Model]
    forward: Callable[[dict[str, Any], Any], Any]
    shape: tuple[int, ...]
    bar: float = 1.02
    tokens: int = 0

    def compiled(self) -> PhysicalModel:
        """Return our model, compiled for its input shape."""
        return ml.compile(self.model(), ml.JaxBackend(), shapes={"input": list(self.shape)})

    def samples(self, batch_size: int | None = None) -> tuple[Any, Any]:
        """Return inputs and targets of one batch."""
        shape = (batch_size or self.shape[0], *self.shape[1:])
        rng = np.random.default_rng(1)
        if self.tokens:
            text, after = (jnp.asarray(rng.integers(0, self.tokens, shape), jnp.int32) for _ in range(2))
            return text, after
        x = rng.normal(size=shape).astype(np.float32)
        return jnp.asarray(x), jnp.asarray(rng.integers(0, CLASSES, shape[0]), jnp.int32)


def mlp(widths: tuple[int, ...]) -> Model:
    """Return Linear blocks with a Relu between them."""
    model = Model()
    for place, width in enumerate(widths):
        if place:
            model += Relu()
        model += Linear(dimension=width)
    return model


def mlp_forward(params: dict[str, Any], x: Any) -> Any:
    """Return the logits of `mlp`."""
    depth = len(params) // 2
    for place in range(depth):
        x = x @ params[f"linear_{place}.weight"] + params[f"linear_{place}.bias"]
        if place < depth - 1:
            x = jax.nn.relu(x)
    return x


def cnn_forward(params: dict[str, Any], x: Any) -> Any:
    """Return the logits of `CNN`."""
    for place in range(len(params) // 2 - 1):
        x = jax.lax.conv_general_dilated(x, params[f"conv2d_{place}.weight"], (1, 1), "SAME")
        x = jax.nn.relu(x + params[f"conv2d_{place}.bias"][:, None, None])
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    return x.reshape(len(x), -1) @ params["linear_0.weight"] + params["linear_0.bias"]


def gpt_forward(params: dict[str, Any], x: Any) -> Any:
    """Return the logits of the small `GPT`."""
    return plain_forward(params, x, layers=4, heads=4)


WORKLOADS = {
    one.name: one
    for one in (
        Workload("MLP 4x256, batch 128", lambda: mlp((256, 256, 256, 256, CLASSES)), mlp_forward, (128, 64)),
        Workload("MLP 4x32, batch 8", lambda: mlp((32, 32, 32, 32, CLASSES)), mlp_forward, (8, 64), 1.05),
        Workload("CNN 32-64 on 16x16, batch 32", lambda: CNN((32, 64), CLASSES), cnn_forward, (32, 1, 16, 16)),
        Workload(
            "GPT 4x128, 8 times 64 tokens",
            lambda: GPT(vocabulary=256, context=64, layers=4, heads=4, width=128),
            gpt_forward,
            (8, 64),
            tokens=256,
        ),
    )
}


def adam_step(forward: Callable[[Any, Any], Any], learning_rate: float) -> tuple[Callable[..., Any], Any]:
    """Return a hand-written step, jitted and donated, and its optimizer."""
    optimizer = optax.adam(learning_rate)

    def loss(params: Any, x: Any, labels: Any) -> Any:
        return optax.softmax_cross_entropy_with_integer_labels(forward(params, x), labels).mean()

    def step(params: Any, opt_state: Any, x: Any, labels: Any) -> Any:
        value, grads = jax.value_and_grad(loss)(params, x, labels)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    return jax.jit(step, donate_argnums=(0, 1)), optimizer
