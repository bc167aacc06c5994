"""Costs by line of Python: the source code with the costs beside each line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.figures import MAIN, SENT
from mithril_nb.stages.records import format_lines
from mithril_nb.viz.costs.tables.rows import value_of
from mithril_nb.viz.costs.tables.table import QUANTITIES, Column
from mithril_nb.viz.html_parts import Markup, html_table, output_html, paragraphs
from mithril_nb.viz.languages import code_html, highlighted
from mithril_nb.viz.text import escaped, one_line
from mithril_nb.viz.units import exact, percent

# Costs by line as data: the result of `ByLine.to_dict()`.
Data = Mapping[str, Any]


def lines_text(data: Data) -> str:
    """Return the source code as plain text, with the costs on the left of each line."""
    quantities = _shown(data)
    rows = [(*(column.title for column in quantities), "share", "line", "")]
    rows += [(*_cells(figures, quantities), number, one_line(text)) for number, text, figures, _ in _rows(data)]
    table = columns(rows, right=frozenset(range(len(quantities) + 2)))
    return "\n".join([f"{one_line(data['program'])}: {data['source']}, by line", table, *_notes(data)])


def lines_html(data: Data) -> str:
    """Return the source code with costs as one self-contained HTML fragment. Lines with a large share are dark."""
    columns = _shown(data)
    largest = max((line["share"] or 0.0 for line in data["lines"]), default=0.0)
    rows = (Markup("".join(_row(columns, largest, *row))) for row in _rows(data))
    heads = (*(column.title for column in columns), "share", "line", "")
    table = html_table(heads, rows, style="cost lines", caption="cost by line")
    return output_html(table + paragraphs(_notes(data)), "cost", "lines")


# Percentage of the cost colour in the background of the line with the largest share. The text must remain readable.
_MOST_HEAT = 35


def _row(
    quantities: Sequence[Column], largest: float, number: str, text: str, figures: Data | None, kind: str
) -> Iterator[str]:
    if kind == "file":
        yield f'<tr><td class="file" colspan="{len(quantities) + 3}">{escaped(text)}</td></tr>'
        return
    # Relative to the largest line, so that the most expensive one is visible in a long program.
    heat = round(_MOST_HEAT * (figures.get("share") or 0.0) / largest) if figures and largest and kind == "code" else 0
    style = f' style="background:color-mix(in srgb,var(--cost) {heat}%,transparent)"' if heat else ""
    yield f'<tr class="{kind}"{style}>'
    values = [value_of(figures or {}, column.key) for column in quantities]
    for value, cell in zip((*values, None), _cells(figures, quantities), strict=True):  # the share has no tooltip
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
    total = data["total"]
    always = (*MAIN, *(key for key in SENT if value_of(total, key) != 0))
    return tuple(column for column in QUANTITIES if column.key in always or value_of(total, column.key))


def _rows(data: Data) -> Iterator[tuple[str, str, Data | None, str]]:
    figures = {(line["file"], line["line"]): line for line in data["lines"]}
    for part in data["code"]:
        yield "", format_lines(part["file"], [part["line"]]), None, "file"
        for number, text in enumerate(part["text"], part["line"]):
            yield str(number), text, figures.pop((part["file"], number), None), "code"
    for (file, number), cost in figures.items():  # the file is missing, or has become shorter
        yield str(number), f"{format_lines(file, [number])}: the source is not available", cost, "code"
    if data["unattributed"] is not None:
        yield "", UNATTRIBUTED_LABEL, data["unattributed"], "unattributed"
    yield "", "total", data["total"], "total"


def _cells(figures: Data | None, quantities: Sequence[Column]) -> list[str]:
    if figures is None:
        return [""] * (len(quantities) + 1)
    cells = [column.text(figures) for column in quantities]
    bound = figures.get("share_bound", "")
    # The share of a formula is no number.
    share = "" if "formulas" in figures else f"{bound} {percent(figures.get('share'))}".strip()
    return [*cells, share]
