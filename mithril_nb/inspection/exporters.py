"""File formats that an inspection can be saved in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mithril_nb.atomic_write import write_text
from mithril_nb.errors import ModelFileError, UnknownOptionError, nearest, short_repr

if TYPE_CHECKING:
    from mithril_nb.stages.program_stages import ProgramStages

Exporter = Callable[..., str]
"""Returns the text of the file, given the inspection."""
Function = TypeVar("Function", bound=Exporter)
_EXPORTERS: dict[str, Exporter] = {}


def exporter(suffix: str) -> Callable[[Function], Function]:
    """Register the function that writes files with a suffix.

    Args:
        suffix: The suffix with its dot, in lower case: `".csv"`. A second function for the same suffix replaces the
            first.

    Raises:
        UnknownOptionError: The suffix is invalid.

    Examples:
        >>> @exporter(".names")
        ... def names(inspection):
        ...     return " ".join(inspection.stages)
        >>> _ = _EXPORTERS.pop(".names")
    """
    if not isinstance(suffix, str) or not suffix.startswith(".") or Path(f"file{suffix}").suffix != suffix.lower():
        raise UnknownOptionError(
            f"{short_repr(suffix)} is not a suffix of files.",
            (("needs", "a dot and lower-case letters"),),
            'exporter(".csv")',
        )

    def register(function: Function) -> Function:
        _EXPORTERS[suffix] = function
        return function

    return register


def save(inspection: ProgramStages, path: str | Path) -> Path:
    """Write an inspection to a file in the format of its suffix; see `Inspection.save`."""
    suffix = Path(path).suffix.lower()
    if suffix not in _EXPORTERS:
        near = nearest(suffix, list(_EXPORTERS)) or ".html"
        raise UnknownOptionError(
            f"cannot save {str(path)!r}: no file format has the suffix {suffix!r}.",
            (("known", ", ".join(sorted(_EXPORTERS))),),
            f"inspection.save({str(Path(path).with_suffix(near))!r})",
        )
    text = _EXPORTERS[suffix](inspection)
    try:
        write_text(path, text)
    except OSError as error:
        raise ModelFileError(
            f"cannot write {str(path)!r}.",
            (("because", error.strerror or str(error)),),
            f'inspection.save("inspection{suffix}")',
        ) from error
    return Path(path)
