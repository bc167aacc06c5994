"""Models on the backends that run emitted source."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from transcript import facts_of, without_advice

import mithril_nb as ml
from mithril_nb import models
from mithril_nb.emission.arrays import rules as arrays
from mithril_nb.emission.c import writing as c
from mithril_nb.errors import (
    MissingParameterError,
    ShapeError,
    UnavailableBackendError,
    UnexpectedInputError,
    UnknownOptionError,
    UnsupportedPrimitiveError,
)
from tests.backends.test_emitted_backends import KINDS, each_kind

MODELS: dict[str, tuple[Any, list[int]]] = {
    "mlp": (models.MLP(4, [8], 3), [5, 4]),
    "cnn": (models.CNN([4], 3, use_norm=True), [2, 1, 8, 8]),
}


@each_kind
@pytest.mark.parametrize("name", MODELS)
def test_outputs_and_gradients_agree_with_jax(kind: Any, name: str) -> None:
    model, shape = MODELS[name]
    pm, ours = (ml.compile(model, backend, shapes={"input": shape}) for backend in (ml.JaxBackend(), kind()))
    params, x = pm.randomize_params(seed=1), np.random.default_rng(0).normal(size=shape).astype("float32")
    state = {"state": pm.initial_state()} if pm.states else {}
    outputs, gradients = pm.evaluate(params, {"input": x}, {"output": np.ones((shape[0], 3), "float32")}, **state)
    backend, converted = ours.backend, pm.convert_params(params, ours)
    state = {"state": ours.initial_state()} if pm.states else {}
    ones = backend.ones(shape[0], 3)
    found, slopes = ours.evaluate(converted, {"input": backend.tensor(x)}, output_gradients={"output": ones}, **state)
    assert slopes.keys() == gradients.keys()
    for one, other in [(found["output"], outputs["output"]), *((slopes[key], gradients[key]) for key in gradients)]:
        np.testing.assert_allclose(backend.to_numpy(one), other, rtol=1e-4, atol=1e-5)
    alone = ours.evaluate(converted, {"input": x}, **state)
    np.testing.assert_allclose(backend.to_numpy(alone["output"]), outputs["output"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [ml.JaxBackend, *KINDS])
def test_a_scalar_output_needs_no_output_gradients(kind: Any) -> None:
    model = models.Model() + models.Linear(1) + models.Sum()
    pm = ml.compile(model, kind(), shapes={"input": [2, 3]})
    params, x = pm.randomize_params(seed=0), np.arange(6, dtype="float32").reshape(2, 3)
    outputs, gradients = pm.evaluate_all(params, {"input": x})
    expected = pm.evaluate(params, {"input": x}, {"output": pm.backend.ones(())})
    assert pm.backend.to_numpy(outputs["output"]) == pm.backend.to_numpy(expected[0]["output"])
    np.testing.assert_array_equal(pm.backend.to_numpy(gradients["linear_0.weight"]), [[3], [5], [7]])
    several = ml.compile(models.Linear(3), kind(), shapes={"input": [2, 4]})
    assert facts_of(lambda: several.evaluate_all(several.randomize_params(seed=0), {"input": x})) == (
        "MissingInputError: evaluate_all needs output_gradients: this model does not return one scalar.\n"
        "    outputs  'output' (2, 3) float32"
    )


@each_kind
def test_inputs_of_other_dtypes_and_layouts_are_converted(kind: Any) -> None:
    pm = ml.compile(models.Linear(3), kind(), shapes={"input": [2, 4]})
    params = pm.randomize_params(seed=0)
    x = np.arange(8, dtype="float64").reshape(4, 2).T
    read_only = np.broadcast_to(np.float32(2), (2, 4))
    for given in (x, x.astype("int64"), x.tolist(), read_only, np.full((2, 4), np.nan, "float32")):
        found = pm.evaluate(params, {"input": given})["output"]
        assert pm.backend.dtype(found) == "float32"
        weight = pm.backend.to_numpy(params["weight"])
        np.testing.assert_allclose(pm.backend.to_numpy(found), np.asarray(given, "float32") @ weight, rtol=1e-5)


@each_kind
def test_large_unsigned_integers_keep_their_value(kind: Any) -> None:
    x = np.array([[3_000_000_000, 5], [7, 4_294_967_295]], "uint32")
    model = models.Cast("float32")
    pm = ml.compile(model, kind(), shapes={"input": [2, 2]})
    for _ in range(2):  # the second call needs no new program
        np.testing.assert_allclose(pm.backend.to_numpy(pm.evaluate({}, {"input": x})["output"]), x.astype("float32"))


def test_equal_arrays_of_other_types_share_a_program(tmp_path: Path) -> None:
    pm = ml.compile(models.Linear(3), ml.CBackend(), shapes={"input": [2, 4]})
    params, x = pm.randomize_params(seed=0), np.ones((2, 4), "float32")
    mapped = np.memmap(tmp_path / "x", "float32", "w+", shape=(2, 4))
    mapped[:] = x
    for given in (x, mapped, mapped, jax.numpy.asarray(x), x):
        np.testing.assert_allclose(
            pm.evaluate(params, {"input": given})["output"], pm.evaluate(params, {"input": x})["output"]
        )
    assert len(pm._programs["forward"]._loaded) == 1


@each_kind
def test_a_seed_gives_the_params_of_jax(kind: Any) -> None:
    model = models.MLP(4, [8], 3)
    expected = ml.compile(model, shapes={"input": [5, 4]}).randomize_params(seed=7)
    pm = ml.compile(model, kind(), shapes={"input": [5, 4]})
    found = pm.randomize_params(seed=7)
    for name, value in expected.items():
        np.testing.assert_array_equal(pm.backend.to_numpy(found[name]), value)
    again = pm.convert_params(found, ml.JaxBackend())
    np.testing.assert_array_equal(again["linear_0.weight"], expected["linear_0.weight"])


def test_float64_leaves_jax_in_float32() -> None:
    pm = ml.compile(models.Linear(3), ml.NumpyBackend(dtype="float64"), shapes={"input": [2, 4]})
    outputs = pm.evaluate(pm.randomize_params(seed=0), {"input": pm.backend.ones(2, 4)})
    assert outputs["output"].dtype == np.float64
    assert not jax.config.jax_enable_x64


def test_other_shapes_are_emitted_again() -> None:
    pm = ml.compile(models.Linear(3), ml.NumpyBackend())
    for batch in (2, 5):
        assert pm(np.ones((batch, 4), "float32")).shape == (batch, 3)


def test_the_source_is_that_of_the_shapes() -> None:
    pm = ml.compile(models.Linear(3), ml.NumpyBackend(), shapes={"input": [2, 4]})
    assert "return {'output': output}" in pm.source()
    assert "d_weight = input.T @ d_output  # (4, 3)" in pm.source("forward+backward")
    assert pm.inspect("forward").stage("numpy").text == pm.source()


def test_a_missing_compiler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    assert not ml.CBackend.available()
    with pytest.raises(UnavailableBackendError) as raised:
        ml.CBackend()
    assert without_advice(str(raised.value)) == ("CBackend needs a C compiler, which is not installed.")


def test_the_source_of_c_is_its_stage() -> None:
    pm = ml.compile(models.MLP(4, [8], 3), ml.CBackend(), shapes={"input": [2, 4]})
    stage = pm.inspect("forward+backward").stage("c")
    assert stage.text == pm.source("forward+backward")
    lines = stage.text.split("\n")
    row = next(one for one in stage.instructions if "output[i][j] = dot[i][j] + bias[j]" in lines[one.line - 1])
    assert row.shares == (("linear_0", 1.0),)


def test_errors_are_those_of_jax() -> None:
    pm = ml.compile(models.Linear(3), ml.NumpyBackend(), shapes={"input": [2, 4]})
    params, x = pm.randomize_params(seed=0), np.ones((2, 4), "float32")
    with pytest.raises(UnexpectedInputError):
        pm.evaluate(params, {"inpt": x})
    with pytest.raises(MissingParameterError):
        pm.evaluate({}, {"input": x})
    with pytest.raises(ShapeError) as error:
        pm.evaluate(params, {"input": np.ones((2, 5), "float32")})
    printed = "".join(traceback.format_exception(error.value))
    assert "During handling" not in printed
    assert "direct cause" not in printed
    with pytest.raises(UnknownOptionError, match="takes no option 'jit'"):
        ml.compile(models.Linear(3), ml.NumpyBackend(), jit=True)


def _halved(x: Any) -> Any:
    return jax.pure_callback(lambda x: np.asarray(x) / 2, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def with_callback() -> Any:
    """Return a model with a block of a kind that only this test knows."""

    class CalledBack(models.Operator):
        def compute(self, inputs: Any) -> Any:
            return {"output": _halved(inputs["input"])}

    return models.Model() + models.Linear(3) + CalledBack()


@jax.custom_vjp
def _twice(x: Any) -> Any:
    return 2 * x


_twice.defvjp(lambda x: (2 * x, None), lambda _, gradient: (4 * _halved(gradient),))


def with_callback_in_its_gradient() -> Any:
    class CallsBackInItsGradient(models.Operator):
        def compute(self, inputs: Any) -> Any:
            return {"output": _twice(inputs["input"])}

    return models.Model() + models.Linear(3) + CallsBackInItsGradient()


EMITTING = [*KINDS, *([ml.GGMLBackend] if ml.GGMLBackend.available() else [])]


@pytest.mark.parametrize(("kind", "rules"), [(ml.NumpyBackend, arrays.RULES), (ml.CBackend, c.RULES)])
def test_errors_of_the_emission_are_raised_by_compile(kind: Any, rules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> str:
        raise KeyError("axis")

    monkeypatch.setitem(rules, "dot_general", broken)
    with pytest.raises(KeyError, match="axis") as error:
        ml.compile(models.MLP(4, [3], 2), kind(), shapes={"input": [5, 4]})
    assert "emitting 'dot_general' of block 'linear_0'" in error.value.__notes__[0]


@pytest.mark.parametrize("kind", EMITTING)
def test_unsupported_primitives_are_refused_by_compile(kind: Any) -> None:
    model = with_callback()
    first, *facts = facts_of(lambda: ml.compile(model, kind(), shapes={"input": [2, 4]})).splitlines()
    assert first == (
        f"UnsupportedPrimitiveError: backend {kind.name!r} has no source for primitive 'pure_callback' "
        "(block 'called_back_0')."
    )
    assert facts == [
        "    line      model:6",
        "    expected  a function of jax.numpy operations",
    ]
    open_batch = ml.compile(model, kind(), shapes={"input": ["batch", 4]})  # the shapes of a call decide
    with pytest.raises(UnsupportedPrimitiveError):
        open_batch.evaluate(open_batch.randomize_params(seed=0), {"input": np.ones((2, 4), "float32")})


@pytest.mark.parametrize("kind", EMITTING)
def test_an_unsupported_gradient_leaves_the_outputs(kind: Any) -> None:
    model = with_callback_in_its_gradient()
    pm = ml.compile(model, kind(), shapes={"input": [2, 4]})
    params, x, ones = pm.randomize_params(seed=0), np.ones((2, 4), "float32"), np.ones((2, 3), "float32")
    expected = 2 * x @ pm.backend.to_numpy(params["linear_0.weight"])
    found = pm.evaluate(params, {"input": x})["output"]
    np.testing.assert_allclose(pm.backend.to_numpy(found), expected, rtol=1e-5)
    with pytest.raises(UnsupportedPrimitiveError, match="pure_callback"):
        pm.evaluate(params, {"input": x}, {"output": ones})


@pytest.mark.parametrize("kind", EMITTING)
@pytest.mark.parametrize("block", [models.Linear(3) + models.Dropout(0.5), models.Linear(3) + models.BatchNorm1d(3)])
def test_the_first_evaluation_uses_the_source_of_compile(kind: Any, block: Any) -> None:
    pm = ml.compile(block, kind(), shapes={"input": [5, 4]})
    forward = pm._programs["forward"]
    assert len(forward._loaded) == 1
    state = pm.initial_state() or None
    pm.evaluate(pm.randomize_params(seed=0), {"input": np.ones((5, 4))}, state=state)
    assert len(forward._loaded) == 1
