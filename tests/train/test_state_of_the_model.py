"""Models with a state, such as BatchNorm's running statistics, and frozen parameters."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen
from transcript import facts_of

import mithril_nb as ml
from mithril_nb.errors import TrainingError
from mithril_nb.models import BatchNorm, BatchNorm2d, Conv2d, Dropout, Flatten, Linear, Model, Relu
from mithril_nb.train import loss_function, programs, resolve_optimizer

MEAN, VARIANCE = "batch_norm2d_0.running_mean", "batch_norm2d_0.running_var"


def cnn() -> Model:
    model = Model()
    for block in (Conv2d(4, use_bias=False), BatchNorm2d(), Relu(), Flatten(), Linear(3)):
        model += block
    return model


def mlp(*more: Model) -> Model:
    model = Model()
    for block in (Linear(5), BatchNorm(momentum=0.3), Relu(), *more, Linear(3)):
        model += block
    return model


@pytest.fixture(scope="module")
def images() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(1.0, 2.0, (26, 2, 4, 5)).astype("float32")
    return x, random.integers(0, 3, 26)


@pytest.fixture(scope="module")
def points() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    y = random.integers(0, 3, 40)
    return (random.normal(size=(40, 4)) + 3 * np.eye(3, 4)[y]).astype("float32"), y


class FlaxCNN(linen.Module):
    """The same model in Flax. Its BatchNorm uses the biased variance, so the test corrects it below."""

    @linen.compact
    def __call__(self, x: Any, is_training: bool) -> Any:
        x = linen.Conv(4, (3, 3), use_bias=False, name="conv")(x.transpose(0, 2, 3, 1))
        self.sow("intermediates", "spread", jnp.var(x, (0, 1, 2), ddof=1))
        x = linen.BatchNorm(use_running_average=not is_training, momentum=0.9, name="norm")(x)
        return linen.Dense(3, name="dense")(linen.relu(x).transpose(0, 3, 1, 2).reshape(x.shape[0], -1))


def test_steps_equal_flax(images: Any) -> None:
    """Compare params and statistics after each step, including a short last batch."""
    x, y = images
    pm = ml.compile(cnn(), shapes={"input": ["batch", 2, 4, 5]})
    params = pm.randomize_params(3)
    # The last batch of each epoch has 2 samples; momentum, so that an error in one step is seen in the next.
    optimizer = optax.sgd(0.05, momentum=0.9)
    data = {"epochs": 2, "batch_size": 8, "shuffle": False, "optimizer": optimizer}
    run = ml.fit(pm, (x, y), params=params, **data)
    theirs: Any = {
        "conv": {"kernel": params["conv2d_0.weight"].transpose(2, 3, 1, 0)},
        "norm": {"scale": params["batch_norm2d_0.weight"], "bias": params["batch_norm2d_0.bias"]},
        "dense": {"kernel": params["linear_0.weight"], "bias": params["linear_0.bias"]},
    }
    stats: Any = {"norm": {"mean": jnp.zeros(4), "var": jnp.ones(4)}}
    held, model = optimizer.init(theirs), FlaxCNN()

    def loss_of(theirs: Any, stats: Any, x: Any, y: Any) -> Any:
        logits, after = model.apply(
            {"params": theirs, "batch_stats": stats}, x, True, mutable=["batch_stats", "intermediates"]
        )
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), after

    @jax.jit
    def step_of(theirs: Any, stats: Any, held: Any, x: Any, y: Any) -> Any:
        (value, after), grads = jax.value_and_grad(loss_of, has_aux=True)(theirs, stats, x, y)
        updates, held = optimizer.update(grads, held, theirs)
        return optax.apply_updates(theirs, updates), held, value, after

    steps = 0
    for event in run:
        if event.kind != "step":
            continue
        batch = slice(steps % 4 * 8, steps % 4 * 8 + 8)
        theirs, held, value, after = step_of(theirs, stats, held, x[batch], y[batch])
        spread = after["intermediates"]["spread"][0]
        variance = 0.9 * stats["norm"]["var"] + 0.1 * spread
        stats = {"norm": {"mean": after["batch_stats"]["norm"]["mean"], "var": variance}}
        steps += 1
        np.testing.assert_allclose(event.loss, value, 1e-5)
        np.testing.assert_allclose(
            run.params["conv2d_0.weight"].transpose(2, 3, 1, 0), theirs["conv"]["kernel"], 1e-4, 1e-5
        )
        np.testing.assert_allclose(run.params["linear_0.weight"], theirs["dense"]["kernel"], 1e-4, 1e-5)
        np.testing.assert_allclose(run.params["batch_norm2d_0.weight"], theirs["norm"]["scale"], 1e-4, 1e-5)
        np.testing.assert_allclose(run.model_state[MEAN], stats["norm"]["mean"], 1e-4, 1e-6)
        np.testing.assert_allclose(run.model_state[VARIANCE], stats["norm"]["var"], 1e-4, 1e-6)
    assert steps == 8
    logits = jax.jit(lambda theirs, stats: model.apply({"params": theirs, "batch_stats": stats}, x, False))(
        theirs, stats
    )
    np.testing.assert_allclose(
        pm.evaluate(run.params, {"input": x}, state=run.model_state)["output"], logits, 1e-4, 1e-4
    )
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    np.testing.assert_allclose(run.evaluate((x, y))["loss"], expected, 1e-4)


def test_thread_and_loop_give_equal_results(points: Any) -> None:
    how = {"epochs": 3, "batch_size": 16, "validation": points, "learning_rate": 0.05}
    loop, thread = (ml.fit(mlp(Dropout(0.2)), points, **how) for _ in range(2))
    for _ in loop:
        pass
    thread.start().wait()
    for left, right in ((loop.params, thread.params), (loop.model_state, thread.model_state)):
        jax.tree.map(np.testing.assert_array_equal, left, right)
    for column in ("loss", "validation_loss"):
        np.testing.assert_array_equal(loop.history[column], thread.history[column])


def test_interrupted_run_equals_uninterrupted_run(points: Any) -> None:
    how = {"batch_size": 16, "learning_rate": 0.05}
    pm = ml.compile(mlp(), shapes={"input": ["batch", 4]})
    whole = ml.fit(pm, points, epochs=4, **how)
    for _ in whole:
        pass
    parts = ml.fit(pm, points, epochs=2, **how)
    held = []
    for event in parts:
        held.append(parts.model_state)  # lent: the next step may not overwrite it
        if event.step == 4:
            parts.stop()
    parts.step_once().wait(0.1)
    parts.resume(epochs=2).wait()
    assert parts.step == whole.step == 12
    assert not any(array.is_deleted() for state in held for array in state.values())
    for name, array in whole.model_state.items():
        np.testing.assert_array_equal(array, parts.model_state[name])
    # A second run goes on from params and state of the first.
    one = ml.fit(pm, points, epochs=1, params=whole.params, model_state=whole.model_state, **how)
    assert not jnp.array_equal(whole.model_state["batch_norm_0.running_mean"], jnp.zeros(5))
    np.testing.assert_array_equal(
        one.model_state["batch_norm_0.running_mean"], whole.model_state["batch_norm_0.running_mean"]
    )


def test_validation_uses_current_statistics(points: Any) -> None:
    pm = ml.compile(mlp(), shapes={"input": ["batch", 4]})
    run = ml.fit(pm, points, epochs=2, batch_size=40, validation=points, shuffle=False, learning_rate=0.1)
    for event in run:
        if event.kind == "epoch":
            logits = pm.evaluate(run.params, {"input": points[0]}, state=run.model_state)["output"]
            expected = optax.softmax_cross_entropy_with_integer_labels(logits, points[1]).mean()
            np.testing.assert_allclose(event.validation_loss, expected, 1e-5)


def test_diverged_run_restores_a_finite_state(points: Any) -> None:
    run = ml.fit(mlp(), points, epochs=30, batch_size=16, optimizer="sgd", learning_rate=0.1)
    for event in run:
        if event.kind == "epoch" and event.epoch == 2:
            break
    run.learning_rate = 1e38
    with pytest.raises(TrainingError):
        run.resume().wait()
    assert all(bool(jnp.isfinite(array).all()) for array in run.model_state.values())
    assert all(bool(jnp.isfinite(array).all()) for array in run.params.values())
    assert not jnp.array_equal(run.model_state["batch_norm_0.running_mean"], jnp.zeros(5))
    run.learning_rate = 0.01
    assert run.resume().wait().state == "done"


def test_programs_carry_the_state() -> None:
    pm = ml.compile(cnn(), shapes={"input": [8, 2, 4, 5]})
    found = programs(pm)
    shapes = {name: jax.eval_shape(program.function, *program.specs) for name, program in found.items()}
    assert shapes["forward"]["output"].shape == (8, 3)
    _, grads, after = shapes["forward+backward"]
    assert sorted(after) == [MEAN, VARIANCE]
    assert grads.keys() == pm.randomize_params(0).keys()
    step = found["train step"]
    assert step.donated == (0, 1)
    held = shapes["train step"][1]
    assert held.model_state == after
    assert jax.tree.structure(held) == jax.tree.structure(step.specs[1])
    inspection = ml.inspect(step.function, *step.specs, name=step.name)
    lines = [line for line in inspection.stage("jaxpr").text.splitlines() if "running_mean" in line]
    assert lines


def test_a_model_without_a_state_has_none(small: Any, blobs: Any) -> None:
    run = ml.fit(small, blobs, epochs=1)
    assert run.model_state == {}
    assert ml.fit(mlp(), blobs, epochs=1).opt_state[0].mu.keys() == ml.fit(mlp(), blobs, epochs=1).params.keys()


def test_stateless_step_equals_a_hand_written_step(small: Any) -> None:
    program = programs(small)["train step"]
    compute, adam = loss_function(small.forward), resolve_optimizer("adam")

    def by_hand(params: Any, opt_state: Any, rate: Any, batch: Any) -> Any:
        (_, metrics), grads = jax.value_and_grad(compute, has_aux=True)(params, batch)
        updates, opt_state = adam.update(grads, opt_state, params, rate)
        return optax.apply_updates(params, updates), opt_state, metrics

    assert str(jax.make_jaxpr(program.function)(*program.specs)) == str(jax.make_jaxpr(by_hand)(*program.specs))


def test_mismatched_state_is_rejected(blobs: Any) -> None:
    pm = ml.compile(mlp(), shapes={"input": ["batch", 4]})
    assert facts_of(lambda: pm.evaluate(pm.randomize_params(0), {"input": blobs[0]})) == (
        "MissingInputError: the model needs 2 states, got 0.\n"
        "    missing  'batch_norm_0.running_mean', 'batch_norm_0.running_var'\n"
        "    given    none"
    )
    assert facts_of(lambda: ml.fit(pm, blobs, model_state={**pm.initial_state(), "mean": np.zeros(5)}).wait()) == (
        "UnexpectedInputError: the model has no state 'mean'.\n"
        "    unknown  'mean'\n"
        "    states   'batch_norm_0.running_mean', 'batch_norm_0.running_var'"
    )


def line_search() -> Any:
    return optax.lbfgs(0.1)


OPTIMIZERS = ["adam", "adamw", "sgd", "lion", "lamb", "adagrad", pytest.param(line_search(), id="lbfgs")]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_frozen_parameters_do_not_change(points: Any, optimizer: Any) -> None:
    model = mlp().set_differentiability({"linear_0": False, "batch_norm_0.bias": False})
    params = ml.compile(model, shapes={"input": ["batch", 4]}).randomize_params(1)
    weight_decay = optax.adamw(0.1, weight_decay=0.5) if optimizer == "adamw" else optimizer
    run = ml.fit(model, points, params=params, epochs=1, batch_size=16, optimizer=weight_decay).wait()
    same = {name for name, array in run.params.items() if np.array_equal(array, params[name])}
    assert same == {"linear_0.weight", "linear_0.bias", "batch_norm_0.bias"}
    assert run.params.keys() == params.keys()


def test_nested_params_may_be_frozen_too(points: Any) -> None:
    model = mlp().set_differentiability({"linear_0": False})
    params = ml.compile(model, shapes={"input": ["batch", 4]}).randomize_params(1)
    nested: dict[str, dict[str, Any]] = {}
    for name, array in params.items():
        block, _, port = name.rpartition(".")
        nested.setdefault(block, {})[port] = array
    run = ml.fit(model, points, params=nested, epochs=1, batch_size=16).wait()
    np.testing.assert_array_equal(run.params["linear_0.weight"], params["linear_0.weight"])
    assert not np.array_equal(run.params["linear_1.weight"], params["linear_1.weight"])


def test_fully_frozen_model_updates_only_its_state(points: Any) -> None:
    model = mlp().set_differentiability({"linear_0": False, "batch_norm_0": False, "linear_1": False})
    params = ml.compile(model, shapes={"input": ["batch", 4]}).randomize_params(1)
    run = ml.fit(model, points, params=params, epochs=1, batch_size=16).wait()
    assert all(np.array_equal(array, params[name]) for name, array in run.params.items())
    assert not jnp.array_equal(run.model_state["batch_norm_0.running_mean"], jnp.zeros(5))
