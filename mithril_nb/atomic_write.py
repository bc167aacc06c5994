"""Atomic writes: a file has its old content or its new content, whenever the process or the machine stops.

A new content is first written in a temporary folder beside the file. A killed process leaves that folder behind; the
next write beside it removes the folder.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX, SUFFIX = ".mithril_nb-", ".part"
"""Around the random part of a temporary folder's name."""
LONGEST_WRITE_S = 3600.0
"""An older temporary folder belongs to a process that was killed."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to; at the end of the block that file replaces `path`.

    If the block raises, `path` keeps its content. Several processes may write the same file: one of them wins. A path
    that is a device or a pipe is yielded itself.

    Args:
        path: The file to write. Its folder exists. A symbolic link is followed.

    Raises:
        OSError: The file cannot be written.
        ValueError: The path contains a null character.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/notes.txt") as part:
        ...         _ = part.write_text("whole")
        ...     os.listdir(folder)
        ['notes.txt']
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        yield target
        return
    remove_leftovers(target.parent, LONGEST_WRITE_S)
    folder = Path(tempfile.mkdtemp(SUFFIX, PREFIX, target.parent))
    try:
        part = folder / target.name
        yield part
        if target.exists():
            shutil.copymode(target, part)
        _sync(part, os.O_RDWR)  # Windows syncs only what is open for writing
        os.replace(part, target)
        if os.name == "posix":  # Windows cannot open a folder
            with suppress(OSError):  # some file systems cannot sync a folder; the file itself is synced
                _sync(target.parent, os.O_RDONLY)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_text(path: str | os.PathLike[str], text: str, errors: str = "strict") -> None:
    r"""Write a text file atomically, in UTF-8, with `"\n"` at the end of its lines on every platform.

    Args:
        path: The file to write. Its folder exists. A symbolic link is followed.
        text: The whole content.
        errors: Error handler of the encoder, as in `str.encode`.

    Raises:
        OSError: The file cannot be written.
        ValueError: The path contains a null character, or UTF-8 cannot encode the text.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_text(f"{folder}/notes.txt", "whole")
        ...     Path(folder, "notes.txt").read_text()
        'whole'
    """
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8", errors=errors, newline="\n")


def remove_leftovers(folder: Path, older_than_s: float) -> None:
    """Remove temporary folders of killed writes.

    Args:
        folder: The folder of the files that were written.
        older_than_s: Leave younger temporary folders: another process may be using them.
    """
    with suppress(OSError):
        for found in folder.glob(f"{PREFIX}*{SUFFIX}"):
            if time.time() - found.stat().st_mtime >= older_than_s:
                shutil.rmtree(found, ignore_errors=True)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
