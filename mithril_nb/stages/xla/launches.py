"""What a program starts on a GPU, in order: kernels with their grids, calls of libraries, copies, collectives, loops.

XLA calls this the thunk sequence. Each thunk has the name of the HLO instruction that it runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mithril_nb.stages.records import Attributes, Instruction, Read
from mithril_nb.stages.trace.params import TRIPS
from mithril_nb.stages.xla.dump import Dump

# The first file exists only if some launches are in a CUDA graph.
_SEQUENCES = ("thunk_sequence_after_thunk_passes", "thunk_sequence")
# For example:     007: kCopy   [prev=006 (1) | sink ] kCopy
_THUNK = re.compile(r"( *)(\d+): k(\w+) *\[[^\]]*\] *(.*)")
# The first thunk inside a sequence of thunks is on the same line.
_JOINED = re.compile(r"^( *)(\d+: k\w+ *\[[^\]]*\]) *(?=\d+: k)", re.MULTILINE)
# For example: gemm_fusion_dot_2 grid: [2048, 1, 1] threads: [64, 1, 1]  shared_memory: 768 bytes
_GRID = re.compile(r"(\S+) grid: \[([\d, ]+)\] threads: \[([\d, ]+)\].*shared_memory: (\d+)")
_NAME = re.compile(r'profile_annotation: "(.*)"\n\s*thunk_id: (\d+)')
_ROOT = re.compile(r"^%(\S+) \(.*\{\n(?:  %.*\n)*  ROOT %(\S+) = ", re.MULTILINE)
_START = re.compile(r"^  (?:ROOT )?%(\S+) = .* async-start\(.*calls=%([^,\s]+)", re.MULTILINE)
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")
# Libraries by the start of a call's target, such as __cudnn$convForward, or of a thunk without target.
_LIBRARIES = {
    "cublas": "cuBLAS", "cudnn": "cuDNN", "cusolver": "cuSOLVER", "cusparse": "cuSPARSE", "cufft": "cuFFT",
    "cu-dnn": "cuDNN", "fft": "cuFFT", "triangular-solve": "cuBLAS",
}  # fmt: skip
_LIBRARY = re.compile(rf"_*({'|'.join(_LIBRARIES)})")
# XLA names a kernel after its instruction, without dots.
_UNPLAIN = re.compile(r"\W")
_WITHOUT_KERNEL = frozenset(
    "async-done async-start command-buffer conditional copy copy-done dynamic-slice-fusion infeed memset outfeed "
    "partition-id replica-id sequential while".split()
)


@dataclass(frozen=True)
class _Row:
    indent: int
    title: str
    launch: Instruction | None = None


def read_launches(dump: Dump, hlo: Iterable[Instruction], notes: Iterable[str] = ()) -> Read:
    """Return the launches of a program as the text of a stage, and its instructions.

    Args:
        dump: The files of XLA.
        hlo: The instructions of the optimized HLO.
        notes: The first lines of the text.
    """
    file = next((name for name in _SEQUENCES if dump.path(name, "txt").exists()), None)
    if file is None:
        raise LookupError("XLA writes no launches for this platform")
    names = {int(id): name for name, id in _NAME.findall(dump.text("thunk_metadata", "txt"))}
    by_name = {instruction.id: instruction for instruction in hlo}
    # In XLA's files, `reduce-scatter-start` of the stage `"hlo"` calls a computation, and the thunk has its name.
    module = dump.optimized() or ""
    roots = dict(_ROOT.findall(module))
    by_name |= {roots[body]: by_name[id] for id, body in _START.findall(module) if id in by_name and body in roots}
    rows = [_Row(0, f"# {note}") for note in notes]
    used: Counter[str] = Counter()
    for line in _JOINED.sub(r"\1\2\n\1  ", dump.text(file, "txt")).splitlines():
        match = _THUNK.match(line)
        if match is None:
            rows += [_section(line, rows)] if line.strip() else []
            continue
        thunk = _WORD.sub("-", match[3]).lower().replace("custom-kernel", "kernel")
        name = names.get(int(match[2]), thunk)
        origin = by_name.get(name, Instruction(name, thunk, 0))
        used[origin.id] += 1
        number = f"#{used[origin.id]}" if used[origin.id] > 1 else ""  # XLA may run several thunks for one instruction
        launch = replace(
            origin, id=origin.id + number, opcode=thunk, line=len(rows) + 1, lines=1, operands=(), picks=(),
            attributes=_facts(thunk, match[4], origin), results=(), carried=(),
        )  # fmt: skip
        rows.append(_Row(len(match[1]), origin.id, launch))
    width = max((row.indent + len(row.title) for row in rows if row.launch), default=0)
    lines: list[str] = []
    launches: list[Instruction] = []
    for at, row in enumerate(rows):
        line = f"{' ' * row.indent}{row.title}"
        if row.launch:
            end = next((end for end in range(at + 1, len(rows)) if rows[end].indent <= row.indent), len(rows))
            launches.append(replace(row.launch, lines=end - at))
            symbol = _UNPLAIN.sub("_", row.title)
            facts = [f"{name}={value}" for name, value in row.launch.attributes if (name, value) != ("kernel", symbol)]
            line = "  ".join((line.ljust(width), row.launch.opcode, *facts))
        lines.append(f"{line}\n")
    return "".join(lines), tuple(launches)


def _section(line: str, rows: Sequence[_Row]) -> _Row:
    title, indent = line.strip(" :"), len(line) - len(line.lstrip())
    if title == "condition":  # XLA prints only this one without its indent (jax 0.10.2, 0.12)
        return _Row(rows[-1].indent + 2, title)
    if title in ("false_branch", "true_branch"):
        # XLA calls the first one `false_branch`, but it runs if the predicate is true (jax 0.10.2, 0.12).
        last = next((row.title for row in reversed(rows) if row.indent == indent), "")
        title = "if false" if last == "if true" else "if true"
    return _Row(indent, title.replace("_", " "))


def _facts(thunk: str, text: str, origin: Instruction) -> Attributes:
    attributes = dict(origin.attributes)
    if grid := _GRID.match(text):
        kernel, blocks, threads, shared = grid.groups()
        return ("grid", _sizes(blocks)), ("block", _sizes(threads)), ("shared_bytes", shared), ("kernel", kernel)
    if thunk == "while":
        return ((TRIPS, attributes.get(TRIPS, "unknown")),)
    if thunk == "copy":
        # A fusion may be copies and kernels.
        sizes = [shape.nbytes for shape in origin.shapes] if origin.opcode == "copy" else [None]
        return (("bytes", "unknown" if sizes == [None] else str(sizes[0])),)
    if thunk in _WITHOUT_KERNEL:
        return ()
    target = attributes.get("custom_call_target", "").strip('"')
    library = _LIBRARY.match(target or thunk)
    # The library chooses its kernels when it runs.
    facts = ("library", library and _LIBRARIES[library[1]]), ("function", target), ("grid", "unknown")
    return tuple((name, value) for name, value in facts if value)


def _sizes(dims: str) -> str:
    sizes = dims.split(", ")
    while len(sizes) > 1 and sizes[-1] == "1":
        sizes.pop()
    return "x".join(sizes)
