"""How a line of Python is told to a person: by its file, or by the cell of a notebook that it stands in."""

from __future__ import annotations

from collections.abc import Sequence

CELL = "cell"


def told_lines(file: str, lines: Sequence[int]) -> str:
    """Return what to call some lines of a file.

    Args:
        file: What a person calls the file: its name, or `cell [12]`.
        lines: Numbers of the lines, the least first.

    Examples:
        >>> told_lines("net.py", [3]), told_lines("net.py", [3, 4, 7])
        ('net.py:3', 'net.py:3-7')
        >>> told_lines("cell [12]", [3]), told_lines("cell [12]", [3, 7])
        ('cell [12], line 3', 'cell [12], lines 3-7')
    """
    is_one = len(lines) == 1
    numbers = f"{lines[0]}" if is_one else f"{lines[0]}-{lines[-1]}"
    if not (file == CELL or file.startswith(f"{CELL} [")):
        return f"{file}:{numbers}"
    return f"{file}, {'line' if is_one else 'lines'} {numbers}"


def told_line(source: str) -> str:
    """Return what to call the line or lines of an instruction's source, `file:line` or `file:first-last`.

    Examples:
        >>> told_line("cell [12]:3"), told_line("net.py:3"), told_line("net.py:3-7"), told_line("model")
        ('cell [12], line 3', 'net.py:3', 'net.py:3-7', 'model')
    """
    file, first, last = lines_of_source(source)
    return told_lines(file, [first] if first == last else [first, last]) if file else source


def lines_of_source(source: str) -> tuple[str, int, int]:
    """Return the file of an instruction's source, its first line and its last; `""` and 0 if it is none.

    Examples:
        >>> lines_of_source("net.py:3-7"), lines_of_source("net.py:3"), lines_of_source("model")
        (('net.py', 3, 7), ('net.py', 3, 3), ('', 0, 0))
    """
    file, _, lines = source.rpartition(":")
    first, _, last = lines.partition("-")
    if not (file and first.isdigit() and (last or first).isdigit()):
        return "", 0, 0
    return file, int(first), int(last or first)
