"""fit learns, equals a hand-written loop, and follows its options."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.train import TrainingEvent, fit
from mithril_nb.train.data import batches


def same(left: dict[str, Any], right: dict[str, Any], tolerance: float = 1e-6) -> None:
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_allclose(left[name], right[name], rtol=tolerance, atol=tolerance, err_msg=name)


def by_hand(model: Any, data: Any, optimizer: Any, epochs: int, batch_size: int, seed: int = 0) -> dict[str, Any]:
    """Train with a hand-written loop on the same batches, including a short last batch."""
    (x, y), params = data, model.randomize_params(seed)
    state = optimizer.init(params)

    @jax.jit
    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(params: Any) -> Any:
            logits = model.forward(params, {"input": x})["output"]
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    for epoch in range(1, epochs + 1):
        for indices, _ in batches(len(x), batch_size, epoch=epoch, seed=seed, tail="short"):
            params, state = step(params, state, x[indices], y[indices])
    return params


def test_digits_train_in_seconds(mlp: Any, digits: Any) -> None:
    train, test = digits
    run = fit(mlp(64, 128, 10), train, validation=test, learning_rate=3e-3, epochs=12).wait()
    assert run.state == "done"
    assert run.evaluate(test)["accuracy"] > 0.95
    assert run.history["validation_accuracy"][-1] == pytest.approx(run.evaluate(test)["accuracy"])


@pytest.mark.parametrize("batch_size", [20, 32])  # of 60 samples: the second leaves a short batch
@pytest.mark.parametrize(
    ("optimizer", "rate", "theirs"),
    [
        ("adam", 1e-2, optax.adam(1e-2)),
        (optax.adamw, 1e-2, optax.adamw(1e-2)),
        (optax.sgd(0.1, momentum=0.9), None, optax.sgd(0.1, momentum=0.9)),
        (functools.partial(optax.adam, b1=0.5), 1e-2, optax.adam(1e-2, b1=0.5)),
        (lambda rate: optax.chain(optax.clip_by_global_norm(0.1), optax.lion(rate)), 1e-2,
         optax.chain(optax.clip_by_global_norm(0.1), optax.lion(1e-2))),
        ("sgd", optax.linear_schedule(0.1, 0.01, 6), optax.sgd(optax.linear_schedule(0.1, 0.01, 6))),
    ],
    ids=["name", "factory", "transformation", "partial", "lambda", "schedule"],
)  # fmt: skip
def test_same_params_as_a_hand_written_loop(
    small: Any, blobs: Any, optimizer: Any, rate: Any, theirs: Any, batch_size: int
) -> None:
    model = small
    run = fit(model, blobs, optimizer=optimizer, learning_rate=rate, epochs=3, batch_size=batch_size).wait()
    same(run.params, by_hand(model, blobs, theirs, 3, batch_size))


def test_seed_decides_everything(small: Any, blobs: Any) -> None:
    losses = [fit(small, blobs, epochs=2, seed=seed).wait().history["loss"] for seed in (1, 1, 2)]
    np.testing.assert_array_equal(losses[0], losses[1])
    assert not np.array_equal(losses[0], losses[2])


def test_dropout_uses_a_new_key_in_each_step(mlp: Any, blobs: Any) -> None:
    x, y = blobs
    data = (np.tile(x[:1], (8, 1)), np.tile(y[:1], 8))
    run = fit(mlp(4, 64, 3, dropout=0.5), data, optimizer="sgd", learning_rate=0.0, batch_size=8, epochs=5).wait()
    assert len(set(run.history["loss"].tolist())) == 5


def test_events_of_a_driven_run_come_in_order(small: Any, blobs: Any) -> None:
    events = list(fit(small, blobs, epochs=2, batch_size=20, validation=blobs))
    kinds = ["started", *["step"] * 3, "epoch", *["step"] * 3, "epoch", "done"]
    assert [event.kind for event in events] == kinds
    assert [event.step for event in events] == [0, 1, 2, 3, 3, 4, 5, 6, 6, 6]
    assert [event.epoch for event in events] == [0, 1, 1, 1, 1, 2, 2, 2, 2, 2]
    assert all(event.steps == 6 and event.epochs == 2 for event in events)
    epoch = events[4]
    assert epoch.loss == pytest.approx(np.mean([event.loss or 0 for event in events[1:4]]))
    assert epoch.accuracy == pytest.approx(np.mean([event.accuracy or 0 for event in events[1:4]]))
    assert epoch.validation_loss is not None
    assert epoch.validation_accuracy is not None
    assert events[3].left_s is not None
    assert all(isinstance(event, TrainingEvent) and event.learning_rate == 1e-3 for event in events)


def test_each_event_of_a_driven_run_matches_the_state(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, epochs=2, batch_size=20)
    for event in run:
        if event.kind == "step" and event.step == 3:
            break
    assert run.step == 3
    assert len(run.history) == 3


def test_learning_rate_changes_without_a_new_trace(mlp: Any, blobs: Any) -> None:
    model = mlp(4, 8, 3)
    run = fit(model, blobs, optimizer="sgd", learning_rate=0.1, epochs=4, batch_size=20)
    before, traces = {}, 0
    for event in run:
        if event.kind != "step":
            continue
        if event.step == 1:
            traces = model.traces
        if event.step == 5:
            before = run.params
            run.learning_rate = 0.0
        if event.step == 6:
            same(before, run.params, 0)
            assert event.learning_rate == 0.0
            run.set_learning_rate(0.05)
    assert model.traces == traces
    assert run.history["learning_rate"].tolist() == [0.1] * 5 + [0.0] + [0.05] * 6


def test_relative_learning_rate_is_exact_for_adam(small: Any, blobs: Any) -> None:
    relative = fit(small, blobs, optimizer=optax.adam(2e-2), epochs=3)
    assert relative.learning_rate_is_relative
    assert relative.learning_rate == 1.0
    relative.learning_rate = 0.5
    absolute = fit(small, blobs, optimizer="adam", learning_rate=1e-2, epochs=3)
    assert not absolute.learning_rate_is_relative
    same(relative.wait().params, absolute.wait().params)


def test_factory_that_branches_on_its_rate_is_relative(small: Any, blobs: Any) -> None:
    def careful(rate: float) -> Any:
        return optax.sgd(rate) if rate > 0 else optax.set_to_zero()

    run = fit(small, blobs, optimizer=careful, learning_rate=0.1, epochs=1)
    assert run.learning_rate_is_relative
    same(run.wait().params, by_hand(small, blobs, optax.sgd(0.1), 1, 32))


def test_line_search_receives_its_arguments(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, optimizer=optax.lbfgs(), epochs=12, batch_size=60).wait()
    assert run.history["loss"][-1] < 0.2 * run.history["loss"][0]


def test_given_params_are_the_start_and_stay_valid(small: Any, blobs: Any) -> None:
    model = small
    params = jax.tree.map(jnp.asarray, model.randomize_params(7))
    copy = jax.tree.map(np.array, params)
    run = fit(model, blobs, params=params, optimizer="sgd", learning_rate=0.0, epochs=1).wait()
    same(params, copy, 0)
    same(run.params, copy, 0)


def test_read_params_do_not_change_later(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, epochs=2, batch_size=20)
    held = [run.params]
    for event in run:
        if event.kind == "step":
            held += [run.params, run.opt_state]
    leaves = jax.tree.leaves(held)
    assert not any(leaf.is_deleted() for leaf in leaves)
    assert not np.array_equal(held[0]["linear_0.weight"], run.params["linear_0.weight"])


@pytest.mark.parametrize("fraction", [0.25, np.float32(0.25)])
def test_validation_fraction_is_held_out(small: Any, blobs: Any, fraction: Any) -> None:
    run = fit(small, blobs, validation=fraction, epochs=1, batch_size=15).wait()
    assert len(run.history) == 3  # 45 samples are left
    assert run.snapshot()["validation_accuracy"] is not None


def test_evaluate_counts_each_sample_once(small: Any, blobs: Any) -> None:
    x, y = blobs
    model = small
    run = fit(model, blobs, batch_size=32)
    logits = model.forward(run.params, {"input": x})["output"]
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    scores = run.evaluate((x, y))
    assert scores["loss"] == pytest.approx(float(expected), rel=1e-5)
    assert scores["accuracy"] == pytest.approx(float((np.argmax(logits, axis=-1) == y).mean()))
    assert run.evaluate((x[:5], y[:5]))["loss"] == pytest.approx(
        float(optax.softmax_cross_entropy_with_integer_labels(logits[:5], y[:5]).mean()), rel=1e-5
    )


def scalar_mean(prediction: Any, targets: Any) -> Any:
    return jnp.mean(jnp.abs(prediction - targets))


def per_sample(prediction: Any, targets: Any) -> Any:
    return jnp.abs(prediction - targets).mean(axis=-1)


@pytest.mark.parametrize("loss", [scalar_mean, per_sample])
def test_custom_loss(mlp: Any, blobs: Any, loss: Any) -> None:
    x, _ = blobs
    run = fit(mlp(4, 8, 4), (x, x), loss=loss, epochs=60, batch_size=32, learning_rate=1e-2).wait()
    assert len(run.history) == 60 * 2
    assert run.history["loss"][-5:].mean() < 0.5 * run.history["loss"][:5].mean()
    assert run.evaluate((x, x)).keys() == {"loss"}


@pytest.mark.parametrize("shape", [(60,), (60, 1)])
def test_regression_does_not_broadcast_targets(mlp: Any, blobs: Any, shape: tuple[int, ...]) -> None:
    x, _ = blobs
    y = x.sum(axis=1).astype(np.float64)
    run = fit(
        mlp(4, 16, 1), (x, y.reshape(shape)), loss="mean_squared_error", epochs=80, batch_size=20, learning_rate=1e-2
    ).wait()
    assert run.evaluate((x, y.reshape(shape)))["loss"] < 0.05


def test_binary_classes(mlp: Any, blobs: Any) -> None:
    x, y = blobs
    run = fit(mlp(4, 8, 1), (x, y == 0), loss="binary_cross_entropy", epochs=40, learning_rate=1e-2).wait()
    assert run.evaluate((x, y == 0))["accuracy"] > 0.9


class TwoInputs:
    """Return the weighted sum and difference of two inputs."""

    input_names = ("left", "right")
    output_names = ("sum", "difference")
    needs_key = False

    def __init__(self) -> None:
        self.input_specs = {"left": TensorSpec(("batch", 2)), "right": TensorSpec(("batch", 2), "int32")}

    def forward(self, params: Any, inputs: Any, *, key: Any = None, training: bool = False) -> dict[str, Any]:
        assert inputs["right"].dtype == jnp.int32
        left, right = inputs["left"] * params["left"], inputs["right"] * params["right"]
        return {"sum": left + right, "difference": left - right}

    def randomize_params(self, seed: int | None = None) -> dict[str, Any]:
        return {"left": np.float32(0), "right": np.float32(0)}


def test_many_inputs_and_outputs_by_name() -> None:
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=(40, 2)), rng.integers(-3, 4, (40, 2)).astype(float)
    targets = {"sum": 2 * left + 3 * right, "difference": 2 * left - 3 * right}

    def loss(outputs: Any, targets: Any) -> Any:
        return sum(jnp.mean((outputs[name] - targets[name]) ** 2) for name in targets)

    run = fit(
        TwoInputs(),
        ({"left": left, "right": right}, targets),
        loss=loss,
        optimizer="sgd",
        learning_rate=0.05,
        epochs=40,
        batch_size=10,
    ).wait()
    same(run.params, {"left": np.float32(2), "right": np.float32(3)}, 1e-3)


def test_snapshot_has_the_published_fields(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, epochs=2, batch_size=20, validation=blobs)
    idle = run.snapshot()
    assert (idle["state"], idle["step"], idle["steps"], idle["epoch"], idle["epochs"]) == ("idle", 0, 6, 0, 2)
    run.wait()
    done = run.snapshot()
    assert set(done) == {
        "state", "epoch", "epochs", "step", "steps", "loss", "accuracy", "validation_loss", "validation_accuracy",
        "steps_per_s", "left_s", "learning_rate", "learning_rate_is_relative", "message", "points",
        "marks",
    }  # fmt: skip
    assert (done["state"], done["step"], done["points"], done["left_s"]) == ("done", 6, 6, 0.0)
    # A mean over the epoch, which had three steps: one batch jumps too much to be read.
    assert done["loss"] == np.mean(run.history["loss"][-3:])
    assert done["accuracy"] == np.mean(run.history["accuracy"][-3:])
    assert repr(run) == "Run(done, step 6 of 6, 2 epochs)"


def test_changes_of_the_rate_are_marks(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, epochs=2, batch_size=20, learning_rate=0.1)
    run.learning_rate = 0.2  # before the first step, which has this rate
    for event in run:
        if event.kind == "step" and event.step in (2, 3, 5):
            run.learning_rate = 0.05 * (event.step // 5 + 1)
    assert run.snapshot()["marks"] == [(2, "learning_rate: 0.2 → 0.05"), (5, "learning_rate: 0.05 → 0.1")]


def test_additional_epochs_equal_one_long_run(small: Any, blobs: Any) -> None:
    short = fit(small, blobs, epochs=1).wait()
    assert short.resume().state == "done"  # nothing is left to do
    short.resume(epochs=2).wait()
    long = fit(small, blobs, epochs=3).wait()
    same(short.params, long.params, 0)
    assert short.history["epoch"].tolist() == long.history["epoch"].tolist()


def test_a_negative_seed_is_a_seed(small: Any, blobs: Any) -> None:
    first, again = (fit(small, blobs, seed=-1, epochs=1, batch_size=20, validation=0.2).wait() for _ in range(2))
    assert first.history["loss"].tolist() == again.history["loss"].tolist()
