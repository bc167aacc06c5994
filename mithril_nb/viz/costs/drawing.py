"""The result of drawing costs: a picture, a text and tables. Also checks of the options and data of pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any

from mithril_nb.display import Shown, columns, finite
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.viz.html_parts import html_table, image_html, output_html, write_page
from mithril_nb.viz.text import escaped, one_line

_WIDEST = 10_000
"""Largest width of a picture in px, about five screens; a larger one is probably a mistake."""


def validate_width(given: object, least: int, called: str) -> int:
    """Validate a width and return it in whole px, at least `least`.

    Args:
        given: The width given by the user.
        least: Smallest width of the picture in px.
        called: Name of the function called by the user, for the error.

    Raises:
        UnknownOptionError: `given` is not a number above 0 and at most 10,000.

    Examples:
        >>> validate_width(720, 240, "cost.treemap"), validate_width(100.5, 240, "cost.treemap")
        (720, 240)
    """
    if not isinstance(given, Real) or isinstance(given, bool) or not 0 < float(given) <= _WIDEST:
        raise option_error(
            called, "width", given, f"a number of px above 0, at most {_WIDEST:,}", f"{called}(width=720)"
        )
    return max(least, round(float(given)))


def option_error(called: str, option: str, given: object, needs: str, example: str) -> UnknownOptionError:
    """Return the error for an option that a drawing function cannot use.

    Args:
        called: Name of the function called by the user.
        option: Name of the option.
        given: The value that was given.
        needs: Description of valid values.
        example: Code shown after `Try:`.

    Examples:
        >>> print(option_error("cost.treemap", "width", "wide", "a number of px", "cost.treemap(width=720)"))
        cost.treemap cannot take width='wide'.
            needs  a number of px
            Try: cost.treemap(width=720)
    """
    value = " ".join(short_repr(given, 60).split())  # the repr of an array has several lines
    return UnknownOptionError(f"{called} cannot take {option}={value}.", (("needs", needs),), example)


_MOST = 1e150
_NOT_DRAWN = "shown as unknown: numbers that are infinite, NaN, or above 1e150"


def replace_undrawable(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace each number that cannot be drawn by `None`, which means unknown. If there are any, a note is added.

    Examples:
        >>> replace_undrawable({"flops": 3}) == {"flops": 3}
        True
        >>> replace_undrawable({"time_s": float("inf")})
        {'time_s': None, 'notes': ['shown as unknown: numbers that are infinite, NaN, or above 1e150']}
    """
    drawn = finite(data, _MOST)
    if drawn == data:
        return data
    return {**drawn, "notes": [*(drawn.get("notes") or ()), _NOT_DRAWN]}


_MOST_OPEN = 12
"""A table with more rows is collapsed at first."""


@dataclass(frozen=True)
class Numbers:
    """A table of texts. The first text of a row is its name.

    Attributes:
        title: Title of the table.
        rows: The titles of the columns, then the rows.

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
        """The table as plain text, with numbers aligned to the right."""
        _, *rows = self.rows
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
    """A picture for light and dark themes, and a text with the same numbers.

    A notebook shows the picture; `print` and `str` show the text.

    Attributes:
        svg: The picture, as self-contained SVG.
        text: The text, for terminals and screen readers.
        tables: The numbers of the text as tables, which a notebook shows below the picture.
        notes: Notes of the text that do not fit into the picture. A notebook shows them below the tables.

    Examples:
        >>> print(Drawing("<svg/>", "block  FLOPs"))
        block  FLOPs
    """

    svg: str = field(repr=False)
    text: str
    tables: tuple[Numbers, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = field(default=(), repr=False)

    @property
    def html(self) -> str:
        """The picture as HTML that follows the theme of the notebook, with `tables` and `notes` below it."""
        picture = image_html(self.svg, self.text.partition("\n")[0])
        if not (self.tables or self.notes):
            return picture
        tables = "".join(table.html for table in self.tables)
        notes = "".join(f"<p>{escaped(one_line(note))}</p>" for note in self.notes)
        return output_html(f"{picture}{tables}{notes}", "cost", "numbers")

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file as SVG, or, if the name ends in `.txt`, the text.

        Returns:
            The path of the file.

        Raises:
            UnknownOptionError: `path` is no string or `Path`, contains a null character, or has another suffix.
            ModelFileError: The file cannot be written.
        """
        if not isinstance(path, str | Path) or "\0" in str(path):
            needs = "a file name, as a string or pathlib.Path"
            raise option_error("drawing.save", "path", path, needs, 'drawing.save("costs.svg")')
        file = Path(path)
        if file.suffix.lower() not in ("", ".svg", ".txt"):
            needs, advice = "a file name that ends in .svg or .txt", f"drawing.save({str(file.with_suffix('.svg'))!r})"
            raise option_error("drawing.save", "path", str(path), needs, advice)
        write_page(f"{self.text if file.suffix == '.txt' else self.svg}\n", file, 'drawing.save("costs.svg")')
        return file
