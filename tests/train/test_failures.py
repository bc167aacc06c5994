"""A run whose loss is not finite, or whose step raises, reports it and keeps the last good params."""

from __future__ import annotations

import gc
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from transcript import without_advice

import mithril_nb as ml
from mithril_nb.errors import Diagnostic, ShapeError, TrainingError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.train import fit
from mithril_nb.train.run.loop import problem_of
from mithril_nb.train.run.state import State


def finite(params: Any) -> bool:
    return all(bool(np.isfinite(leaf).all()) for leaf in jax.tree.leaves(params))


def test_divergence_is_reported_and_keeps_params(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, optimizer="sgd", learning_rate=0.1, epochs=5, batch_size=20)
    good = None
    events = []
    with pytest.raises(TrainingError) as caught:  # noqa: PT012 - it comes from the loop
        for event in run:
            events.append(event)
            if event.kind == "epoch" and event.epoch == 2:
                good = run.params
                run.learning_rate = 1e30
    loss = run.history["loss"][-1]
    kind = "NaN" if "NaN" in str(caught.value) else "infinite"
    step = len(run.history) + 1
    assert without_advice(str(caught.value)) == (
        f"the loss is {kind} at step {step}, epoch 3 of 5.\n"
        "    learning rate     1e+30\n"
        f"    last finite loss  {loss:.4g} at step {step - 1}"
    )
    assert events[-1].kind == "failed"
    assert events[-1].message == (
        f"the loss is {kind} at step {step}, epoch 3 of 5; "
        "run.params holds the params of step 6; run.resume() continues from there."
    )
    assert run.state == "failed"
    assert run.error is not None
    assert str(run.error) == str(caught.value)
    assert run.errors == [run.error]
    assert run.step == 6
    assert good is not None
    for name, array in good.items():
        np.testing.assert_array_equal(run.params[name], array)
    run.learning_rate = 0.1
    run.resume().wait()
    assert run.state == "done"
    assert run.error is None
    assert run.history["step"].tolist() == list(range(1, 16))


def test_thread_fails_silently_and_wait_raises(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, optimizer=optax.sgd(1e30), epochs=5, batch_size=20).start()
    with pytest.raises(TrainingError, match="learning rate     1 times the optimizer's own"):
        run.wait()
    assert run.state == "failed"
    assert finite(run.params)
    assert run.snapshot()["state"] == "failed"
    assert run.step == 0  # the params that the run began with


class WithoutParams:
    """A model without parameters, whose step raises."""

    input_names, output_names, needs_key, jit = ("input",), ("output",), False, False
    input_specs: ClassVar = {"input": TensorSpec(("batch", 1))}
    fails = False

    def forward(self, params: Any, inputs: Any, *, key: Any = None, training: bool = False) -> dict[str, Any]:
        if self.fails:
            raise ZeroDivisionError("in the model")
        return {"output": inputs["input"]}

    def randomize_params(self, seed: int | None = None) -> dict[str, Any]:
        return {}


def test_failed_step_without_params_raises_its_own_error() -> None:
    model, x = WithoutParams(), np.ones((8, 1), np.float32)
    run = fit(model, (x, x), loss="mean_squared_error", batch_size=4)
    model.fails = True
    with pytest.raises(ZeroDivisionError, match="in the model"):
        run.wait()


def test_model_that_raises_during_tracing(small: Any, blobs: Any) -> None:
    traces = []

    def picky(prediction: Any, targets: Any) -> Any:
        traces.append(prediction)
        if len(traces) > 1:  # the first is fit's own, which looks whether the loss gives a value per sample
            raise RuntimeError("not twenty")
        return jnp.mean(prediction)

    run = fit(small, blobs, loss=picky, batch_size=20)
    with pytest.raises(RuntimeError, match="not twenty"):
        run.wait()
    assert without_advice(str(run.error)) == "training failed after step 0: RuntimeError: not twenty"
    assert finite(run.params)


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt()])
def test_wait_returns_if_the_model_calls_sys_exit(mlp: Any, blobs: Any, raised: Any) -> None:
    class Leaving(mlp):
        jit = False

        def forward(self, params: Any, inputs: Any, **how: Any) -> Any:
            if how["training"]:
                calls.append(None)
            if len(calls) == before + 3:
                raise raised
            return super().forward(params, inputs, **how)

    calls, before = list[None](), 100
    run = fit(Leaving(4, 3), blobs, batch_size=20)
    before = len(calls)  # fit looks at what the model gives
    run.start()
    if isinstance(raised, SystemExit):
        with pytest.raises(SystemExit):
            run.wait(timeout=60)
        assert (run.state, str(run.error).splitlines()[0]) == ("failed", "training failed after step 2: SystemExit: 3")
    else:
        assert run.wait(timeout=60).state == "stopped"
    assert finite(run.params)
    assert run.resume().wait(timeout=60).state == "done"


