"""Stored runs as text, tables and overlaid curves."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mithril_nb.display import columns
from mithril_nb.train.store.stored import Comparison, Runs, StoredRun
from mithril_nb.viz.curves import overlay_svg
from mithril_nb.viz.html_parts import cell, html_table, output_html, page_html, write_page
from mithril_nb.viz.palette import HUES
from mithril_nb.viz.text import escaped, one_line
from mithril_nb.viz.units import seconds

_FIXED = {
    "name": "run",
    "parent": "parent",
    "state": "state",
    "step": "step",
    "elapsed_s": "time",
    "started": "started",
    "tags": "tags",
}
_VIEWS = ("by step", "by time", "log scale", "smoothed")
_MOST_METRICS = 8
"""Metrics whose curves are drawn."""
MOST_RUNS = 50
"""Runs whose best values and curves are shown; the table has all."""
MOST_COLUMNS = 14
"""Columns of a table that is shown; `Runs.table` has all."""


def runs_text(runs: Runs) -> str:
    """Return a table with a row for each run."""
    table = _table(runs.table())
    return columns(table, right=_numbers(table)) if len(table) > 1 else "no runs"


def runs_html(runs: Runs) -> str:
    """Return the same table as HTML, with the best values and the curves."""
    return output_html(_runs_body(runs, _VIEWS[:1]), "cost", "runs")


def runs_page(runs: Runs, path: str | Path | None) -> str:
    """Return table and curves as one HTML file, and write it to `path` if given."""
    return _page(_runs_body(runs), "runs", path)


def _runs_body(runs: Runs, views: Sequence[str] = _VIEWS) -> str:
    rows = runs.table()
    stored = [runs[row["name"]] for row in rows]
    hidden = f", {len(runs) - len(rows)} hidden" if len(runs) > len(rows) else ""
    table, best = _html(_table(rows), f"{len(rows)} runs{hidden}"), {run.name: run.best for run in stored[-MOST_RUNS:]}
    if names := _names([*best.values()]):
        lines = [("run", *names)]
        for name, values in best.items():
            texts = ("{:.4g} at {}".format(*values[metric]) if metric in values else "" for metric in names)
            lines.append((name, *texts))
        table += _html(lines, "best values, and their steps")
    rest = f'<p class="quiet">Best values and curves of the latest {MOST_RUNS} runs.</p>' * (len(stored) > MOST_RUNS)
    return table + rest + _overlays(stored[-MOST_RUNS:], views)


def _page(body: str, title: str, path: str | Path | None) -> str:
    return write_page(page_html(title, "stored by mithril_nb", body, "cost", "page", "runs", kind="", scripts=""), path)


def _overlays(stored: Sequence[StoredRun], views: Sequence[str]) -> str:
    """Return a plot of each metric with a curve for each run. Inputs of HTML choose the view and hide curves."""
    histories = [run.history for run in stored]
    names = [name for name in _names(histories) if name not in ("step", "elapsed_s")]
    if not names:
        return ""
    plots, rules = "", ""
    for name in names[:_MOST_METRICS]:
        title = escaped(one_line(name))
        plots += f"<h2>{title}</h2>"
        for index, view in enumerate(views):
            curves = [_curve(history, name, view) for history in histories]
            picture = overlay_svg(
                curves,
                f"{one_line(name)}, {view}",
                "s" if view == "by time" else "step",
                log="y" * (view == "log scale"),
            )
            # One that is zoomed is panned by scrolling, also with the arrow keys.
            keys = f' tabindex="0" role="group" aria-label="{title}, {view}"' if len(views) > 1 else ""
            plots += f'<div class="view v{index}"{keys}>{picture}</div>'
    if len(names) > _MOST_METRICS:
        plots += f'<p class="quiet">and {len(names) - _MOST_METRICS} more metrics</p>'
    choices = ""
    if len(views) > 1:
        choices = _choices("view", enumerate(views)) + _choices(
            "zoom", ((scale, f"{scale}×") for scale in (1, 2, 4, 8))
        )
    legend = ""
    for index, run in enumerate(stored):
        dashes = ("none", "6 3", "2 2", "6 2 2 2")[index // HUES % 4]
        legend += (
            f'<label class="c{index}"><input type="checkbox" checked><svg width="28" height="8" aria-hidden="true">'
            f'<path d="M0 4H28" stroke="var(--h{index % HUES})" stroke-width="2" '
            f'stroke-dasharray="{dashes}"/></svg> {escaped(run.name)}</label>'
        )
        rules += f".mnb .runs:has(.c{index} input:not(:checked)) .r{index}{{display:none}}"
        rules += f".mnb .runs:has(.c{index}:hover) .view g[class]:not(.r{index}){{opacity:.15}}"
    rules += "".join(
        f'.mnb .runs:has([name=view][value="{index}"]:checked) .v{index}{{display:block}}'
        for index in range(len(views))
    )
    legend = f"<fieldset><legend>runs</legend>{legend}</fieldset>"
    return f'<style>{rules}</style><div class="runs">{choices}{legend}{plots}</div>'


def _choices(name: str, pairs: Iterable[tuple[int, str]]) -> str:
    buttons = "".join(
        f'<label><input type="radio" name="{name}" value="{value}"{" checked" * (not at)}> {text}</label>'
        for at, (value, text) in enumerate(pairs)
    )
    return f"<fieldset><legend>{name}</legend>{buttons}</fieldset>"


def _curve(history: Mapping[str, np.ndarray], name: str, view: str) -> tuple[np.ndarray, np.ndarray] | None:
    if name not in history:
        return None
    x, y = history["elapsed_s" if view == "by time" else "step"], history[name]
    x, y = (values[np.isfinite(y)] for values in (x, y))
    # Means of 2 % of the rows, of an odd number, so that each is at its middle.
    if view == "smoothed" and (width := len(y) // 50 | 1) > 1:
        y = np.convolve(y, np.full(width, 1 / width), "valid")
        x = x[width // 2 :][: len(y)]
    return x, y


def run_text(run: StoredRun) -> str:
    """Return the state of a run, its config and its latest metrics."""
    return columns([(name, one_line(text)) for name, text in _facts(run)], right=())


def run_html(run: StoredRun) -> str:
    """Return the same as HTML, with the events."""
    events = [(str(event["step"]), event["text"]) for event in run.events]
    marks = _html([("step", "event"), *events], "events") if events else ""
    return output_html(_html([("", run.name), *_facts(run)[1:]], "run") + marks, "cost")


def comparison_text(comparison: Comparison) -> str:
    """Return the differences of runs, and their latest metrics."""
    table = _compared(comparison)
    return columns(table, right=()) if len(table) > 1 else "no differences"


def comparison_html(comparison: Comparison) -> str:
    """Return the same as HTML, with the curves."""
    return output_html(_comparison_body(comparison, _VIEWS[:1]), "cost", "runs")


def compared_page(comparison: Comparison, path: str | Path | None) -> str:
    """Return differences and curves as one HTML file, and write it to `path` if given."""
    return _page(_comparison_body(comparison), "comparison of runs", path)


def _comparison_body(comparison: Comparison, views: Sequence[str] = _VIEWS) -> str:
    return _html(_compared(comparison), "differences") + _overlays(comparison.runs, views)


def _table(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    configs = [name for name in _names(rows) if name.startswith("config.")]
    # Last, because a setting that all runs share does not distinguish them.
    configs.sort(key=lambda name: len({repr(row.get(name)) for row in rows}) == 1)
    metrics = [name for name in _names(rows) if name not in _FIXED and name not in configs]
    fixed = [name for name in _FIXED if name != "parent" or any(row.get(name) for row in rows)]
    names = [*fixed, *metrics, *configs][:MOST_COLUMNS]
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
    return {at for at, head in enumerate(table[0]) if head not in ("run", "parent", "state", "started", "tags")}


def _html(table: Sequence[tuple[str, ...]], caption: str) -> str:
    heads, *rows = table
    styles = ["" if at in _numbers(table) else "words" for at in range(len(heads))]
    cells = ((row[0], *map(cell, row[1:], styles[1:])) for row in rows)
    return html_table(heads, cells, caption=caption)
