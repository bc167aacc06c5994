"""The paused collector: off inside, on after, and what was made inside counts as old."""

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


def test_what_is_made_inside_is_old_afterwards_and_garbage_of_it_is_still_found() -> None:
    gc.collect()
    with paused_collector():
        made = [Node() for _ in range(5000)]
        for one in made:
            one.me = one
    assert not any(type(one) is Node for one in gc.get_objects(generation=0))
    old = sum(type(one) is Node for one in gc.get_objects(generation=2))
    assert old == 5000
    del made, one
    assert gc.collect() >= 5000


def test_what_somebody_froze_stays_frozen() -> None:
    gc.collect()
    gc.freeze()
    try:
        count = gc.get_freeze_count()
        with paused_collector():
            pass
        assert gc.get_freeze_count() >= count > 0
    finally:
        gc.unfreeze()
