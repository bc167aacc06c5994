"""Large values: computed once, with quick records, and without pauses of the garbage collector."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import sys
import threading
from dataclasses import FrozenInstanceError, asdict, dataclass, field, replace

import pytest

from mithril_nb.stages.once import Once, paused_collector, running_collector
from mithril_nb.stages.records import quick_to_make


def test_error_is_cached_and_raised_unchanged():
    def make():
        raise ValueError("once")

    value, depths = Once(make), []
    for _ in range(3):
        with pytest.raises(ValueError, match="once") as error:
            value.get()
        depths.append(len(error.traceback))
    assert value.has_failed
    assert not value.is_ready
    assert depths == [depths[0]] * 3


@dataclass(frozen=True)
class Plain:
    a: int
    b: tuple[int, ...] = ()
    c: str = field(default="c", repr=False)


@quick_to_make
@dataclass(frozen=True)
class Quick:
    a: int
    b: tuple[int, ...] = ()
    c: str = field(default="c", repr=False)


@pytest.mark.parametrize(
    "make", [lambda cls: cls(1, (2,), "d"), lambda cls: cls(1), lambda cls: cls(b=(3,), a=2), lambda cls: cls(1, c="e")]
)
def test_quick_dataclass_equals_a_plain_one(make):
    plain, quick = make(Plain), make(Quick)
    assert asdict(quick) == asdict(plain)  # pyright: ignore[reportArgumentType]
    assert repr(quick) == repr(plain).replace("Plain", "Quick")
    assert hash(quick) == hash(plain)
    assert quick == make(Quick) == pickle.loads(pickle.dumps(quick)) == copy.deepcopy(quick)
    assert replace(quick, a=5) != quick  # pyright: ignore[reportArgumentType]
    with pytest.raises(FrozenInstanceError):
        quick.a = 2  # pyright: ignore[reportAttributeAccessIssue]


def test_the_signature_is_kept():
    assert str(inspect.signature(Quick)) == str(inspect.signature(Plain))


@pytest.mark.parametrize("args", [(), (1, (), "c", 4)])
def test_quick_dataclass_rejects_the_same_arguments(args):
    with pytest.raises(TypeError) as plain:
        Plain(*args)  # pyright: ignore[reportArgumentType, reportCallIssue]
    with pytest.raises(TypeError) as quick:
        Quick(*args)  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert str(quick.value) == str(plain.value).replace("Plain", "Quick")


class Node:
    """An object that the collector tracks."""


def test_collector_is_paused_and_restored_after_errors():
    assert gc.isenabled()

    def fail():
        with paused_collector(), paused_collector():
            assert not gc.isenabled()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()


def test_disabled_collector_stays_disabled():
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_pauses_of_threads_in_any_order_leave_the_collector_on():
    def pause():
        for _ in range(2000):
            with paused_collector(), paused_collector():
                pass

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(5):
            threads = [threading.Thread(target=pause) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert gc.isenabled()
    finally:
        sys.setswitchinterval(interval)


def test_a_pause_whose_end_is_interrupted_ends_with_the_next_one(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    pause = paused_collector()
    pause.__enter__()
    with monkeypatch.context() as patch:
        patch.setattr("mithril_nb.stages.once._pauses.discard", lambda pause: interrupted())
        with pytest.raises(KeyboardInterrupt):
            pause.__exit__(None, None, None)
    del pause
    gc.collect()
    with paused_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_code_of_users_runs_with_the_collector():
    with paused_collector():
        with running_collector():
            assert gc.isenabled()
        assert not gc.isenabled()
    with running_collector():
        assert gc.isenabled()


def test_garbage_made_while_paused_is_collected_soon():
    """Moving a slider traces hundreds of programs, and traced programs contain reference cycles."""
    of_the_tests = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # Python's default
    try:
        for _ in range(50):
            with paused_collector():
                for _ in range(2000):
                    one = Node()
                    one.me = one
        left = sum(type(one) is Node for one in gc.get_objects())
    finally:
        gc.set_threshold(*of_the_tests)
    assert left < 10_000, "of 100,000"


def test_finalizers_may_pause_the_collector_in_another_thread(monkeypatch):
    """A widget that the collector finds waits for a thread that reads a stage: this hung a kernel."""

    def use():
        with paused_collector():
            pass

    waited: list[bool] = []

    class Waiting:
        def __init__(self):
            self.cycle = self

        def __del__(self):
            thread = threading.Thread(target=use, daemon=True)
            thread.start()
            thread.join(10)
            waited.append(thread.is_alive())

    enable = gc.enable

    def enable_and_collect():  # the collector may run as soon as it is on
        enable()
        gc.collect()

    monkeypatch.setattr("mithril_nb.stages.once.gc.enable", enable_and_collect)
    with paused_collector():
        Waiting()
    gc.collect()
    assert waited == [False]
    assert gc.isenabled()
