"""`ml.find_nan(run)` replays a failed run bit for bit, and names the block and direction that a NaN was planted in."""

from __future__ import annotations

import gc
import math
import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mithril_nb as ml
from mithril_nb.analysis.replay import replayed
from mithril_nb.errors import TrainingError, UnknownOptionError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(64, 3)).astype(np.float32)
Y = (X @ np.float32([1.0, -2.0, 0.5])).astype(np.float32)
BATCHES = [(X[i : i + 16], Y[i : i + 16]) for i in range(0, 64, 16)]


def bad(fn: Callable[..., Any], *args: Any) -> Any:
    with jax.named_scope("bad"):
        return fn(*args)


def start() -> dict[str, Any]:
    return {"w": jnp.zeros(3), "slow": jnp.float32(1.0)}


def forward_log(params: Any, x: Any) -> Any:
    with jax.named_scope("good"):
        out = x @ params["w"]
    return out + bad(lambda: 0 * jnp.log(params["slow"] - 0.5))


def backward_root(params: Any, x: Any) -> Any:
    with jax.named_scope("good"):
        out = x @ params["w"]
    return out + bad(lambda: jnp.sqrt(jnp.maximum(params["slow"] - 0.5, 0) ** 2 * 0.0001))


def linear(params: Any, x: Any) -> Any:
    return x @ params["w"] + 0 * params["slow"]


def shrinking(**more: Any) -> optax.GradientTransformation:
    """Return SGD that also takes 0.07 from `slow` in each step, so that it falls below 0.5 at step 8."""

    def update(grads: Any, state: Any, params: Any = None) -> Any:
        updates = jax.tree.map(lambda g: -0.05 * g, grads)
        updates["slow"] = jnp.float32(-0.07) + 0 * grads["slow"]
        if more:
            with jax.named_scope("bad"):
                updates["w"] = updates["w"] + 0 * jnp.log(params["slow"] - 0.5)
        return updates, state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


CASES = {
    "forward": (forward_log, shrinking(), "log", "forward"),
    "backward": (backward_root, shrinking(), "mul", "backward"),
    "optimizer": (linear, shrinking(log=True), "log", "optimizer"),
}


def failed(run: Any) -> Any:
    with pytest.raises(TrainingError, match=r"ml\.find_nan\(run\)"):
        run.wait()
    return run


@pytest.mark.parametrize(("case", "kind"), [*((case, "arrays") for case in CASES), ("optimizer", "list")])
def test_a_run_of_fit(case: str, kind: str) -> None:
    net, optimizer, primitive, direction = CASES[case]
    data = (X, Y) if kind == "arrays" else BATCHES
    options: dict[str, Any] = {"epochs": 20, "batch_size": 16} if kind == "arrays" else {"steps": 80}
    run = failed(ml.fit(net, data, params=start(), loss="mean_squared_error", optimizer=optimizer, norms=3, **options))
    last = len(run.history) + 1
    before = run.params
    steps = list(replayed(run, ()))
    kept = run.step
    np.testing.assert_array_equal([step.loss for step in steps][:-1], run.history["loss"][kept:])
    assert steps[-1].number == last
    assert math.isnan(steps[-1].loss)
    began = time.perf_counter()
    first = ml.find_nan(run)
    assert time.perf_counter() - began < 10
    assert first is not None
    assert first.equation is not None
    assert (first.equation.primitive, first.direction) == (primitive, direction)
    # The optimizer's equations are in the block of the params, here the function.
    assert first.equation.block == ("linear" if direction == "optimizer" else "bad")
    assert first.equation.source.startswith("test_failed_runs.py")
    # A gradient or an update breaks the params one step before the loss.
    assert first.step == (last if direction == "forward" else last - 1)
    assert re.search(rf"\n    step  +{first.step}\n", str(first))
    np.testing.assert_array_equal(run.params["w"], before["w"])
    assert run.step == kept


def test_a_rate_that_was_changed_before_the_failure_is_that_of_its_steps() -> None:
    run = ml.fit(linear, (X, Y), params=start(), loss="mean_squared_error", optimizer="sgd", batch_size=16, epochs=50)
    with pytest.raises(TrainingError):  # noqa: PT012
        for event in run:
            if event.step == 6 and event.kind == "step":
                run.learning_rate = 1e9
    run.learning_rate = 1e-3
    steps = list(replayed(run, ()))
    np.testing.assert_array_equal([step.loss for step in steps][:-1], run.history["loss"][run.step :])
    first = ml.find_nan(run)
    assert first is not None
    assert first.kind == "inf"
    assert first.direction in ("forward", "backward")


def test_params_that_an_update_made_infinite_are_followed_to_that_update() -> None:
    def update(grads: Any, state: Any, params: Any = None) -> Any:
        with jax.named_scope("bad"):
            return jax.tree.map(lambda g: g * 0 + jnp.exp(state), grads), state + 30

    optimizer = optax.GradientTransformation(lambda params: jnp.float32(0), update)

    def net(params: Any, x: Any) -> Any:
        return jnp.tanh(x @ params["w"]) + 0 * params["slow"]

    run = failed(ml.fit(net, (X, Y), params=start(), loss="mean_squared_error", optimizer=optimizer, epochs=5))
    first = ml.find_nan(run)
    assert first is not None
    assert first.equation is not None
    assert (first.equation.primitive, first.kind, first.direction, first.step) == ("exp", "inf", "optimizer", 4)


