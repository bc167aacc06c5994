"""In pictures of programs, every wire is connected, and no text is covered or cut off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
import pytest
from jax import lax
from picture_geometry import check_texts, check_wires

import mithril_nb as ml
from mithril_nb.viz.diagrams.stages import stage_layout
from mithril_nb.viz.diagrams.svg import scene_svg

X = jax.ShapeDtypeStruct((4, 4), "float32")


def two_scans(w: Any, x: Any) -> Any:
    def outer(carry: Any, _: Any) -> Any:
        with jax.named_scope("outer"):
            return lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum()), carry, None, length=3)

    return lax.scan(outer, x, None, length=5)


def long_scopes(w: Any, x: Any) -> Any:
    with jax.named_scope("encoder"):
        with jax.named_scope("a_very_long_name_of_an_attention_layer_number_twelve"):
            x = jnp.tanh(x @ w)
        with jax.named_scope("b"):
            x = jnp.sin(x @ w)
    return x @ w


def branches(w: Any, x: Any) -> Any:
    return lax.cond(x.sum() > 0, lambda x: jnp.tanh(x @ w), lambda x: x, x)


def while_loop(w: Any, x: Any) -> Any:
    return lax.while_loop(lambda c: c.sum() < 3, lambda c: jnp.sin(c @ w), x)


def gradient_of_scans(w: Any, x: Any) -> Any:
    return w - 0.1 * jax.grad(lambda w: (two_scans(w, x)[0] ** 2).sum())(w)


def train_step(w: Any, x: Any) -> Any:
    def loss(w: Any) -> Any:
        y = x
        for at in range(4):
            with jax.named_scope(f"layer_{at}"):
                y = jnp.tanh(y @ w) + y
        return y.sum()

    adam = optax.adam(1e-3)
    return optax.apply_updates(w, adam.update(jax.grad(loss)(w), adam.init(w))[0])


def skip(w: Any, x: Any) -> Any:
    a = jnp.tanh(x @ w)
    c = jnp.cos(x)
    return a + jnp.sin(a) + c, c


def jitted_loop_in_scopes(w: Any, x: Any) -> Any:
    with jax.named_scope("a"), jax.named_scope("b"):
        with jax.named_scope("c"):
            x = jax.jit(lambda x: lax.fori_loop(0, 3, lambda _, x: jnp.tanh(x @ w), x))(x)
        return x * (x + w)


PROGRAMS: tuple[Callable[..., Any], ...] = (
    two_scans, long_scopes, branches, while_loop, gradient_of_scans, train_step, skip, jitted_loop_in_scopes,
)  # fmt: skip


@pytest.mark.parametrize("stage", ["jaxpr", "stablehlo", "hlo"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_pictures_of_programs(fn: Callable[..., Any], stage: str) -> None:
    program = ml.inspect(fn, X, X)
    graph = program.graph(stage)
    every = {key for key, node in graph.nodes.items() if key and node.children}
    for opened in (None, every):
        scene = stage_layout(graph, opened=opened)
        check_wires(scene)
        check_texts(scene_svg(scene))
    for field in ("flops", "role") if stage == "jaxpr" else ():
        check_texts(program.overlay(field).svg)
