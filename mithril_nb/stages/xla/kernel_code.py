"""The code of kernels, line by line: LLVM IR, PTX, and machine code (read with pyelftools and capstone)."""

from __future__ import annotations

import io
import math
import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from mithril_nb.stages.hlo.syntax import split

# For example: .visible .entry add_fusion(
_PTX_HEAD = re.compile(r"^\s*(?:\.visible\s+|\.weak\s+)*\.(?:entry|func)\b[^(\n]*?([\w$.]+)\s*\(", re.MULTILINE)
# For example: @%p1 bra $L__BB0_2; where @%p1 is a condition
_PTX_LINE = re.compile(r"^\s+(?:@!?%\w+\s+)?([a-z][\w.:]*)\s*([^;]*)")
# An instruction. Lines that continue it, such as the cases of a switch, are indented more, and do not match.
_OPCODE = re.compile(r"^  (?:(%[\w.\-$]+|%\"[^\"]*\") = )?(?:tail |musttail |notail )?([a-z]\w*)")
_CALLEE = re.compile(r"@(\"[^\"]*\"|[\w.$-]+)\(")
_VALUE = re.compile(r"[%@](?:[\w.\-$]+|\"[^\"]*\")")
_GLOBAL = re.compile(r"@(?:[\w.\-$]+|\"[^\"]*\")")
# Parts that do not change the operation, for example `, !tbaa !3` and `, align 4`.
_NOISE = re.compile(r", ![\w.]+ !\d+|, align \d+|  +; preds = .*")


