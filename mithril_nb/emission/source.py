"""Emitted source as data: lines with the equations, the block and the part of a training step behind each line."""

from __future__ import annotations

from dataclasses import dataclass

from mithril_nb.emission.program import Statement
from mithril_nb.stages.records import Role


@dataclass(frozen=True)
class Line:
    """One line of emitted source.

    Attributes:
        text: The line, with its indentation.
        equations: Ids of the traced equations that the line computes; `()` for lines such as imports. A Python line
            that assigns the input with index 3 has the id `"arg3"`.
        block: Path of the block; `""` outside of blocks.
        role: The part of a training step; `None` if unknown.
        source: The user's line of Python that caused this line, as `"file.py:12"`; `""` if unknown.
        opcode: The primitive that the line computes; `""` for lines such as imports.
    """

    text: str
    equations: tuple[str, ...] = ()
    block: str = ""
    role: Role | None = None
    source: str = ""
    opcode: str = ""


@dataclass(frozen=True)
class Source:
    """An emitted file.

    Attributes:
        language: `"python"` or `"c"`.
        lines: The lines.
        name: Name of a Python file, without `.py`; `""` for C.
        function: Name of the Python function that runs the whole program; `""` for C.
    """

    language: str
    lines: tuple[Line, ...]
    name: str = ""
    function: str = ""

    @property
    def text(self) -> str:
        """The whole file."""
        return "".join(f"{line.text}\n" for line in self.lines)


class Writer:
    """Collects the lines of a file.

    Examples:
        >>> writer = Writer()
        >>> writer.add("def f(x):")
        >>> with writer.indented():
        ...     writer.add("return x")
        >>> print(Source("python", tuple(writer.lines)).text, end="")
        def f(x):
            return x
    """

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self._depth = 0

    def add(self, text: str = "", statement: Statement | None = None, equations: tuple[str, ...] = ()) -> None:
        """Add a line, or several lines if the text has line breaks.

        Args:
            text: The text, without indentation.
            statement: The statement that the lines compute.
            equations: Ids of the equations that the lines compute. Ignored if `statement` is given.
        """
        for part in text.split("\n"):
            shown = f"{'    ' * self._depth}{part}" if part else ""
            if statement is None:
                self.lines.append(Line(shown, equations))
            else:
                one = statement
                self.lines.append(Line(shown, one.equations, one.block, one.role, one.source, one.primitive))

    def indented(self) -> _Indented:
        """Return a context in which added lines have four more spaces of indentation."""
        return _Indented(self)

    def indent(self, levels: int) -> None:
        """Add `levels` times four spaces to the indentation of the next lines."""
        self._depth += levels


class _Indented:
    def __init__(self, writer: Writer):
        self._writer = writer

    def __enter__(self) -> None:
        self._writer.indent(1)

    def __exit__(self, *error: object) -> None:
        self._writer.indent(-1)
