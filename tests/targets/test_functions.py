"""Functions as targets: traced and static arguments, and options of jit, partials and methods."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError


def spec(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def names(*args: Any, **how: Any) -> list[str]:
    return [one.name for one in ml.inspect(*args, **how).inputs]


@dataclass(frozen=True)
class Config:
    scale: float
    activation: Any

    def run(self, x: Any) -> Any:
        return self.activation(x) * self.scale

    def __call__(self, x: Any) -> Any:
        return self.run(x)


def scaled(x: Any, how: str, config: Any = None, *, double: bool = False, axis: int = 0) -> Any:
    x = x * config.scale if config is not None else x
    x = x + x if double else x
    return x.sum(axis) if how == "sum" else x


def test_values_that_are_not_arrays_are_static() -> None:
    static = ("double", "axis")
    assert names(scaled, spec(2, 3), "sum", Config(2.0, jnp.tanh), double=True, axis=1, static_argnames=static) == ["x"]
    assert names(scaled, spec(2, 3), "none", None) == ["x"]
    assert names(scaled, np.ones((2, 3)), how="sum") == ["x"]
    inspection = ml.inspect(scaled, spec(2, 3), "sum", kwargs={"axis": 1}, static_argnames="axis")
    assert [str(one.spec) for one in inspection.outputs] == ["(2,) float32"]


def test_arrays_in_containers_are_traced_and_text_is_static() -> None:
    def pick(batch: Any) -> Any:
        return batch[batch["which"]] + batch["offset"]

    assert names(pick, {"which": "a", "a": spec(3), "b": spec(3), "offset": 2}) == [
        "batch['a']",
        "batch['b']",
        "batch['offset']",
    ]


def test_kwargs_pass_arguments_that_have_names_of_options() -> None:
    def fit(x: Any, *, loss: Any, name: str) -> Any:
        return x * loss if name == "big" else x

    assert names(fit, spec(3), kwargs={"loss": spec(), "name": "big"}) == ["x", "loss"]


def test_static_and_donated_arguments_follow_jit() -> None:
    @functools.partial(jax.jit, static_argnums=1, static_argnames="how", donate_argnums=0)
    def step(state: Any, count: int, rate: float, how: str = "up") -> Any:
        return state + rate * count if how == "up" else state

    inspection = ml.inspect(step, spec(3), 4, 0.5, how="up")
    assert [one.name for one in inspection.inputs] == ["state", "rate"]
    assert {one.primitive for one in inspection.equations} >= {"mul", "add"}
    assert "tf.aliasing_output" in inspection.stage("stablehlo").text
    np.testing.assert_allclose(inspection.compiled(jnp.ones(3), 0.5), 3.0)


def fast(**how: Any) -> Any:
    return functools.partial(jax.jit, compiler_options={"xla_cpu_enable_fast_math": True}, **how)


@pytest.fixture
def compiler_options(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The compiler options of each compilation."""
    found: list[dict[str, Any]] = []
    compile = jax.stages.Lowered.compile

    def listening(self: Any, compiler_options: Any = None) -> Any:
        found.append(dict(compiler_options or {}))
        return compile(self, compiler_options)

    monkeypatch.setattr(jax.stages.Lowered, "compile", listening)
    return found


def test_compiler_options_of_jit_reach_xla(compiler_options: list[dict[str, Any]]) -> None:
    inspection = ml.inspect(fast()(lambda x: jnp.sin(x) * 2), spec(3))
    assert [one.primitive for one in inspection.equations] == ["sin", "mul"]
    np.testing.assert_allclose(inspection.compiled(jnp.zeros(3)), 0.0)
    assert compiler_options[-1]["xla_cpu_enable_fast_math"] is True


def test_compiler_options_of_jit_can_be_overridden(
    compiler_options: list[dict[str, Any]],
) -> None:
    @fast(static_argnames="how", donate_argnums=0)
    def step(x: Any, scale: Any, how: str) -> Any:
        return x * scale if how == "up" else x

    inspection = ml.inspect(step, spec(3), scale=spec(), how="up")
    assert [one.name for one in inspection.inputs] == ["x", "scale"]
    assert "tf.aliasing_output" in inspection.stage("stablehlo").text
    np.testing.assert_allclose(inspection.compiled(jnp.ones(3), scale=2.0), 2.0)
    assert compiler_options[-1]["xla_cpu_enable_fast_math"] is True
    _ = ml.inspect(step, spec(3), 2.0, "up", compiler_options={"xla_cpu_enable_fast_math": False}).compiled
    assert compiler_options[-1]["xla_cpu_enable_fast_math"] is False


