"""`ml.watch` of a stored run sends what changes, and shows errors in the widget."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mithril_nb as ml


def until(is_true: Callable[[], Any], patience_s: float = 20) -> None:
    end = time.monotonic() + patience_s
    while not is_true():
        assert time.monotonic() < end, "nothing changed"
        time.sleep(0.05)


def test_rows_knobs_and_errors_of_a_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[Any] = []
    columns: dict[str, np.ndarray] = {}

    def take(content: Any, buffers: Any = None) -> None:
        sent.append(content)
        if content["type"] == "curves":
            rows = np.frombuffer(buffers[0]).reshape(len(content["columns"]), -1)
            for name, values in zip(content["columns"], rows, strict=True):
                columns[name] = np.concatenate([columns.get(name, np.empty(0))[: content["from"]], values])

    def do(command: str, **args: Any) -> Any:
        live._receive(live, {"type": "command", "id": 1, "name": command, "args": args}, [])
        return next(content["error"] for content in reversed(sent) if content["type"] == "reply")

    run = ml.track(tmp_path / "line")
    run.knob("rate", 0.1, log=True)
    run.log({"loss": 1.0})
    live = ml.watch(run)
    monkeypatch.setattr(live, "send", take)
    assert do("request_curves") is None
    for step in range(2, 40):
        run.log({"loss": 1 / step} | ({"extra": step} if step > 20 else {}))
        if step in (20, 30):
            until(lambda step=step: live.run["step"] == step)
    run.set("rate", 0.5)
    until(lambda: live.run["marks"] == [[39, "rate: 0.1 → 0.5"]] or live.run["marks"] == [(39, "rate: 0.1 → 0.5")])
    history = live.source.history
    until(lambda: len(columns["loss"]) == 39)
    np.testing.assert_array_equal(columns["loss"], history["loss"])
    np.testing.assert_array_equal(columns["extra"], history["extra"])
    assert any(content.get("from", 0) > 0 for content in sent)  # only what is new

    assert do("set_knob", name="rate", value=0.25) is None
    until(lambda: run.knob("rate", 0.1, log=True) == 0.25)
    assert "positive" in do("set_knob", name="rate", value=-1)["summary"]
    assert "no knob 'decay'" in do("set_knob", name="decay", value=1)["summary"]
    assert "unknown command" in do("set_learning_rate", value=1)["summary"]
    run.finish("done")
    until(lambda: live.run["state"] == "done")
    assert "is not running" in do("pause")["summary"]
    ml.runs(tmp_path).delete("line")
    until(lambda: live.run["message"] == "there is no run 'line'.")
    live.close()
