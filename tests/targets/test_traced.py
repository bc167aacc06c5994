"""Programs that JAX has traced already, and targets of a new kind; other targets keep their kinds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jax_programs import spec
from transcript import message_of

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError
from mithril_nb.targets import inspect, kinds
from mithril_nb.targets.kinds import TargetCall, TargetKind, kind_of, register_kind


def layer(params: Any, x: Any, *, scale: Any) -> Any:
    with jax.named_scope("layer"):
        return {"out": jnp.tanh(x @ params["w"] + params["b"]) * scale}


PARAMS = {"w": spec(4, 3), "b": spec(3)}
X, SCALE = spec(5, 4), spec()


def summary(inspection: Any) -> list[Any]:
    return [
        [(one.id, one.primitive, one.block, one.role, one.inputs, one.outputs) for one in inspection.equations],
        {path: figures.flops for path, figures in inspection.cost("compiled").by_block.items()},
        inspection.stage("python").text,
    ]


def test_a_trace_is_looked_at_as_its_function_is() -> None:
    traced = jax.jit(layer).trace(PARAMS, X, scale=SCALE)
    found, wanted = inspect(traced), inspect(jax.jit(layer), PARAMS, X, scale=SCALE)
    assert found.name == "layer"
    assert [one.name for one in found.inputs] == ["params['b']", "params['w']", "x", "scale"]
    assert summary(found) == summary(wanted)
    assert found.cost().total == wanted.cost().total
    assert found.cost().total.params == 15
    arrays = {"w": np.ones((4, 3), np.float32), "b": np.ones(3, np.float32)}, np.ones((5, 4), np.float32)
    assert found.compiled(*arrays, scale=np.float32(2)).keys() == {"out"}
    assert summary(inspect(traced, PARAMS, X, scale=SCALE)) == summary(found)


def test_a_jaxpr_is_looked_at_as_its_function_is() -> None:
    jaxpr = jax.make_jaxpr(layer)(PARAMS, X, scale=SCALE)
    found = inspect(jaxpr)
    assert found.name == "layer"
    assert [one.name for one in found.inputs] == ["params_b", "params_w", "x", "scale"]
    assert summary(found)[:2] == summary(inspect(layer, PARAMS, X, scale=SCALE))[:2]
    assert inspect(jaxpr, params=["params_b", "params_w"]).cost().total.params == 15


@pytest.mark.parametrize("trace", [lambda f: jax.jit(f).trace, jax.make_jaxpr])
def test_arrays_that_a_function_closes_over_are_in_its_trace(trace: Callable[..., Any]) -> None:
    held = np.arange(2000, dtype=np.float32).reshape(50, 40)

    def closing(x: Any) -> Any:
        return x @ held

    traced = trace(closing)(spec(3, 50))
    assert inspect(traced).cost().total.flops == 2 * 3 * 50 * 40
    np.testing.assert_allclose(inspect(traced).compiled(np.ones((3, 50), np.float32)), [held.sum(0)] * 3)


def test_names_of_sizes_and_static_arguments_stay() -> None:
    (batch,) = jax.export.symbolic_shape("batch")
    traced = jax.jit(lambda x, n: x**n, static_argnums=1).trace(jax.ShapeDtypeStruct((batch, 4), "float32"), 3)
    assert inspect(traced).cost().at(batch=10).total.flops == 2 * 10 * 4


def test_arguments_that_it_was_traced_with_may_be_given_again() -> None:
    """As JAX accepts them: Python numbers, NumPy arrays in float64, keys."""

    def noisy(x: Any, scale: Any, key: Any) -> Any:
        return x * scale + jax.random.normal(key, x.shape)

    given = np.ones(3), 2.0, jax.random.key(0)
    traced = jax.jit(noisy).trace(*given)
    assert inspect(traced, *given).cost().total == inspect(traced).cost().total
    with pytest.raises(UnknownOptionError, match="was traced with other arguments"):
        inspect(traced, np.ones(3), 2, jax.random.key(0))


def test_what_is_donated_is_reused() -> None:
    traced = jax.jit(lambda x, y: x + y, donate_argnums=0).trace(spec(64), spec(64))
    memory = inspect(traced).costs().memory
    assert memory is not None
    assert memory.alias == 64 * 4


def test_names_that_python_does_not_allow() -> None:
    def lambdas(*args: Any) -> Any:
        return sum(args)

    found = inspect(jax.make_jaxpr(lambdas)(*map(spec, (2, 2, 2))))
    assert len({one.name for one in found.inputs}) == 3
    found = inspect(jax.jit(lambdas).trace(spec(2), spec(2)))
    assert found.cost().total == inspect(lambdas, spec(2), spec(2)).cost().total


def test_other_arguments_are_refused() -> None:
    traced = jax.jit(jnp.dot).trace(spec(2, 3), spec(3))
    assert message_of(lambda: inspect(traced, spec(4, 3), spec(3))) == (
        "UnknownOptionError: program 'dot' was traced with other arguments.\n"
        "    traced with  float32[2, 3], float32[3]\n"
        "    given        float32[4, 3], float32[3]"
    )


def test_shardings_that_a_trace_does_not_hand_on_are_refused() -> None:
    mesh = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec("d"))
    assert message_of(lambda: inspect(jax.jit(jnp.tanh, in_shardings=sharding).trace(spec(8)))) == (
        "UnknownOptionError: program 'tanh' was traced with shardings, which are not in its equations.\n"
        "    needs  the function that was traced, with its shardings"
    )
    with pytest.raises(UnknownOptionError, match="was traced with shardings"):
        inspect(jax.jit(jnp.tanh).trace(jax.device_put(jnp.ones(8), sharding)))


class Scale:
    """A layer of a library that mithril_nb does not include."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def apply(self, x: jax.Array) -> jax.Array:
        return self.factor * x


@pytest.fixture
def scales(monkeypatch: pytest.MonkeyPatch) -> TargetKind:
    monkeypatch.setattr(kinds, "_KINDS", list(kinds._KINDS))
    kind = TargetKind(
        "scales",
        lambda call: isinstance(call.target, Scale),
        lambda call: ml.inspect(call.target.apply, *call.args, name=call.options["name"]),
    )
    register_kind(kind)
    return kind


def test_a_registered_kind_builds_the_inspection(scales: TargetKind) -> None:
    inspection = ml.inspect(Scale(2.0), jnp.ones(3), name="doubled")
    assert inspection.name == "doubled"
    assert inspection.cost().total.flops == 3


def test_without_its_kind_the_target_is_refused() -> None:
    with pytest.raises(ml.errors.UnknownOptionError, match="cannot inspect <"):
        ml.inspect(Scale(2.0), jnp.ones(3))


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("module @f {}", "lowered and compiled programs"),
        (ml.models.Linear(3), "models of mithril_nb"),
        (jnp.sin, "functions"),
        (jax.jit(jnp.sin), "functions"),
        ("sin", None),
        (dict, None),
    ],
)
def test_built_in_kinds_keep_their_targets(scales: TargetKind, target: object, name: str | None) -> None:
    options = dict.fromkeys(("program", "loss", "optimizer"))
    found = kind_of(TargetCall(target, (), {}, options))
    assert (found and found.name) == name
