"""The paused collector: off inside, on afterwards, and garbage made inside is found soon."""

from __future__ import annotations

import gc

import pytest

from mithril_nb.stages.once import paused_collector


class Node:
    """An object that the collector tracks."""


def test_collector_is_paused_and_restored_after_errors() -> None:
    assert gc.isenabled()

    def fail() -> None:
        with paused_collector(), paused_collector():
            assert not gc.isenabled()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()


def test_disabled_collector_stays_disabled() -> None:
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_garbage_made_while_paused_is_collected_soon() -> None:
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
