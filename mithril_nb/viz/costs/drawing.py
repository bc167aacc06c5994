"""A finished picture with its text."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mithril_nb.atomic_write import write_text
from mithril_nb.display import Shown
from mithril_nb.errors import ModelFileError
from mithril_nb.viz.costs.numbers import Numbers, cell_html
from mithril_nb.viz.costs.options import option_error


@dataclass(frozen=True)
class Drawing(Shown):
    """A self-contained picture for light and dark themes, with the same content as text.

    A notebook shows the picture; `print` and `str` give the text.

    Attributes:
        svg: The picture, as self-contained SVG.
        text: Its content, for terminals and screen readers.
        tables: The numbers of the text, shown below the picture in a cell.
        notes: Notes of the text for which the picture has no room.

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
        """The picture as HTML that follows the page's theme, with its tables and notes below."""
        return cell_html(self.svg, self.text.partition("\n")[0], self.tables, self.notes)

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file; a file that ends in `.txt` gets the text.

        Returns:
            The path of the file.

        Raises:
            UnknownOptionError: `path` is not a file name.
            ModelFileError: The file cannot be written.
        """
        if not isinstance(path, str | Path) or "\0" in str(path):
            needs = "a file name, as a string or pathlib.Path"
            raise option_error("drawing.save", "path", path, needs, 'drawing.save("costs.svg")')
        file = Path(path)
        try:
            write_text(file, f"{self.text if file.suffix == '.txt' else self.svg}\n")
        except OSError as error:
            raise ModelFileError(
                f"cannot write the picture to {str(file)!r}.",
                (("reason", error.strerror or str(error)),),
                'drawing.save("costs.svg")',
            ) from error
        return file
