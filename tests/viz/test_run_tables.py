"""Stored runs as tables: hostile names are text, and every fact that differs is shown."""

from __future__ import annotations

from pathlib import Path

import mithril_nb as ml
from mithril_nb.display import render


def test_tables_of_runs(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    for name, rate in (("a", 0.1), ("b", 0.2)):
        with ml.track(tmp_path / name, config={"rate": rate, "note": hostile, "name": "x"}, tags=["<b>"]) as run:
            run.log({hostile: 1 / 3, "loss": float("nan")})
            run.note("<script>")
    runs = ml.runs(tmp_path)
    values = (runs, runs["a"], runs.compare("a", "b"))
    for value in values:
        shown = render(value)
        assert "<img" not in shown["text/html"]
        assert "<script>" not in shown["text/html"]
        assert "0.3333" in shown["text/plain"]
        assert "nan" in shown["text/plain"]
    lines = str(runs).splitlines()
    assert lines[0].split()[:3] == ["run", "state", "step"]
    assert [line.split()[:3] for line in lines[1:]] == [["a", "done", "1"], ["b", "done", "1"]]
    assert "0.1 → 0.2" in str(values[2])
    assert "name" in str(values[1])
