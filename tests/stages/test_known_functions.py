"""Operations that compute a known function, such as the softmax, have its name: when, and only when, they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from flax import nnx
from jax_programs import by_id, spec

import mithril_nb as ml
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.graph.known_functions import known_functions

Function = Callable[[Any], Any]
X = spec(4, 4)


def softmax(x):
    e = jnp.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_of_columns(x):
    e = jnp.exp(x - jax.lax.stop_gradient(jnp.max(x, axis=0)))
    return e / e.sum(0)


def log_softmax(x):
    x = x - x.max(-1)[:, None]
    return x - jnp.log(jnp.exp(x).sum(-1)[:, None])


def gelu(x):
    return 0.5 * x * (1 + jnp.tanh(jnp.sqrt(2 / jnp.pi) * (x + 0.044715 * x**3)))


def exact_gelu(x):
    return x * 0.5 * (1 + jax.lax.erf(x / jnp.sqrt(2.0)))


def silu(x):
    return x * jax.nn.sigmoid(x)


def layer_norm(x):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-5)


def layer_norm_of_var(x):
    return (x - x.mean(-1)[:, None]) * jax.lax.rsqrt(x.var(-1)[:, None] + 1e-5)


def rms_norm(x):
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)


WRITTEN_OUT: dict[Function, tuple[str, Function]] = {
    softmax: ("softmax", jax.nn.softmax),
    softmax_of_columns: ("softmax", lambda x: jax.nn.softmax(x, 0)),
    log_softmax: ("log_softmax", jax.nn.log_softmax),
    gelu: ("gelu", jax.nn.gelu),
    exact_gelu: ("gelu", lambda x: jax.nn.gelu(x, approximate=False)),
    silu: ("silu", jax.nn.silu),
    layer_norm: ("layer_norm", lambda x: jax.nn.standardize(x, -1, epsilon=1e-5)),
    layer_norm_of_var: ("layer_norm", lambda x: jax.nn.standardize(x, -1, epsilon=1e-5)),
    rms_norm: ("rms_norm", lambda x: x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)),
}
SIMILAR: dict[str, Function] = {
    "sum along another axis": lambda x: (e := jnp.exp(x - x.max(-1, keepdims=True))) / e.sum(0, keepdims=True),
    "sums of rows for columns": lambda x: (e := jnp.exp(x - x.max(-1, keepdims=True))) / e.sum(-1),
    "maximum of another array": lambda x: (e := jnp.exp(x - (2 * x).max(-1, keepdims=True))) / (1 + e).sum(-1),
    "minus": lambda x: (e := jnp.exp(x.max(-1, keepdims=True) - x)) / e.sum(-1, keepdims=True) ** 2,
    "another constant": lambda x: 0.5 * x * (1 + jnp.tanh(jnp.sqrt(2 / jnp.pi) * (x + 0.44715 * x**3))),
    "square instead of cube": lambda x: 0.5 * x * (1 + jnp.tanh(jnp.sqrt(2 / jnp.pi) * (x + 0.044715 * x**2))),
    "another part": lambda x: jnp.split(x, 2, 1)[0] * jax.nn.sigmoid(jnp.split(x, 2, 1)[1]),
    "another half": lambda x: (parts := jnp.split(x, 2, 1))[0] * jax.nn.sigmoid(parts[1]),
    "unbiased variance": lambda x: (x - x.mean(-1)[:, None]) / jnp.sqrt(x.var(-1, ddof=1)[:, None] + 1e-5),
    "variance of columns": lambda x: (x - x.mean(-1)[:, None]) / jnp.sqrt(x.var(0)[None] + 1e-5),
    "sum along a new axis": lambda x: (e := jnp.exp(x[0] - x[0].max())[None]) / e.sum(0),
    "sum of squares": lambda x: x / jnp.sqrt((x**2).sum(-1, keepdims=True) + 1e-6),
}


def names(inspection):
    found = by_id(inspection, "jaxpr")
    return {name for name, _ in known_functions(found, found).values()} - {""}


@pytest.mark.parametrize("fn", WRITTEN_OUT, ids=lambda fn: fn.__name__)
def test_a_function_that_is_written_out_has_its_name(fn):
    name, reference = WRITTEN_OUT[fn]
    x = jax.random.normal(jax.random.key(0), (4, 4))
    assert jnp.allclose(fn(x), reference(x), atol=1e-6)
    assert names(inspect(fn, X)) == {name}
    assert names(inspect(jax.vmap(fn) if "columns" not in name else fn, spec(3, 4, 4))) <= {name}


def test_sizes_may_be_symbolic():
    sizes = spec("rows", "columns"), spec("n", "n", "m")
    assert all(names(inspect(softmax, one)) <= {"softmax"} for one in sizes)
    inspect(lambda x: layer_norm_of_var(x) + x.var((0, 1)), sizes[0]).graph()


def test_functions_inside_a_scan_over_rows_have_names_or_none():
    def scanned(xs):
        def step(carry, x):
            weight = jnp.broadcast_to(x[0], carry.shape)
            return softmax(carry) * weight, layer_norm_of_var(x)

        return jax.lax.scan(step, xs[0], xs)

    assert names(inspect(scanned, spec(3, 4, 4))) <= {"softmax", "layer_norm"}
    inspect(scanned, spec(3, 4, 4)).graph()


@pytest.mark.parametrize("name", SIMILAR)
def test_a_similar_function_has_no_known_name(name):
    assert not names(inspect(SIMILAR[name], X))


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.a, self.b, self.c, self.d = (nnx.Linear(4, 4, rngs=rngs) for _ in range(4))

    def __call__(self, x):
        x = self.a(x)
        e = jnp.exp(x - x.max(-1, keepdims=True))
        x = self.b(e / e.sum(-1, keepdims=True))
        x = self.c(x * 0.5 * (1 + jax.lax.erf(x / jnp.sqrt(2.0))))
        mean = x.mean(-1, keepdims=True)
        return self.d((x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * 2.0)


@pytest.mark.parametrize("is_differentiated", [False, True])
def test_operations_between_layers_have_the_name_of_the_function_they_compute(is_differentiated):
    def run(net, x):
        return jax.grad(lambda net: net(x).sum())(net) if is_differentiated else net(x)

    nodes = ml.inspect(run, Net(nnx.Rngs(0)), X).graph().nodes
    lines = {nodes[key].name: nodes[key].note for key in nodes[""].children if nodes[key].kind == "lines"}
    assert [*lines] == ["softmax", "gelu", "layer_norm"]
    assert all(note.startswith("test_known_functions.py:") for note in lines.values())


def test_lines_of_one_function_are_one_node():
    def many(x):
        for _ in range(20):
            x = jnp.sin(x) @ x
        e = jnp.exp(x - x.max(-1, keepdims=True))
        total = e.sum(-1, keepdims=True)
        return jnp.cos(x), e / total

    nodes = inspect(many, X).graph().nodes.values()
    (node,) = (node for node in nodes if "softmax" in node.name)
    assert (node.kind, node.name) == ("lines", "softmax, cos")
