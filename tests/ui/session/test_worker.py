"""The worker thread: one job at a time, and the latest job replaces others, even if jobs fail."""

from __future__ import annotations

import threading

import pytest
from waiting import PATIENCE_S, until

from mithril_nb.ui.session.worker import Worker


def test_worker_cancels_replaced_jobs():
    worker, seen, first_runs = Worker("test"), [], threading.Event()

    def first(wanted):
        first_runs.set()
        until(lambda: not wanted())
        seen.append("first gave up")

    worker.submit(first)
    assert first_runs.wait(PATIENCE_S)
    worker.submit(lambda wanted: seen.append("second"))
    worker.submit(lambda wanted: seen.append("third"))
    assert worker.wait_until_idle(PATIENCE_S)
    assert seen[0] == "first gave up"
    assert seen[-1] == "third"


@pytest.mark.parametrize("is_early", [False, True], ids=["while the error is printed", "before it is raised"])
def test_failing_job_does_not_affect_others(monkeypatch, is_early):
    worker, seen, goes_on, printed = Worker("test"), [], threading.Event(), threading.Event()
    threads = []

    def slow_print(told):
        seen.append(str(told.exc_value))
        assert printed.wait(PATIENCE_S)

    def boom(wanted):
        threads.append(threading.current_thread())
        assert goes_on.wait(PATIENCE_S)
        raise OSError("boom")

    monkeypatch.setattr(threading, "excepthook", slow_print)
    worker.submit(boom)
    until(lambda: threads)
    if not is_early:
        goes_on.set()
        until(lambda: seen == ["boom"])
        assert worker.wait_until_idle(PATIENCE_S)
    worker.submit(lambda wanted: seen.append("done"))
    goes_on.set()
    in_time = worker.wait_until_idle(5.0)
    printed.set()
    threads[0].join(PATIENCE_S)
    assert in_time, "the next job was lost"
    assert sorted(seen) == ["boom", "done"]
