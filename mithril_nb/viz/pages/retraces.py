"""Reports of watched functions: a table of counts and times, and the reason for each retrace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from mithril_nb.display import AT_LEAST, columns
from mithril_nb.viz.html_parts import html_table, output_html
from mithril_nb.viz.text import escaped, one_line
from mithril_nb.viz.units import UNKNOWN, seconds

_HEADS = ("function", "defined at", "calls", "cache hits", "traces", "lowerings", "compilations")
_CALLS = slice(2, 4)
"""The columns `calls` and `cache hits`. A report of a `with` block lacks them: JAX does not report cache hits."""
_AGAIN = ("line", "call", "again", "time", "reason")
_MOST = 20
"""Largest number of functions in a text, and of retraces of each function."""

Cells = tuple[str, ...]


def retraces_text(report: Any) -> str:
    """Return a report as text: a table of functions, and a table of the retraces of each function.

    Args:
        report: A `FunctionReport`, or a `WatchReport` of several functions.
    """
    own, others = _functions(report)
    table = _columns(report, [_HEADS, *map(_cells, own[:_MOST]), *others])
    right = frozenset() if len(table[0]) < len(_HEADS) else frozenset({2, 3})
    parts = [columns(table, right=right) if len(table) > 1 else "nothing was traced or compiled"]
    parts += [f"and {len(own) - _MOST:,} more functions"] if len(own) > _MOST else []
    for one in own[:_MOST]:
        if one.retraces or one.left_out:
            rows = [_AGAIN, *_retraces(one, _MOST)]
            text = columns(rows, right={1, 3})
            rest = len(one.retraces) + one.left_out + 1 - len(rows)
            parts.append(f"{_caption(one)}\n{text}" + (f"\nand {rest:,} more" if rest else ""))
    if len(table) > 1 and not any(one.retraces or one.left_out for one in own):
        parts.append("no retraces")
    return "\n\n".join([*parts, *_notes(report)])


def retraces_html(report: Any) -> str:
    """Return a report as one self-contained HTML fragment.

    Args:
        report: A `FunctionReport`, or a `WatchReport` of several functions.
    """
    own, others = _functions(report)
    heads, *rows = _columns(report, [_HEADS, *map(_cells, own), *others])
    parts = [html_table(heads, rows, style="made")] if rows else ["<p>nothing was traced or compiled</p>"]
    for one in own:
        if one.retraces or one.left_out:
            parts.append(html_table(_AGAIN, _retraces(one, len(one.retraces)), style="made", caption=_caption(one)))
            parts += [f"<p>and {one.left_out:,} more</p>"] if one.left_out else []
    if rows and not any(one.retraces or one.left_out for one in own):
        parts.append("<p>no retraces</p>")
    parts += [f"<p>{escaped(note)}</p>" for note in _notes(report)]
    return output_html("".join(parts), "summary", "retraces")


def _functions(report: Any) -> tuple[list[Any], list[Cells]]:
    """Return the reports of the user's functions, and for each library a row with the totals of its functions."""
    if not hasattr(report, "functions"):
        return [report], []
    libraries: dict[str, list[Any]] = {}
    for one in report.functions:
        if one.library is not None:
            libraries.setdefault(one.library, []).append(one)
    rows = [
        (f"{len(found):,} function{'s' if len(found) > 1 else ''} of {name}", "", "", "", *_times(found))
        for name, found in libraries.items()
    ]
    return [one for one in report.functions if one.library is None], rows


def _columns(report: Any, rows: list[Cells]) -> list[Cells]:
    """Return the rows. In a report of a `with` block, they lack the columns `_CALLS`."""
    if not hasattr(report, "functions"):
        return rows
    return [(*row[: _CALLS.start], *row[_CALLS.stop :]) for row in rows]


def _caption(one: Any) -> str:
    return f"retraces of {one_line(one.name)}{f' at {one_line(one.place)}' if one.place else ''}"


def _cells(one: Any) -> Cells:
    counts = ("" if count is None else f"{count:,}" for count in (one.calls, one.hits))
    return (one_line(one.name), one_line(one.place), *counts, *_times([one]))


def _times(found: Sequence[Any]) -> Iterator[str]:
    """Yield the number of traces, of lowerings and of compilations. Each is followed by the total time."""

    def total(name: str) -> Any:
        return sum(getattr(one, name) for one in found)

    untimed = total("untimed_traces")
    if untimed and untimed == total("traces"):
        yield f"{untimed:,} in {UNKNOWN} time"
    else:
        yield _count(total("traces"), f"{AT_LEAST if untimed else ''}{seconds(total('trace_s'))}")
    yield _count(total("lowerings"), seconds(total("lower_s")))
    from_disk = total("disk_hits")
    yield _count(total("compilations"), seconds(total("compile_s"))) + (f", {from_disk} from disk" if from_disk else "")


def _count(count: int, time: str) -> str:
    return f"{count:,} in {time}" if count else "0"


def _retraces(one: Any, most: int) -> Iterator[Cells]:
    for again in one.retraces[:most]:
        time = seconds(again.time_s) if again.time_s else UNKNOWN
        call = "" if again.call is None else f"{again.call:,}"
        kind = "traced" if again.is_traced else "compiled"
        yield one_line(again.place) or UNKNOWN, call, kind, time, one_line(again.reason)


def _notes(report: Any) -> Iterator[str]:
    is_block = hasattr(report, "functions")
    if not is_block and report.unjitted:
        yield f"calls under jax.disable_jit(), not counted as cache hits: {report.unjitted:,}"
    left_out = report.left_out if is_block else 0
    if left_out:
        yield f"{left_out:,} events of other functions are not shown"