def test_a_run_of_fit_without_nan_is_refused_and_not_trained_to_its_end() -> None:
    count = 5
    run = ml.fit(linear, (X, Y), params=start(), loss="mean_squared_error", optimizer=optax.sgd(0.01), epochs=100)
    with pytest.raises(UnknownOptionError, match=r"no loss of the run is NaN or infinite\.\n    step  +0\n"):
        ml.find_nan(run)
    for event in run:
        if event.kind == "step" and event.step == count:
            run.stop()
    assert run.state == "stopped"
    with pytest.raises(UnknownOptionError, match=r"no loss of the run is NaN or infinite"):
        ml.find_nan(run)
    assert run.step < run.steps
    run.resume()
    run.wait()
    with pytest.raises(UnknownOptionError, match=r"no loss of the run is NaN or infinite"):
        ml.find_nan(run)


def test_batches_that_are_gone_are_refused() -> None:
    def batches() -> Iterator[Any]:
        while True:
            yield from BATCHES

    options: dict[str, Any] = {"params": start(), "loss": "mean_squared_error", "optimizer": shrinking(), "steps": 80}
    run = failed(ml.fit(forward_log, batches(), **options))
    with pytest.raises(UnknownOptionError, match=r"cannot be read again") as caught:
        ml.find_nan(run)
    assert "get_state" in str(caught.value)


@jax.jit
def step(state: Any, batch: Any, rate: Any) -> Any:
    x, y = batch
    loss, grads = jax.value_and_grad(lambda params: jnp.mean((forward_log(params, x) - y) ** 2))(state["params"])
    params = jax.tree.map(lambda p, g: p - rate * g, state["params"], grads)
    params["slow"] = state["params"]["slow"] - 0.07
    return {"params": params, "count": state["count"] + 1}, loss


def tracked(path: Path, batches: Any, total: int = 20, **options: Any) -> Any:
    state = {"params": start(), "count": 0}
    with warnings.catch_warnings(action="ignore"), ml.track(path, checkpoint_every=3, **options) as run:
        state = run.restore(state)
        for batch in run.steps(batches, total=total):
            if run.step == 5:
                run.set("rate", 0.03)
            state, loss = step(state, batch, run.knob("rate", 0.05, log=True))
            run.log({"loss": loss}, state=state)
    return run


def inspected() -> Any:
    return ml.inspect(step, {"params": start(), "count": 0}, BATCHES[0], 0.05)


def test_a_tracked_run_with_its_step(tmp_path: Path) -> None:
    run = tracked(tmp_path / "line", BATCHES, graph=inspected())
    stored = ml.runs(tmp_path)["line"]
    losses = [step.loss for step in replayed(stored, ())]
    np.testing.assert_array_equal(losses, stored.history["loss"][6:9])
    for target in (run, stored):
        first = ml.find_nan(target)
        assert first is not None
        assert first.equation is not None
        assert (first.equation.primitive, first.step, first.direction) == ("log", 9, "forward")
        assert first.equation.block.endswith("bad")
    del run, target
    gc.collect()
    with pytest.raises(UnknownOptionError, match="the step as an inspection, and the batches"):
        ml.find_nan(stored)
    assert ml.find_nan(stored, inspected(), BATCHES) == first


def test_an_infinite_loss_at_the_start_does_not_hide_a_later_nan(tmp_path: Path) -> None:
    @jax.jit
    def falling(w: Any, batch: Any) -> Any:
        return w - 0.125, jnp.sum(bad(jnp.log, w) * batch)

    batches = [np.float32([math.inf])] + 19 * [np.float32([1])]
    program = ml.inspect(falling, jnp.float32(0.7), batches[0])
    with (
        warnings.catch_warnings(action="ignore"),
        ml.track(tmp_path / "line", checkpoint_every=3, keep=1, graph=program) as run,
    ):
        w = run.restore(jnp.float32(0.7))
        for batch in run.steps(batches, total=20):
            w, loss = falling(w, batch)
            run.log({"loss": loss}, state=w)
    bad_step = int(np.flatnonzero(np.isnan(ml.runs(tmp_path)["line"].history["loss"]))[0]) + 1
    assert bad_step == 7
    for target, args in ((run, ()), (ml.runs(tmp_path)["line"], (program, batches))):
        first = ml.find_nan(target, *args)
        assert first is not None
        assert first.equation is not None
        assert (first.equation.primitive, first.step, first.direction) == ("log", bad_step, "forward")


