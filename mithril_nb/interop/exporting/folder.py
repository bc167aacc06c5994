"""The registry of export formats, and the folder of an exported program: files, arrays and a README, all or none."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from mithril_nb.atomic_write import new_folder
from mithril_nb.errors import ModelFileError, UnknownOptionError, nearest, short_repr
from mithril_nb.interop.exporting.stored import FILES, StoredProgram
from mithril_nb.interop.safetensors import save_params


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
        (TAKES_NAMES.add if takes_names else TAKES_NAMES.discard)(name)  # it may replace a format that did
        return function

    return register


def format_of(name: str) -> Format:
    """Return the function of a format."""
    if name not in FORMATS:
        near = nearest(name, FORMATS) or "numpy"
        raise UnknownOptionError(
            f"ml.export has no format {short_repr(name)}.",
            (("known", ", ".join(sorted(FORMATS))),),
            f"to={near!r}",
        )
    return FORMATS[name]


_LICENSE = "The code in this folder is yours: use it under any license."
_MARK = "written by mithril_nb"
_ARRAYS = {
    "weights": "the parameters",
    "inputs": "the stored inputs",
    "expected": "the results of JAX for these inputs",
}


def check_folder(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Raise if a folder may not be written. Called before the export, which may take long."""
    target = Path(os.path.realpath(path))  # of a link, the folder that it leads to is replaced
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        readme = target / "README.md"
        text = readme.read_text(encoding="utf-8", errors="replace") if readme.is_file() else ""
        is_ours = target.is_dir() and _MARK in text
        if is_ours and overwrite:
            return
        why = "it is a file" if not target.is_dir() else "it contains files"
        raise ModelFileError(
            f"cannot export to {str(path)!r}.",
            (("because", why if is_ours or not target.is_dir() else f"{why} that ml.export did not write"),),
            "overwrite=True" if is_ours else repr(f"{path}_exported"),
        )
    if not target.parent.is_dir():
        raise _cannot_export(path, os.strerror(errno.ENOENT))


def _cannot_export(path: str | os.PathLike[str], why: str) -> ModelFileError:
    return ModelFileError(
        f"cannot export to {str(path)!r}.", (("because", why),), 'ml.export(model, "exported", to="numpy")'
    )


def write_folder(path: str | os.PathLike[str], contents: Contents, program: StoredProgram) -> Path:
    """Write the folder of a program, and return its path."""
    texts = {"README.md": _readme(contents, program), **contents.files}
    try:
        with new_folder(path) as part:  # a folder beside it, renamed at the end
            for name, content in texts.items():
                (part / name).write_bytes(content if isinstance(content, bytes) else content.encode())
            for file in _stored(contents):
                save_params(program.arrays[file], part / f"{file}.safetensors")
    except OSError as error:
        raise _cannot_export(path, error.strerror or str(error)) from error
    return Path(path)


def _stored(contents: Contents) -> list[str]:
    return [file for file in FILES if file not in contents.replaced]


def _readme(contents: Contents, program: StoredProgram) -> str:
    width = max(len(command) for command, _ in contents.commands)
    commands = "\n".join(f"{command:<{width}}  # {comment}" for command, comment in contents.commands)
    about = {**contents.about, **{f"{file}.safetensors": _ARRAYS[file] for file in _stored(contents)}}
    rows = "\n".join(f"| `{name}` | {text} |" for name, text in about.items())
    notes = f"\n{contents.notes.strip()}\n" if contents.notes else ""
    return f"""# {contents.title}

The code in this folder does not need mithril_nb. It was {_MARK} from the program that JAX traced.

```sh
{commands}
```

| file | contents |
|---|---|
{rows}
{notes}
{_LICENSE}
"""
