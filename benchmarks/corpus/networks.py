"""Networks without convolutions or attention: MLP, LSTM, a mixture of experts, an ensemble."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.corpus.program import Make, adam_step, sgd_step, spec


def programs(full: bool) -> dict[str, Make]:
    """Return the programs of this family."""
    widths = (784, 512, 256, 10) if full else (5, 7, 11, 3)
    batch = 128 if full else 4
    layers = [{"w": spec(left, right), "b": spec(right)} for left, right in pairwise(widths)]
    x, y = spec(batch, widths[0]), spec(batch, widths[-1])
    members = jax.tree.map(lambda leaf: spec(6, *leaf.shape), layers)
    embed, hidden, time = (256, 512, 64) if full else (5, 7, 6)
    cell = {"input": spec(embed, 4 * hidden), "hidden": spec(hidden, 4 * hidden), "bias": spec(4 * hidden)}
    lstm = {"cell": cell, "head": spec(hidden, 3)}
    text, label = spec(batch, time, embed), spec(batch, 3)
    width, inner, experts = (512, 2048, 8) if full else (6, 10, 4)
    moe = {
        "router": spec(width, experts),
        "up": spec(experts, width, inner),
        "down": spec(experts, inner, width),
        "norm": spec(width),
    }
    tokens = spec(batch * 8, width)
    return {
        "MLP, forward": lambda: (mlp, (layers, x)),
        "MLP, train step": lambda: adam_step(mlp, layers, x, y, loss=mean_square),
        "MLP with scopes, train step": lambda: adam_step(mlp_with_scopes, layers, x, y, loss=mean_square),
        "MLP, hand-written SGD": lambda: sgd_step(mlp, layers, x, y, loss=mean_square),
        "LSTM by scan, forward": lambda: (lstm_classifier, (lstm, text)),
        "LSTM by scan, train step": lambda: adam_step(lstm_classifier, lstm, text, label, loss=mean_square),
        "mixture of experts, forward": lambda: (mixture, (moe, tokens)),
        "mixture of experts, train step": lambda: adam_step(mixture, moe, tokens, tokens, loss=mean_square),
        "ensemble by vmap, forward": lambda: (jax.vmap(mlp, (0, None)), (members, x)),
        "ensemble by vmap, train step": lambda: sgd_step(ensemble_mean, members, x, y, loss=mean_square),
    }


def mean_square(prediction: Any, target: Any) -> Any:
    """Return the loss of a regression."""
    return ((prediction - target) ** 2).mean()


def dense(layer: Any, x: Any) -> Any:
    """Return one affine layer."""
    return x @ layer["w"] + layer["b"]


def mlp(layers: Any, x: Any) -> Any:
    """Return the output of layers with a relu between them."""
    for layer in layers[:-1]:
        x = jax.nn.relu(dense(layer, x))
    return dense(layers[-1], x)


def mlp_with_scopes(layers: Any, x: Any) -> Any:
    """Return the output of layers with a relu between them, and a name for each layer."""
    for number, layer in enumerate(layers):
        with jax.named_scope(f"layer_{number}"):
            x = dense(layer, x)
            if number < len(layers) - 1:
                x = jnp.tanh(x)
    return x


def ensemble_mean(members: Any, x: Any) -> Any:
    """Return the mean output of networks with stacked params."""
    return jax.vmap(mlp, (0, None))(members, x).mean(0)


def lstm_cell(params: Any, carry: Any, x: Any) -> Any:
    """Return the state and the output of one step."""
    hidden, memory = carry
    gates = x @ params["input"] + hidden @ params["hidden"] + params["bias"]
    enter, forget, new, leave = jnp.split(gates, 4, axis=-1)
    memory = jax.nn.sigmoid(forget) * memory + jax.nn.sigmoid(enter) * jnp.tanh(new)
    hidden = jax.nn.sigmoid(leave) * jnp.tanh(memory)
    return (hidden, memory), hidden


def lstm_classifier(params: Any, text: Any) -> Any:
    """Return logits from the last of the hidden states."""
    zeros = jnp.zeros((text.shape[0], params["cell"]["hidden"].shape[0]))
    _, hidden = lax.scan(lambda carry, x: lstm_cell(params["cell"], carry, x), (zeros, zeros), text.swapaxes(0, 1))
    with jax.named_scope("head"):
        return hidden[-1] @ params["head"]


def mixture(params: Any, x: Any) -> Any:
    """Return each token after two experts chosen by a router."""

    def route(x: Any) -> Any:
        scores = jax.nn.softmax(x @ params["router"])
        best, index = lax.top_k(scores, 2)
        chosen = jax.nn.one_hot(index, scores.shape[-1]) * (best / best.sum(-1, keepdims=True))[..., None]
        return chosen.sum(1)

    normal = x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * params["norm"]
    weights = route(normal)
    with jax.named_scope("experts"):
        hidden = jax.nn.silu(jnp.einsum("td,edh->teh", normal, params["up"]))
        out = jnp.einsum("teh,ehd->ted", hidden, params["down"])
    return x + jnp.einsum("ted,te->td", out, weights)
