"""The slowest instructions of a program as a table: HTML and plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.figures import FIGURES
from mithril_nb.viz.costs.blocks import path_text
from mithril_nb.viz.costs.fields import at_least
from mithril_nb.viz.html_parts import cell, html_table, output_html, paragraphs
from mithril_nb.viz.text import one_line
from mithril_nb.viz.units import percent, seconds

# The result of `Slowest.to_dict()`.
Data = Mapping[str, Any]


def slowest_text(data: Data) -> str:
    """Return the instructions as plain text, the slowest first."""
    return "\n".join([_title(data), columns([_heads(data), *_rows(data)], right={2, 3, 4}), *_notes(data)])


def slowest_html(data: Data) -> str:
    """Return the instructions as one self-contained HTML fragment, the slowest first."""
    rows = ((name, cell(blocks, "words"), *rest) for name, blocks, *rest in _rows(data))
    table = html_table(_heads(data), rows, words=1, caption=_title(data))
    return output_html(table + paragraphs(_notes(data)), "cost")


def _title(data: Data) -> str:
    return f"{one_line(data['program'])}: {data['source']}, the slowest instructions"


def _heads(data: Data) -> tuple[str, ...]:
    return "instruction", "block", "runs", FIGURES[data["key"]].column, "share", "limited by"


def _rows(data: Data) -> list[tuple[str, ...]]:
    total = data["total"][data["key"]]
    rows: list[tuple[str, ...]] = []
    for row in data["rows"]:
        first, *others = row["blocks"] or [UNATTRIBUTED_LABEL]
        blocks = f"{path_text(first)} and {len(others)} more" if others else path_text(first)
        time_s, runs = row[data["key"]], row["repeats"]
        share = ("≤ " if data["total"]["unknown"] else "") + percent(time_s / total)
        rows.append((row["id"], blocks, str(runs or ""), seconds(time_s), share, row.get("limited_by", "")))
    return rows


def _notes(data: Data) -> list[str]:
    total, unknown = data["total"][data["key"]], data["total"]["unknown"]
    notes = [f"whole program: {at_least(seconds(total), bool(unknown))}"]
    return [*notes, f"{unknown} instructions of unknown time are not listed"] if unknown else notes
