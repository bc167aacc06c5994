"""The result of drawing costs: a picture, a text and tables. Also checks of the options and data of pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

from mithril_nb.display import Shown, columns, finite
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.viz.html_parts import html_table, image_html, output_html, paragraphs, write_page
from mithril_nb.viz.text import escaped

# A wider picture, of more than about five screens, is probably a mistake.
_WIDEST = 10_000


def validate_width(value: object, least: int, called: str) -> int:
    """Validate a width and return it in whole px, at least `least`."""
    if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) <= _WIDEST:
        raise option_error(called, "width", value, f"a number of px above 0, at most {_WIDEST:,}")
    return max(least, round(float(value)))


def option_error(called: str, option: str, value: object, needs: str) -> UnknownOptionError:
    """Return the error for an option that a drawing function cannot use."""
    text = " ".join(short_repr(value, 60).split())  # the repr of an array has several lines
    return UnknownOptionError(f"{called} cannot take {option}={text}.", (("needs", needs),))


def replace_undrawable(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace each number that cannot be drawn by `None`, which means unknown. If there are any, a note is added."""
    # Layouts square their numbers: squares of larger ones may be infinite.
    drawn = finite(data, 1e150)
    note = "shown as unknown: numbers that are infinite, NaN, or above 1e150"
    return data if drawn == data else {**drawn, "notes": [*(drawn.get("notes") or ()), note]}


# A table with more rows is collapsed at first.
_MOST_OPEN = 12


@dataclass(frozen=True)
class NumberTable:
    """A table of texts. The first text of a row is its name."""

    title: str
    rows: Sequence[tuple[str, ...]]

    @property
    def text(self) -> str:
        """The table as plain text, with numbers aligned to the right."""
        _, *rows = self.rows
        # A first column of numbers, as the setting of a sweep, is aligned to the right, too.
        names = 0 if all(row[0].isdecimal() for row in rows) else 1
        return columns([*self.rows], right=range(names, len(self.rows[0])))

    @property
    def html(self) -> str:
        """The table as HTML that can be collapsed."""
        head, *rows = self.rows
        return (
            f'<details class="numbers"{" open" * (len(rows) <= _MOST_OPEN)}><summary>{escaped(self.title)}</summary>'
            f"{html_table(head, rows)}</details>"
        )


@dataclass(frozen=True)
class Drawing(Shown):
    """A picture for light and dark themes, and a text with the same numbers."""

    svg: str = field(repr=False)
    text: str
    tables: tuple[NumberTable, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)

    @property
    def html(self) -> str:
        """The picture as HTML that follows the theme of the notebook, with `tables` and `notes` below it."""
        # The first line of the text is the title: screen readers read it instead of the picture.
        picture = image_html(self.svg, self.text.partition("\n")[0])
        if not (self.tables or self.notes):
            return picture
        tables = "".join(table.html for table in self.tables)
        return output_html(f"{picture}{tables}{paragraphs(self.notes)}", "cost", "numbers")

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file as SVG, or, if the name ends in `.txt`, the text."""
        file = Path(path)
        if file.suffix.lower() not in ("", ".svg", ".txt"):
            raise option_error("drawing.save", "path", str(path), "a file name that ends in .svg or .txt")
        write_page(f"{self.text if file.suffix == '.txt' else self.svg}\n", file)
        return file