def test_failing_step_keeps_the_last_params(small: Any, blobs: Any) -> None:
    def explode(step: Any) -> None:
        if step == 4:
            raise RuntimeError("the device is gone")

    def exploding(rate: Any) -> Any:
        inner = optax.adam(rate)

        def update(updates: Any, state: Any, params: Any = None) -> Any:
            jax.debug.callback(explode, state[0].count, ordered=True)
            return inner.update(updates, state, params)

        return optax.GradientTransformation(inner.init, update)

    run = fit(small, blobs, optimizer=exploding, batch_size=20, epochs=3)
    with pytest.raises(Exception, match="the device is gone"):
        list(run)
    assert run.state == "failed"
    assert run.step in (3, 4, 5)
    assert finite(run.params)
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves((run.params, run.opt_state)))


def test_run_that_cannot_roll_back_fails_once(mlp: Any, blobs: Any, monkeypatch: Any) -> None:
    def nowhere(self: State, *, is_diverged: bool) -> None:
        raise ValueError("no way back")

    monkeypatch.setattr(State, "go_back", nowhere)
    run = fit(mlp(4, 8, 3), blobs, optimizer="sgd", learning_rate=1e30, epochs=2, batch_size=20)
    begun = []
    run.observe(lambda event: begun.append(event.kind) if event.kind in ("started", "failed") else None)
    with pytest.raises(ValueError, match="no way back") as caught:
        run.wait(timeout=60)
    assert isinstance(caught.value.__context__, TrainingError)
    assert (run.state, begun) == ("failed", ["started", "failed"])
    assert run.error is not None
    assert run.error.code == "TrainingError"


def test_error_with_several_problems_reports_all() -> None:
    first = Diagnostic("'a' does not fit.", (("given", "(3,)"),), "Linear(3)", "a", code="ShapeError")
    second = Diagnostic("'b' does not fit.", (("given", "(4,)"),), "Linear(4)", "b", code="ShapeError")
    problem = problem_of(ShapeError(first, more=(second,)), 3)
    assert str(problem) == (
        "'a' does not fit.\n    given  (3,)\n    also   'b' does not fit.\n               given  (4,)\n"
        "               Try: Linear(4)\n    Try: Linear(3)"
    )
    assert (problem.code, problem.block) == ("ShapeError", "a")
    assert problem_of(ShapeError(first), 3) == first


def test_copies_to_go_back_to_are_not_on_the_device(mlp, blobs):
    def live() -> int:
        gc.collect()
        return sum(array.nbytes for array in jax.live_arrays())

    before, model = live(), mlp(4, 2048, 3)
    run = fit(model, blobs, epochs=2, batch_size=16)
    needed = sum(array.nbytes for array in jax.tree.leaves((run._state.params, run._state.opt_state)))
    most = max(live() for event in run if event.kind in ("step", "epoch"))
    assert most - before < 1.2 * needed
    assert run._state.backup is None


def test_nan_at_the_first_step_is_not_blamed_on_the_rate(small, blobs):
    run = fit(small, blobs, loss=lambda p, t: jnp.log(-1 - p.mean() ** 2), batch_size=16)
    with pytest.raises(TrainingError, match="the loss is NaN at the first step") as caught:
        run.wait()
    assert "rate" not in str(caught.value)

    def loss_of(params, x):  # as the message says
        return jnp.log(-1 - small.forward(params, {"input": x})["output"].mean() ** 2)

    assert "ml.find_nan(run)" in str(caught.value)
    assert ml.find_nan(loss_of, run.params, blobs[0]).equation.primitive == "log"
