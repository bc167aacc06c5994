"""Reports of watched functions: a table of counts and times, and the reason for each retrace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from mithril_nb.display import AT_LEAST, columns
from mithril_nb.viz.html_parts import html_table, output_html, paragraphs
from mithril_nb.viz.text import one_line
from mithril_nb.viz.units import UNKNOWN, seconds

_HEADS = ("function", "defined at", "calls", "cache hits", "traces", "lowerings", "compilations")
# The columns `calls` and `cache hits`. A report of a `with` block lacks them: JAX does not report cache hits.
_CALLS = slice(2, 4)
_AGAIN = ("line", "call", "again", "time", "reason")
# Largest number of functions in a text, and of retraces of each function.
_MOST = 20
Cells = tuple[str, ...]


def retraces_text(report: Any) -> str:
    """Return a report as text: a table of functions, and a table of the retraces of each function."""
    own, table = _functions(report, _MOST)
    right = frozenset() if len(table[0]) < len(_HEADS) else frozenset({2, 3})
    parts = [columns(table, right=right) if len(table) > 1 else "nothing was traced or compiled"]
    parts += [f"and {len(own) - _MOST:,} more functions"] if len(own) > _MOST else []
    for function in own[:_MOST]:
        if rows := [*_retraces(function, _MOST)]:
            rest = len(function.retraces) + function.left_out + 1 - len(rows)
            text = f"{_caption(function)}\n{columns(rows, right={1, 3})}"
            parts.append(text + (f"\nand {rest:,} more" if rest else ""))
    return "\n\n".join([*parts, *_notes(report, own, len(table) > 1)])


def retraces_html(report: Any) -> str:
    """Return a report as one self-contained HTML fragment."""
    own, (heads, *rows) = _functions(report, None)
    parts = [html_table(heads, rows, style="made")] if rows else ["<p>nothing was traced or compiled</p>"]
    for function in own:
        if table := [*_retraces(function, None)]:
            parts.append(html_table(table[0], table[1:], style="made", caption=_caption(function)))
            parts += [f"<p>and {function.left_out:,} more</p>"] if function.left_out else []
    parts.append(paragraphs(_notes(report, own, bool(rows))))
    return output_html("".join(parts), "summary", "retraces")


# The user's functions, and the table with a row for at most `most` of them, and for each library.
def _functions(report: Any, most: int | None) -> tuple[list[Any], list[Cells]]:
    is_block = hasattr(report, "functions")
    libraries = defaultdict[Any, list[Any]](list)
    for function in report.functions if is_block else ():
        libraries[function.library].append(function)
    own = libraries.pop(None, []) if is_block else [report]
    rows: list[Cells] = [_HEADS]
    for function in own[:most]:
        counts = ("" if count is None else f"{count:,}" for count in (function.calls, function.hits))
        rows.append((one_line(function.name), one_line(function.place), *counts, *_times([function])))
    for name, group in libraries.items():
        rows.append((f"{len(group):,} function{'s' if len(group) > 1 else ''} of {name}", "", "", "", *_times(group)))
    return own, [(*row[: _CALLS.start], *row[_CALLS.stop :]) for row in rows] if is_block else rows


def _caption(function: Any) -> str:
    return f"retraces of {one_line(function.name)}{f' at {one_line(function.place)}' if function.place else ''}"


def _times(functions: Sequence[Any]) -> Iterator[str]:

    def total(name: str) -> Any:
        return sum(getattr(function, name) for function in functions)

    untimed = total("untimed_traces")
    # JAX did not report the end of any of these traces.
    if untimed and untimed == total("traces"):
        yield f"{untimed:,} in {UNKNOWN} time"
    else:
        yield _count(total("traces"), f"{AT_LEAST if untimed else ''}{seconds(total('trace_s'))}")
    yield _count(total("lowerings"), seconds(total("lower_s")))
    from_disk = total("disk_hits")
    yield _count(total("compilations"), seconds(total("compile_s"))) + (f", {from_disk} from disk" if from_disk else "")


def _count(count: int, time: str) -> str:
    return f"{count:,} in {time}" if count else "0"


def _retraces(function: Any, most: int | None) -> Iterator[Cells]:
    if function.retraces or function.left_out:
        yield _AGAIN
    for again in function.retraces[:most]:
        time = seconds(again.time_s) if again.time_s else UNKNOWN
        call = "" if again.call is None else f"{again.call:,}"
        kind = "traced" if again.is_traced else "compiled"
        yield one_line(again.place) or UNKNOWN, call, kind, time, one_line(again.reason)


def _notes(report: Any, own: Sequence[Any], has_rows: bool) -> Iterator[str]:
    if has_rows and not any(function.retraces or function.left_out for function in own):
        yield "no retraces"
    if hasattr(report, "functions"):
        if report.left_out:
            yield f"{report.left_out:,} events of other functions are not shown"
    elif report.unjitted:
        yield f"calls under jax.disable_jit(), not counted as cache hits: {report.unjitted:,}"
