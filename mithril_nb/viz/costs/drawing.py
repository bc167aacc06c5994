"""A finished picture and its twin as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mithril_nb.atomic_write import write_text
from mithril_nb.display import Shown
from mithril_nb.errors import ModelFileError
from mithril_nb.viz.costs.numbers import Numbers, cell_html
from mithril_nb.viz.costs.options import refusal


@dataclass(frozen=True)
class Drawing(Shown):
    """A picture that stands by itself, in light and dark, and the same as text.

    A notebook shows it; `print` and `str` give the text.

    Attributes:
        svg: The picture, as SVG that needs nothing else.
        text: What it shows, for terminals and for readers that hear the page.
        tables: The numbers of the text, for a cell to show below the picture.
        notes: What else the text says, and the picture has no room for.

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
        """The picture as light or dark as the page around it, with its numbers below where it has tables."""
        return cell_html(self.svg, self.text.partition("\n")[0], self.tables, self.notes)

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file; one that ends in `.txt` gets the text.

        Returns:
            Where it was written.

        Raises:
            UnknownOptionError: It is no name of a file.
            ModelFileError: The file cannot be written.
        """
        if not isinstance(path, str | Path) or "\0" in str(path):
            needs = "the name of a file, as a text or a pathlib.Path"
            raise refusal("drawing.save", "path", path, needs, 'drawing.save("costs.svg")')
        file = Path(path)
        try:
            write_text(file, f"{self.text if file.suffix == '.txt' else self.svg}\n")
        except OSError as error:
            raise ModelFileError(
                f"the picture cannot be written to {str(file)!r}.",
                (("reason", error.strerror or str(error)),),
                'drawing.save("costs.svg")',
            ) from error
        return file
