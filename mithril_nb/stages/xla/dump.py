"""The files that XLA writes about a program, and the options that make it write them.

The files of each program are in a subfolder of this process's folder. A subfolder is removed when Python collects the
last value that refers to it, at the latest when Python ends. The next process that compiles removes the folder of a
process that was killed.
"""

from __future__ import annotations

import errno
import glob
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypeVar

from mithril_nb.atomic_write import HELD, lock_file, locked_folder, remove_leftovers

Made = TypeVar("Made")

FILES: Mapping[str, Any] = {"xla_dump_compact_gte": False}
"""Makes XLA write each `get-tuple-element` on its own line, as `compiled.as_text()` does."""
KERNELS: Mapping[str, Any] = {"xla_dump_emitter_re": "^(llvm|ptx)$"}
"""Makes XLA write LLVM IR, and on a GPU PTX. `llvm` alone also matches Triton's passes: 22 MB for a small MLP, not 0.8.
"""
PASSES: Mapping[str, Any] = {"xla_dump_hlo_pass_re": ".*"}
"""Makes XLA write every pass. Any other expression adds passes that changed nothing: five times as much text."""
NO_MACHINE_CODE: Mapping[str, Any] = {"xla_cpu_parallel_codegen_split_count": 0}
"""Makes a CPU's compiler fail after its passes and before it generates code."""
LEAST_EFFORT: Mapping[str, Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""With this a CPU's compiler makes the same module and memory plan, but LLVM does not optimize the code, which saves
40 % of the time. `tests/stages/test_compilation.py` checks this for the programs of the corpus."""

_PREFIX = "mithril_nb-xla-"
_BEFORE = "before_optimizations.txt"
_AFTER = "after_optimizations"
_LATER = "-buffer-assignment"
"""A file written together with the optimized module; once it exists, the file of the module is complete."""
_unknown: set[str] = set()
"""Options that this XLA version rejected; another rejection would take as long as lowering a small program."""


class Dump:
    """The files that XLA wrote while it compiled a program.

    Attributes:
        folder: Folder of the files; `None` if no folder can be created.
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self._prefix = ""
        self._missing = "XLA wrote no files when it compiled this program"
        try:
            self._home, self.folder = _place()  # the home is removed with its last subfolder
        except OSError as error:  # A program compiles without a folder, too.
            self._missing = (
                f"no folder can be created for the files of XLA ({error.strerror}); "
                "set TMPDIR to a writable folder before you start Python"
            )
            return
        weakref.finalize(self, _removed, self.folder, os.getpid())

    @property
    def prefix(self) -> str:
        """Prefix of the names of all files of the program, without the dot that follows.

        Raises:
            LookupError: No files exist; the message states the reason.
        """
        if not self._prefix:
            raise LookupError(self._missing)
        return self._prefix

    def compile(self, compile: Callable[[Mapping[str, Any]], Any], options: Mapping[str, Any]) -> Any:
        """Compile a program, and keep the files that XLA writes.

        Args:
            compile: Compiles the program with the options it receives.
            options: XLA options. If `xla_dump_to` is one of them, XLA writes the files to that folder instead.

        Returns:
            The result of `compile`.
        """
        self._missing = self.why_not(options) or self._missing
        if self.why_not(options):
            return compile(options)
        try:
            return compile({**options, "xla_dump_to": str(self.folder)})
        finally:  # The passes are written even if XLA fails later.
            self._find_prefix()

    def why_not(self, options: Mapping[str, Any]) -> str:
        """Return the reason why XLA will write no files to `folder` with these options; `""` if it will write them."""
        if "xla_dump_to" in options:
            return (
                f"XLA writes its files to {str(options['xla_dump_to'])!r}; "
                "remove 'xla_dump_to' from the compiler options to read them here"
            )
        return self._missing if self.folder is None else ""

    def optimized(self) -> str | None:
        """Return the optimized module as soon as its file is complete, which is before code generation.

        May be called while another thread compiles. Return `None` as long as the file is incomplete.
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
        # Modules compiled meanwhile to fold constants are smaller than the program.
        starts = sorted(self.folder.glob(f"*.{_BEFORE}"), key=lambda path: path.stat().st_size)
        self._prefix = starts[-1].name.removesuffix(f".{_BEFORE}") if starts else ""

    def names(self, ending: str) -> list[str]:
        """Return the part of each file name between `prefix` and an ending, sorted.

        The part is `""` for a file with nothing in between, such as a GPU's one file for all of its kernels.
        """
        prefix = self.prefix
        assert self.folder is not None
        # A dot is on both sides of the part; `jit_f.ptx` has only one.
        found = (path.name.removeprefix(prefix) for path in self.folder.glob(f"{glob.escape(prefix)}.*"))
        return sorted(name.removesuffix(f".{ending}")[1:] for name in found if name.endswith(f".{ending}"))

    def path(self, *parts: str) -> Path:
        """Return the path of a file from the parts of its name after `prefix`; empty parts are skipped."""
        assert self.folder is not None
        return self.folder / ".".join((self.prefix, *filter(None, parts)))

    def text(self, *parts: str) -> str:
        """Return the text of a file from the parts of its name after `prefix`."""
        return self.path(*parts).read_text(encoding="utf-8", errors="replace")


class _Home:
    """The folder of this process, which contains all of its dumps: one lock marks them all as in use."""

    def __init__(self) -> None:
        parent = Path(tempfile.gettempdir())
        remove_leftovers(parent, names=f"{_PREFIX}*")
        self.folder, held = locked_folder(parent, _PREFIX, "")
        self.process = os.getpid()
        weakref.finalize(self, _removed, self.folder, self.process, held)
        if lock_file(held) is None:  # other processes would remove the folder after an hour
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    def is_right(self) -> bool:
        """Return whether the folder exists and belongs to this process: a fork inherits its parent's."""
        is_here = self.process == os.getpid() and self.folder.parent == Path(tempfile.gettempdir())
        return is_here and (self.folder / HELD).exists()  # XLA may have created a removed folder again


_making = threading.Lock()
_homes: weakref.WeakValueDictionary[str, _Home] = weakref.WeakValueDictionary()
"""The home of this process under the key `"home"`, as long as it contains a dump."""


def _place() -> tuple[_Home, Path]:
    """Return the home of this process, and a new folder in it."""
    with _making:
        home = _homes.get("home")
        if home is None or not home.is_right():
            home = _homes["home"] = _Home()
        return home, Path(tempfile.mkdtemp(dir=home.folder))


def _removed(folder: Path, process: int, held: IO[bytes] | None = None) -> None:
    if os.getpid() == process:  # a fork inherits its parent's values, but must not remove their folders
        if held is not None:
            held.close()
        shutil.rmtree(folder, ignore_errors=True)


def compile_with(
    ours: Mapping[str, Any], options: Mapping[str, Any], compile: Callable[[Mapping[str, Any]], Made]
) -> Made:
    """Compile a program with our options, except options that this XLA version does not support.

    Args:
        ours: Our options.
        options: The user's options. They take precedence, and errors about them are raised.
        compile: Compiles the program with the options it receives.

    Raises:
        Exception: The error of XLA, if the program does not compile.
    """
    known = {name: value for name, value in ours.items() if name not in _unknown}
    while True:
        try:
            return compile({**known, **options})
        except Exception as error:  # An XLA that does not support an option raises before it starts.
            refused = [
                name for name in known if name not in options and f"No such compile option: '{name}'" in str(error)
            ]
            if not refused:
                raise
            _unknown.add(refused[0])
            del known[refused[0]]
