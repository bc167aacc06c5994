"""Write the folder of an exported program: files, arrays and a README, all of them or none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from mithril_nb.atomic_write import new_folder
from mithril_nb.errors import ModelFileError
from mithril_nb.interop.exporting.formats import Contents
from mithril_nb.interop.exporting.stored import FILES, StoredProgram
from mithril_nb.interop.safetensors import save_params

_LICENSE = "The code in this folder is yours: use it under any license."
_MARK = "written by mithril_nb"
_ARRAYS = {
    "weights": "the parameters",
    "inputs": "the stored inputs",
    "expected": "the results of JAX for these inputs",
}


def check_folder(path: str | os.PathLike[str], overwrite: bool) -> None:
    """Raise if a folder may not be written. Called before the export, which may take long.

    Raises:
        ModelFileError: `path` is a file, a folder that may not be replaced, or in a folder that does not exist.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        is_ours = target.is_dir() and _MARK in _text(target / "README.md")
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
    """Write the folder of a program, and return its path.

    Raises:
        ModelFileError: The folder cannot be written.
        DataError: An array has a dtype that safetensors does not support.
    """
    texts = {"README.md": _readme(contents, program), **contents.files}
    try:
        with new_folder(path) as part:
            for name, content in texts.items():
                (part / name).write_bytes(content if isinstance(content, bytes) else content.encode())
            for file in _stored(contents):
                save_params(program.arrays[file], part / f"{file}.safetensors")
    except OSError as error:
        raise _cannot_export(path, error.strerror or str(error)) from error
    return Path(path)


def _stored(contents: Contents) -> list[str]:
    return [file for file in FILES if file not in contents.replaced]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


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
