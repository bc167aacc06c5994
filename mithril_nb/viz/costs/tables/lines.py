"""Costs by line of Python: the source code with the costs beside each line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.figures import SENT
from mithril_nb.stages.records import format_lines
from mithril_nb.viz.costs.tables.columns import QUANTITIES, Column, column_text
from mithril_nb.viz.costs.tables.rows import value_of
from mithril_nb.viz.html_parts import Markup, html_table, output_html
from mithril_nb.viz.languages import code_html, highlighted
from mithril_nb.viz.text import escaped, one_line
from mithril_nb.viz.units import exact, percent

Data = Mapping[str, Any]
"""Costs by line as data: the result of `ByLine.to_dict()`."""


def lines_text(data: Data) -> str:
    """Return the source code as plain text, with the costs on the left of each line.

    Args:
        data: The costs by line as data, from the method `to_dict` of `ByLine`.

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
    rows = [(*(column.title for column in shown), "share", "line", "")]
    rows += [(*_cells(figures, shown), number, one_line(text)) for number, text, figures, _ in _rows(data)]
    table = columns(rows, right=frozenset(range(len(shown) + 2)))
    return "\n".join([f"{one_line(data['program'])}: {data['source']}, by line", table, *_notes(data)])


def lines_html(data: Data) -> str:
    """Return the source code with costs as one self-contained HTML fragment. Lines with a large share are dark."""
    notes = "".join(f"<p>{escaped(note)}</p>" for note in _notes(data))
    return output_html(_table(data) + notes, "cost", "lines")


_MOST_HEAT = 35
"""Percentage of the cost colour in the background of the line with the largest share. The text must remain readable."""


def _table(data: Data) -> str:
    shown = _shown(data)
    largest = max((one["share"] or 0.0 for one in data["lines"]), default=0.0)
    rows = (Markup("".join(_row(shown, largest, *row))) for row in _rows(data))
    heads = (*(column.title for column in shown), "share", "line", "")
    return html_table(heads, rows, style="cost lines", caption="cost by line")


def _row(
    shown: Sequence[Column], largest: float, number: str, text: str, figures: Data | None, kind: str
) -> Iterator[str]:
    if kind == "file":
        yield f'<tr><td class="file" colspan="{len(shown) + 3}">{escaped(text)}</td></tr>'
        return
    heat = round(_MOST_HEAT * (figures.get("share") or 0.0) / largest) if figures and largest and kind == "code" else 0
    style = f' style="background:color-mix(in srgb,var(--cost) {heat}%,transparent)"' if heat else ""
    yield f'<tr class="{kind}"{style}>'
    values = [value_of(figures or {}, column.key) for column in shown]
    for value, cell in zip((*values, None), _cells(figures, shown), strict=True):  # the share has no tooltip
        title = value if isinstance(value, str) else "" if value is None else exact(value)
        yield f'<td title="{escaped(title)}">{escaped(cell)}</td>' if title else f"<td>{escaped(cell)}</td>"
    code = code_html(next(highlighted(text, "python"))) if kind == "code" else escaped(text)
    yield f'<td class="n">{number}</td><td class="code">{code}</td></tr>'


def _notes(data: Data) -> Iterator[str]:
    names = data.get("symbols")
    if names:
        numbers = ", ".join(f"{name}={number}" for name, number in names.items())
        yield f"Costs that depend on {', '.join(names)} are not shown as numbers. Try: cost.at({numbers}).by_line"


def _shown(data: Data) -> tuple[Column, ...]:
    """Return the columns to show. FLOPs and bytes are always shown, other costs if their total is known and above 0."""
    total = data["total"]
    communicating = [key for key in SENT if value_of(total, key) != 0]
    always = ("flops", "bytes_accessed", *communicating)
    return tuple(one for one in QUANTITIES if one.key in always or value_of(total, one.key))


def _rows(data: Data) -> Iterator[tuple[str, str, Data | None, str]]:
    """Yield rows as number, text, costs and kind: heads of files, lines of code, unattributed costs, and the total."""
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


def _cells(figures: Data | None, shown: Sequence[Column]) -> list[str]:
    """Return the costs and the share of a row as texts; empty texts if it has no costs."""
    if figures is None:
        return [""] * (len(shown) + 1)
    cells = [column_text(column, figures) for column in shown]
    bound = figures.get("share_bound", "")
    share = "" if "formulas" in figures else f"{bound} {percent(figures.get('share'))}".strip()
    return [*cells, share]