def test_failed_trace_of_jit_with_compiler_options_has_a_reason() -> None:
    inspection = ml.inspect(fast()(lambda x: x if x > 0 else -x), spec())
    assert "TracerBoolConversionError" in str(inspection.stage("jaxpr").unavailable)


def test_wrapper_of_a_jitted_function_is_not_the_function() -> None:
    inner = fast()(lambda x: jnp.sin(x))

    @functools.wraps(inner)
    def outer(x: Any) -> Any:
        return x + 1

    assert [one.primitive for one in ml.inspect(outer, spec(3)).equations] == ["add"]


def test_program_keeps_shardings_and_donation_of_jit() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    for jit in (jax.jit, fast()):
        step = jit(lambda x: x + 1, in_shardings=sharding, out_shardings=sharding, donate_argnums=0)
        inspection = ml.inspect(step, spec(4))
        assert "tf.aliasing_output" in inspection.stage("stablehlo").text
        assert [one.primitive for one in inspection.equations] == ["add"]
        assert inspection.compiled.input_shardings[0] == (sharding,)


def test_a_jitted_method_counts_from_self(compiler_options: list[dict[str, Any]]) -> None:
    class Power:
        @fast(static_argnums=(0, 2))
        def run(self, x: Any, times: int) -> Any:
            return x**times if times > 2 else x

    inspection = ml.inspect(Power().run, spec(3), 3)
    assert [one.name for one in inspection.inputs] == ["x"]
    np.testing.assert_allclose(inspection.compiled(2 * jnp.ones(3)), 8.0)
    assert compiler_options[-1]["xla_cpu_enable_fast_math"] is True


def test_partials_methods_and_objects_that_are_called() -> None:
    config = Config(2.0, jnp.tanh)
    assert names(functools.partial(scaled, how="sum"), spec(2, 3)) == ["x"]
    assert names(functools.partial(jnp.matmul, spec(3, 4)), spec(4, 5)) == ["a", "b"]
    for target in (config, config.run):
        inspection = ml.inspect(target, spec(3))
        assert [one.name for one in inspection.inputs] == ["x"]
        assert {one.primitive for one in inspection.equations} == {"tanh", "mul"}
    assert ml.inspect(config, spec(3)).name == "Config"
    assert ml.inspect(config.run, spec(3)).name == "run"


def test_any_number_of_arguments_and_arguments_by_name() -> None:
    def total(*parts: Any, weight: Any, **more: Any) -> Any:
        return sum(parts) * weight + more["offset"]

    inspection = ml.inspect(total, spec(3), spec(3), weight=spec(), offset=spec(3))
    assert [one.name for one in inspection.inputs] == ["parts_0", "parts_1", "offset", "weight"]
    assert names(jnp.outer, spec(3), spec(3)) == ["a", "b"]
    assert names(jax.vmap(jnp.dot), spec(3, 2), spec(3, 2)) == ["a", "b"]


def test_arguments_with_the_same_name_get_unique_names() -> None:
    def several(*x: Any, x_0: Any) -> Any:
        return x[0] - x_0

    def first(x: Any, /, **more: Any) -> Any:
        return x - more["x"]

    def rest(x_0: Any, *x: Any) -> Any:
        return x_0 - x[0]

    left, right = 3 * jnp.ones(3), jnp.ones(3)
    for inspection, wanted, args, kwargs in (
        (ml.inspect(several, spec(3), x_0=spec(3)), ["x_0_", "x_0"], (left,), {"x_0": right}),
        (ml.inspect(first, spec(3), x=spec(3)), ["x_", "x"], (left, right), {}),  # JAX itself fails to trace it
        (ml.inspect(rest, spec(3), spec(3)), ["x_0", "x_0_"], (left, right), {}),
    ):
        assert [one.name for one in inspection.inputs] == wanted
        np.testing.assert_allclose(inspection.compiled(*args, **kwargs), 2.0)


def count(*args: Any, **how: Any) -> int | None:
    return ml.inspect(*args, **how).cost().total.params


def test_params_is_an_option_or_an_argument() -> None:
    def loss(params: Any, x: Any) -> Any:
        return x @ params

    def product(w: Any, x: Any, how: str = "sum") -> Any:
        return x @ w

    w, x = spec(3, 4), spec(2, 3)
    assert count(product, w, x) is None
    assert count(product, w, x, params="w") == count(jax.jit(product), w, x, params=["w"]) == 12
    assert count(product, w, x, params=("w", "x")) == 18
    assert count(product, w, x, params=()) == count(product, w, x, "mean", params="how") == 0
    # An argument of that name that is open is the function's own, whatever it is given.
    assert count(loss, params=w, x=x) == count(jax.jit(loss), params=w, x=x) == 12
    assert (
        count(loss, w, x, params=("params", "x")) == count(functools.partial(loss, w), x, params=["params", "x"]) == 18
    )
    assert count(lambda *, params, x: x @ params, params=w, x=x) == 12
    assert count(lambda **given: given["x"] @ given["params"], params=w, x=x) == 12
    assert count(lambda **given: given["x"] @ given["w"], params="w", w=w, x=x) == 12
    for nothing in ({}, None):
        assert count(lambda params, x: x, nothing, x) == count(jax.jit(lambda params, x: x), nothing, x) == 0