def disassemble(object_code: bytes, symbol: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return text, opcode and operands of each instruction of a function in an object file."""
    import capstone
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        file = ELFFile(io.BytesIO(object_code))
    except ELFError as error:
        raise ValueError(
            f"the object file of {symbol!r} is not an ELF file; see the stage 'llvm' for its LLVM IR"
        ) from error
    table: Any = file.get_section_by_name(".symtab")
    symbols = [entry for entry in table.iter_symbols() if entry.name == symbol] if table is not None else []
    if not symbols or not isinstance(symbols[0]["st_shndx"], int):
        raise ValueError(f"the object file has no function {symbol!r}; see the stage 'llvm' for its LLVM IR")
    index = symbols[0]["st_shndx"]
    section = file.get_section(index)
    start, size = symbols[0]["st_value"], symbols[0]["st_size"]
    code = section.data()[start : start + size]
    machine = file.get_machine_arch()
    modes = {
        "x64": (capstone.CS_ARCH_X86, capstone.CS_MODE_64),
        "AArch64": (capstone.CS_ARCH_ARM64, capstone.CS_MODE_ARM),
        "RISC-V": (capstone.CS_ARCH_RISCV, capstone.CS_MODE_RISCV64 | capstone.CS_MODE_RISCVC),
    }
    if machine not in modes:
        raise ValueError(
            f"machine code for {machine} is not supported, only for {', '.join(modes)}; "
            "see the stage 'llvm' for the LLVM IR"
        )
    engine = capstone.Cs(*modes[machine])
    engine.skipdata = True  # show data between instructions as data, instead of stopping there
    names = _called(file, table, index)
    decoded = [(address, mnemonic, operands) for address, _, mnemonic, operands in engine.disasm_lite(code, 0)]
    addresses = [address for address, _, _ in decoded]
    comments: dict[int, list[str]] = {}
    for at in sorted(names):
        if start <= at < start + size:
            comments.setdefault(bisect_right(addresses, at - start) - 1, []).append(names[at])
    parts = cache(lambda operands: tuple(split(operands)))  # registers repeat
    lines = [
        (f"  {address:#06x}  {mnemonic} {operands}".rstrip(), mnemonic, parts(operands))
        for address, mnemonic, operands in decoded
    ]
    for line_index, within in comments.items():
        line, mnemonic, operands = lines[line_index]
        lines[line_index] = f"{line}  ; {', '.join(within)}", mnemonic, operands
    return lines


# Number to add to the addend of relocations by kind: `PC32` and `PLT32` count from the end of their 4 bytes.
_FROM_END = {"x64": {2: 4, 4: 4}}


def _called(file: Any, table: Any, index: int) -> dict[int, str]:
    """Return what the linker inserts at each offset of the code: a name of a called function, or a constant."""
    names: dict[int, str] = {}
    too_low = _FROM_END.get(file.get_machine_arch(), {})
    # pyelftools would take 20 s for the 100,000 relocations of a kernel with 10,000 operations, so `struct` reads them.
    # All supported machines write them as 64-bit little-endian RELA.
    symbol_of = cache(table.get_symbol)

    @cache
    def section_of(home: int) -> tuple[str, bytes]:
        section = file.get_section(home)
        return section.name, section.data() if section.name in _NUMBERS else b""

    for section in file.iter_sections():
        if section["sh_type"] != "SHT_RELA" or section["sh_info"] != index:
            continue
        values: dict[tuple[int, int], str] = {}
        for offset, info, addend in struct.iter_unpack("<QQq", section.data()):
            value = values.get((info, addend))
            if value is None:
                address = addend + too_low.get(info & 0xFFFFFFFF, 0)
                value = values[info, addend] = _value(symbol_of(info >> 32), section_of, address)
            if value:
                names[offset] = value
    return names


def _value(symbol: Any, section_of: Callable[[int], tuple[str, bytes]], addend: int) -> str:
    home = symbol["st_shndx"]
    name, data = section_of(home) if isinstance(home, int) else ("", b"")
    if name not in _NUMBERS and not (name and symbol["st_info"]["type"] == "STT_SECTION"):
        return symbol.name
    offset, kind = symbol["st_value"] + addend, _NUMBERS.get(name)
    if kind is None or not 0 <= offset <= len(data) - struct.calcsize(kind):
        return f"{name}{offset:+#x}"
    number = struct.unpack_from(kind, data, offset)[0]
    if math.isnan(number):  # a bit mask
        bits = data[offset : offset + struct.calcsize(kind)]
        return f"= {int.from_bytes(bits, 'little'):#x}"
    return f"= {number:.7g}"


# Sections of constants, each with the `struct` format of a constant.
_NUMBERS = {".rodata.cst4": "<f", ".rodata.cst8": "<d"}


def read_ptx(text: str, symbol: str) -> list[tuple[str, str, tuple[str, ...]]]:
    r"""Return text, opcode (`""` for labels and declarations) and operands of each line of a function in PTX.

    Examples:
        >>> read_ptx(".visible .entry f(\n)\n{\n  ret;\n}\n", "f")
        [('  ret;', 'ret', ())]
    """
    for head in _PTX_HEAD.finditer(text):
        # Names in PTX have no dots.
        if head.group(1) != symbol.replace(".", "_") and head.group(1) != symbol:
            continue
        start = text.find("{", head.end())
        if start < 0 or ";" in text[head.end() : start]:
            continue  # only a declaration
        end = text.find("\n}", start)
        body = text[text.index("\n", start) + 1 : end if end > 0 else len(text)]
        return list(_ptx_lines(body.splitlines()))
    raise ValueError(f"the PTX has no function {symbol!r}; see the stage 'llvm' for its LLVM IR")


def _ptx_lines(body: list[str]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    is_new = True  # A call spans several lines, up to its semicolon: all operands belong to the first.
    for at, line in enumerate(body):
        plain = line.expandtabs(4).rstrip()
        code = line.partition("//")[0]
        match = _PTX_LINE.match(code) if is_new else None
        rest = match.group(2) if match else ""
        for following in body[at + 1 :] if match and ";" not in code else ():
            rest += following.partition("//")[0].partition(";")[0]
            if ";" in following:
                break
        yield plain, match.group(1) if match else "", tuple(split(" ".join(rest.split())))
        is_new = code.rstrip().endswith((";", ":", "{", "}")) or code.strip()[:1] in ("", ".")


def llvm_lines(module: str, symbol: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    r"""Yield text, opcode and operands of each line of a function, and of the global constants that it uses.

    Examples:
        >>> module = "define i32 @f(i32 %0) {\n  %2 = add i32 %0, 1, !tbaa !3\n  ret i32 %2\n}\n"
        >>> for line in llvm_lines(module, "f"):
        ...     print(line)
        ('define i32 @f(i32 %0) {', '', ())
        ('  %2 = add i32 %0, 1', 'add', ('%0',))
        ('  ret i32 %2', 'ret', ('%2',))
        ('}', '', ())
    """
    # The opcode is `""` for a line without an instruction. A `call` has the called function as first operand.
    head_of = re.compile(rf"^define [^\n]*?@(?:{re.escape(symbol)}|\"{re.escape(symbol)}\")\(", re.MULTILINE)
    definition = head_of.search(module)
    end = module.find("\n}", definition.start()) if definition else -1
    body = module[definition.start() : len(module) if end < 0 else end + 2] if definition else ""
    used = set(_GLOBAL.findall(body))
    head = "" if module.startswith("define ") else module.partition("\ndefine ")[0]
    for line in head.splitlines():  # globals come before the functions
        if line.startswith("@") and (name := _GLOBAL.match(line)) and name.group() in used:
            yield line, "", ()
    for line in _NOISE.sub("", body).split("\n") if body else ():
        plain = line.rstrip()
        match = _OPCODE.match(plain)
        opcode, values = (match[2], _VALUE.findall(plain, match.end())) if match else ("", [])
        if match and opcode == "call":
            callee = _CALLEE.search(plain, match.end())
            values.sort(key=lambda value: callee is None or value != f"@{callee.group(1)}")
        yield plain, opcode, tuple(values)
