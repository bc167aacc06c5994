"""Stored runs as text, tables and overlaid curves."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mithril_nb.display import columns
from mithril_nb.train.store.stored import Comparison, Runs, StoredRun
from mithril_nb.viz.html_parts import cell, html_table, output_html
from mithril_nb.viz.text import one_line
from mithril_nb.viz.units import seconds

_FIXED = {"name": "run", "state": "state", "step": "step", "elapsed_s": "time", "started": "started", "tags": "tags"}
MOST_COLUMNS = 14
"""Columns of a table that is shown; `Runs.table` has all."""


def runs_text(runs: Runs) -> str:
    """Return a table with a row for each run."""
    table = _table(runs.table())
    return columns(table, right=_numbers(table)) if len(table) > 1 else "no runs"


def runs_html(runs: Runs) -> str:
    """Return the same table as HTML."""
    return _html(_table(runs.table()), f"{len(runs)} runs")


def run_text(run: StoredRun) -> str:
    """Return the state of a run, its config and its latest metrics."""
    return columns([(name, one_line(text)) for name, text in _facts(run)], right=())


def run_html(run: StoredRun) -> str:
    """Return the same as HTML, with the events."""
    events = [(str(event["step"]), event["text"]) for event in run.events]
    marks = _html([("step", "event"), *events], "events") if events else ""
    return _html([("", run.name), *_facts(run)[1:]], "run") + marks


def comparison_text(comparison: Comparison) -> str:
    """Return the differences of runs, and their latest metrics."""
    table = _compared(comparison)
    return columns(table, right=()) if len(table) > 1 else "no differences"


def comparison_html(comparison: Comparison) -> str:
    """Return the same as HTML."""
    return _html(_compared(comparison), "differences")


def _table(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    configs = [name for name in _names(rows) if name.startswith("config.")]
    # Last, because a setting that all runs share does not distinguish them.
    configs.sort(key=lambda name: len({repr(row.get(name)) for row in rows}) == 1)
    metrics = [name for name in _names(rows) if name not in _FIXED and name not in configs]
    names = [*_FIXED, *metrics, *configs][:MOST_COLUMNS]
    heads = tuple(_FIXED.get(name, name.removeprefix("config.")) for name in names)
    return [heads, *(tuple(_text(name, row.get(name)) for name in names) for row in rows)]


def _names(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    return [*dict.fromkeys(name for row in rows for name in row)]


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "elapsed_s":
        return seconds(value)
    if name == "started":
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(value))
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    return one_line(str(value))


def _facts(run: StoredRun) -> list[tuple[str, str]]:
    summary, origin = run.summary, run.origin
    facts: dict[str, Any] = {"run": run.name, "state": run.state, "step": summary["step"]}
    facts |= {"reason": summary.get("reason"), "elapsed_s": summary["elapsed_s"], "started": summary["created"]}
    facts |= {"device": origin["device"], "git": origin["git"]}
    facts |= {"tags": " ".join(summary["tags"]), "checkpoints": ", ".join(map(str, run.checkpoints))}
    facts |= summary["config"] | summary["latest"]
    return [
        ("time" if name == "elapsed_s" else name, _text(name, value))
        for name, value in facts.items()
        if value not in (None, "")
    ]


def _compared(comparison: Comparison) -> list[tuple[str, ...]]:
    first, *others = comparison.runs
    changes = {run.name: dict(comparison.differences[run.name]) for run in others}
    names = dict.fromkeys(name for facts in changes.values() for name in facts)
    rows = [(name, "", *(one_line(changes[run.name].get(name, "same")) for run in others)) for name in names]
    latest = [run.summary["latest"] for run in comparison.runs]
    rows += [(name, *(_text(name, metrics.get(name)) for metrics in latest)) for name in _names(latest)]
    return [("", first.name, *(run.name for run in others)), *rows]


def _numbers(table: Sequence[tuple[str, ...]]) -> set[int]:
    return {at for at, head in enumerate(table[0]) if head not in ("run", "state", "started", "tags")}


def _html(table: Sequence[tuple[str, ...]], caption: str) -> str:
    heads, *rows = table
    styles = ["" if at in _numbers(table) else "words" for at in range(len(heads))]
    cells = ((row[0], *map(cell, row[1:], styles[1:])) for row in rows)
    return output_html(html_table(heads, cells, caption=caption), "cost")
