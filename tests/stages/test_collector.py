"""The paused collector: off inside, on after, and what was thrown away inside is found soon."""

from __future__ import annotations

import gc

import pytest

from mithril_nb.stages.collector import paused_collector


class Node:
    """Something that the collector keeps an eye on."""


def test_it_is_off_inside_and_on_after_also_after_an_error() -> None:
    assert gc.isenabled()

    def fail() -> None:
        with paused_collector(), paused_collector():
            assert not gc.isenabled()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()


def test_who_turned_it_off_finds_it_off() -> None:
    gc.disable()
    try:
        with paused_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_is_thrown_away_inside_does_not_pile_up() -> None:
    """A person who moves a slider traces hundreds of programs, and traced programs refer to themselves."""
    of_the_tests = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # as Python begins with
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
