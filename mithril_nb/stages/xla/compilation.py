"""Compile a program with XLA, and read only those files that are requested.

- On a CPU, generating optimized code takes 40 % of the time of XLA. Costs and memory do not depend on it. If only these
  are requested, XLA compiles with the least effort.
- Writing kernels and the memory plan makes a small program 20 % slower to compile. Writing all passes makes a large one
  50 % slower.
- Files that are requested after the compilation come from a second compilation of the same program. If only the passes
  are missing, it stops before code generation.
- The optimized module is read while XLA still generates code.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Generic, TypeVar

import jax

from mithril_nb.jobs import JobQueue, Wanted
from mithril_nb.stages import jax_jit
from mithril_nb.stages.hlo.text import fingerprint
from mithril_nb.stages.once import Once, paused_collector
from mithril_nb.stages.records import Read
from mithril_nb.stages.xla.dump import FILES, KERNELS, LEAST_EFFORT, NO_MACHINE_CODE, PASSES, Dump, compile_with
from mithril_nb.stages.xla.passes import Histories, Pass, files_of_passes, read_passes
from mithril_nb.stages.xla.recover_op_names import nameless, original_names

_OTHER_PROGRAM = (
    "XLA compiled the program twice, to two different modules; inspect it again, and request this result first"
)
Value = TypeVar("Value")
# XLA does not report when its passes end, so the folder of its files is read again and again.
_INTERVAL_S = 0.02


class OtherProgramError(LookupError):
    """XLA compiled one program to two different modules."""


class EarlyRead(Generic[Value]):
    """A value that a thread computes while the body of a `with` runs.

    Args:
        make: Function that returns the value. While it returns `None`, it is called again, until the body ends. If it
            raises an exception, `get` returns `None`.

    Examples:
        >>> import time
        >>> with EarlyRead(lambda: 6 * 7) as ahead:
        ...     time.sleep(0.2)
        >>> ahead.get()
        42
        >>> with EarlyRead(lambda: None) as ahead:
        ...     pass
        >>> ahead.get() is None
        True
    """

    def __init__(self, make: Callable[[], Value | None]):
        self._make: Callable[[], Value | None] | None = make
        self._over = threading.Event()
        self._value: Value | None = None
        self._thread = threading.Thread(target=self._run, name="mithril_nb early read", daemon=True)

    def __enter__(self) -> EarlyRead[Value]:
        try:
            self._thread.start()
        except RuntimeError:  # The process may have reached its thread limit; then nothing is read early.
            self._make = None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()

    def get(self) -> Value | None:
        """Wait for the computation and return the value; `None` if it was not available before the body ended."""
        if self._thread.ident is not None:
            self._thread.join()
        return self._value

    def _run(self) -> None:
        make = self._make
        assert make is not None
        while self._value is None and not self._over.wait(_INTERVAL_S):
            try:
                self._value = make()
            except Exception:  # the final read, after the compilation, raises errors that remain
                break
        self._make = None  # It holds a reference to the program, which must not outlive its other references.


@dataclass(frozen=True)
class _EarlyModule:
    prefix: str
    files: tuple[str, ...]
    fingerprint: bytes
    passes: tuple[Pass, ...] | None
    histories: Once[Histories] | None
    hlo: Read | None


@dataclass(frozen=True)
class _XlaRun:
    """The result of one compilation by XLA."""

    compiled: jax.stages.Compiled
    dump: Dump | None = None
    has_passes: bool = False
    ahead: EarlyRead[_EarlyModule] | None = None


class Compilation:
    """The results of compiling a lowered program.

    Each attribute is a `Once`: the first call of its `get` computes the result, for which other threads wait.

    Args:
        lowered: The lowered program.
        options: The user's XLA options.
        has_least_effort: Function that returns whether the platform's compiler makes the same module with the least
            effort as with full effort.
        writes_passes: Function that returns whether XLA writes its passes even if nothing requests them.
        read_hlo: Function of the text of a module, and of a dict from names of instructions without an op name to their
            recovered op names. It returns text and instructions of the stage `"hlo"`.
        compile: Function that compiles the lowered program with XLA's options, here or for another machine.
        no_files: Function that returns the reason why this compiler writes no files; `""` if it writes them.

    Attributes:
        compiled: The compiled program, to run.
        optimized: A compiled program to inspect. It has the module and the memory plan of `compiled`, but perhaps slow
            machine code: if machine code is not needed, XLA compiles with the least effort.
        plan: The `Dump` with the memory plan.
        dump: The `Dump` with the kernels.
        passes: The passes of XLA that changed something.
        histories: The passes in which each instruction appeared and vanished.
    """

    def __init__(
        self,
        lowered: Once[jax.stages.Lowered],
        options: Mapping[str, Any],
        has_least_effort: Callable[[], bool],
        writes_passes: Callable[[], bool],
        read_hlo: Callable[[str, Mapping[str, str]], Read],
        compile: Callable[[jax.stages.Lowered, Mapping[str, Any]], Any],
        no_files: Callable[[], str],
    ):
        self._lowered, self._options, self._no_files = lowered, options, no_files
        self._has_least_effort = has_least_effort
        self._writes_passes, self._read_hlo, self._compile_lowered = writes_passes, read_hlo, compile
        self._wants_files = self._wants_machine_code = self._wants_passes = False
        self._deciding = threading.Lock()
        self._started_in_full = self._started_with_least = False
        self._is_compiling = threading.Event()
        self._reading: EarlyRead[_EarlyModule] | None = None
        self._full: _XlaRun | None = None
        self._inspected: _XlaRun | None = None  # the compilation of `optimized`: `_full`, or one with the least effort
        self.compiled = Once(self._compile)
        self.optimized = Once(self._optimize)
        self.plan = Once(self._read_memory_plan)
        self.dump = Once(self._read_kernels)
        self.passes: Once[tuple[Pass, ...]] = Once(self._read_passes)
        self.histories = Once(self._read_histories)

    def want(self, *, machine_code: bool = True, passes: bool = False) -> None:
        """Request files before the program is compiled, so that one compilation writes all of them."""
        self._wants_files = True
        self._wants_machine_code = self._wants_machine_code or machine_code
        self._wants_passes = self._wants_passes or passes

    def begin(self) -> None:
        """Start compiling `optimized` in a thread; return when XLA starts."""
        # Until then the thread runs Python, which the caller would slow down. Errors are raised when `optimized` is
        # read.
        self._wants_files = self._wants_files or not self._user_dumps

        def make_alone(_wanted: Wanted) -> None:
            try:
                with suppress(Exception):
                    self.optimized.get()
            finally:
                self._is_compiling.set()

        with suppress(RuntimeError):  # at the thread limit of the process, `optimized` is compiled on first use
            # Python waits for jobs of a queue at exit. It would crash if another thread returned from XLA after that.
            JobQueue("mithril_nb compiles").submit(make_alone)
            self._is_compiling.wait()

    def read_early(self) -> Read | None:
        """Wait for XLA's passes, and return the optimized module as a stage is read, before XLA generates code."""
        # Return `None` if this is not possible, for example because XLA writes no files. XLA may still run a pass
        # after it: the method `hlo` returns the final module.
        early = None if self._reading is None else self._reading.get()
        return None if early is None else early.hlo

    def _compile(self) -> jax.stages.Compiled:
        with self._deciding:
            self._started_in_full, is_second = True, self._started_with_least
        writes = self._wants_machine_code or (self._wants_files and not is_second)
        run = self._run({}, KERNELS, writes=writes, is_second=is_second)
        if is_second:  # measurements of `compiled` are shown for `optimized`, so their modules must be the same
            with suppress(Exception):  # raised again when `optimized` is read
                self.optimized.get()
            self._refuse_other(run.compiled.as_text())
        self._full = run
        return run.compiled

    def _optimize(self) -> jax.stages.Compiled:
        effort = self._least_effort
        with self._deciding:
            takes_full = self._wants_machine_code or self._started_in_full or not effort
            self._started_with_least = not takes_full
        if takes_full:
            compiled, self._inspected = self.compiled.get(), self._full
            return compiled
        self._inspected = self._run(effort, {}, writes=self._wants_files, is_second=False)
        return self._inspected.compiled

    @property
    def _least_effort(self) -> Mapping[str, Any]:
        return LEAST_EFFORT if self._has_least_effort() and not self._user_dumps else {}

    @property
    def _user_dumps(self) -> bool:
        return "xla_dump_to" in self._options or "xla_dump_to" in os.environ.get("XLA_FLAGS", "")

    @property
    def has_module_alone(self) -> bool:
        """Return whether `optimized` was compiled with the least effort, so that its machine code is slow."""
        return self._inspected is not None and self._inspected is not self._full

    def _run(self, effort: Mapping[str, Any], files: Mapping[str, Any], *, writes: bool, is_second: bool) -> _XlaRun:
        has_passes = not is_second and (self._wants_passes or self._writes_passes())
        # JAX's compilation cache is not used: a cached program writes no files, and may have other op names.
        if self._no_files() or not (has_passes or writes):
            with jax_jit.without_compilation_cache():
                return _XlaRun(compile_with(effort, self._options, self._by_xla()))
        dump = Dump()
        with EarlyRead(partial(self._read_module, dump, has_passes)) as ahead:
            self._reading = ahead
            compiled = self._write(dump, effort, {**files, **(PASSES if has_passes else {})})
        return _XlaRun(compiled, dump, has_passes, ahead)

    def _write(self, dump: Dump, effort: Mapping[str, Any], files: Mapping[str, Any]) -> jax.stages.Compiled:
        compile = self._by_xla()
        # If the user set `xla_dump_to`, the user also chose which files XLA writes.
        requested = effort if dump.why_not(self._options) else {**effort, **FILES, **files}
        with jax_jit.without_compilation_cache():
            return dump.compile(lambda options: compile_with(requested, options, compile), self._options)

    def _by_xla(self) -> Callable[[Mapping[str, Any]], jax.stages.Compiled]:
        lowered = self._lowered.get()

        def compile(options: Mapping[str, Any]) -> jax.stages.Compiled:
            self._is_compiling.set()
            return self._compile_lowered(lowered, options)

        return compile

    def _read_memory_plan(self) -> Dump:
        self.want(machine_code=False)
        self.optimized.get()
        for run in (self._inspected, self._full):
            if run is not None and run.dump is not None:
                return self._of_same_module(run.dump)
        return self._again(self._least_effort, {})

    def _read_kernels(self) -> Dump:
        self.want()
        self.compiled.get()
        run = self._full
        assert run is not None
        if run.dump is not None:
            return self._of_same_module(run.dump)
        return self._again({}, KERNELS)

    def _again(self, effort: Mapping[str, Any], files: Mapping[str, Any]) -> Dump:
        dump = Dump()
        if why := self._no_files() or dump.why_not(self._options):
            raise LookupError(why)
        text = None
        try:
            text = self._write(dump, effort, files).as_text()
        except Exception as error:
            if effort is not NO_MACHINE_CODE:
                raise
            if dump.optimized() is None:  # XLA failed before its passes ended, not after them as intended
                raise LookupError(str(error)) from error
        return self._of_same_module(dump, text)

    def _of_same_module(self, dump: Dump, text: str | None = None) -> Dump:
        """Return `dump`; raise a `LookupError` if it has no files, or the files of another module than `optimized`.

        `text`: The compiled program's own text, if known. XLA writes asynchronous instructions longer into its files.
        """
        _ = dump.prefix  # raises the reason if no files were written
        self.optimized.get()
        if self._inspected is not None and dump is not self._inspected.dump:
            self._refuse_other(text or dump.optimized())
        return dump

    def _refuse_other(self, text: str | None) -> None:
        if self._inspected is None:
            return
        if text is None or fingerprint(text) != fingerprint(self._inspected.compiled.as_text() or ""):
            raise OtherProgramError(_OTHER_PROGRAM)

    def _read_module(self, dump: Dump, has_passes: bool) -> _EarlyModule | None:
        text = dump.optimized()
        if text is None:
            return None
        with paused_collector():
            if has_passes:
                files, passes = files_of_passes(dump), read_passes(dump)
                histories = Once(lambda: Histories(passes))
                hlo = self._read_hlo(text, _recovered_names(text, histories))
                return _EarlyModule(dump.prefix, files, fingerprint(text), passes, histories, hlo)
            hlo = None if nameless(text) else self._read_hlo(text, {})
            return _EarlyModule(dump.prefix, (), fingerprint(text), None, None, hlo)

    def _early_module(self) -> _EarlyModule | None:
        """Return the module that was read early; `None` if it is another module, or if a pass ran after it was read."""
        run = self._inspected
        early = run.ahead.get() if run is not None and run.ahead is not None else None
        if run is None or run.dump is None or early is None:
            return None
        is_whole = early.prefix == run.dump.prefix and early.files == files_of_passes(run.dump)
        return early if is_whole else None

    def hlo(self, text: str) -> tuple[Read, bool]:
        """Return text and instructions of the optimized module, and whether they were read during the compilation."""
        early = self._early_module()
        if early is not None and early.hlo is not None and early.fingerprint == fingerprint(text):
            return early.hlo, True
        return self._read_hlo(text, _recovered_names(text, self.histories)), False

    def _read_passes(self) -> tuple[Pass, ...]:
        self.want(machine_code=False, passes=True)
        self.optimized.get()
        run = self._inspected
        if run is None or run.dump is None or not run.has_passes:
            return read_passes(self._again(NO_MACHINE_CODE, PASSES))
        early = self._early_module()
        return read_passes(run.dump) if early is None or early.passes is None else early.passes

    def _read_histories(self) -> Histories:
        passes, early = self.passes.get(), self._early_module()
        return Histories(passes) if early is None or early.histories is None else early.histories.get()


def _recovered_names(text: str, histories: Once[Histories]) -> Mapping[str, str]:
    names = nameless(text)
    try:
        return original_names(histories.get(), names) if names else {}
    except LookupError:
        return {}
