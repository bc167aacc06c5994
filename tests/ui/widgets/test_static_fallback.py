"""The static fallback: shown after the widget, rendered again after a pause, and never a visible error."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from waiting import PATIENCE_S, until

from mithril_nb.ui.widgets import static_fallback as fallback
from mithril_nb.ui.widgets.static_fallback import StaticFallback

VIEW = {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}, "text/plain": "Workbench()"}


@pytest.fixture
def outputs(monkeypatch) -> list:
    seen: list = []
    monkeypatch.setattr(fallback, "_STILL_S", 0.2)
    monkeypatch.setattr(fallback, "_QUICK_S", 0.01)
    monkeypatch.setattr(fallback, "display", lambda data, **options: seen.append((data, options.get("display_id"))))
    monkeypatch.setattr(fallback, "update_display", lambda data, **options: seen.append((data, options["display_id"])))
    return seen


def test_widget_is_followed_by_a_hideable_picture(outputs):
    shown = StaticFallback(lambda: {"image/svg+xml": "<svg/>", "text/plain": "a graph"}, [])
    shown.show(VIEW, {})
    (live, _), (static, name) = outputs
    assert live == VIEW
    assert static["image/svg+xml"] == "<svg/>"
    assert static["text/html"].startswith('<div class="mnb-still" style="display: var(--mnb-twin, block)">')
    assert "<svg/>" in static["text/html"]
    assert name is not None


def test_fallback_is_rendered_once_after_changes(outputs, monkeypatch):
    monkeypatch.setattr(fallback, "_STILL_S", 1.0)  # a busy machine may sleep ten times as long as it is asked to
    made: list[str] = []

    def bundle() -> dict[str, str]:
        made.append(f"picture {len(made)}")
        return {"text/plain": made[-1]}

    shown = StaticFallback(bundle, [])
    shown.refresh()
    assert made == [], "a hidden widget needs no picture"
    shown.show(VIEW, {})
    for _ in range(5):
        shown.refresh()
        time.sleep(0.02)
    until(lambda: len(outputs) == 3)
    assert made == ["picture 0", "picture 1"]
    assert outputs[1][1] == outputs[2][1]
    shown.end()
    shown.refresh()
    time.sleep(1.2)
    assert len(outputs) == 3


def test_fallback_waits_for_an_active_user(outputs, monkeypatch):
    monkeypatch.setattr(fallback, "_STILL_S", 0.6)
    shown = StaticFallback(lambda: {"text/plain": f"picture {len(outputs)}"}, [])
    shown.show(VIEW, {})
    shown.refresh()
    for _ in range(6):
        time.sleep(0.2)
        shown.postpone()
    assert len(outputs) == 2
    until(lambda: len(outputs) == 3)
    shown.postpone()
    time.sleep(0.8)
    assert len(outputs) == 3, "nothing has changed since"


def test_picture_that_takes_long_waits_longer(outputs):
    began: list[float] = []

    def bundle() -> dict[str, str]:
        began.append(time.monotonic())
        since = time.thread_time()
        while time.thread_time() - since < 0.1:
            pass
        return {"text/plain": f"picture {len(began)}"}

    shown = StaticFallback(bundle, [])
    shown.show(VIEW, {})
    changed = time.monotonic()
    shown.refresh()
    until(lambda: len(began) == 2)
    assert began[1] - changed >= 0.5
    shown.end()


def test_quick_picture_follows_a_pause(outputs, monkeypatch):
    monkeypatch.setattr(fallback, "_STILL_S", PATIENCE_S)
    monkeypatch.setattr(fallback, "_QUICK_S", 0.5)
    quick = [{"text/plain": "quick"}]
    shown = StaticFallback(lambda: {"text/plain": "full"}, [], quick=lambda: quick.pop() if quick else None)
    shown.show(VIEW, {})
    for _ in range(3):
        shown.refresh()
        time.sleep(0.02)
    assert len(outputs) == 2, "the answer to an edit comes first"
    until(lambda: len(outputs) == 3)
    assert outputs[2][0] == {"text/plain": "quick"}
    shown.end()


def test_quick_picture_is_shown_during_changes_without_a_pause(outputs, monkeypatch):
    monkeypatch.setattr(fallback, "_QUICK_S", PATIENCE_S)
    quick = [{"text/plain": "quick"}]
    shown = StaticFallback(lambda: {"text/plain": "full"}, [], quick=lambda: quick.pop() if quick else None)
    shown.show(VIEW, {})
    until(lambda: shown.refresh() or len(outputs) > 2)
    assert outputs[2][0] == {"text/plain": "quick"}
    shown.end()


def test_collector_is_paused_during_rendering(outputs):
    was_on: list[bool] = []
    shown = StaticFallback(lambda: {"text/plain": str(was_on.append(gc.isenabled()))}, [])
    shown.show(VIEW, {})
    shown.refresh()
    until(lambda: len(was_on) == 2)
    assert was_on == [True, False]
    until(gc.isenabled)
    shown.end()


def test_unchanged_picture_is_not_sent_again(outputs):
    calls: list[int] = []
    shown = StaticFallback(lambda: {"text/plain": "same"} if not calls.append(1) else {}, [])
    shown.show(VIEW, {})
    shown.refresh()
    until(lambda: len(calls) == 2)
    time.sleep(0.05)
    assert len(outputs) == 2


def test_failed_picture_is_reported_and_the_old_one_kept(outputs):
    errors: list[BaseException] = []
    pictures = iter([{"text/plain": "first"}])
    shown = StaticFallback(lambda: next(pictures), errors)
    shown.show(VIEW, {})
    shown.refresh()
    until(lambda: errors)
    assert isinstance(errors[0], StopIteration)
    assert len(outputs) == 2


@pytest.mark.parametrize(("can_ask", "comes"), [(True, "later"), (False, "at once")])
def test_slow_picture_is_shown_later_in_a_page(outputs, monkeypatch, can_ask, comes):
    parent = {"content": {"allow_stdin": can_ask}}
    monkeypatch.setattr(fallback, "get_ipython", lambda: SimpleNamespace(get_parent=lambda: parent))
    shown = StaticFallback(lambda: {"text/plain": "dear"}, [], {"text/plain": "a name"})
    shown.show(VIEW, {})
    texts = [data["text/plain"] for data, _ in outputs[1:]]
    assert texts == (["a name"] if comes == "later" else ["dear"])
    if comes == "later":
        until(lambda: len(outputs) == 3)
        assert outputs[2] == ({"text/plain": "dear"}, outputs[1][1])
    shown.end()


@pytest.fixture
def pending(outputs, monkeypatch) -> Iterator[tuple[StaticFallback, threading.Event]]:
    """Return a static fallback whose second picture is in progress, and the event that completes it."""
    monkeypatch.setattr(fallback, "_STILL_S", 0.0)
    begun, proceed, pictures = threading.Event(), threading.Event(), iter(["first", "second"])

    def bundle() -> dict[str, str]:
        if (picture := next(pictures)) == "second":
            begun.set()
            assert proceed.wait(PATIENCE_S)
        return {"text/html": picture}

    shown = StaticFallback(bundle, [])
    shown.show(VIEW, {})
    shown.refresh()
    assert begun.wait(PATIENCE_S)
    yield shown, proceed
    proceed.set()


def test_ending_does_not_wait_for_a_picture(pending):
    began = time.monotonic()
    pending[0].end()
    assert time.monotonic() - began < 5


def test_a_pending_picture_leaves_the_label_of_a_replaced_one(pending, outputs):
    shown, proceed = pending
    shown.replace()
    proceed.set()
    assert shown._worker.wait(PATIENCE_S)
    assert len(outputs) == 3
    assert "Replaced: a newer run" in outputs[-1][0]["text/html"]
    assert "first" in outputs[-1][0]["text/html"]
