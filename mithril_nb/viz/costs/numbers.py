"""Numbers in columns, as text and as HTML, and the HTML of a cell: a picture with its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mithril_nb.display import columns
from mithril_nb.viz.costs.tables.table import cost_css
from mithril_nb.viz.html_parts import base_css, html_table, image_html
from mithril_nb.viz.text.escape import escaped, one_line

_MOST_OPEN = 12
"""Tables with more rows are collapsed at first."""


@dataclass(frozen=True)
class Numbers:
    """A table of texts; its first column names the rows.

    Attributes:
        title: Title of the table.
        rows: The rows; the first holds the titles of the columns.

    Examples:
        >>> table = Numbers("bytes by block", [("block", "bytes"), ("a", "24 B")])
        >>> print(table.text)
        block  bytes
        a       24 B
        >>> '<th scope="row">a</th><td>24 B</td>' in table.html
        True
    """

    title: str
    rows: Sequence[tuple[str, ...]]

    @property
    def text(self) -> str:
        """The rows as aligned columns, numbers on the right."""
        _, *rows = self.rows
        names = 0 if all(row[0].isdecimal() for row in rows) else 1
        return columns([*self.rows], right=range(names, len(self.rows[0])))

    @property
    def html(self) -> str:
        """The rows as a collapsible table."""
        head, *rows = self.rows
        return (
            f'<details class="numbers"{" open" * (len(rows) <= _MOST_OPEN)}><summary>{escaped(self.title)}</summary>'
            f"{html_table(head, rows)}</details>"
        )


def cell_html(svg: str, alt: str, tables: Iterable[Numbers] = (), notes: Iterable[str] = ()) -> str:
    """Return the HTML of a cell: a picture with its numbers below.

    Args:
        svg: The picture.
        alt: Description for screen readers.
        tables: The numbers.
        notes: Further notes.
    """
    below = "".join(f"<p>{escaped(one_line(note))}</p>" for note in notes)
    body = "".join(table.html for table in tables)
    if not (body or below):
        return image_html(svg, alt)
    return f'<div class="mnb"><style>{base_css()}{cost_css()}{_CSS}</style>{image_html(svg, alt)}{body}{below}</div>'


_CSS = ".mnb details.numbers>summary{cursor:pointer;color:var(--muted);padding:2px 10px}"
