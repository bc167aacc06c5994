"""Metrics equal those of scikit-learn, and the options of a run equal loops with optax."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn import metrics as sk

from mithril_nb.errors import UnknownOptionError
from mithril_nb.train import fit, patience
from mithril_nb.train.metrics import NAMED, top
from mithril_nb.train.run.events import History
from mithril_nb.train.training_plan import TrainingPlan

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 4)).astype(np.float32), RNG.integers(0, 3, 60)
W = RNG.uniform(0.1, 2, 60).astype(np.float32)


def softmax(logits: Any) -> Any:
    return np.asarray(jax.nn.softmax(jnp.asarray(logits, jnp.float32)), np.float64)


@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("weighted", [False, True])
def test_named_metrics_equal_scikit_learn(classes: int, weighted: bool) -> None:
    logits = RNG.normal(size=(200, classes)).round(1).astype(np.float32)  # with ties
    labels, weights = RNG.integers(0, classes, 200), RNG.uniform(0, 2, 200).astype(np.float32)
    sample_weight = weights if weighted else None
    predicted, shares = logits.argmax(1), softmax(logits)
    average = "binary" if classes == 2 else "macro"
    expected = {
        "f1": sk.f1_score(labels, predicted, average=average, sample_weight=sample_weight),
        "confusion": sk.confusion_matrix(labels, predicted, sample_weight=sample_weight),
    }
    if classes == 2:
        margin = logits[:, 1] - logits[:, 0]
        expected["auc"] = sk.roc_auc_score(labels, margin, sample_weight=sample_weight)
    else:
        areas = [
            sk.roc_auc_score(labels == c, shares[:, c].astype(np.float32), sample_weight=sample_weight)
            for c in range(classes)
        ]
        expected["auc"] = np.mean(areas)
        correct = np.asarray(top(2)(logits, labels))
        assert sk.top_k_accuracy_score(labels, logits, k=2) == pytest.approx(correct.mean(), abs=1e-6)
    for name, value in expected.items():
        np.testing.assert_allclose(NAMED[name].of(logits, labels, sample_weight), value, rtol=2e-5, err_msg=name)
    entropy = -np.log(shares[np.arange(200), labels])
    mean = np.average(entropy, weights=sample_weight)
    assert float(NAMED["perplexity"].of(logits, labels, sample_weight)) == pytest.approx(np.exp(mean), rel=1e-5)


def test_binary_logits_and_regression_equal_scikit_learn() -> None:
    logits, labels = RNG.normal(size=(100, 1)).astype(np.float32), RNG.integers(0, 2, 100).astype(np.float32)
    assert float(NAMED["f1"].of(logits, labels, None)) == pytest.approx(sk.f1_score(labels, logits[:, 0] > 0), abs=1e-6)
    assert float(NAMED["auc"].of(logits, labels, None)) == pytest.approx(
        sk.roc_auc_score(labels, logits[:, 0]), abs=1e-6
    )
    targets = RNG.normal(size=(100, 2)).astype(np.float32)
    guess = targets + RNG.normal(size=(100, 2)).astype(np.float32)
    weights = RNG.uniform(0, 2, 100).astype(np.float32)
    for w in (None, weights):
        expected = sk.r2_score(targets, guess, sample_weight=w)
        assert float(NAMED["r2"].of(guess, targets, w)) == pytest.approx(expected, abs=1e-5)


def f1_of_scikit(prediction: Any, targets: Any) -> float:
    return float(sk.f1_score(np.asarray(targets), np.asarray(prediction).argmax(1), average="macro"))


def margin(prediction: Any, targets: Any) -> Any:
    return prediction.max(-1) - prediction.min(-1)


@pytest.mark.parametrize("batch_size", [16, 60])
def test_metrics_of_a_run_are_those_of_whole_sets(small: Any, batch_size: int) -> None:
    names = ("accuracy", "f1", "auc", "top_2", "perplexity", "confusion")
    metrics = {**dict(zip(names, names, strict=True)), "theirs": f1_of_scikit, "margin": margin}
    options = {"metrics": metrics, "batch_size": batch_size, "epochs": 2, "validation": (X[:50], Y[:50], W[:50])}
    run = fit(small, (X, Y), **options).wait()
    logits = np.asarray(small.forward(run.params, {"input": X[:50]})["output"])
    predicted, labels, weights = logits.argmax(1), Y[:50], W[:50]
    expected = {
        "accuracy": sk.accuracy_score(labels, predicted, sample_weight=weights),
        "f1": sk.f1_score(labels, predicted, average="macro", sample_weight=weights),
        "theirs": sk.f1_score(labels, predicted, average="macro"),
        "margin": np.average(logits.max(1) - logits.min(1), weights=weights),
        "top_2": sk.top_k_accuracy_score(labels, logits, k=2, sample_weight=weights),
    }
    for name, value in expected.items():
        assert run.validation[name] == pytest.approx(value, abs=2e-5), name
        assert run.history[f"validation_{name}"][-1] == pytest.approx(value, abs=2e-5), name
    assert run.validation["confusion"].shape == (3, 3)
    assert run.validation["perplexity"] == pytest.approx(np.exp(run.validation["loss"]), rel=1e-5)
    assert run.evaluate((X[:50], Y[:50], W[:50]))["f1"] == pytest.approx(expected["f1"], abs=2e-5)
    assert not np.isnan(run.history["f1"]).any()
    assert "theirs" not in run.history.columns
    assert list(run)[-1].metrics["validation_f1"] == pytest.approx(expected["f1"], abs=2e-5)


@pytest.mark.parametrize(
    ("metrics", "match"),
    [
        ({"wide": lambda p, t: p}, None),
        ({"wide": lambda p, t: p.sum(0)}, "array of shape"),
        ({"broken": lambda p, t: p @ t @ t}, "because"),
        ({"theirs": f1_of_scikit}, "validation data"),
        ({"loss": margin}, "no name"),
        (("f2",), "unknown metric"),
        (3, "sequence of names"),
        ({"r": "r2"}, "'r' needs numbers"),
        ({"twice": lambda p, t, weights: p[:, 0] * weights}, "weighted twice"),
        ({"by_class": lambda p, t: jnp.resize(p.sum(0), 32)}, "array of shape"),
    ],
)
def test_wrong_metrics_are_refused(small: Any, metrics: Any, match: str | None) -> None:
    if match is None:
        assert len(fit(small, (X, Y), metrics=metrics, epochs=1).wait().history["wide"]) == 2
        return
    with pytest.raises(UnknownOptionError, match=match):
        fit(small, (X, Y), metrics=metrics)


def absolute(prediction: Any, targets: Any) -> Any:
    return abs(prediction[:, 0] - targets)


def weighted_mean(prediction: Any, targets: Any, weights: Any) -> Any:
    return (absolute(prediction, targets) * weights).sum() / weights.sum()


@pytest.mark.parametrize("weights", [(), (W,)])
def test_own_metrics_have_any_name_and_take_weights(small: Any, weights: Any) -> None:
    data = (X, Y, *weights)
    metrics = {"prediction": weighted_mean, "f1": absolute, "named": "f1"}
    run = fit(small, data, metrics=metrics, validation=data, epochs=1, batch_size=16).wait()
    guess = np.asarray(small.forward(run.params, {"input": X})["output"])
    expected = np.average(abs(guess[:, 0] - Y), weights=W if weights else None)
    assert run.validation["prediction"] == pytest.approx(expected, abs=1e-5)
    assert run.validation["f1"] == pytest.approx(expected, abs=1e-5)
    np.testing.assert_allclose(run.history["prediction"], run.history["f1"], rtol=1e-5)


REGRESSION = (X, X[:, :3].round(1))


@pytest.mark.parametrize("names", [("f1",), ("auc",), ("confusion",), ("top_2",), ("perplexity",)])
def test_metrics_of_classes_refuse_numbers(small: Any, names: Any) -> None:
    for data, loss in [(REGRESSION, "mean_squared_error"), ((X, Y * 9), lambda p, t: abs(p[:, 0] - t))]:
        with pytest.raises(UnknownOptionError, match="needs class labels"):
            fit(small, data, loss=loss, metrics=names)


def test_f1_without_positives_is_unknown() -> None:
    logits, labels = -np.ones((4, 1), np.float32), np.zeros(4, np.float32)
    assert np.isnan(NAMED["f1"].of(logits, labels, None))
    assert float(NAMED["f1"].of(-logits, labels, None)) == 0


def test_equal_metrics_share_programs(small: Any) -> None:
    steps = {id(fit(small, (X, Y), metrics=("top_2",))._plan.step) for _ in range(2)}
    assert len(steps) == 1


def hand_written(small: Any, batches: Any, optimizer: Any, decay: float) -> tuple[Any, Any]:
    params = jax.tree.map(jnp.asarray, small.randomize_params(0))
    held, average = optimizer.init(params), params

    def loss(params: Any, x: Any, y: Any) -> Any:
        logits = small.forward(params, {"input": x})["output"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    for x, y in batches:
        updates, held = optimizer.update(jax.grad(loss)(params, x, y), held, params)
        params = optax.apply_updates(params, updates)
        average = optax.incremental_update(params, average, 1 - decay)
    return params, average


def assert_close(ours: Any, theirs: Any) -> None:
    jax.tree.map(lambda own, other: np.testing.assert_allclose(own, other, atol=1e-6), ours, theirs)


@pytest.mark.parametrize("optimizer", ["adam", optax.adam(optax.cosine_decay_schedule(1e-3, 5))])
def test_average_and_accumulation_equal_loops_with_optax(small: Any, optimizer: Any, tmp_path: Path) -> None:
    batches = [(X[i : i + 12], Y[i : i + 12]) for i in range(0, 60, 12)] * 2
    plain = optax.adam(1e-3) if optimizer == "adam" else optimizer
    options = {"optimizer": optimizer, "shuffle": False, "batch_size": 12, "epochs": 2}
    run = fit(small, (X, Y), ema=0.9, validation=(X, Y), **options).wait()
    params, average = hand_written(small, batches, plain, 0.9)
    assert_close(run.params, params)
    assert_close(run.ema_params, average)
    assert run.validation["loss"] == pytest.approx(
        fit(small, (X, Y), params=average).evaluate((X, Y))["loss"], abs=1e-5
    )
    several = fit(small, (X, Y), accumulate=5, **options).wait()
    assert_close(several.params, hand_written(small, batches, optax.MultiSteps(plain, 5), 0.9)[0])
    both = {**options, "accumulate": 2, "ema": 0.5, "checkpoint": tmp_path}
    whole = fit(small, (X, Y), **{**both, "checkpoint": None}).wait()
    with pytest.warns(RuntimeWarning, match="the last 1 of 5 steps update nothing"):
        first = fit(small, (X, Y), **{**both, "epochs": 1})
    first.wait()
    resumed = fit(small, (X, Y), **both, resume=True).wait()
    assert_close(resumed.ema_params, whole.ema_params)
    if optimizer != "adam":
        assert np.abs(several.history["learning_rate"][:5] - 1e-3).max() <= 1e-10


def test_validation_every_few_steps_and_at_the_end(small: Any) -> None:
    run = fit(small, (X, Y), validation=(X, Y), validate_every=4, steps=11, batch_size=10)
    kinds = [(event.kind, event.step) for event in run if event.kind not in ("step", "started")]
    assert kinds == [("validation", 4), ("epoch", 6), ("validation", 8), ("epoch", 11), ("done", 11)]
    assert np.flatnonzero(~np.isnan(run.history["validation_loss"])).tolist() == [3, 7, 10]
    assert run.snapshot()["validation_loss"] == run.validation["loss"]


def test_patience_ends_a_run_and_the_best_params_stay(small: Any, tmp_path: Path) -> None:
    options = {"validation": (X[:20], Y[::-1][:20]), "keep_best": "validation_loss", "learning_rate": 0.05}
    options |= {"stop": patience("validation_loss", 3), "epochs": 60, "checkpoint": tmp_path}
    run = fit(small, (X, Y), **options).wait()
    losses = run.history["validation_loss"][~np.isnan(run.history["validation_loss"])]
    assert run.state == "done"
    assert run.step < run.steps
    assert len(losses) - 1 - losses.argmin() == 3
    assert run.best_step == 2 * (losses.argmin() + 1)
    best = fit(small, (X, Y), params=run.best_params).evaluate(options["validation"])
    assert best["loss"] == pytest.approx(losses.min(), abs=1e-6)
    resumed = fit(small, (X, Y), **options, resume=True)
    assert_close(resumed.best_params, run.best_params)
    assert resumed.wait().step == run.step


def test_rules_count_values() -> None:
    history = History(("error",))
    rule = patience("error", 2, mode="min", least=0.1)
    seen = []
    for step, error in enumerate([1.0, 0.95, 0.5, 0.6, 0.45], start=1):
        history.append(step=step, epoch=step, error=error)
        seen.append(rule(history))
    assert seen == [False, False, False, False, True]
    with pytest.raises(UnknownOptionError, match="smaller 'error'"):
        patience("error", 2)
    with pytest.raises(UnknownOptionError):
        patience("loss", 0)


def scripted(values: Any, **options: Any) -> Any:
    """Return a run of 4 steps per epoch, whose validation loss after step `i` is `values[i]`."""
    table = jnp.asarray([0.0, *values])
    one, zero = np.ones(8, np.float32), np.zeros(8, np.float32)

    def loss(prediction: Any, targets: Any) -> Any:  # each step adds 1 to the prediction
        return jnp.where(targets > 0, table[jnp.round(prediction).astype(int)], -prediction)

    options = {"optimizer": "sgd", "learning_rate": 1.0, "batch_size": 2, "validation": (one, one), **options}
    start = {"w": jnp.float32(0)}
    return fit(lambda params, x: params["w"] * x, (one, zero), params=start, loss=loss, **options)


NAN = float("nan")


@pytest.mark.parametrize(
    ("values", "options", "best"),
    [
        ([0, 0, 6.25, 22.29, 0, 815, 0, 900], {"validate_every": 3}, 3),
        ([1, NAN, NAN, NAN, NAN, NAN, 2, 3], {"validate_every": 1}, 1),
        ([NAN] * 8, {"validate_every": 1}, None),
        ([3, 2, 2, 1, 1, 1, 1, 1], {"validate_every": 1}, 4),
        ([1] * 8, {"validate_every": 3, "keep_best": "loss", "steps": 7}, 4),
    ],
)
def test_the_best_params_are_those_of_a_value(values: Any, options: Any, best: int | None) -> None:
    run = scripted(values, **{"keep_best": "validation_loss", "epochs": None if "steps" in options else 2, **options})
    run.wait()
    assert run.best_step == best
    if best is not None:
        assert float(run.best_params["w"]) == best


def test_a_validation_that_is_stopped_is_not_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    evaluating = TrainingPlan.evaluating

    def interrupted(*arguments: Any) -> Any:
        if run.step == 3:
            run.stop()
        yield from evaluating(*arguments)

    run = scripted([2, 1, 0, 4, 5, 6, 7, 8], validate_every=1, keep_best="validation_loss", epochs=2)
    monkeypatch.setattr(TrainingPlan, "evaluating", interrupted)
    run.start().wait()
    assert (run.step, run.best_step) == (3, 2)


@pytest.mark.parametrize("first", [2, 3, 4])
def test_a_validation_with_nan_is_no_better_one(first: int, tmp_path: Path) -> None:
    options = {"validate_every": 1, "stop": patience("validation_loss", 3), "checkpoint": tmp_path}
    values = [1, NAN, 2, NAN, 0, 0, 0, 0]
    scripted(values, **options, steps=first).wait()
    run = scripted(values, **options, steps=8, resume=True).wait()
    assert (run.state, run.step) == ("done", 4)


def test_patience_waits_for_the_end_of_an_epoch() -> None:
    history, rule = History(steps_per_epoch=2), patience("loss", 1)
    seen = []
    for step, loss in enumerate([1.0, 1.0, 3.0, -2.0, 1.0, 1.0], start=1):
        history.append(step=step, epoch=(step + 1) // 2, loss=loss)
        seen.append(rule(history))
    assert seen == [False] * 5 + [True]


def test_a_rule_reads_the_latest_row() -> None:
    run = scripted([3, 2, 1, 0.5, 0, 0, 0, 0], validate_every=2, stop=lambda h: h["validation_loss"][-1] < 1, epochs=2)
    assert run.wait().step == 4


@pytest.mark.parametrize(
    "options",
    [
        {"ema": 2.0},
        {"accumulate": 0},
        {"accumulate": 100, "epochs": 2},
        {"validate_every": 5},
        {"keep_best": "no"},
        {"stop": patience("validation_f1", 2)},
        {"stop": patience("validation_loss", 2)},
        {"keep_best": "validation_loss"},
        {"keep_best": "accuracy", "metrics": ()},
    ],
)
def test_wrong_options_are_refused(small: Any, options: Any) -> None:
    with pytest.raises(UnknownOptionError):
        fit(small, (X, Y), **options)
