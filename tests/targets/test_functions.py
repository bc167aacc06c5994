"""Functions as targets: what is traced, what is static, and what is done with what jit, partial and methods say."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mithril_nb as ml


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


def test_what_is_no_array_is_static() -> None:
    assert names(scaled, spec(2, 3), "sum", Config(2.0, jnp.tanh), double=True, axis=1) == ["x"]
    assert names(scaled, spec(2, 3), "none", None) == ["x"]
    assert names(scaled, np.ones((2, 3)), how="sum") == ["x"]
    inspection = ml.inspect(scaled, spec(2, 3), "sum", kwargs={"axis": 1})
    assert [str(one.spec) for one in inspection.outputs] == ["(2,) float32"]


def test_arrays_are_found_in_containers_and_text_beside_them_stays() -> None:
    def pick(batch: Any) -> Any:
        return batch[batch["which"]] + batch["offset"]

    assert names(pick, {"which": "a", "a": spec(3), "b": spec(3), "offset": 2}) == ["batch['a']", "batch['b']"]


def test_names_of_options_reach_the_target_by_kwargs() -> None:
    def fit(x: Any, *, loss: Any, name: str) -> Any:
        return x * loss if name == "big" else x

    assert names(fit, spec(3), kwargs={"loss": spec(), "name": "big"}) == ["x", "loss"]


def test_jit_says_what_is_static_and_donated() -> None:
    @functools.partial(jax.jit, static_argnums=1, static_argnames="how", donate_argnums=0)
    def step(state: Any, count: int, rate: float, how: str = "up") -> Any:
        return state + rate * count if how == "up" else state

    inspection = ml.inspect(step, spec(3), 4, 0.5, how="up")
    assert [one.name for one in inspection.inputs] == ["state", "rate"]
    assert {one.primitive for one in inspection.equations} >= {"mul", "add"}
    assert "tf.aliasing_output" in inspection.stage("stablehlo").text
    np.testing.assert_allclose(inspection.compiled(jnp.ones(3), 0.5), 3.0)


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


def test_nothing_is_run_and_no_memory_is_taken() -> None:
    huge = spec(2**20, 2**20)
    inspection = ml.inspect(lambda x: (x @ x).sum(), huge)
    assert inspection.stage("stablehlo").unavailable is None


def test_what_is_given_back_besides_arrays_is_left_out() -> None:
    inspection = ml.inspect(lambda x: {"y": x + 1, "how": "sum", "n": 3}, spec(3))
    assert [one.name for one in inspection.outputs] == ["result['n']", "result['y']"]


def test_a_function_that_cannot_be_traced_says_so_in_its_stages() -> None:
    inspection = ml.inspect(lambda x: x if x > 0 else -x, spec())
    for name in inspection.stages:
        if name in ("jaxpr", "stablehlo", "hlo"):
            assert "TracerBoolConversionError" in str(inspection.stage(name).unavailable)
