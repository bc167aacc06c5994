"""The messages that keep the snapshots of pages current: whole snapshots, changes, and requests of missed ones."""

import json
import threading
from typing import Any

import pytest

import mithril_nb as ml
from mithril_nb.models import MLP
from tests.ui.widgets.test_changes import applied

MODEL = MLP(64, [32], 10)


class Page:
    """A page: the messages that it received, and its snapshot as the host and `kernel/changes.ts` keep it."""

    def __init__(self, widget: Any):
        self.widget, self.messages = widget, []
        self.snapshot = json.loads(json.dumps(widget.get_state("snapshot")["snapshot"]))
        widget.comm.send = self._receive

    def _receive(self, data: Any, buffers: Any = None, **_: Any) -> None:
        message = json.loads(json.dumps(data))
        self.messages.append(message)
        content = message.get("content", {})
        if message["method"] == "update":
            self.snapshot = message["state"]["snapshot"]
        elif content["type"] == "snapshot_change" and content["from"] == self.snapshot["revision"]:
            self.snapshot = applied(self.snapshot, content["change"])

    def send(self, name: str, /, **args: Any) -> None:
        self.widget._receive(self.widget, {"type": "command", "id": None, "name": name, "args": args}, [])

    @property
    def kinds(self) -> list[str]:
        """The kinds of the messages received so far."""
        return [one.get("content", {}).get("type", one["method"]) for one in self.messages]

    @property
    def is_current(self) -> bool:
        """Whether its snapshot is the one of the kernel, including the order of keys."""
        return json.dumps(self.snapshot) == json.dumps(self.widget.snapshot)


@pytest.fixture
def page():
    wb = ml.workbench(MODEL, shapes={"input": [32, 64]}, program="forward")
    assert wb.session.wait(60)
    yield Page(wb)
    assert wb.errors == []
    wb.close()


@pytest.fixture
def following(page):
    """A page that receives changes instead of snapshots."""
    page.send("request_snapshot", revision=page.snapshot["revision"])
    return page


def test_a_host_that_follows_no_changes_receives_snapshots(page) -> None:
    page.send("hello")
    page.widget.do("rename", path="linear_0", name="first")
    assert "snapshot_change" not in page.kinds
    assert "update" in page.kinds
    assert page.is_current


def test_a_page_that_follows_receives_changes(following) -> None:
    assert following.messages == [], "it has the current snapshot"
    for command, args in [
        ("set_attribute", {"path": "linear_0", "name": "dimension", "value": 48}),
        ("add_block", {"kind": "Relu"}),
        ("rename", {"path": "linear_0", "name": "__proto__"}),
        ("move", {"places": [["linear_1", 30, 60]]}),
        ("set_program", {"program": "train step"}),
        ("undo", {}),
        ("undo", {}),
        ("redo", {}),
        ("remove", {"paths": ["linear_1"]}),
    ]:
        following.send(command, **args)
        assert following.is_current, command
    assert following.widget.session.wait(60)
    assert following.is_current
    assert set(following.kinds) == {"snapshot_change", "reply"}
    assert "__proto__" in following.snapshot["blocks"]


def test_a_page_that_missed_a_message_receives_the_snapshot(following) -> None:
    kept, following.widget.comm.send = following.widget.comm.send, lambda **_: None
    following.widget.do("rename", path="linear_0", name="first")
    following.widget.comm.send = kept
    following.widget.do("rename", path="linear_1", name="second")
    assert not following.is_current
    following.send("request_snapshot", revision=following.snapshot["revision"])
    assert following.is_current
    assert following.kinds.count("update") == 1


def test_a_page_opened_later_starts_with_the_current_snapshot(following) -> None:
    following.send("rename", path="linear_0", name="first")
    assert Page(following.widget).is_current  # the host reads the trait


def test_an_unchanged_snapshot_is_not_sent(following) -> None:
    following.widget.session._publish()
    following.widget.do("dismiss")
    assert following.messages == []


def test_a_selection_is_one_small_message(following) -> None:
    following.send("select", paths=["linear_1"])
    assert following.widget.selection == ("linear_1",)
    assert following.is_current
    assert following.snapshot["selection"] == ["linear_1"]
    assert following.kinds == ["snapshot_change", "reply"]
    assert len(json.dumps(following.messages)) < 400


def test_a_selection_from_python_reaches_the_page(following) -> None:
    following.widget.selection = ["linear_0"]
    assert following.snapshot["selection"] == ["linear_0"]


def test_an_explorer_keeps_the_selection_for_the_next_page() -> None:
    explorer = ml.explore(MODEL, shapes={"input": [32, 64]})
    page = Page(explorer)
    page.send("request_snapshot", revision=page.snapshot["revision"])
    page.send("select", paths=["linear_1"])
    assert page.snapshot["selection"] == ["linear_1"]
    assert Page(explorer).snapshot["selection"] == ["linear_1"]
    explorer.close()


def test_changes_from_many_threads_lose_nothing(following) -> None:

    def work(number: int) -> None:
        for value in range(5):
            following.send("set_attribute", path="linear_0", name="dimension", value=10 * number + value + 1)
            following.send("select", paths=[f"linear_{value % 2}"])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert following.widget.session.wait(60)
    assert following.is_current
    assert "update" not in following.kinds
