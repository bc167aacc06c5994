"""A program compiled, and what XLA writes down of it: only as far as somebody asks for it.

Machine code is two fifths of the time that XLA takes on a CPU, and neither what a program costs nor what memory it
needs depends on it: so who asks for no more has a turn of XLA with the least effort there. A small program takes a
fifth longer if XLA writes its kernels and its plan of memory down, but then its module can be read meanwhile; a large
one takes half as long again if it writes every pass. Who asks for any of this later has it from a second turn, of the
same module; one for the passes alone ends where machine code would begin.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from mithril_nb.stages import jax_jit
from mithril_nb.stages.collector import paused_collector
from mithril_nb.stages.once import Once
from mithril_nb.stages.records import Read
from mithril_nb.stages.xla.dump import Dump
from mithril_nb.stages.xla.early_read import Ahead, fingerprint
from mithril_nb.stages.xla.options import (
    FILES,
    KERNELS,
    LEAST_EFFORT,
    NO_MACHINE_CODE,
    PASSES,
    compile_with,
)
from mithril_nb.stages.xla.passes import Histories, Pass, files_of_passes, read_passes
from mithril_nb.stages.xla.recover_op_names import nameless, names_at_birth

_OTHER_PROGRAM = (
    "XLA made another program when it compiled this one again; ask for this of a new inspection before anything else"
)


class OtherProgramError(LookupError):
    """What XLA made in two turns of one program differs."""


@dataclass(frozen=True)
class _Decided:
    """What XLA's passes have made of a program, read while it still wrote machine code.

    Attributes:
        prefix: Which of the modules that it compiled this is.
        files: What its passes had written down by then.
        fingerprint: Of the text of the optimized module.
        passes: The passes that changed something; `None` if they were not written down.
        histories: Which of them touched which instruction; `None` likewise.
        hlo: The optimized module, read; `None` if that needs the passes, which were not written down.
    """

    prefix: str
    files: tuple[str, ...]
    fingerprint: bytes
    passes: tuple[Pass, ...] | None
    histories: Once[Histories] | None
    hlo: Read | None


@dataclass(frozen=True)
class _Turn:
    """What came of one turn of XLA.

    Attributes:
        compiled: The program.
        dump: What was written down; `None` if nothing was.
        has_passes: Whether the passes were, too.
        ahead: What was read of it meanwhile.
    """

    compiled: jax.stages.Compiled
    dump: Dump | None = None
    has_passes: bool = False
    ahead: Ahead[_Decided] | None = None


class Compilation:
    """What is made of a lowered program, each thing once, whichever thread asks first.

    Attributes:
        compiled: As XLA compiled it, to be run.
        optimized: The same module with the same plan of memory, to be looked at: that of `compiled` if it is made or
            its machine code is wanted, otherwise one with the least effort.
        plan: What XLA writes down of its memory.
        dump: What XLA writes down of its kernels.
        passes: The passes that changed something.
        histories: Which of them touched which instruction.

    Args:
        lowered: The program.
        options: Further options of XLA.
        has_least_effort: Tells whether its compiler makes the same module with less effort for machine code.
        writes_passes: Whether passes are written down in any case.
        read_hlo: Reads the text of a module, with names for instructions that carry none.
    """

    def __init__(
        self,
        lowered: Once[jax.stages.Lowered],
        options: Mapping[str, Any],
        has_least_effort: Callable[[], bool],
        writes_passes: Callable[[], bool],
        read_hlo: Callable[[str, Mapping[str, str]], Read],
    ):
        self._lowered, self._options = lowered, options
        self._has_least_effort = has_least_effort
        self._writes_passes, self._read_hlo = writes_passes, read_hlo
        self._wants_files = self._wants_machine_code = self._wants_passes = False
        self._deciding = threading.Lock()
        self._has_begun_in_full = self._has_begun_with_least = False
        self._is_at_work = threading.Event()
        self._reading: Ahead[_Decided] | None = None
        self._full: _Turn | None = None
        self._told: _Turn | None = None  # that of which the module is: the one above, or one with the least effort
        self.compiled = Once(self._compile)
        self.optimized = Once(self._optimize)
        self.plan = Once(self._written_of_memory)
        self.dump = Once(self._written_of_kernels)
        self.passes: Once[tuple[Pass, ...]] = Once(self._read_passes)
        self.histories = Once(self._read_histories)

    def want(self, *, machine_code: bool = True, passes: bool = False) -> None:
        """Tell that what XLA writes down will be asked for: a program that was not compiled yet then compiles once.

        Args:
            machine_code: Whether this is so of its kernels, and not only of its memory.
            passes: Whether it is so of its passes, too.
        """
        self._wants_files = True
        self._wants_machine_code = self._wants_machine_code or machine_code
        self._wants_passes = self._wants_passes or passes

    def begin(self) -> None:
        """Have XLA make `optimized` on a thread of its own, and write it down; returns when it is about to start.

        Who works on before would hold back what Python does until then. Whoever asks for `optimized` is told what went
        wrong. Where XLA already writes for somebody it is left at that.
        """
        self._wants_files = self._wants_files or not self._is_for_someone
        with suppress(RuntimeError):  # A process may have as many threads as it is allowed: then one after the other.
            threading.Thread(target=self._make_alone, name="mithril_nb compiles", daemon=True).start()
            self._is_at_work.wait()

    def _make_alone(self) -> None:
        try:
            with suppress(Exception):
                self.optimized.get()
        finally:
            self._is_at_work.set()

    def read_ahead(self) -> Read | None:
        """Return the optimized module, read while XLA still works on its machine code; waits for its passes.

        `hlo` gives the same if no pass came later. `None` if XLA was done before, or writes nothing down: that is known
        when it is done.
        """
        decided = None if self._reading is None else self._reading.get()
        return None if decided is None else decided.hlo

    def _compile(self) -> jax.stages.Compiled:
        with self._deciding:
            self._has_begun_in_full, is_second = True, self._has_begun_with_least
        writes = self._wants_machine_code or (self._wants_files and not is_second)
        turn = self._turn({}, KERNELS, writes=writes, is_second=is_second)
        if is_second:  # What is measured of one would be told of the other.
            with suppress(Exception):  # Who asks for that one is told.
                self.optimized.get()
            self._refuse_other(turn.compiled.as_text())
        self._full = turn
        return turn.compiled

    def _optimize(self) -> jax.stages.Compiled:
        effort = self._least_effort
        with self._deciding:
            takes_full = self._wants_machine_code or self._has_begun_in_full or not effort
            self._has_begun_with_least = not takes_full
        if takes_full:
            compiled, self._told = self.compiled.get(), self._full
            return compiled
        self._told = self._turn(effort, {}, writes=self._wants_files, is_second=False)
        return self._told.compiled

    @property
    def _least_effort(self) -> Mapping[str, Any]:
        """Nothing where XLA cannot make the same module with less, or somebody has it write down what it does."""
        return LEAST_EFFORT if self._has_least_effort() and not self._is_for_someone else {}

    @property
    def _is_for_someone(self) -> bool:
        """Whether somebody has XLA write down what it does."""
        return "xla_dump_to" in self._options or "xla_dump_to" in os.environ.get("XLA_FLAGS", "")

    @property
    def has_module_alone(self) -> bool:
        """Whether the module was made without machine code that is worth to run."""
        return self._told is not None and self._told is not self._full

    def _turn(self, effort: Mapping[str, Any], files: Mapping[str, Any], *, writes: bool, is_second: bool) -> _Turn:
        has_passes = not is_second and (self._wants_passes or self._writes_passes())
        # What comes out of the cache was compiled before: it wrote nothing, and its lines have other names, or none.
        if not (has_passes or writes):
            with jax_jit.without_compilation_cache():
                return _Turn(compile_with(effort, self._options, self._by_xla()))
        dump = Dump()
        with Ahead(partial(self._decide, dump, has_passes)) as ahead:
            self._reading = ahead
            compiled = self._write(dump, effort, {**files, **(PASSES if has_passes else {})})
        return _Turn(compiled, dump, has_passes, ahead)

    def _write(self, dump: Dump, effort: Mapping[str, Any], files: Mapping[str, Any]) -> jax.stages.Compiled:
        compile = self._by_xla()
        # Where it writes elsewhere, that is somebody's, and has what that one asked for.
        asked = effort if dump.why_not(self._options) else {**effort, **FILES, **files}
        with jax_jit.without_compilation_cache():
            return dump.compile(lambda options: compile_with(asked, options, compile), self._options)

    def _by_xla(self) -> Callable[[Mapping[str, Any]], jax.stages.Compiled]:
        lowered = self._lowered.get()

        def compile(options: Mapping[str, Any]) -> jax.stages.Compiled:
            self._is_at_work.set()
            return lowered.compile(compiler_options=dict(options) or None)

        return compile

    def _written_of_memory(self) -> Dump:
        self.want(machine_code=False)
        self.optimized.get()
        for turn in (self._told, self._full):
            if turn is not None and turn.dump is not None:
                return self._of_same_module(turn.dump)
        return self._again(self._least_effort, {})

    def _written_of_kernels(self) -> Dump:
        self.want()
        self.compiled.get()
        turn = self._full
        assert turn is not None
        if turn.dump is not None:
            return self._of_same_module(turn.dump)
        return self._again({}, KERNELS)

    def _again(self, effort: Mapping[str, Any], files: Mapping[str, Any]) -> Dump:
        """Return what XLA writes down of the same program in a further turn.

        Raises:
            LookupError: It would write nothing here, or did not make the same program.
        """
        dump = self._new_dump()
        self._write(dump, effort, files)
        return self._of_same_module(dump)

    def _new_dump(self) -> Dump:
        dump = Dump()
        why = dump.why_not(self._options)
        if why:
            raise LookupError(why)
        return dump

    def _passes_again(self) -> Dump:
        """Return what XLA writes down of its passes in a further turn, which goes no further than them.

        Raises:
            LookupError: It would write nothing here, did not make the same program, or did not come to the end of its
                passes.
        """
        dump = self._new_dump()
        try:
            self._write(dump, NO_MACHINE_CODE, PASSES)
        except Exception as error:
            if dump.optimized() is None:
                raise LookupError(str(error)) from error
        return self._of_same_module(dump)

    def _of_same_module(self, dump: Dump) -> Dump:
        """Return what was written down, if it is of the module that is told of."""
        _ = dump.prefix  # says why, if nothing was written
        self.optimized.get()
        if self._told is not None and dump is not self._told.dump:
            self._refuse_other(dump.optimized())
        return dump

    def _refuse_other(self, text: str | None) -> None:
        if self._told is None:
            return
        if text is None or fingerprint(text) != fingerprint(self._told.compiled.as_text() or ""):
            raise OtherProgramError(_OTHER_PROGRAM)

    # While XLA is at work

    def _decide(self, dump: Dump, has_passes: bool) -> _Decided | None:
        text = dump.optimized()
        if text is None:
            return None
        with paused_collector():
            if has_passes:
                files, passes = files_of_passes(dump), read_passes(dump)
                histories = Once(lambda: Histories(passes))
                hlo = self._read_hlo(text, _births(text, histories))
                return _Decided(dump.prefix, files, fingerprint(text), passes, histories, hlo)
            hlo = None if nameless(text) else self._read_hlo(text, {})
            return _Decided(dump.prefix, (), fingerprint(text), None, None, hlo)

    def _decided(self) -> _Decided | None:
        """What was read ahead, if it was of this program, and no pass came after it."""
        turn = self._told
        decided = turn.ahead.get() if turn is not None and turn.ahead is not None else None
        if turn is None or turn.dump is None or decided is None:
            return None
        is_whole = decided.prefix == turn.dump.prefix and decided.files == files_of_passes(turn.dump)
        return decided if is_whole else None

    # Afterwards

    def hlo(self, text: str) -> tuple[Read, bool]:
        """Return the optimized module, read, and whether that was done while XLA still worked.

        Args:
            text: Its text, as `optimized` gives it.
        """
        decided = self._decided()
        if decided is not None and decided.hlo is not None and decided.fingerprint == fingerprint(text):
            return decided.hlo, True
        return self._read_hlo(text, _births(text, self.histories)), False

    def _read_passes(self) -> tuple[Pass, ...]:
        self.want(machine_code=False, passes=True)
        self.optimized.get()
        turn = self._told
        if turn is None or turn.dump is None or not turn.has_passes:
            return read_passes(self._passes_again())
        decided = self._decided()
        return read_passes(turn.dump) if decided is None or decided.passes is None else decided.passes

    def _read_histories(self) -> Histories:
        passes, decided = self.passes.get(), self._decided()
        return Histories(passes) if decided is None or decided.histories is None else decided.histories.get()


def _births(text: str, histories: Once[Histories]) -> Mapping[str, str]:
    """What the products that carry no name were called, if the passes tell."""
    names = nameless(text)
    try:
        return names_at_birth(histories.get(), names) if names else {}
    except LookupError:
        return {}
