"""What XLA writes down of a program: its kernels and, if asked, its passes. Kept in a folder until nobody asks.

The folder goes when Python collects the last value that refers to it, at the latest when Python ends. What a process
that was killed leaves behind is removed by the next one that compiles.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
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
            _sweep()
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
            try:
                held = _hold(folder)
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        except OSError as error:  # A program compiles without such a place, too.
            self._missing = (
                f"there is no place for what XLA writes down ({error.strerror}); "
                "start Python with TMPDIR set to a folder that can be written"
            )
            return
        self.folder = folder
        weakref.finalize(self, _removed, folder, held, os.getpid())

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


def _hold(folder: Path) -> IO[bytes]:
    """Lock a file in the folder: as long as this process lives, the folder is in use."""
    if fcntl is None:
        return open(folder / _HELD, "wb")
    file = open(folder / f"{_HELD}-soon", "wb")
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    Path(file.name).rename(folder / _HELD)  # nobody sees it before it is locked
    return file


def _removed(folder: Path, held: IO[bytes], process: int) -> None:
    if os.getpid() == process:  # a fork has its parent's values, but they are its parent's
        held.close()
        shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Remove what processes left behind that are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            if fcntl is None:
                (folder / _HELD).unlink()  # Windows keeps a file that a process has open
            else:
                with open(folder / _HELD, "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # in use, or just being made, or not ours
        shutil.rmtree(folder, ignore_errors=True)
