"""Atomic writes: a file has its old or its new content, even if the process or the machine stops.

The new content is first written to a temporary folder beside the file. A killed process leaves that folder behind, and
the next write beside it removes the folder.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None
    import msvcrt

PREFIX, SUFFIX = ".mithril_nb-", ".part"
"""Prefix and suffix of a temporary folder's name, around the random part."""
LONGEST_WRITE_S = 3600.0
"""Without file locks, a temporary folder older than this is assumed to belong to a killed process."""
HELD = f"{PREFIX}held"
"""The file in a temporary folder that its process locks."""
_TAKEN = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_FAR = 1 << 30
"""Offset of the lock, far behind the content: on Windows no other process can read locked bytes."""


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path to write to, and replace `path` with that file at the end of the `with` block.

    If the `with` block raises, `path` keeps its content. If several processes write the same file, one of them wins. A
    path to a device or a pipe is yielded unchanged.

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
    remove_leftovers(target.parent)
    folder, held = locked_folder(target.parent)
    try:
        part = folder / target.name
        yield part
        if target.exists():
            shutil.copymode(target, part)
        _sync(part, os.O_RDWR)  # Windows syncs only files that are open for writing
        os.replace(part, target)
        if os.name == "posix":  # Windows cannot open a folder
            with suppress(OSError):  # some file systems cannot sync a folder; the file itself is synced
                _sync(target.parent, os.O_RDONLY)
    finally:
        held.close()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder to fill; at the end of the `with` block, it replaces the folder at `path`.

    If the `with` block raises, nothing is written, and a folder at `path` stays.

    Args:
        path: The folder to write. Its parent exists.

    Raises:
        OSError: The folder cannot be written.

    Examples:
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     with new_folder(f"{parent}/notes") as part:
        ...         _ = (part / "one.txt").write_text("whole")
        ...     os.listdir(parent), os.listdir(f"{parent}/notes")
        (['notes'], ['one.txt'])
    """
    target = Path(os.path.realpath(path))
    remove_leftovers(target.parent)
    folder, held = locked_folder(target.parent)
    try:
        part, old = folder / "new", folder / "old"
        part.mkdir()
        yield part
        if target.exists():
            os.replace(target, old)
        try:
            os.replace(part, target)
        except OSError:
            if old.exists():
                os.replace(old, target)
            raise
    finally:
        held.close()
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


def remove_leftovers(folder: Path, *, is_exclusive: bool = False, names: str = f"{PREFIX}*{SUFFIX}") -> None:
    """Remove the temporary folders of killed processes.

    Args:
        folder: The folder that contains them.
        is_exclusive: True to remove all temporary folders, if no other process writes there. By default, folders that
            running processes have locked stay.
        names: Pattern of the names of temporary folders, for `Path.glob`.
    """
    with suppress(OSError):
        for found in folder.glob(names):
            if is_exclusive or _is_abandoned(found):
                shutil.rmtree(found, ignore_errors=True)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock a folder while its files are read and replaced, so that concurrent processes lose no update.

    If another process holds the lock for more than a second, the `with` block runs without the lock. It always does on
    Windows, which cannot lock a folder.
    """
    descriptor = os.open(folder, os.O_RDONLY) if fcntl is not None else None
    try:
        until = time.monotonic() + 1.0
        while descriptor is not None and lock_file(descriptor) is False and time.monotonic() < until:
            time.sleep(0.01)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def lock_file(file: IO[bytes] | int) -> bool | None:
    """Lock an open file until it is closed or the process ends.

    Returns:
        True if this process now has the lock; False if another process has it; `None` if the file system does not
        support locks.
    """
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif not isinstance(file, int):
            file.seek(_FAR)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue,reportPossiblyUnboundVariable]
    except OSError as error:
        return False if error.errno in _TAKEN else None
    return True


def locked_folder(parent: Path, prefix: str = PREFIX, suffix: str = SUFFIX) -> tuple[Path, IO[bytes]]:
    """Return a new temporary folder, and an open file in it that stays locked while this process lives."""
    while True:
        folder = Path(tempfile.mkdtemp(suffix, prefix, parent))
        with suppress(FileNotFoundError):  # another process removed it as a leftover before it was locked
            held = open(folder / HELD, "wb")
            if lock_file(held) is not False and (folder / HELD).exists():
                return folder, held
            held.close()


def _is_abandoned(folder: Path) -> bool:
    with suppress(OSError), open(folder / HELD, "r+b") as held:
        is_locked = lock_file(held)
        if is_locked and os.name == "posix":  # Windows cannot remove an open file
            shutil.rmtree(folder, ignore_errors=True)
        if is_locked is not None:
            return is_locked
    with suppress(OSError):
        folder.rmdir()  # empty: its process was killed, or has not locked it yet and will create another
        return True
    with suppress(OSError):
        return time.time() - folder.stat().st_mtime > LONGEST_WRITE_S
    return False


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
