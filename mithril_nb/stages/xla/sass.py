"""The machine code of NVIDIA GPUs (SASS): PTX assembled by NVIDIA's ptxas, and printed by its nvdisasm."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from mithril_nb.errors import StageUnavailableError
from mithril_nb.hardware import cuda_tool
from mithril_nb.stages.hlo.syntax import split

_TARGET = re.compile(r"^\.target (\w+)", re.MULTILINE)
_PTX_OPCODE = re.compile(r"[\s{]*(?:@!?%\w+\s+)?([a-z][\w.:]*)")
_PTX_LINE = re.compile(r'\s*//## File "\.nv_debug_ptx_txt", line (\d+)')
# For example:   /*0090*/               @!P0 LDG.E R6, desc[UR6][R28.64] ;
_LINE = re.compile(r"\s*/\*([\da-f]+)\*/\s+((?:@!?\w+ )?)([A-Z][\w.]*)\s*([^;]*?)\s*;")
_LABEL = re.compile(r"\.L_x_\d+:")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def read_sass(ptx: str, symbol: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return text, opcode (`""` for labels and comments) and operands of each line of the machine code of a kernel.

    Each line ends with the PTX instruction that it comes from, as the line table of ptxas states.
    """
    target = _TARGET.search(ptx)
    if target is None:
        raise StageUnavailableError("the PTX names no architecture, so ptxas cannot assemble it.")
    with tempfile.TemporaryDirectory(prefix="mithril_nb-sass-") as folder:
        source, binary = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        source.write_text(ptx, encoding="utf-8")
        report = _run("ptxas", f"-arch={target[1]}", "-v", "-lineinfo", "-o", binary, source)
        code = _run("nvdisasm", "-c", "-gp", binary)
    section = code.partition(f"\n.text.{symbol}:\n")[2].partition("\n//-----")[0]
    return list(_lines(section, [*_ptx_opcodes(ptx)], report))


def _run(tool: str, *arguments: str | Path) -> str:
    done = subprocess.run([cuda_tool(tool), *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise StageUnavailableError(
            f"{tool} ended with status {done.returncode}.",
            (("tool", cuda_tool(tool)), ("last lines", "\n".join((done.stderr or done.stdout).splitlines()[-3:]))),
            "mithril-nb devices install sass  # newer versions of these tools",
        )
    return done.stdout + done.stderr


def _ptx_opcodes(ptx: str) -> Iterator[str]:
    """Yield the opcodes on each line. ptxas names the last line of an instruction that spans several."""
    opcodes, is_open = "", False
    for line in ptx.splitlines():
        code = line.partition("//")[0].rstrip()
        if not is_open:
            matches = map(_PTX_OPCODE.match, code.split(";"))
            opcodes = ", ".join(dict.fromkeys(match[1] for match in matches if match))
        yield opcodes
        is_open = bool(code) and not code.endswith((";", ":", "{", "}", ")"))


def _lines(code: str, ptx: list[str], report: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    registers, spills = _REGISTERS.search(report), _SPILLS.search(report)
    if registers and spills:
        yield f"  // {registers[1]} registers, {int(spills[1]) + int(spills[2])} bytes of spills", "", ()
    origin = ""
    for line in code.splitlines():
        if at := _PTX_LINE.match(line):
            opcodes = ptx[int(at[1]) - 1] if int(at[1]) <= len(ptx) else ""
            origin = f"  // {opcodes}" if opcodes else ""
        elif instruction := _LINE.match(line):
            text = f"  {instruction[1]}  {instruction[2]}{instruction[3]} {instruction[4]}".rstrip()
            yield f"{text:60}{origin}".rstrip(), instruction[3], tuple(split(instruction[4]))
        elif _LABEL.match(line):
            yield line, "", ()
