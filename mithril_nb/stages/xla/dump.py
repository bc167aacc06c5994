"""What XLA writes down of a program: its kernels and, if asked, its passes. Kept in a folder until nobody asks.

The folder is one of several in that of this process, and goes when Python collects the last value that refers to it, at
the latest when Python ends. What a process that was killed leaves behind is removed by the next one that compiles.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

_PREFIX = "mithril_nb-xla-"
_HELD = "held"
_BEFORE = "before_optimizations.txt"
_AFTER = "after_optimizations"
_LATER = "-buffer-assignment"
"""What is written when the optimized module is: then that file is whole."""
_LONG_S = 3600.0
"""So long after it was made nobody is about to lock a folder."""


class Dump:
    """The files that XLA wrote while it compiled a program.

    Attributes:
        folder: Where they are; `None` if there is no place for them.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self._prefix = ""
        self._missing = "XLA wrote nothing down when it compiled this program"
        try:
            self._home, self.folder = _place()  # the home goes with the last that lies in it
        except OSError as error:  # A program compiles without such a place, too.
            self._missing = (
                f"there is no place for what XLA writes down ({error.strerror}); "
                "start Python with TMPDIR set to a folder that can be written"
            )
            return
        weakref.finalize(self, _removed, self.folder, os.getpid())

    @property
    def prefix(self) -> str:
        """What the names of all files of the program begin with, without the dot that follows.

        Raises:
            LookupError: There are none; it says why.
        """
        if not self._prefix:
            raise LookupError(self._missing)
        return self._prefix

    def compile(self, compile: Callable[[Mapping[str, Any]], Any], options: Mapping[str, Any]) -> Any:
        """Compile and keep what XLA writes.

        Args:
            compile: Compiles with the options it is given.
            options: What XLA is told. Who gives `xla_dump_to` has the files there, and none here.

        Returns:
            What `compile` gives.
        """
        self._missing = self.why_not(options) or self._missing
        if self.why_not(options):
            return compile(options)
        try:
            return compile({**options, "xla_dump_to": str(self.folder)})
        finally:  # The passes are there even if XLA did not come to its end.
            self._find_prefix()

    def why_not(self, options: Mapping[str, Any]) -> str:
        """Return why XLA will write nothing here if it is told these options; `""` if it will."""
        if "xla_dump_to" in options:
            return (
                f"XLA was told to write to {str(options['xla_dump_to'])!r}; "
                "leave 'xla_dump_to' out of the compiler options to have here what it writes"
            )
        return self._missing if self.folder is None else ""

    def optimized(self) -> str | None:
        """Return the module that XLA's passes have made, as soon as it lies there: they come before machine code.

        May be asked while another thread compiles. `None` as long as it is not there.
        """
        if self.folder is None:
            return None
        self._find_prefix()
        if not self._prefix:
            return None
        whole = [name for name in self.names("txt") if name.endswith(_AFTER + _LATER)]
        return self.text(whole[0].removesuffix(_LATER), "txt") if whole else None

    def _find_prefix(self) -> None:
        assert self.folder is not None
        # What is compiled on the way for constants is smaller than the program.
        starts = sorted(self.folder.glob(f"*.{_BEFORE}"), key=lambda path: path.stat().st_size)
        self._prefix = starts[-1].name.removesuffix(f".{_BEFORE}") if starts else ""

    def names(self, ending: str) -> list[str]:
        """Return what stands between `prefix` and an ending in the names of the files that have both, sorted.

        Of a file that has nothing in between, as a GPU's one file for all of its kernels, that is `""`.
        """
        prefix = self.prefix
        assert self.folder is not None
        # With the dots on both sides, of which `jit_f.ptx` has but one.
        found = (path.name.removeprefix(prefix) for path in self.folder.glob(f"{glob.escape(prefix)}.*"))
        return sorted(name.removesuffix(f".{ending}")[1:] for name in found if name.endswith(f".{ending}"))

    def path(self, *parts: str) -> Path:
        """Return the path of a file by what its name has after `prefix`; empty parts do not count."""
        assert self.folder is not None
        return self.folder / ".".join((self.prefix, *filter(None, parts)))

    def text(self, *parts: str) -> str:
        """Return the text of a file by what its name has after `prefix`."""
        return self.path(*parts).read_text(encoding="utf-8", errors="replace")


class _Home:
    """The folder of this process, in which those of its dumps are: one lock says of all that they are in use."""

    def __init__(self) -> None:
        _sweep()
        self.folder, self.process = Path(tempfile.mkdtemp(prefix=_PREFIX)), os.getpid()
        try:
            held = _hold(self.folder)
        except OSError:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        weakref.finalize(self, _removed, self.folder, self.process, held)

    def is_right(self) -> bool:
        """Whether it is there, and is where this process puts such things: a fork has its parent's."""
        is_here = self.process == os.getpid() and self.folder.parent == Path(tempfile.gettempdir())
        return is_here and (self.folder / _HELD).exists()


_making = threading.Lock()
_homes: weakref.WeakValueDictionary[str, _Home] = weakref.WeakValueDictionary()
"""The home of this process as `"home"`, as long as something lies in it."""


def _place() -> tuple[_Home, Path]:
    """Return a new folder, and the home that it is in."""
    with _making:
        home = _homes.get("home")
        if home is None or not home.is_right():
            home = _homes["home"] = _Home()
        return home, Path(tempfile.mkdtemp(dir=home.folder))


def _hold(folder: Path) -> IO[bytes]:
    """Lock a file in the folder: as long as this process lives, the folder is in use."""
    if fcntl is None:
        return open(folder / _HELD, "wb")
    file = open(folder / f"{_HELD}-soon", "wb")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    Path(file.name).rename(folder / _HELD)  # nobody sees it before it is locked
    return file


def _removed(folder: Path, process: int, held: IO[bytes] | None = None) -> None:
    if os.getpid() == process:  # a fork has its parent's values, but they are its parent's
        if held is not None:
            held.close()
        shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Remove what processes left behind that are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if not _is_without_owner(folder):
                _check_lock(folder / _HELD)
        except OSError:
            continue  # in use, or just being made, or not ours
        shutil.rmtree(folder, ignore_errors=True)


def _check_lock(held: Path) -> None:
    if fcntl is None:
        held.unlink()  # Windows keeps a file that a process has open
        return
    with open(held, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_without_owner(folder: Path) -> bool:
    """Whether a folder was made anew by an XLA that wrote on while its process ended: nobody ever locks it."""
    if folder.is_symlink() or not folder.is_dir() or (folder / _HELD).exists():
        return False
    return time.time() - folder.stat().st_mtime > _LONG_S
