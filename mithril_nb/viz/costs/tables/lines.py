"""Costs by line of Python: the source of each contributing function, with figures beside its lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mithril_nb.display import AT_LEAST, UNATTRIBUTED_LABEL, columns
from mithril_nb.stages.records import format_lines
from mithril_nb.viz.costs.fields import unknown_in
from mithril_nb.viz.costs.tables.columns import QUANTITIES
from mithril_nb.viz.costs.tables.formulas import COMMUNICATION, short_formula, value_of
from mithril_nb.viz.costs.tables.table import cost_css
from mithril_nb.viz.highlight import highlighted
from mithril_nb.viz.html_parts import MONO, base_css
from mithril_nb.viz.text.escape import escaped, one_line
from mithril_nb.viz.text.units import exact, percent

Data = Mapping[str, Any]
"""Costs by line as data, as `ByLine.to_dict()` returns them."""


def lines_text(data: Data) -> str:
    """Return costs by line as plain text: the source with figures on the left.

    Args:
        data: The costs by line.

    Examples:
        >>> cost = {"flops": 128, "transcendentals": 0, "bytes_accessed": 64, "share": 1.0, "share_bound": ""}
        >>> line = {"source": "net.py:2", "file": "net.py", "line": 2, **cost}
        >>> code = [{"file": "net.py", "line": 1, "text": ["def net(x, w):", "    return x @ w"]}]
        >>> data = {"program": "net", "source": "analytic", "lines": [line], "code": code, "total": cost}
        >>> print(lines_text({**data, "unattributed": None}))
        net: analytic, by line
           FLOPs  bytes  share  line
                                      net.py:1
                                   1  def net(x, w):
        128 FLOP   64 B  100 %     2      return x @ w
        128 FLOP   64 B  100 %        total
    """
    shown = _shown(data)
    rows = [(*(title for title, *_ in shown), "share", "line", "")]
    rows += [(*_cells(figures, shown), number, one_line(text)) for number, text, figures, _ in _rows(data)]
    table = columns(rows, right=frozenset(range(len(shown) + 2)))
    return "\n".join([f"{one_line(data['program'])}: {data['source']}, by line", table, *_notes(data)])


def lines_html(data: Data) -> str:
    """Return costs by line as one self-contained HTML fragment; a darker line has a larger share.

    Args:
        data: The costs by line.
    """
    return f'<div class="mnb"><style>{base_css()}{cost_css()}{_CSS}</style>{"".join(_table(data))}</div>'


_MOST_HEAT = 35
"""Percentage of the cost colour behind the most expensive line; more would make its text hard to read."""
_CSS = (
    f".mnb .lines td.code{{text-align:left;white-space:pre;font-family:{MONO};font-size:12px}}"
    ".mnb .lines td.n{color:var(--muted)}.mnb .lines td.file{text-align:left;color:var(--muted)}"
    ".mnb .lines tbody td{border-bottom:0;padding-top:1px;padding-bottom:1px}"
    ".mnb .lines thead th:first-child,.mnb .lines td:first-child:not(.file){text-align:right}"
    ".mnb .lines .total td{font-weight:600;border-top:1px solid var(--muted)}"
    # Tables of costs use the classes `f` and `m` for bars too.
    + "".join(f".mnb .cost.lines td.code .{look}{{background:none;color:var(--c{look})}}" for look in "kftmsc")
)


def _table(data: Data) -> Iterator[str]:
    shown = _shown(data)
    yield '<div class="scroll"><table class="cost lines"><caption>cost by line</caption><thead><tr>'
    yield from (f'<th scope="col">{title}</th>' for title in (*(title for title, *_ in shown), "share", "line"))
    yield '<th scope="col"></th></tr></thead><tbody>'
    largest = max((one["share"] or 0.0 for one in data["lines"]), default=0.0)
    for number, text, figures, kind in _rows(data):
        if kind == "file":
            yield f'<tr><td class="file" colspan="{len(shown) + 3}">{escaped(text)}</td></tr>'
            continue
        heat = (
            round(_MOST_HEAT * (figures.get("share") or 0.0) / largest) if figures and largest and kind == "code" else 0
        )
        style = f' style="background:color-mix(in srgb,var(--cost) {heat}%,transparent)"' if heat else ""
        yield f'<tr class="{kind}"{style}>'
        for (_, key, _, _), cell in zip((*shown, ("", "", "", str)), _cells(figures, shown), strict=True):
            value = value_of(figures or {}, key) if key else None
            title = value if isinstance(value, str) else "" if value is None else exact(value)
            yield f'<td title="{escaped(title)}">{escaped(cell)}</td>' if title else f"<td>{escaped(cell)}</td>"
        code = _code(text) if kind == "code" else escaped(text)
        yield f'<td class="n">{number}</td><td class="code">{code}</td></tr>'
    yield "</tbody></table></div>"
    yield from (f"<p>{escaped(note)}</p>" for note in _notes(data))


def _notes(data: Data) -> Iterator[str]:
    names = data.get("symbols")
    if names:
        numbers = ", ".join(f"{name}={number}" for name, number in names.items())
        yield f"values that depend on {', '.join(names)} have no number; see cost.at({numbers}).by_line"


def _code(text: str) -> str:
    pieces = next(iter(highlighted(text, "python")), [])
    return "".join(
        f'<span class="{look}">{escaped(piece)}</span>' if look else escaped(piece) for look, piece in pieces
    )


def _shown(data: Data) -> tuple[tuple[str, str, str, Callable[[float | None], str]], ...]:
    """Return the columns that are not empty."""
    total = data["total"]
    communicating = [key for key in COMMUNICATION if value_of(total, key) != 0]
    always = ("flops", "bytes_accessed", *communicating)
    return tuple(one for one in QUANTITIES if one[1] in always or value_of(total, one[1]))


def _rows(data: Data) -> Iterator[tuple[str, str, Data | None, str]]:
    """Yield number, text, figures and kind of each row: lines of code, costs without a line, and the total."""
    figures = {(one["file"], one["line"]): one for one in data["lines"]}
    for part in data["code"]:
        yield "", format_lines(part["file"], [part["line"]]), None, "file"
        for number, text in enumerate(part["text"], part["line"]):
            yield str(number), text, figures.pop((part["file"], number), None), "code"
    for (file, number), one in figures.items():  # the file is missing, or has become shorter
        yield str(number), f"{format_lines(file, [number])}: the source is not available", one, "code"
    if data["unattributed"] is not None:
        yield "", UNATTRIBUTED_LABEL, data["unattributed"], "unattributed"
    yield "", "total", data["total"], "total"


def _cells(figures: Data | None, shown: tuple[tuple[str, str, str, Callable[[float | None], str]], ...]) -> list[str]:
    """Return the formatted figures of a row, and its share."""
    if figures is None:
        return [""] * (len(shown) + 1)
    cells: list[str] = []
    for _, key, unknown, written in shown:
        value = value_of(figures, key)
        if isinstance(value, str):
            cells.append(short_formula(value))
            continue
        is_bound = value and unknown and unknown_in(figures, unknown) and "formulas" not in figures
        cells.append("" if key == "time_s" and value is None else f"{AT_LEAST if is_bound else ''}{written(value)}")
    bound = figures.get("share_bound", "")
    share = "" if "formulas" in figures else f"{bound} {percent(figures.get('share'))}".strip()
    return [*cells, share]
