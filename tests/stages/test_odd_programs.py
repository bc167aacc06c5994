"""Unusual programs: shared functions, contexts, names with line breaks, intermediate gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax_programs import ops_of, spec

from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages import jax_jit, jax_versions


@jax.jit
def difference(a, b):
    c = a - b
    return c * a


@jax.jit
def unit(x):
    return x / jnp.sqrt((x * x).sum())


def test_a_function_called_twice_binds_new_names():
    text = inspect(lambda x, y: difference(x, y) + difference(y, x), spec(2), spec(2)).stage("jaxpr").text
    bound = [word.partition(":")[0] for word in text.split() if ":f32[2]" in word]
    assert len(bound) == len(set(bound)) == 13


def test_each_call_of_a_shared_function_has_its_equations():
    def step(w, x):
        def loss(w):
            with jax.named_scope("net"):
                return unit(w @ x).sum()

        gradient = jax.grad(loss)(w)
        with jax.named_scope("opt"):
            gradient = unit(gradient)
        return w - gradient

    found = inspect(step, spec(4, 4), spec(4, 4))
    calls = ops_of(found, "hlo_before", "call")
    attributed = {(tuple(one.blocks), one.role) for one in calls}
    assert (("opt/unit",), "update") in attributed
    assert attributed <= {(("net/unit",), "forward"), (("net/unit",), "backward"), (("opt/unit",), "update")}


def test_an_intermediate_gradient_is_not_an_update():
    def guided(x, w):
        return (x + jax.grad(lambda x: (x**2).sum())(x)) @ w

    roles = {one.primitive: one.role for one in inspect(guided, spec(3, 5), spec(5, 7)).equations}
    assert roles["dot_general"] == roles["add"] == "forward"
    assert roles["broadcast_in_dim"] == "backward"


def test_names_are_data():
    found = inspect(lambda x: jnp.sin(checkpoint_name(x * 2, "a\nb")), spec(3))
    stage = found.stage("jaxpr")
    (sine,) = (one for one in stage.instructions if one.opcode == "sin")
    assert " sin " in stage.text.splitlines()[sine.line - 1]
    marked = inspect(jnp.sin, spec(3), name="mnb#0~")
    assert {one.equations for one in marked.stage("hlo").instructions if one.opcode == "sine"} == {("0",)}
    assert inspect(lambda x: jnp.sin(x) * 2, spec(3), name="n" * 170).passes


def test_a_result_may_cause_the_error():
    found = inspect(lambda x: (x, "abc"), spec(3))
    assert "not a valid JAX type" in found.stage("jaxpr").unavailable
    assert found.stage("jaxpr").unavailable == found.stage("hlo").unavailable


def test_concurrent_compilations_restore_the_cache(monkeypatch, tmp_path):
    cache = jax_jit.cache
    before = cache._cache_checked, cache._cache_used
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        first, second = jax_jit.without_compilation_cache(), jax_jit.without_compilation_cache()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert (cache._cache_checked, cache._cache_used) == (True, False)
        second.__exit__(None, None, None)
        assert (cache._cache_checked, cache._cache_used) == before
    finally:
        jax.config.update("jax_compilation_cache_dir", None)


@pytest.mark.parametrize(
    ("path", "library"),
    [
        ("/somewhere/dist-packages/optax/_src/base.py", "optax"),
        ("/elsewhere/site-packages/flax/nnx/module.py", "flax"),
        ("/elsewhere/model.py", None),
    ],
)
def test_libraries_are_recognised_in_any_location(path, library):
    assert jax_versions.library_of(path) == library


def test_constants_without_a_tangent_type():
    def fn(x, n):
        return (x * x * n).sum() + jnp.where(n > 2, x, 0.0).sum()

    gradient = jax.grad(fn, argnums=(0, 1), allow_int=True)
    args = np.ones(3, "float32"), np.arange(3)
    found = inspect(gradient, *args)
    assert [found.stage(stage).unavailable for stage in ("jaxpr", "stablehlo", "hlo")] == [None] * 3
    assert [spec.dtype for spec in (one.spec for one in found.outputs)] == ["float32", "float0"]
    total = {source: found.cost(source).total.flops for source in ("analytic", "lowered")}
    assert None not in total.values()
