"""A run in a thread: pause, single step, resume, stop; listeners; Ctrl-C. Time limits only guard against hanging."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from transcript import without_advice

from mithril_nb.train import Run, TrainingEvent, fit
from mithril_nb.train.run.loop import TrainingLoop

LONG = 100_000
SOON_S = 60.0


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


@pytest.fixture
def run(small: Any, blobs: Any) -> Iterator[Run]:
    """Yield a run that would take minutes, and end it."""
    run = fit(small, blobs, epochs=LONG, batch_size=20)
    yield run
    run.stop()
    until(lambda: run.state not in ("running", "paused"))


@pytest.fixture(autouse=True)
def ctrl_c_interrupts() -> Iterator[None]:
    """Restore Python's SIGINT handler: background processes of a shell start with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_pause_step_resume_stop(run: Run) -> None:
    run.start()
    until(lambda: len(run.history) > 20)
    assert run.state == "running"
    run.pause()
    until(lambda: run.state == "paused")
    at = run.step
    assert len(run.history) >= at - 1  # nothing is under way; the row of an epoch's last step may wait for its end
    time.sleep(0.05)
    assert run.step == at
    for number in (1, 2, 3, 4):
        run.step_once()
        until(lambda: run.step == at + number and run.state == "paused")  # noqa: B023
    run.resume()
    until(lambda: run.step > at + 20)
    run.stop()
    until(lambda: run.state == "stopped")
    assert run.message == (
        f"stopped; run.params holds the params of step {run.step}; run.resume() continues from there."
    )
    at = run.step
    run.resume()
    until(lambda: run.step > at)


def test_pause_and_stop_act_in_the_middle_of_a_validation(small: Any, blobs: Any) -> None:
    x, y = blobs
    many = (np.tile(x, (20_000, 1)), np.tile(y, 20_000))  # 60 000 batches
    run = fit(small, blobs, validation=many, epochs=2, batch_size=20).start()
    until(lambda: run.step == 3)
    run.pause()
    until(lambda: run.state == "paused")
    run.resume()
    until(lambda: run.state == "running")
    run.stop()
    until(lambda: run.state == "stopped")
    assert run.step == 3
    assert np.isnan(run.history["validation_loss"]).all()


def test_step_once_from_idle(run: Run) -> None:
    run.step_once()
    until(lambda: run.state == "paused")
    assert (run.step, len(run.history)) == (1, 1)
    run.stop()
    until(lambda: run.state == "stopped")


def test_stop_while_paused_and_immediate_resume(run: Run) -> None:
    run.start()
    for _ in range(20):
        run.stop()
        run.resume()
        at = run.step
        until(lambda: run.step > at)  # noqa: B023


def test_a_run_moved_to_the_host_frees_the_device_and_continues_exactly(small: Any, blobs: Any) -> None:
    whole = fit(small, blobs, epochs=4, batch_size=20).wait()
    run = fit(small, blobs, epochs=2, batch_size=20).wait()
    params = run.params
    before = [array.unsafe_buffer_pointer() for array in jax.tree.leaves(params)]
    del params
    run.to_host()
    run.to_host()
    gc.collect()
    assert not {array.unsafe_buffer_pointer() for array in jax.live_arrays()} & set(before), "freed"
    assert run.state == "done"
    run.resume(epochs=2).wait()
    run.to_host()
    for name, array in whole.params.items():
        np.testing.assert_array_equal(run.params[name], array, strict=True)


def test_a_run_that_trains_stays_on_the_device(run: Run) -> None:
    run.start()
    until(lambda: len(run.history) > 20)
    run.to_host()
    until(lambda: len(run.history) > 40)
    assert run.error is None


def test_threads_end_with_the_run(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, epochs=2)
    run.observe(lambda event: None)
    run.start().wait()
    until(lambda: not [t for t in threading.enumerate() if t.name == "mithril_nb training"])


def test_params_can_be_read_while_it_trains(run: Run) -> None:
    run.start()
    until(lambda: run.step > 3)
    seen = [run.params]
    for _ in range(10):
        at = run.step
        until(lambda: run.step > at)  # noqa: B023
        seen.append(run.params)
    assert run.state == "running"
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(seen))
    assert not np.array_equal(seen[0]["linear_0.weight"], seen[-1]["linear_0.weight"])
    assert run.evaluate((np.zeros((3, 4)), np.zeros(3, int)))["loss"] > 0


def test_starting_twice_is_one_training(run: Run) -> None:
    run.start()
    until(lambda: run.step > 0)
    run.start()
    assert len([t for t in threading.enumerate() if t.name == "mithril_nb training"]) == 1


def test_wait_timeout_does_not_stop_training(run: Run) -> None:
    assert run.start().wait(timeout=0.05) is run
    until(lambda: run.step > 2)
    assert run.state == "running"


def test_iterating_over_a_run_in_a_thread_follows_it(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, epochs=30, batch_size=20)
    run.step_once()
    until(lambda: run.state == "paused")
    threading.Timer(0.1, run.resume).start()
    events = list(run)
    assert events[-1].kind == "done"
    assert [event.epoch for event in events if event.kind == "epoch"] == list(range(1, 31))
    assert [event.step for event in events] == sorted(event.step for event in events)


