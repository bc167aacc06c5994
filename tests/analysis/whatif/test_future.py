"""Background work: it prints nothing, it ends, and it yields to foreground work."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import pytest
from analysis.whatif.programs import perceptron, transformer

from mithril_nb.analysis.whatif import Future, what_if
from mithril_nb.analysis.whatif.change import quiet_queue
from mithril_nb.analysis.whatif.cost_oracle import PriorityLock


def test_a_later_is_computed_once() -> None:
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return 42

    later = Future(make, quiet_queue())
    assert (later.is_done, repr(later), made) == (False, "Future(not done yet; .result() waits for it)", [])
    assert later.start().result(30) == later.result() == 42
    assert (later.is_done, repr(later), made) == (True, "Future(done; .result() returns it)", [1])


def test_an_error_in_the_background_is_stored_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    def make() -> int:
        raise ValueError("no")

    queue = quiet_queue()
    later = Future(make, queue).start()
    assert queue.wait(30)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            later.result(0)
    assert capfd.readouterr() == ("", "")


def test_a_timeout_ends_waiting_but_not_the_work() -> None:
    wait = threading.Event()
    later = Future(lambda: wait.wait(30), quiet_queue()).start()
    with pytest.raises(TimeoutError, match=r"not ready after 0.01 s; the computation continues in the background\."):
        later.result(0.01)
    wait.set()
    assert later.result(30)


def test_a_job_cannot_end_the_thread() -> None:
    """`sys.exit()` in a user's function must not end the thread: callers would wait forever."""
    queue = quiet_queue()
    later = Future(lambda: sys.exit(3), queue).start()
    after = Future(lambda: 42, queue).start()
    assert after.result(30) == 42
    assert queue.wait(30)
    with pytest.raises(SystemExit):
        later.result()


def test_a_cancelled_job_is_computed_on_request() -> None:
    queue, wait = quiet_queue(), threading.Event()
    queue.submit(lambda wanted: wait.wait(30))
    later = Future(lambda: 42, queue).start()
    queue.end()
    wait.set()
    assert queue.wait(30)
    assert not later.is_done
    assert later.result(30) == 42


def test_the_thread_ends_when_the_queue_is_empty() -> None:
    queue = quiet_queue()
    done: list[int] = []
    for number in range(3):
        queue.submit(lambda wanted, number=number: done.append(number), number)
    assert queue.wait(30)
    assert done == [0, 1, 2]
    queue.submit(lambda wanted: done.append(3))
    assert queue.wait(30)
    assert done == [0, 1, 2, 3]


def test_foreground_work_goes_before_background_work() -> None:
    turns, order = PriorityLock(), list[str]()

    def take(name: str, background: bool) -> threading.Thread:
        def run() -> None:
            with turns.held(background):
                order.append(name)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    with turns.held():
        threads = [take("background", True)]
        while not turns._wake._waiters:  # type: ignore[attr-defined]
            pass
        threads.append(take("foreground", False))
        while turns._waiting < 1:
            pass
    for thread in threads:
        thread.join(30)
    assert order == ["foreground", "background"]


def test_an_unreferenced_what_if_is_released() -> None:
    found = what_if(perceptron, learns=True)
    assert found.ready(60)
    gone = weakref.ref(found._oracle)
    del found
    gc.collect()
    assert gone() is None


def test_calls_work_after_preparation_is_cancelled() -> None:
    found = what_if(transformer, learns=True)
    found.close()
    assert found.ready(60)
    assert all(way.startswith("traced") or way == "formula" for way in found.ways.values())
    assert found(batch=3).way == "traced"


def test_small_programs_start_no_thread() -> None:
    before = threading.active_count()
    found: Any = what_if(perceptron)
    found(batch=16)
    assert threading.active_count() == before
    assert set(found.ways.values()) == {"traced"}
