"""Format a line of Python for the user: by its file, or by its notebook cell."""

from __future__ import annotations

from collections.abc import Sequence

CELL = "cell"


def format_lines(file: str, lines: Sequence[int]) -> str:
    """Return the label of some lines of a file.

    Args:
        file: Label of the file: its name, or `cell [12]`.
        lines: Line numbers in ascending order.

    Examples:
        >>> format_lines("net.py", [3]), format_lines("net.py", [3, 4, 7])
        ('net.py:3', 'net.py:3-7')
        >>> format_lines("cell [12]", [3]), format_lines("cell [12]", [3, 7])
        ('cell [12], line 3', 'cell [12], lines 3-7')
    """
    is_one = len(lines) == 1
    numbers = f"{lines[0]}" if is_one else f"{lines[0]}-{lines[-1]}"
    if not (file == CELL or file.startswith(f"{CELL} [")):
        return f"{file}:{numbers}"
    return f"{file}, {'line' if is_one else 'lines'} {numbers}"


def format_source(source: str) -> str:
    """Return the label of an instruction's source, given as `file:line` or `file:first-last`.

    Examples:
        >>> format_source("cell [12]:3"), format_source("net.py:3"), format_source("net.py:3-7"), format_source("model")
        ('cell [12], line 3', 'net.py:3', 'net.py:3-7', 'model')
    """
    file, first, last = lines_of_source(source)
    return format_lines(file, [first] if first == last else [first, last]) if file else source


def lines_of_source(source: str) -> tuple[str, int, int]:
    """Return the file, first line and last line of an instruction's source; `""` and 0 if it names no line.

    Examples:
        >>> lines_of_source("net.py:3-7"), lines_of_source("net.py:3"), lines_of_source("model")
        (('net.py', 3, 7), ('net.py', 3, 3), ('', 0, 0))
    """
    file, _, lines = source.rpartition(":")
    first, _, last = lines.partition("-")
    if not (file and first.isdigit() and (last or first).isdigit()):
        return "", 0, 0
    return file, int(first), int(last or first)
