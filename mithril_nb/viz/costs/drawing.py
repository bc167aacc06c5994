"""A finished picture and its twin as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from mithril_nb.display import Shown
from mithril_nb.errors import ModelFileError


@dataclass(frozen=True)
class Drawing(Shown):
    """A picture that stands by itself, in light and dark, and the same as text.

    A notebook shows it; `print` and `str` give the text.

    Attributes:
        svg: The picture, as SVG that needs nothing else.
        text: What it shows, for terminals and for readers that hear the page.

    Examples:
        >>> print(Drawing("<svg/>", "block  FLOPs"))
        block  FLOPs
    """

    svg: str = field(repr=False)
    text: str

    def save(self, path: str | Path) -> Path:
        """Write the picture to a file; one that ends in `.txt` gets the text.

        Returns:
            Where it was written.

        Raises:
            ModelFileError: The file cannot be written.
        """
        file = Path(path)
        try:
            file.write_text(f"{self.text if file.suffix == '.txt' else self.svg}\n", encoding="utf-8", newline="\n")
        except OSError as error:
            raise ModelFileError(
                f"the picture cannot be written to {str(file)!r}.",
                (("reason", error.strerror or str(error)),),
                'drawing.save("costs.svg")',
            ) from error
        return file