def test_a_bad_loss_that_a_later_start_computed_as_finite_does_not_count(tmp_path: Path) -> None:
    for is_first in (True, False):
        with warnings.catch_warnings(action="ignore"), ml.track(tmp_path / "line", checkpoint_every=2) as run:
            run.restore(0)
            for _ in run.steps([0], total=8):
                run.log({"loss": math.nan if is_first and run.step == 5 else 1.0}, state=run.step)
                if is_first and run.step == 5:
                    run.stop()
        if is_first:  # as if it was killed before its last checkpoint
            (tmp_path / "line" / "step-0000000005.safetensors").unlink()
    stored = ml.runs(tmp_path)["line"]
    assert [event["step"] for event in stored.events if "metric" in event] == [5]
    with pytest.raises(UnknownOptionError, match="no loss of run 'line' is NaN"):
        ml.find_nan(stored, inspected(), BATCHES)


def test_rows_of_bad_data_are_named(tmp_path: Path) -> None:
    batches = [(x.copy(), y) for x, y in BATCHES]
    batches[2][0][[4, 9], 1] = np.nan
    tracked(tmp_path / "line", batches, total=7)
    with pytest.raises(UnknownOptionError, match="no checkpoint without NaN before step 3"):
        ml.find_nan(ml.runs(tmp_path)["line"], inspected(), batches)
    tracked(tmp_path / "later", BATCHES[:2] * 2 + batches, total=9)
    first = ml.find_nan(ml.runs(tmp_path)["later"], inspected(), BATCHES[:2] * 2 + batches)
    assert first is not None
    assert (first.argument, first.rows, first.step, first.direction) == ("batch[0]", (4, 9), 7, "data")


def test_other_data_or_another_step_is_refused(tmp_path: Path) -> None:
    tracked(tmp_path / "line", BATCHES)
    stored = ml.runs(tmp_path)["line"]
    with pytest.raises(UnknownOptionError, match="differs from the run at step 7"):
        ml.find_nan(stored, inspected(), BATCHES[::-1])
    with pytest.raises(UnknownOptionError, match="takes no state of 3 arrays"):
        ml.find_nan(stored, ml.inspect(lambda w, x: x @ w, jnp.zeros(3), X), BATCHES)
    with pytest.raises(UnknownOptionError, match="takes no batch of"):
        ml.find_nan(stored, inspected(), [X])
    with pytest.raises(UnknownOptionError, match="cannot be read again"):
        ml.find_nan(stored, inspected(), iter(BATCHES))
    with ml.track(tmp_path / "good") as run:
        run.log({"loss": 1.0})
    with pytest.raises(UnknownOptionError, match="no loss of run 'good' is NaN"):
        ml.find_nan(ml.runs(tmp_path)["good"], inspected(), BATCHES)
    with warnings.catch_warnings(action="ignore"), pytest.raises(TrainingError):
        ml.fit(
            forward_log, (X, Y), params=start(), loss="mean_squared_error", optimizer=shrinking(), batch_size=16,
            track=str(tmp_path / "fitted"),
        ).wait()  # fmt: skip
    with pytest.raises(UnknownOptionError, match="missing"):
        ml.find_nan(ml.runs(tmp_path)["fitted"])


def test_a_stored_run_of_fit_continues_and_is_replayed(tmp_path: Path) -> None:
    options: dict[str, Any] = {"params": start(), "loss": "mean_squared_error", "optimizer": shrinking()}
    options |= {"batch_size": 16, "track": str(tmp_path / "fitted")}
    failed(ml.fit(forward_log, (X, Y), **options))
    first = ml.find_nan(ml.fit(forward_log, (X, Y), **options))
    assert first is not None
    assert (first.step, first.direction) == (9, "forward")
    options |= {"optimizer": optax.sgd(0.01), "epochs": 100, "track": str(tmp_path / "stopped")}
    run = ml.fit(linear, (X, Y), **options)
    for event in run:
        if event.kind == "step" and event.step == 5:
            run.stop()
    assert ml.runs(tmp_path)["stopped"].step < run.steps - 1
    run = ml.fit(linear, (X, Y), **options)
    numbers = [step.number for step in replayed(run, ())]
    assert numbers == [*range(run.step + 1, ml.runs(tmp_path)["stopped"].step + 2)]
    with pytest.raises(UnknownOptionError, match="no loss of the run is NaN"):
        ml.find_nan(run)


def test_random_keys_in_the_state_are_replayed(tmp_path: Path) -> None:
    @jax.jit
    def noisy(w: Any, key: Any, batch: Any) -> Any:
        key, own = jax.random.split(key)
        noise = 0.001 * jax.random.normal(own, batch.shape)
        return w - 0.07, key, jnp.mean(bad(jnp.log, w + noise) * batch)

    start_of = jnp.float32(1.0), jax.random.key(3)
    batches = [np.ones(4, np.float32)]
    program = ml.inspect(noisy, *start_of, batches[0])
    with (
        warnings.catch_warnings(action="ignore"),
        ml.track(tmp_path / "line", checkpoint_every=4, graph=program) as run,
    ):
        w, key = run.restore(start_of)
        for batch in run.steps(batches, total=30):
            w, key, loss = noisy(w, key, batch)
            run.log({"loss": loss}, state=(w, key))
    first = ml.find_nan(run)
    assert first is not None
    assert first.equation is not None
    assert (first.equation.primitive, first.equation.block, first.step) == ("log", "bad", 16)
