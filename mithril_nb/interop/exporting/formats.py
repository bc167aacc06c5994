"""The registry of export formats: each is a function that returns the files of a program's folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mithril_nb.errors import UnknownOptionError, nearest, short_repr
from mithril_nb.interop.exporting.stored import StoredProgram


@dataclass(frozen=True)
class Contents:
    """The files that a format writes. `ml.export` adds the README, and the weights, inputs and results as safetensors.

    Attributes:
        title: Title of the README: `"forward in NumPy"`.
        files: The content of each file, by name.
        about: A description of each file in one line, by name, for the README.
        commands: Two pairs of a command and a comment for the README: to install or compile, and to test.
        notes: A further paragraph of the README, in Markdown.
        replaced: Safetensors files that are not written because `files` contains their arrays: `("weights",)`.
    """

    title: str
    files: Mapping[str, str | bytes]
    about: Mapping[str, str]
    commands: tuple[tuple[str, str], tuple[str, str]]
    notes: str = ""
    replaced: tuple[str, ...] = ()


Format = Callable[[StoredProgram], Contents]
FORMATS: dict[str, Format] = {}
"""The function of each format, by name."""
TAKES_NAMES: set[str] = set()
"""The formats that keep symbolic sizes, such as `"batch"`."""
TESTED = "compares its results for the stored inputs with those of JAX"
"""Comment on the second command of the README, which runs the test."""


def export_format(name: str, takes_names: bool = False) -> Callable[[Format], Format]:
    """Register a format of `ml.export`.

    Args:
        name: Name of the format, the value of `to=`. A second function for the same name replaces the first.
        takes_names: True if the format keeps symbolic sizes, such as `"batch"`.

    Examples:
        >>> @export_format("lines")
        ... def lines(program):
        ...     count = len(program.traced.equations)
        ...     return Contents("lines", {"count.txt": f"{count}"}, {}, (("cat count.txt", ""), ("true", "")))
        >>> _ = FORMATS.pop("lines")
    """

    def register(function: Format) -> Format:
        FORMATS[name] = function
        (TAKES_NAMES.add if takes_names else TAKES_NAMES.discard)(name)
        return function

    return register


def format_of(name: str) -> Format:
    """Return the function of a format.

    Raises:
        UnknownOptionError: No format has this name.
    """
    if name not in FORMATS:
        near = nearest(name, FORMATS) or "numpy"
        raise UnknownOptionError(
            f"ml.export has no format {short_repr(name)}.",
            (("known", ", ".join(sorted(FORMATS))),),
            f"to={near!r}",
        )
    return FORMATS[name]
