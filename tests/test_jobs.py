"""The job queue: one job at a time, and the latest job replaces others of its key, even if jobs fail."""

from __future__ import annotations

import threading

import pytest
from fresh import run_fresh
from waiting import PATIENCE_S, until

from mithril_nb.jobs import JobQueue


def test_queue_cancels_replaced_jobs():
    queue, seen, first_runs = JobQueue("test"), [], threading.Event()

    def first(wanted):
        first_runs.set()
        until(lambda: not wanted())
        seen.append("first gave up")

    queue.submit(first)
    assert first_runs.wait(PATIENCE_S)
    queue.submit(lambda wanted: seen.append("second"))
    queue.submit(lambda wanted: seen.append("third"))
    assert queue.wait(PATIENCE_S)
    assert seen[0] == "first gave up"
    assert seen[-1] == "third"


def test_an_abandoned_job_does_not_delay_the_next() -> None:
    queue, seen, began, may_end = JobQueue("test"), [], threading.Event(), threading.Event()

    def slow(wanted):
        began.set()
        assert may_end.wait(PATIENCE_S)
        seen.append(wanted())

    queue.abandon()  # nothing runs
    queue.submit(slow, "slow")
    assert began.wait(PATIENCE_S)
    queue.submit(lambda wanted: seen.append("next"), "next")
    queue.abandon()
    assert queue.wait(PATIENCE_S)
    assert seen == ["next"]
    may_end.set()
    queue.end(PATIENCE_S)
    assert seen == ["next", False]
    queue.submit(lambda wanted: seen.append("last"))
    assert queue.wait(PATIENCE_S)
    assert seen[-1] == "last"


def test_a_failing_error_handler_does_not_block_the_queue(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda told: None)

    def failed(error):
        raise ValueError("no")

    queue, seen = JobQueue("test", failed), []
    queue.submit(lambda wanted: [][0], "a")
    queue.submit(lambda wanted: seen.append(1), "b")
    assert queue.wait(PATIENCE_S)
    assert seen == [1]


@pytest.mark.parametrize("is_early", [False, True], ids=["while the error is printed", "before it is raised"])
def test_failing_job_does_not_affect_others(monkeypatch, is_early):
    queue, seen, goes_on, printed = JobQueue("test"), [], threading.Event(), threading.Event()
    threads = []

    def slow_print(told):
        seen.append(str(told.exc_value))
        assert printed.wait(PATIENCE_S)

    def boom(wanted):
        threads.append(threading.current_thread())
        assert goes_on.wait(PATIENCE_S)
        raise OSError("boom")

    monkeypatch.setattr(threading, "excepthook", slow_print)
    queue.submit(boom)
    until(lambda: threads)
    if not is_early:
        goes_on.set()
        until(lambda: seen == ["boom"])
        assert queue.wait(PATIENCE_S)
    queue.submit(lambda wanted: seen.append("done"))
    goes_on.set()
    in_time = queue.wait(5.0)
    printed.set()
    threads[0].join(PATIENCE_S)
    assert in_time, "the next job was lost"
    assert sorted(seen) == ["boom", "done"]


def test_only_the_latest_job_of_each_kind_runs() -> None:
    hold, done, failed = threading.Event(), [], []
    queue = JobQueue("test", failed.append)
    began = threading.Event()
    queue.submit(lambda wanted: (began.set(), hold.wait(PATIENCE_S), done.append(("slow", wanted()))), "slow")
    assert began.wait(PATIENCE_S)
    for number in range(3):
        queue.submit(lambda wanted, number=number: done.append((number, wanted())), "picture")
    queue.submit(lambda _: [][0], "broken")
    queue.submit(lambda wanted: done.append(("again", wanted())), "slow")
    hold.set()
    assert queue.wait(PATIENCE_S)
    assert done == [("slow", False), (2, True), ("again", True)]
    assert [type(one) for one in failed] == [IndexError]
    queue.submit(lambda _: done.append("late"), "late")
    queue.end()


def test_the_interpreter_waits_at_exit_for_a_compilation_in_a_thread() -> None:
    code = """
import jax.numpy as jnp
from mithril_nb.inspection import inspect_function as inspect

def program(x):
    for number in range(60):
        x = jnp.tanh(jnp.sin(x @ x) + number)
    return x

inspect(program, jnp.ones((8, 8)))._pipeline.compilation.begin()
"""
    run_fresh(code)  # it was aborted: "terminate called"
