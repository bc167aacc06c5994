"""fit on models of this package, compiled or not, and on one of several outputs."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from transcript import facts_of

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError
from mithril_nb.models import Dropout, IOKey, Linear, Model, Relu
from mithril_nb.train import Trainable, fit, programs


def classifier() -> Model:
    model = Model()
    model |= Linear(dimension=32)
    model += Relu()
    model += Dropout(p=0.1)
    model += Linear(dimension=10)
    return model


def test_a_model_is_compiled_for_the_data(digits: Any) -> None:
    train, test = digits
    run = fit(classifier(), train, validation=test, learning_rate=5e-3, epochs=12).wait()
    assert run.evaluate(test)["accuracy"] > 0.95


@pytest.mark.parametrize("rows", [32, "batch"])
def test_a_physical_model_trains_at_any_batch_size(digits: Any, rows: Any) -> None:
    train, _ = digits
    pm = ml.compile(classifier(), ml.JaxBackend(), shapes={"input": [rows, 64]})
    assert isinstance(pm, Trainable)
    run = fit(pm, train, epochs=1, batch_size=50).wait()
    outputs = pm.forward(run.params, {"input": train[0]})["output"]
    assert run.evaluate(train)["accuracy"] == pytest.approx(np.mean(np.argmax(outputs, axis=-1) == train[1]))


def test_a_physical_model_learns_its_shapes_from_the_data(digits: Any) -> None:
    backend = ml.JaxBackend()
    run = fit(ml.compile(classifier(), backend, jit=False), digits[0], epochs=1, batch_size=50)
    model: Any = run._plan.model
    assert (model.backend, model.jit, repr(model.input_specs["input"])) == (backend, False, "('batch', 64) float32")
    whole = fit(classifier(), digits[0], epochs=1, batch_size=50)
    assert run.params.keys() == whole.params.keys()
    pm = ml.compile(classifier(), backend)
    assert pm.evaluate(fit(pm, digits[0], epochs=1).wait().params, {"input": digits[1][0]})["output"].shape == (360, 10)
    with pytest.raises(UnknownOptionError, match="backend= has no effect"):
        fit(pm, digits[0], backend=ml.JaxBackend())


def test_programs_of_a_physical_model() -> None:
    pm: Any = ml.compile(classifier(), shapes={"input": [32, 64]})
    found = programs(pm)
    assert list(found) == ["forward", "forward+backward", "train step"]
    assert found["train step"].specs[0]["linear_0.weight"].shape == (64, 32)


def test_step_uses_the_options_of_its_model(digits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    real = jax.jit
    monkeypatch.setattr(
        jax, "jit", lambda *args, **how: asked.append(how.get("compiler_options")) or real(*args, **how)
    )

    def fusions(**options: Any) -> int:
        pm = ml.compile(classifier(), ml.JaxBackend(), shapes={"input": ["batch", 64]}, **options)
        run = fit(pm, (digits[0][0], np.eye(10)[digits[0][1]]), loss="mean_squared_error", batch_size=50)
        plan, state = run._plan, run._state
        batch = plan.batch(plan.order(1), 0)
        text = plan.step.lower(state.params, state.opt_state, 0.1, batch, plan.key, 0).compile().as_text()
        return len(re.findall(r"fusion\(.* calls=%(?!wrapped_)", text))  # one operation in a wrapper is not a fusion

    assert fusions(optimizations={"fusion": False}) < fusions()
    flags = dict(ml.compile(Linear(3), ml.JaxBackend(), optimizations={"fusion": False}).options.compiler_options)
    assert sum(one == flags for one in asked) >= 2  # step and evaluation


def test_unjitted_model_trains_op_by_op(blobs: Any) -> None:
    seen: list[bool] = []

    def loss(prediction: Any, targets: Any) -> Any:
        seen.append(isinstance(targets, jax.core.Tracer))
        return jnp.mean(jnp.square(prediction[:, 0] - targets))

    def trained(jit: bool) -> Any:
        pm = ml.compile(Linear(3), ml.JaxBackend(), shapes={"input": ["batch", 4]}, jit=jit)
        return fit(pm, blobs, loss=loss, epochs=1, batch_size=30, validation=blobs).wait()

    plain = trained(False)
    assert seen[0]
    assert not all(seen)
    np.testing.assert_allclose(plain.history["loss"], trained(True).history["loss"], rtol=1e-6)
    assert plain.state == "done"


def test_other_backend_is_rejected(blobs: Any) -> None:
    pm = ml.compile(Linear(3), ml.JaxBackend(), shapes={"input": ["batch", 4]})
    assert fit(pm, blobs, backend=pm.backend, epochs=1).wait().state == "done"
    assert facts_of(lambda: fit(pm, blobs, backend=ml.JaxBackend(dtype="float16"))) == (
        "UnknownOptionError: backend= has no effect on a model that is already compiled.\n"
        f"    backend  {ml.JaxBackend(dtype='float16')!r}\n"
        f"    model    PhysicalModel for {pm.backend!r}"
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_train_like_float32(blobs: Any, dtype: str) -> None:
    def losses(dtype: str) -> Any:
        run = fit(Linear(3), blobs, backend=ml.JaxBackend(dtype=dtype), learning_rate=0.05, epochs=4, batch_size=20)
        assert {str(leaf.dtype) for leaf in jax.tree.leaves(run.opt_state)} == {"float32", "int32"}
        assert {str(leaf.dtype) for leaf in jax.tree.leaves(run.wait().params)} == {dtype}
        return run.history["loss"]

    found = losses(dtype)
    assert found[-1] < found[0] / 2
    np.testing.assert_allclose(found, losses("float32"), rtol=0.05, atol=0.02)


def two_outputs() -> Model:
    model = Model()
    model |= Linear(4, name="first")(input="x", output=IOKey("first_out"))
    model |= Linear(3, name="head")(input="x", output=IOKey("logits"))
    return model


RNG = np.random.default_rng(0)
DATA = RNG.normal(size=(64, 5)).astype("float32"), RNG.integers(0, 3, 64)


def test_loss_takes_the_named_output():
    run = ml.fit(two_outputs(), DATA, output="logits", epochs=2, batch_size=16)
    start = {name: np.asarray(value) for name, value in run.params.items()}
    run.wait()
    assert len(run.history["accuracy"]) == 8
    for name, before in start.items():
        assert np.array_equal(before, run.params[name]) == name.startswith("first."), name


def test_naming_the_only_output_keeps_checkpoints_valid(tmp_path):
    model = Model() | Linear(3, name="head")(input="x", output=IOKey("logits"))
    options = {"batch_size": 16, "checkpoint": tmp_path, "resume": True}
    ml.fit(model, DATA, epochs=1, **options).wait()
    named = ml.fit(model, DATA, epochs=2, output="logits", **options)
    assert named.step == 4
    named.wait()
    assert ml.fit(model, DATA, epochs=2, **options).step == 8
