"""GGML source: equal to JAX, linked line by line, and what GGML cannot do is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax, random

import mithril_nb as ml
from mithril_nb import models
from mithril_nb.emission.ggml.emitter import emit_ggml
from mithril_nb.emission.python_text import load
from mithril_nb.errors import DeviceNotFoundError, UnknownOptionError, UnsupportedPrimitiveError
from mithril_nb.inspection import Inspection
from tests.emission.c_running import assert_close
from tests.emission.evaluating import random_arrays, traced_program
from tests.emission.test_c import SHARED, WHOLE, X
from tests.emission.test_program import PROGRAMS
from tests.references import run_quickly

pytest.importorskip("ggml")


def run_ggml(inspection: Inspection, *args: Any) -> list[np.ndarray]:
    """Return the results of an emitted program, flat."""
    program = traced_program(inspection)
    names = dict.fromkeys(leaf.argument for leaf in program.trace.inputs)
    given = zip(names, [one for one in args if jax.tree.leaves(one)], strict=True)
    function = load(emit_ggml(program))
    return jax.tree.leaves(function(**{name: jax.tree.map(np.asarray, one) for name, one in given}))


@pytest.mark.parametrize("part", SHARED)
def test_primitives_agree_with_jax(part: str) -> None:
    function, array = SHARED[part]
    found = run_ggml(ml.inspect(function, array), array)
    assert_close(found, run_quickly(function, array), 1e-5)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if "loops" not in name])
def test_programs_agree_with_jax(name: str) -> None:
    inspection = PROGRAMS[name]()
    arrays = random_arrays(inspection.arguments)
    trace = traced_program(inspection).trace
    assert_close(run_ggml(inspection, *arrays), run_quickly(trace.call(trace.closed), *arrays), 1e-5)


ALONE: dict[str, Callable[..., Any]] = {
    "erf": lax.erf, "erfc": lax.erfc, "log1p": jnp.log1p, "expm1": jnp.expm1, "sinh": jnp.sinh, "argmax": jnp.argmax,
    "pow": lambda x: jnp.abs(x) ** x.T, "round": jnp.round, "maximum": lambda x: jnp.maximum(x, x.T),
    "pad": lambda x: lax.pad(x, 1.0, ((1, 2, 1), (3, 1, 2))), "power": lambda x: x**31,
    "gather": lambda x: x[jnp.array([3, 9]), jnp.array([1, -1])], "equal": lambda x: x == x.T,
    "scatter": lambda x: x.at[jnp.array([3, 9]), jnp.array([1, -1])].add(1.0),
    "pool": lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 3), (1, 2), ((1, 0), (2, 1))),
    "scan": lambda x: lax.scan(lambda c, r: (c, c == r), x[0], x),
    "groups": lambda x: lax.conv(x.reshape(1, 4, 4, 1), x.reshape(4, 4, 1, 1), (1, 1), "SAME"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_the_graph_of_a_single_primitive_is_large_enough(name: str) -> None:
    """GGML ends the process if it is not."""
    function = ALONE[name]
    assert_close(run_ggml(ml.inspect(function, X), X), run_quickly(function, X), 1e-5)


def test_a_graph_computes_many_calls() -> None:
    function = load(emit_ggml(traced_program(ml.inspect(lambda x: (x, jnp.sin(x) * jnp.arange(4.0)), X))))
    for scale in (1, 2, 1):
        for one, other in zip(function(x=X * scale), (X * scale, np.sin(X * scale) * np.arange(4)), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)
    with pytest.raises(ValueError, match=r"built for an array of shape \(4, 4\), not \(2,\)"):
        function(x=np.ones(2, "float32"))


def test_an_emitted_file_needs_neither_jax_nor_this_package(tmp_path: Path) -> None:
    pm = ml.compile(models.MLP(4, [8], 3), shapes={"input": [5, 4]})
    (tmp_path / "mlp.py").write_text(emit_ggml(traced_program(pm.inspect("forward"))).text)
    code = """
import sys, numpy as np, mlp
params = {"linear_0.bias": np.ones(8), "linear_0.weight": np.ones((4, 8)), "linear_1.bias": np.ones(3),
          "linear_1.weight": np.ones((8, 3))}
print(mlp.forward(params, {"input": np.ones((5, 4))})["output"][0], {"jax", "mithril_nb"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[41. 41. 41.] set()\n", "")


REFUSALS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], str]] = {
    "sort": (jnp.sort, (X,), "sorting floats, several arrays, or an axis other than the last"),
    "while": (
        lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c * 2, jnp.abs(x)),
        (X,),
        "a loop whose number of steps depends on the arrays",
    ),
    "cholesky": (lambda x: jnp.linalg.cholesky(x @ x.T), (X,), ""),
    "random_bits": (lambda key: random.bits(key, (3,)), (random.key(0),), ""),
    "shift_left": (lambda i: i << 2, (WHOLE,), ""),
    "sin": (jnp.sin, (np.ones(3, "float16"),), "dtype float16"),
    "rev": (lambda x: x[::-1], (np.ones((1, 2, 1, 2, 2), "float32"),), "5 axes; GGML has 4"),
    "tanh": (jnp.tanh, (np.ones((0, 2), "float32"),), "empty arrays"),
}


@pytest.mark.parametrize("primitive", REFUSALS)
def test_what_ggml_cannot_do_is_refused_before_it_runs(primitive: str) -> None:
    function, arrays, reason = REFUSALS[primitive]

    def program(*args: Any) -> Any:
        with jax.named_scope("block:mix"):
            return function(*args)

    with pytest.raises(UnsupportedPrimitiveError) as error:
        emit_ggml(traced_program(ml.inspect(program, *arrays)))
    first, *rest = str(error.value).splitlines()
    assert (error.value.primitive, error.value.backend) == (primitive, "ggml")
    assert first == f"backend 'ggml' has no source for primitive {primitive!r} (block 'mix')."
    assert rest[0] == (f"    unsupported  {reason}" if reason else rest[0])
    advice = "ml.JaxBackend()  # runs every primitive"
    if primitive == "random_bits":
        advice = "noise = jax.random.normal(key, shape)  # outside the model; pass it as an input"
    assert rest[-1] == f"    Try: {advice}"


def test_models_run_on_the_backend() -> None:
    model = models.CNN([4], 3)
    x = np.random.default_rng(0).normal(size=(2, 1, 8, 8)).astype("float32")
    pm, ours = (
        ml.compile(model, backend, shapes={"input": x.shape}) for backend in (ml.JaxBackend(), ml.GGMLBackend())
    )
    params = ours.randomize_params(seed=1)
    outputs, gradients = ours.evaluate(params, {"input": x}, {"output": np.ones((2, 3), "float32")})
    other = pm.evaluate(ours.convert_params(params, pm), {"input": x}, {"output": np.ones((2, 3), "float32")})
    for one, two in zip(jax.tree.leaves((outputs, gradients)), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
    assert pm.inspect("forward").stage("ggml").text == ours.source()
    assert "ggml.ggml_conv_2d(ctx, weight, input, 1, 1, 1, 1, 1, 1)" in ours.source()


def test_the_backend_refuses_other_dtypes_and_devices() -> None:
    with pytest.raises(UnknownOptionError, match=r"GGMLBackend does not run models in float64\."):
        ml.GGMLBackend(dtype="float64")
    with pytest.raises(DeviceNotFoundError, match="device 'gpu' not found on backend 'ggml'"):
        ml.GGMLBackend(device="gpu")
