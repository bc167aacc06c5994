"""What is done behind: it is quiet, it ends, and it gives way to what is waited for."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import Any

import pytest
from whatif.programs import perceptron, transformer

from mithril_nb.whatif import Later, what_if
from mithril_nb.whatif.behind import Behind, Turns


def test_a_value_that_comes_later_is_made_once() -> None:
    made: list[int] = []

    def make() -> int:
        made.append(1)
        return 42

    later = Later(make, Behind())
    assert (later.is_done, repr(later), made) == (False, "Later(not done yet; .result() waits for it)", [])
    assert later.start().result(30) == later.result() == 42
    assert (later.is_done, repr(later), made) == (True, "Later(done; .result() gives it)", [1])


def test_what_goes_wrong_behind_is_kept_and_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    def make() -> int:
        raise ValueError("no")

    behind = Behind()
    later = Later(make, behind).start()
    assert behind.wait_until_idle(30)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            later.result(0)
    assert capfd.readouterr() == ("", "")


def test_waiting_ends_and_the_work_goes_on() -> None:
    wait = threading.Event()
    later = Later(lambda: wait.wait(30), Behind()).start()
    with pytest.raises(TimeoutError, match=r"not made after 0.01 s; it goes on being made\."):
        later.result(0.01)
    wait.set()
    assert later.result(30)


def test_a_job_that_wants_to_end_the_thread_does_not() -> None:
    """`sys.exit()` in a function that makes a program: whoever waits would wait forever."""
    behind = Behind()
    later = Later(lambda: sys.exit(3), behind).start()
    after = Later(lambda: 42, behind).start()
    assert after.result(30) == 42
    assert behind.wait_until_idle(30)
    with pytest.raises(SystemExit):
        later.result()


def test_what_was_given_up_is_made_when_it_is_asked_for() -> None:
    behind, wait = Behind(), threading.Event()
    behind.submit(lambda: wait.wait(30))
    later = Later(lambda: 42, behind).start()
    behind.close()
    wait.set()
    assert behind.wait_until_idle(30)
    assert not later.is_done
    assert later.result(30) == 42


def test_the_thread_ends_when_there_is_nothing_to_do() -> None:
    behind = Behind()
    done: list[int] = []
    for number in range(3):
        behind.submit(lambda number=number: done.append(number))
    assert behind.wait_until_idle(30)
    assert done == [0, 1, 2]
    behind.submit(lambda: done.append(3))
    assert behind.wait_until_idle(30)
    assert done == [0, 1, 2, 3]


def test_a_job_that_fails_takes_no_other_with_it(capfd: pytest.CaptureFixture[str]) -> None:
    behind, done = Behind(), list[int]()
    behind.submit(lambda: 1 // 0)
    behind.submit(lambda: done.append(1))
    assert behind.wait_until_idle(30)
    assert done == [1]
    assert capfd.readouterr().err == ""


def test_what_is_waited_for_goes_before_what_is_done_behind() -> None:
    turns, order = Turns(), list[str]()

    def take(name: str, behind: bool) -> threading.Thread:
        def run() -> None:
            with turns.taken(behind):
                order.append(name)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    with turns.taken():
        threads = [take("behind", True)]
        while not turns._wake._waiters:  # type: ignore[attr-defined]
            pass
        threads.append(take("asked", False))
        while turns._waited_for < 1:
            pass
    for thread in threads:
        thread.join(30)
    assert order == ["asked", "behind"]


def test_a_forgotten_question_is_let_go_of() -> None:
    found = what_if(perceptron, learns=True)
    assert found.ready(60)
    gone = weakref.ref(found._answers)
    del found
    gc.collect()
    assert gone() is None


def test_what_is_prepared_can_be_given_up_and_questions_are_still_answered() -> None:
    found = what_if(transformer, learns=True)
    found.close()
    assert found.ready(60)
    assert all(way.startswith("traced") or way == "formula" for way in found.ways.values())
    assert found(batch=3).way == "traced"


def test_small_programs_take_no_thread() -> None:
    before = threading.active_count()
    found: Any = what_if(perceptron)
    found(batch=16)
    assert threading.active_count() == before
    assert set(found.ways.values()) == {"traced"}
