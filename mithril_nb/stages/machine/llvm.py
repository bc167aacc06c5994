"""Read LLVM IR line by line. Only functions and the globals they use are listed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_OPCODE = re.compile(r"^  (?:(%[\w.\-$]+|%\"[^\"]*\") = )?(?:tail |musttail |notail )?([a-z]\w*)")
"""An instruction; its continuation lines, such as the cases of a switch, are indented more."""
_CALLEE = re.compile(r"@(\"[^\"]*\"|[\w.$-]+)\(")
_VALUE = re.compile(r"%(?:[\w.\-$]+|\"[^\"]*\")|@(?:[\w.\-$]+|\"[^\"]*\")")
_NOISE = re.compile(r", ![\w.]+ !\d+|, align \d+|  +; preds = .*")


def llvm_lines(module: str, symbol: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    r"""Yield each line of a function and of the globals that it uses: the line, its opcode and its operands.

    The opcode of a line without an instruction is `""`; a call has `call`, with the callee as first operand.

    Args:
        module: The module; it may contain several functions.
        symbol: Name of the function.

    Examples:
        >>> module = "define i32 @f(i32 %0) {\n  %2 = add i32 %0, 1, !tbaa !3\n  ret i32 %2\n}\n"
        >>> for line in llvm_lines(module, "f"):
        ...     print(line)
        ('define i32 @f(i32 %0) {', '', ())
        ('  %2 = add i32 %0, 1', 'add', ('%0',))
        ('  ret i32 %2', 'ret', ('%2',))
        ('}', '', ())
    """
    names = {f"@{symbol}", f'@"{symbol}"'}
    body: list[str] = []
    is_wanted = inside = False
    for line in module.splitlines():
        if line.startswith("define "):
            inside = True
            head = _CALLEE.search(line)
            is_wanted = head is not None and f"@{head.group(1)}" in names
        if inside and is_wanted:
            body.append(line)
        if line.startswith("}"):
            inside = False
    used = {value for line in body for value in _VALUE.findall(line)}
    for line in module.splitlines():
        if (name := _VALUE.match(line)) and name.group() in used and line.startswith("@"):
            yield line, "", ()
    yield from _read(body)


def _read(lines: Iterable[str]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for line in lines:
        plain = _NOISE.sub("", line).rstrip()
        match = _OPCODE.match(plain)
        if match is None:
            yield plain, "", ()
            continue
        rest = plain[match.end() :]
        values = _VALUE.findall(rest)
        opcode = match.group(2)
        if opcode == "call":
            callee = _CALLEE.search(rest)
            values.sort(key=lambda value: callee is None or value != f"@{callee.group(1)}")
        yield plain, opcode, tuple(values)
