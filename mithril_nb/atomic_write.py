"""Atomic writes: a file has its old or its new content, even if the process or the machine stops.

The new content is first written to a temporary folder beside the file. A killed process leaves that folder behind, and
the next write beside it removes the folder. It removes no other folder: a file in the folder contains `MARK`, and its
process locks the file. If the file system has no locks, nothing proves that the process has ended, so the folder stays.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
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
HELD = f"{PREFIX}held"
"""The file in a temporary folder that its process locks."""
MARK = b"temporary folder of mithril_nb for "
"""Start of the content of `HELD`. The name of the file or folder that is written follows."""
LONGEST_WAIT_S = 10.0
"""Maximum time that `folder_lock` waits for another process."""
_TAKEN = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_FAR = 1 << 30
"""Offset of the lock, far behind the content: on Windows no other process can read locked bytes."""


@contextmanager
def replacing(path: str | os.PathLike[str], is_ours: Callable[[Path], bool] | None = None) -> Iterator[Path]:
    """Yield a temporary path to write to, and replace `path` with that file at the end of the `with` block.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/notes.txt") as part:
        ...         _ = part.write_text("whole")
        ...     os.listdir(folder)
        ['notes.txt']
    """
    target = Path(path).absolute() if is_ours else Path(os.path.realpath(path))
    if not is_ours and target.exists() and not target.is_file():
        yield target
        return
    if not is_ours and target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    remove_leftovers(target.parent)
    folder, held = locked_folder(target)
    try:
        part = folder / target.name
        part.touch()
        mode = stat.S_IMODE((target if target.is_file() else part).stat().st_mode)
        yield part
        if stat.S_IMODE(part.stat().st_mode) != mode:
            part.chmod(mode)
        _sync(part, os.O_RDWR)  # Windows syncs only files that are open for writing
        _place(part, target, is_ours)
        if os.name == "posix":  # Windows cannot open a folder
            with suppress(OSError):  # some file systems cannot sync a folder; the file itself is synced
                _sync(target.parent, os.O_RDONLY)
    finally:
        held.close()
        shutil.rmtree(folder, ignore_errors=True)


def _place(part: Path, target: Path, is_ours: Callable[[Path], bool] | None) -> None:
    if is_ours and not is_ours(target):
        try:
            os.link(part, target)  # unlike a rename, this never replaces a file
            return
        except OSError:
            if os.path.lexists(target):
                raise  # otherwise the file system has no hard links
    os.replace(part, target)


@contextmanager
def new_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary folder to fill; at the end of the `with` block, it replaces the folder at `path`.

    Examples:
        >>> with tempfile.TemporaryDirectory() as parent:
        ...     with new_folder(f"{parent}/notes") as part:
        ...         _ = (part / "one.txt").write_text("whole")
        ...     os.listdir(parent), os.listdir(f"{parent}/notes")
        (['notes'], ['one.txt'])
    """
    target = Path(os.path.realpath(path))
    remove_leftovers(target.parent)
    folder, held = locked_folder(target)
    try:
        part = folder / "new"
        part.mkdir()
        yield part
        if target.exists():
            os.replace(target, folder / "old")
        os.replace(part, target)
    finally:
        held.close()
        _discard(folder, target.name)


def _discard(folder: Path, name: str) -> None:
    old = folder / "old"
    if old.exists() and (folder / "new").exists():
        with suppress(OSError):
            os.replace(old, folder.with_name(name))
        if old.exists():
            return
    shutil.rmtree(folder, ignore_errors=True)


def write_text(
    path: str | os.PathLike[str], text: str, errors: str = "strict", is_ours: Callable[[Path], bool] | None = None
) -> None:
    r"""Write a text file atomically, in UTF-8, with `"\n"` at the end of its lines on every platform.

    Examples:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_text(f"{folder}/notes.txt", "whole")
        ...     Path(folder, "notes.txt").read_text()
        'whole'
    """
    with replacing(path, is_ours) as part:
        part.write_text(text, encoding="utf-8", errors=errors, newline="\n")


def remove_leftovers(folder: Path, *, names: str = f"{PREFIX}*{SUFFIX}") -> None:
    """Remove the temporary folders of killed processes."""
    with suppress(OSError):
        for leftover in folder.glob(names):
            with suppress(OSError, ValueError):  # a name that another program wrote may be no name of a file
                _remove_if_dead(leftover)


def _remove_if_dead(folder: Path) -> None:
    if folder.is_symlink() or not stat.S_ISREG((folder / HELD).lstat().st_mode):
        return
    with open(folder / HELD, "r+b") as held:
        about = held.read(len(MARK) + 1000)
        if not about.startswith(MARK) or not lock_file(held):
            return
        name = os.fsdecode(about.removeprefix(MARK))
        if os.name == "posix":  # Windows cannot remove an open file
            _discard(folder, name)
            return
    _discard(folder, name)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Lock a folder while its files are read and replaced, so that concurrent processes lose no update."""
    descriptor = os.open(folder, os.O_RDONLY) if fcntl is not None else None
    try:
        until = time.monotonic() + LONGEST_WAIT_S
        while descriptor is not None and lock_file(descriptor) is False and time.monotonic() < until:
            time.sleep(0.01)
        yield
    finally:
        if descriptor is not None:
            os.close(descriptor)


def open_regular(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """Open a file like `os.open`, but neither through a symbolic link, nor a pipe or device, which could block."""
    if os.path.islink(path):
        raise OSError(errno.ELOOP, "it is a symbolic link", str(path))
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return descriptor


def lock_file(file: IO[bytes] | int) -> bool | None:
    """Lock an open file until it is closed or the process ends."""
    try:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        elif not isinstance(file, int):
            file.seek(_FAR)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue,reportPossiblyUnboundVariable]
    except OSError as error:
        return False if error.errno in _TAKEN else None
    return True


def locked_folder(target: Path, prefix: str = PREFIX, suffix: str = SUFFIX) -> tuple[Path, IO[bytes]]:
    """Return a new temporary folder beside `target`, and an open file in it that is locked while this process lives."""
    folder = Path(tempfile.mkdtemp(suffix, prefix, target.parent))
    held = open(folder / HELD, "wb")
    if lock_file(held):  # before it is marked, because another process removes a marked folder that is not locked
        held.write(MARK + os.fsencode(target.name))
        held.flush()
    return folder, held


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Return the folder for measurements and compilers: `mithril_nb` in the user's cache folder."""
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    usual = {"win32": Path("AppData", "Local"), "darwin": Path("Library", "Caches")}.get(sys.platform, Path(".cache"))
    configured = os.environ.get(variable)
    return (Path(configured) if configured else Path.home() / usual) / "mithril_nb"
