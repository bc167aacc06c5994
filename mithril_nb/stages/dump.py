"""What XLA writes down while it compiles one program: every pass, every kernel. Kept in a folder until nobody asks.

The folder goes with the last value that refers to it, at the latest when Python ends. What a process leaves behind
that was killed is removed by the next one that compiles.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows, where a folder with an open file cannot be removed anyway
    fcntl = None

_PREFIX = "mithril_nb-xla-"
_HELD = "held"
_BEFORE = "before_optimizations.txt"
_WISHES = {"xla_dump_hlo_pass_re": ".*", "xla_dump_emitter_re": "llvm", "xla_dump_compact_gte": False}
"""Write every pass; LLVM IR too; and write `get-tuple-element`s out, as `compiled.as_text()` does."""


class Dump:
    """The files that XLA wrote while it compiled a program.

    Attributes:
        folder: Where they are.
        prefix: What the names of all files of the program begin with; `""` if there are none.
    """

    def __init__(self) -> None:
        _sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        held = _hold(self.folder)
        self._remove = weakref.finalize(self, _removed, self.folder, held, os.getpid())
        self.prefix = ""

    def compile(self, lower: Callable[[Mapping[str, Any]], Any], options: Mapping[str, Any]) -> Any:
        """Compile and keep what XLA writes.

        Args:
            lower: Compiles with the options it is given.
            options: What else XLA is told. Who gives `xla_dump_to` has the files there, and none here.

        Returns:
            What `lower` gives.
        """
        if "xla_dump_to" in options:
            return lower(options)
        wishes: dict[str, Any] = {**_WISHES, **options, "xla_dump_to": str(self.folder)}
        while True:
            try:
                compiled = lower(wishes)
                break
            except Exception as error:  # An XLA that does not know one of the wishes says so before it starts.
                unknown = [name for name in _WISHES if f"No such compile option: '{name}'" in str(error)]
                if not unknown:
                    raise
                del wishes[unknown[0]]
        starts = sorted(self.folder.glob(f"*.{_BEFORE}"), key=lambda path: path.stat().st_size)
        self.prefix = starts[-1].name[: -len(_BEFORE)] if starts else ""
        return compiled

    def names(self, ending: str) -> list[str]:
        """Return what stands between `prefix` and an ending in the names of the files that have both, sorted."""
        if not self.prefix:
            return []
        start, end = len(self.prefix), len(ending)
        found = (path.name for path in self.folder.iterdir())
        return sorted(name[start:-end] for name in found if name.startswith(self.prefix) and name.endswith(ending))

    def path(self, name: str) -> Path:
        """Return the path of a file by its name after `prefix`."""
        return self.folder / f"{self.prefix}{name}"

    def text(self, name: str) -> str:
        """Return the text of a file by its name after `prefix`."""
        return self.path(name).read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        """Remove the files now."""
        self._remove()


def _hold(folder: Path) -> IO[bytes]:
    """Open a file in the folder and lock it: as long as this process lives, the folder is in use."""
    file = open(folder / _HELD, "wb")
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return file


def _removed(folder: Path, held: IO[bytes], process: int) -> None:
    if os.getpid() == process:  # a fork has its parent's values, but they are its parent's
        held.close()
        shutil.rmtree(folder, ignore_errors=True)


def _sweep() -> None:
    """Remove what processes left behind that are gone."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            with open(folder / _HELD, "rb") as file:
                if fcntl is not None:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # in use, or just being made, or not ours
        shutil.rmtree(folder, ignore_errors=True)
