"""The files that XLA writes about a program, and the options that make it write them.

Each process has a folder, with one subfolder per program. A subfolder is removed when its `Dump` is garbage-collected,
at the latest when Python ends. If a process is killed, the next process that compiles a program removes its folder.
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
"""Makes XLA write LLVM IR, and on a GPU PTX.

The expression has `^` and `$`, because `llvm` would also match the passes of Triton: 22 MB instead of 0.8 MB for an
MLP.
"""
PASSES: Mapping[str, Any] = {"xla_dump_hlo_pass_re": ".*"}
"""Makes XLA write the module after every pass that changed it.

With any other expression, XLA also writes it after passes that did not: five times as much text.
"""
NO_MACHINE_CODE: Mapping[str, Any] = {"xla_cpu_parallel_codegen_split_count": 0}
"""Makes XLA for CPUs fail after its passes, before it generates code."""
LEAST_EFFORT: Mapping[str, Any] = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
"""Makes XLA for CPUs skip LLVM's optimizations, which saves 40 % of the time. Module and memory plan stay the same.

`tests/stages/test_compilation.py` checks this for all programs of the corpus.
"""

_PREFIX = "mithril_nb-xla-"
_BEFORE = "before_optimizations.txt"
_AFTER = "after_optimizations"
# End of the name of a file that XLA writes after the optimized module. If it exists, the module is complete.
_LATER = "-buffer-assignment"
# Options that this version of XLA does not have. They are stored, because a rejection takes time.
_unknown: set[str] = set()


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
            with _making:
                home = _homes.get("home")
                if home is None or not home.is_right():
                    home = _homes["home"] = _Home()
                # The home is removed with its last subfolder.
                self._home, self.folder = home, Path(tempfile.mkdtemp(dir=home.folder))
        except OSError as error:  # A program compiles without a folder, too.
            self._missing = (
                f"no folder can be created for the files of XLA ({error.strerror}); "
                "set TMPDIR to a writable folder before you start Python"
            )
            return
        weakref.finalize(self, _removed, self.folder, os.getpid())

    @property
    def prefix(self) -> str:
        """The start of the names of all files of the program, such as `module_0001.jit_step.cpu`."""
        if not self._prefix:
            raise LookupError(self._missing)
        return self._prefix

    def compile(self, compile: Callable[[Mapping[str, Any]], Any], options: Mapping[str, Any]) -> Any:
        """Call `compile` so that XLA writes its files to `folder`; return the compiled program.

        Args:
            compile: Function of XLA options that compiles the program with them.
            options: The user's XLA options.
        """
        self._missing = self.why_not(options) or self._missing
        if self.why_not(options):
            return compile(options)
        try:
            return compile({**options, "xla_dump_to": str(self.folder)})
        finally:  # some files exist even if XLA fails
            self._find_prefix()

    def why_not(self, options: Mapping[str, Any]) -> str:
        """Return the reason why XLA will not write its files to `folder`; `""` if it will."""
        if "xla_dump_to" in options:
            return (
                f"XLA writes its files to {str(options['xla_dump_to'])!r}; "
                "remove 'xla_dump_to' from the compiler options to read them here"
            )
        return self._missing if self.folder is None else ""

    def optimized(self) -> str | None:
        """Return the text of the optimized module; `None` if its file is missing or not complete yet."""
        # The file is complete before XLA generates code, so this can be called while another thread compiles.
        if self.folder is None:
            return None
        self._find_prefix()
        if not self._prefix:
            return None
        complete = [name for name in self.names("txt") if name.endswith(_AFTER + _LATER)]
        return self.text(complete[0].removesuffix(_LATER), "txt") if complete else None

    def _find_prefix(self) -> None:
        assert self.folder is not None
        # XLA also compiles small modules to fold constants. The largest module is the program.
        starts = sorted(self.folder.glob(f"*.{_BEFORE}"), key=lambda path: path.stat().st_size)
        self._prefix = starts[-1].name.removesuffix(f".{_BEFORE}") if starts else ""

    def names(self, ending: str) -> list[str]:
        """Return the middle part of each file name `PREFIX.MIDDLE.ENDING`, sorted; `""` for `PREFIX.ENDING`."""
        prefix = self.prefix
        assert self.folder is not None

        names = (path.name.removeprefix(prefix) for path in self.folder.glob(f"{glob.escape(prefix)}.*"))
        return sorted(name.removesuffix(f".{ending}")[1:] for name in names if name.endswith(f".{ending}"))

    def path(self, *parts: str) -> Path:
        """Return the path of the file `PREFIX.PART.PART...`; empty parts are skipped."""
        assert self.folder is not None
        return self.folder / ".".join((self.prefix, *filter(None, parts)))

    def text(self, *parts: str) -> str:
        """Return the text of the file `PREFIX.PART.PART...`."""
        return self.path(*parts).read_text(encoding="utf-8", errors="replace")


class _Home:
    def __init__(self) -> None:
        parent = Path(tempfile.gettempdir())
        remove_leftovers(parent, names=f"{_PREFIX}*")
        self.folder, held = locked_folder(parent / _PREFIX, _PREFIX, "")
        self.process = os.getpid()
        weakref.finalize(self, _removed, self.folder, self.process, held)
        if lock_file(held) is None:  # without a lock, no other process removes the folder of a killed process
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    def is_right(self) -> bool:
        is_here = self.process == os.getpid() and self.folder.parent == Path(tempfile.gettempdir())
        return is_here and (self.folder / HELD).exists()  # not just the folder, which XLA creates if it is missing


_making = threading.Lock()
# The home of this process under the key `"home"`. It is removed when no `Dump` uses it.
_homes: weakref.WeakValueDictionary[str, _Home] = weakref.WeakValueDictionary()


def _removed(folder: Path, process: int, held: IO[bytes] | None = None) -> None:
    if os.getpid() == process:  # a forked process must not remove the folders of its parent
        if held is not None:
            held.close()
        shutil.rmtree(folder, ignore_errors=True)


def compile_with(
    ours: Mapping[str, Any], options: Mapping[str, Any], compile: Callable[[Mapping[str, Any]], Made]
) -> Made:
    """Compile a program with our options and the user's.

    Args:
        ours: Our options.
        options: The user's options.
        compile: Function of XLA options that compiles the program with them.
    """
    # Leave out options of ours that this version of XLA lacks.
    supported = {name: value for name, value in ours.items() if name not in _unknown}
    while True:
        try:
            return compile({**supported, **options})
        except Exception as error:  # an unknown option is rejected before XLA starts
            refused = [
                name for name in supported if name not in options and f"No such compile option: '{name}'" in str(error)
            ]
            if not refused:
                raise
            _unknown.add(refused[0])
            del supported[refused[0]]