def test_parameters_may_be_a_part_of_an_argument() -> None:
    state = {"params": {"w": spec(3, 4)}, "momentum": {"w": spec(3, 4)}}

    def step(state: Any, x: Any) -> Any:
        return x @ (state["params"]["w"] + state["momentum"]["w"])

    unknown = ml.inspect(step, state, spec(2, 3)).cost()
    assert unknown.total.params is None
    assert """ml.inspect(..., params="state['params']")""" in unknown.notes[0]
    assert count(step, state, spec(2, 3), params="state['params']") == 12


def test_invalid_parameter_names_become_identifiers() -> None:
    def total(**batch: Any) -> Any:
        return sum(place * one for place, one in enumerate(batch[key] for key in ("input.ids", "class", "2²", "")))

    given = {"input.ids": spec(3), "class": spec(3), "2²": spec(3), "": spec(3)}
    inspection = ml.inspect(total, **given)
    assert [one.name for one in inspection.inputs] == ["_", "_2_", "class_", "input_ids"]
    arrays = {name: jnp.full(3, value) for name, value in zip(sorted(given), (1.0, 10.0, 100.0, 1000.0), strict=True)}
    np.testing.assert_allclose(inspection.compiled(**arrays), 3 + 20 + 100)
    assert names(lambda **batch: batch["a.b"] + batch["a_b"], **{"a.b": spec(3), "a_b": spec(3)}) == ["a_b", "a_b_"]


def test_a_module_may_be_an_argument_of_any_name() -> None:
    class Scale(nnx.Module):
        def __init__(self) -> None:
            self.weight = nnx.Param(jnp.ones(3))

        def __call__(self, x: Any) -> Any:
            return self.weight * x

    assert names(Scale.__call__, Scale(), spec(3)) == ["modules['self']['weight']", "x"]
    assert names(lambda apart, x: apart(x), Scale(), spec(3)) == ["modules['apart']['weight']", "x"]


def test_inspect_runs_nothing_and_allocates_nothing() -> None:
    huge = spec(2**20, 2**20)
    inspection = ml.inspect(lambda x: (x @ x).sum(), huge)
    assert inspection.stage("stablehlo").unavailable is None


def test_results_that_are_not_arrays_are_dropped() -> None:
    inspection = ml.inspect(lambda x: {"y": x + 1, "how": "sum", "n": 3}, spec(3))
    assert [one.name for one in inspection.outputs] == ["result['n']", "result['y']"]


def test_stages_report_a_failed_trace() -> None:
    inspection = ml.inspect(lambda x: x if x > 0 else -x, spec())
    for name in inspection.stages:
        if name in ("jaxpr", "stablehlo", "hlo"):
            assert "TracerBoolConversionError" in str(inspection.stage(name).unavailable)


def test_function_is_named_by_its_file_or_module(tmp_path: Path) -> None:
    (tmp_path / "two_steps.py").write_text("import jax\ndef step(x): return jax.numpy.sin(x)\n")
    x = jax.ShapeDtypeStruct((3,), "float32")
    for name in (f"{tmp_path / 'two_steps.py'}:step", "jax.numpy:sin"):
        assert [one.primitive for one in ml.inspect(name, x).equations] == ["sin"]
    with pytest.raises(UnknownOptionError, match=r"'jax\.numpy' has no 'sinn'"):
        ml.inspect("jax.numpy:sinn", x)


@pytest.mark.parametrize("args", ["(jnp.ones(3), 2.0)", "lambda: [jnp.ones(3), 2.0]"])
def test_named_functions_take_their_example_args(tmp_path, args):
    text = f"import jax.numpy as jnp\ndef step(x, scale): return x * scale\nstep.example_args = {args}\n"
    (tmp_path / "examples.py").write_text(text)
    name = f"{tmp_path / 'examples.py'}:step"
    assert [str(entry.spec) for entry in ml.inspect(name).inputs] == ["(3,) float32", "() float32"]
    assert [str(entry.spec) for entry in ml.inspect(name, jnp.ones(5), 1).inputs] == ["(5,) float32", "() int32"]
