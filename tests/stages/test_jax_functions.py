"""Inspection of every public function in three JAX modules down to StableHLO, and of some down to HLO."""

from __future__ import annotations

import inspect as python_inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special
import pytest
from jax_programs import check_links, spec

from mithril_nb.inspection import inspect_function as inspect

MATRIX, VECTOR, TENSOR = spec(2, 2), spec(3), spec(2, 3, 4, 5)
WHOLE = spec(2, dtype="int32")

SPECIAL: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "nn.dot_product_attention": (jax.nn.dot_product_attention, (TENSOR, TENSOR, TENSOR)),
    "nn.one_hot": (partial(jax.nn.one_hot, num_classes=3), (WHOLE,)),
    "nn.scaled_dot_general": (
        partial(jax.nn.scaled_dot_general, dimension_numbers=(((2,), (2,)), ((0,), (0,)))),
        (spec(1, 2, 32), spec(1, 4, 32)),
    ),
    "linalg.cross": (jnp.linalg.cross, (VECTOR, VECTOR)),
    "linalg.matrix_power": (partial(jnp.linalg.matrix_power, n=5), (MATRIX,)),
    "linalg.multi_dot": (lambda *arrays: jnp.linalg.multi_dot(arrays), (MATRIX, MATRIX, MATRIX)),
    "linalg.outer": (jnp.linalg.outer, (VECTOR, VECTOR)),
    "linalg.tensorinv": (partial(jnp.linalg.tensorinv, ind=1), (spec(4, 2, 2),)),
    "linalg.tensorsolve": (jnp.linalg.tensorsolve, (spec(2, 2, 4), MATRIX)),
    "special.bernoulli": (lambda: jax.scipy.special.bernoulli(5), ()),
    "special.bessel_jn": (partial(jax.scipy.special.bessel_jn, v=2, n_iter=3), (VECTOR,)),
    "special.multigammaln": (lambda a: jax.scipy.special.multigammaln(a, 2), (VECTOR,)),
    "special.polygamma": (lambda x: jax.scipy.special.polygamma(1, x), (VECTOR,)),
    "special.sph_harm_y": (partial(jax.scipy.special.sph_harm_y, n_max=3), (WHOLE, WHOLE, spec(2), spec(2))),
    "special.zeta": (jax.scipy.special.zeta, (MATRIX, MATRIX)),
}
"""Functions that need other arguments than small matrices of floats."""

APART = {"nn.get_scaled_dot_general_config", "nn.scaled_matmul"}
"""The first computes nothing; the second has its own test."""


def programs() -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    found = {}
    for short, module in (("nn", jax.nn), ("linalg", jnp.linalg), ("special", jax.scipy.special)):
        for name in dir(module):
            function = getattr(module, name)
            key = f"{short}.{name}"
            if name.startswith("_") or not callable(function) or key in APART:
                continue
            required = [
                one
                for one in python_inspect.signature(function).parameters.values()
                if one.default is one.empty and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
            ]
            found[key] = SPECIAL.get(key, (function, (MATRIX,) * len(required)))
    return found


PROGRAMS = programs()


def test_no_function_is_missing():
    assert len(PROGRAMS) > 110
    assert set(SPECIAL) <= set(PROGRAMS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_jax_function_is_inspected(name):
    fn, args = PROGRAMS[name]
    inspection = inspect(fn, *args, name=name)
    assert [one.id for one in inspection.equations if not one.block or one.origin is None] == []
    assert {one.role for one in inspection.equations} <= {"forward"}
    for stage in ("jaxpr", "stablehlo"):
        assert inspection.stage(stage).unavailable is None, inspection.stage(stage).unavailable
    check_links(inspection, "jaxpr", "stablehlo")


@pytest.mark.parametrize(
    "name", ["nn.gelu", "nn.relu", "linalg.qr", "linalg.solve", "special.expn", "special.logsumexp"]
)
def test_some_functions_are_compiled(name):
    fn, args = PROGRAMS[name]
    stage = inspect(fn, *args, name=name).stage("hlo")
    assert stage.unavailable is None
    assert any(one.blocks for one in stage.instructions)
