"""Emitted source as data: lines with the equations, the block and the part of a training step behind each line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from mithril_nb.emission.program import Statement
from mithril_nb.stages.records import Role


@dataclass(frozen=True)
class SourceLine:
    """One line of emitted source.

    Attributes:
        text: The line, with its indentation.
        equations: Ids of the traced equations that the line computes; `()` for lines such as imports. A Python line
            that assigns the input with index 3 has the id `"arg3"`.
        block: Path of the block; `""` outside of blocks.
        opcode: The primitive that the line computes; `""` for lines such as imports.
    """

    text: str
    equations: tuple[str, ...] = ()
    block: str = ""
    role: Role | None = None
    opcode: str = ""


@dataclass(frozen=True)
class Source:
    """An emitted file. A Python file has a name, without `.py`, and a function that runs the whole program."""

    language: str
    lines: tuple[SourceLine, ...]
    name: str = ""
    function: str = ""

    @property
    def text(self) -> str:
        return "".join(f"{line.text}\n" for line in self.lines)


class Writer:
    """Collects the lines of a file."""

    def __init__(self) -> None:
        self.lines: list[SourceLine] = []
        self._depth = 0

    def add(self, text: str = "", statement: Statement | None = None, equations: tuple[str, ...] = ()) -> None:
        """Add the lines of a text, which compute a statement or equations."""
        for part in text.split("\n"):  # each line of a long call is linked
            line = SourceLine(f"{'    ' * self._depth}{part}" if part else "", equations)
            if statement is not None:
                line = SourceLine(line.text, statement.equations, statement.block, statement.role, statement.primitive)
            self.lines.append(line)

    @contextmanager
    def indented(self, levels: int = 1) -> Iterator[None]:
        self._depth += levels
        yield
        self._depth -= levels
