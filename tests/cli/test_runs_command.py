"""`mithril-nb runs` prints the table, a run, a comparison and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import mithril_nb as ml


def test_runs_are_listed_shown_and_compared(tmp_path: Path, run_cli, printed) -> None:
    for name, rate in (("a", 0.1), ("b", 0.2)):
        with ml.track(tmp_path / name, config={"rate": rate}) as run:
            run.log({"loss": rate})
    folder = str(tmp_path)
    assert [line.split()[:2] for line in printed("runs", folder).splitlines()[1:]] == [["a", "done"], ["b", "done"]]
    assert "rate" in printed("runs", folder, "a")
    assert "0.1 → 0.2" in printed("runs", folder, "a", "b")
    (data,) = json.loads(printed("runs", folder, "a", "--json"))
    assert (data["name"], data["state"], data["latest"]) == ("a", "done", {"loss": 0.1})
    code, _, problem = run_cli("runs", folder, "c")
    assert code == 2
    assert "no run 'c'" in problem