def test_pausing_inside_the_loop_ends_it_and_another_continues(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, epochs=2, batch_size=20)
    first = []
    for event in run:
        first.append(event.kind)
        if event.step == 2:
            run.pause()
    assert first == ["started", "step", "step", "paused"]
    assert run.state == "paused"
    rest = [event.kind for event in run]
    assert rest == ["resumed", "step", "epoch", "step", "step", "step", "epoch", "done"]


def test_leaving_the_loop_stops_and_a_thread_continues(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, epochs=2, batch_size=20)
    for event in run:
        if event.step == 2:
            break
    assert run.state == "stopped"
    assert run.message.startswith("the loop over the run was left; run.params holds the params of step 2;")
    assert run.resume().wait().state == "done"
    assert run.history["step"].tolist() == [1, 2, 3, 4, 5, 6]


def test_thread_takes_over_from_an_idle_loop(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, epochs=2, batch_size=20)
    loop = iter(run)
    assert [next(loop).kind for _ in range(3)] == ["started", "step", "step"]
    assert run.wait().state == "done"
    assert list(loop) == []
    assert run.history["step"].tolist() == [1, 2, 3, 4, 5, 6]


def test_a_loop_in_another_thread_can_be_paused(run: Run) -> None:
    thread = threading.Thread(target=lambda: [None for _ in run], daemon=True)
    thread.start()
    until(lambda: run.step > 3)
    run.pause()
    until(lambda: run.state == "paused")
    at = run.step
    run.resume()
    until(lambda: run.step > at)
    run.stop()
    thread.join(SOON_S)
    assert run.state == "stopped"


def test_listeners_receive_changes_and_the_latest_step(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, epochs=3, batch_size=20)
    heard: list[TrainingEvent] = []
    run.observe(heard.append)
    run.start().wait()
    kinds = [event.kind for event in heard]
    assert [kind for kind in kinds if kind != "step"] == ["started", "epoch", "epoch", "epoch", "done"]
    assert [event.step for event in heard] == sorted(event.step for event in heard)


def test_listener_can_be_removed(run: Run) -> None:
    heard: list[TrainingEvent] = []
    stop = run.observe(heard.append, every_s=0.0)
    run.start()
    until(lambda: len(heard) > 3)
    stop()
    run.pause()
    until(lambda: run.state == "paused")
    assert "paused" not in [event.kind for event in heard]


def test_listener_errors_are_collected(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, epochs=2, batch_size=20)
    heard: list[TrainingEvent] = []

    def broken(event: TrainingEvent) -> None:
        if event.kind == "epoch":
            raise ValueError("no such pane")

    run.observe(broken)
    run.observe(heard.append)
    run.wait()
    assert run.state == "done"
    assert heard[-1].kind == "done"
    name = "test_listener_errors_are_collected.<locals>.broken"
    assert [without_advice(str(problem)) for problem in run.errors] == [
        f"a listener of the run failed: {name!r} on event 'epoch'.\n    raised  ValueError: no such pane"
    ]


def test_slow_listener_does_not_delay_training(run: Run) -> None:
    release = threading.Event()
    run.observe(lambda event: release.wait(SOON_S))
    run.start()
    until(lambda: run.step > 50)
    release.set()


def test_ctrl_c_in_a_driven_loop_keeps_the_last_step(small: Any, blobs: Any) -> None:
    run = fit(small, blobs, epochs=LONG, batch_size=20)
    before = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    kinds = []
    with pytest.raises(KeyboardInterrupt) as caught:  # noqa: PT012 - the interrupt comes from anywhere in the loop
        for event in run:
            kinds.append(event.kind)
    timer.join()
    assert run.state == "stopped"
    assert signal.getsignal(signal.SIGINT) is before
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves((run.params, run.opt_state)))
    if kinds[-1] == "stopped":  # it came inside a step, not inside the loop's body
        assert without_advice(str(caught.value)) == (
            f"interrupted; run.params holds the params of step {run.step}; run.resume() continues from there."
        )
    at = run.step
    assert len(run.history) == at
    next(event for event in run if event.step == at + 5)
    assert run.step == at + 5


def test_ctrl_c_in_wait_stops_the_thread(run: Run) -> None:
    run.start()
    until(lambda: run.step > 0)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt, match=r"interrupted; run\.params holds the params of step \d+"):
        run.wait()
    timer.join()
    until(lambda: run.state == "stopped")


@pytest.mark.parametrize("when", ["while it computes its last scores", "before its thread has ended"])
def test_more_epochs_are_trained_if_they_are_asked_of_a_run_that_ends(
    small: Any, blobs: Any, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Such as by a click as soon as the run is done."""
    run = fit(small, blobs, epochs=1, batch_size=20)
    steps, asked = run.steps, []

    def ask_once() -> None:
        if run.state == "done" and not asked:
            asked.append(run.resume(1))

    scores, notify = TrainingLoop.scores, run._observers.notify
    if "scores" in when:
        monkeypatch.setattr(TrainingLoop, "scores", lambda loop: (ask_once(), scores(loop))[1])
    else:
        monkeypatch.setattr(run._observers, "notify", lambda event: (notify(event), ask_once()))
    run.start()
    until(lambda: bool(asked))
    run.wait()
    assert (run.state, run.step) == ("done", 2 * steps)
