"""A program compiled, and what XLA writes down of it: only where somebody asks for it.

A small program takes XLA a fifth longer if it writes its kernels and its plan of memory down, a large one half as long
again if it writes every pass. So who asks for nothing of this has neither. Who asks later has it from a second turn;
one for the passes alone ends where machine code would begin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax

from mithril_nb.stages import jax_versions
from mithril_nb.stages.ahead import Ahead, fingerprint
from mithril_nb.stages.births import nameless, names_at_birth
from mithril_nb.stages.collector import paused_collector
from mithril_nb.stages.dump import Dump
from mithril_nb.stages.once import Once
from mithril_nb.stages.passes import Histories, Pass, files_of_passes, read_passes
from mithril_nb.stages.records import Instruction

Read = tuple[str, tuple[Instruction, ...]]
_OTHER_PROGRAM = (
    "XLA made another program when it compiled this one again to write down what it does; "
    "ask for this of a new inspection before anything else"
)


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


class Compilation:
    """What is made of a lowered program, each thing once, whichever thread asks first.

    Attributes:
        compiled: As XLA compiled it.
        dump: What XLA writes down of its kernels and its memory.
        passes: The passes that changed something.
        histories: Which of them touched which instruction.

    Args:
        lowered: The program.
        options: What XLA is told besides.
        writes_passes: Whether passes are written down in any case.
        read_hlo: Reads the text of a module, with names for instructions that carry none.
    """

    def __init__(
        self,
        lowered: Once[jax.stages.Lowered],
        options: Mapping[str, Any],
        writes_passes: Callable[[], bool],
        read_hlo: Callable[[str, Mapping[str, str]], Read],
    ):
        self._lowered, self._options = lowered, options
        self._writes_passes, self._read_hlo = writes_passes, read_hlo
        self._wants_files = False
        self._wants_passes = False
        self._has_passes = False
        self._dump: Dump | None = None
        self._ahead: Ahead[_Decided] | None = None
        self.compiled = Once(self._compile)
        self.dump = Once(self._written)
        self.passes: Once[tuple[Pass, ...]] = Once(self._read_passes)
        self.histories = Once(self._read_histories)

    def want(self, *, passes: bool = False) -> None:
        """Tell that what XLA writes down will be asked for: a program that was not compiled yet then compiles once.

        Args:
            passes: Whether this is so of its passes, too.
        """
        self._wants_files = True
        self._wants_passes = self._wants_passes or passes

    def _compile(self) -> jax.stages.Compiled:
        lowered = self._lowered.get()
        has_passes = self._wants_passes or self._writes_passes()
        # What comes out of the cache was compiled before: it wrote nothing, and its lines have other names, or none.
        if not (has_passes or self._wants_files):
            with jax_versions.without_compilation_cache():
                return lowered.compile(compiler_options=dict(self._options) or None)
        dump = Dump()
        with jax_versions.without_compilation_cache(), Ahead(partial(self._read_ahead, dump, has_passes)) as ahead:
            self._ahead = ahead
            compiled = dump.compile(self._by_xla(lowered), self._options, passes=has_passes)
        self._dump, self._has_passes = dump, has_passes
        return compiled

    @staticmethod
    def _by_xla(lowered: jax.stages.Lowered) -> Callable[[Mapping[str, Any]], jax.stages.Compiled]:
        return lambda options: lowered.compile(compiler_options=dict(options))

    def _written(self) -> Dump:
        self.want()
        self.compiled.get()
        return self._again(Dump.compile, passes=False) if self._dump is None else self._dump

    def _again(self, write: Callable[..., Any], **how: Any) -> Dump:
        """Return what XLA writes down of the same program in a second turn.

        Raises:
            LookupError: It did not make the same program.
        """
        dump = Dump()
        with jax_versions.without_compilation_cache():
            write(dump, self._by_xla(self._lowered.get()), self._options, **how)
        _ = dump.prefix  # says why, if nothing was written
        text = dump.optimized()
        if text is None or fingerprint(text) != fingerprint(self.compiled.get().as_text() or ""):
            raise LookupError(_OTHER_PROGRAM)
        return dump

    # While XLA is at work

    def _read_ahead(self, dump: Dump, has_passes: bool) -> _Decided | None:
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
        dump = self._dump
        decided = self._ahead.get() if self._ahead is not None else None
        if dump is None or decided is None or decided.prefix != dump.prefix or decided.files != files_of_passes(dump):
            return None
        return decided

    # Afterwards

    def hlo(self, text: str) -> tuple[Read, bool]:
        """Return the optimized module, read, and whether that was done while XLA still worked.

        Args:
            text: Its text, as `compiled` gives it.
        """
        decided = self._decided()
        if decided is not None and decided.hlo is not None and decided.fingerprint == fingerprint(text):
            return decided.hlo, True
        return self._read_hlo(text, _births(text, self.histories)), False

    def _read_passes(self) -> tuple[Pass, ...]:
        self.want(passes=True)
        self.compiled.get()
        if self._dump is None or not self._has_passes:
            return read_passes(self._again(Dump.write_passes))
        decided = self._decided()
        return read_passes(self._dump) if decided is None or decided.passes is None else decided.passes

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
