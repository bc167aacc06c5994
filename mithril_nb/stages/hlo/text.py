"""Read and tidy the text of a whole HLO module, in the layout that XLA prints: one instruction per line.

Unreadable lines stay text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from mithril_nb.stages.hlo.syntax import LAYOUT, NOISE, NOISES, HloLine, opened_by, read_line
from mithril_nb.stages.records import Instruction

# `str.replace` removes these layouts twice as fast as the pattern `LAYOUT`, which then matches few lines or none.
_USUAL_LAYOUTS = ("]{0}", "]{1,0}", "]{2,1,0}", "]{3,2,1,0}")
# For example: /*index=5*/: XLA numbers every fifth item of a long list
_INDEX = re.compile(r"/\*index=\d+\*/")
# Matches up to the end of the line. The JSON decoder then finds the end of the configuration.
_CONFIG = re.compile(r"backend_config=\{.*")
# XLA for GPUs compiles in several threads, which number the rows of the tables of frames in any order (jax 0.10.2).
_FRAMES = re.compile(r" stack_frame_id=\d+|^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d+ .*\n)*", re.M)
_DECODER = json.JSONDecoder()


@dataclass
class ComputationText:
    """A computation: its name, its header, and its lines; unreadable lines are plain text."""

    name: str
    header: str
    is_entry: bool
    lines: list[HloLine | str] = field(default_factory=list)

    @property
    def instructions(self) -> list[HloLine]:
        """The lines that could be parsed."""
        return [line for line in self.lines if isinstance(line, HloLine)]


def read_module(text: str, cache: dict[str, HloLine | str] | None = None) -> tuple[str, list[ComputationText]]:
    """Return the name of the module and its computations, in the order of the text.

    `cache`: A cache of parsed lines, to which new lines are added; `None` for no cache.
    """
    title = "HloModule"
    computations: list[ComputationText] = []
    current: ComputationText | None = None
    for line in text.splitlines():
        if current is not None:
            if line.startswith("}"):
                current = None
            elif line.strip():
                parsed = None if cache is None else cache.get(line)
                if parsed is None:
                    parsed = read_line(line)
                    if cache is not None:
                        cache[line] = parsed
                current.lines.append(parsed)
        elif line.startswith("HloModule "):
            title = line.split(",", 1)[0].rstrip()
        elif name := opened_by(line):
            current = ComputationText(name, line, line.startswith("ENTRY "))
            computations.append(current)
    return title, computations


def orders_of(
    computations: list[ComputationText], by_name: Mapping[str, ComputationText]
) -> tuple[list[ComputationText], list[ComputationText]]:
    """Return the computations in two orders: depth first from the first one, and callees before their callers."""
    reading: dict[str, ComputationText] = {}
    callees_first: list[ComputationText] = []

    def visit(computation: ComputationText) -> None:
        if computation.name in reading:
            return
        reading[computation.name] = computation
        for line in computation.instructions:
            for _, callee in line.calls:
                if callee in by_name:
                    visit(by_name[callee])
        callees_first.append(computation)

    for computation in computations:
        visit(by_name[computation.name])
    return list(reading.values()), callees_first


def by_computation(text: str, instructions: Iterable[Instruction]) -> dict[str, list[Instruction]]:
    """Return a dict from the name of each computation in a stage of HLO to its instructions."""
    heads = [(number, name) for number, line in enumerate(text.split("\n"), 1) if (name := opened_by(line))]
    by_name: dict[str, list[Instruction]] = {name: [] for _, name in heads}
    passed = 0
    for instruction in instructions:
        while passed < len(heads) and heads[passed][0] < instruction.line:
            passed += 1
        if passed:
            by_name[heads[passed - 1][1]].append(instruction)
    return by_name


def tidy_module(text: str) -> str:
    """Return the text of a module without metadata, tables of source files, and default layouts."""
    # Unlike `read_module` it parses nothing, so it is fast: the passes of a large program are hundreds of megabytes.
    # The tables of stack frames end with an empty line; modules without tables have one after their head.
    start = text.find("\n\n", text.find("\nStackFrames\n")) if "\nStackFrames\n" in text else text.find("\n\n")
    title, body = text.split(",", 1)[0].rstrip(), text[max(start, 0) :]
    if any(f", {noise}=" in body for noise in NOISES):
        body = NOISE.sub("", body)
    return f"{title}\n\n{tidy(body).strip()}\n"


def tidy(text: str) -> str:
    """Return lines of a module in the form shown to the user: without index comments and default layouts."""
    text = _INDEX.sub("", text) if "/*" in text else text
    for layout in _USUAL_LAYOUTS:
        text = text.replace(layout, "]")
    return LAYOUT.sub(lambda match: _layout(match[1], match[2] or ""), text) if "]{" in text else text


@lru_cache(maxsize=256)
def _layout(axes: str, tiles: str) -> str:
    order = [int(axis) for axis in axes.split(",") if axis]
    return "]" if not tiles and order == sorted(order, reverse=True) else f"]{{{axes}{tiles}}}"


def fingerprint(text: str) -> bytes:
    r"""Return a hash of the text of a module.

    Examples:
        >>> fingerprint('  a, backend_config={"b":1,"c":2}\n') == fingerprint('  a, backend_config={"c":2,"b":1}\n')
        True
        >>> fingerprint('  a, backend_config={"b":12}\n') == fingerprint('  a, backend_config={"b":21}\n')
        False
    """
    # The order of the entries in `backend_config` does not matter.
    # XLA prints these entries in any order.
    return hashlib.blake2b(_CONFIG.sub(_in_order, _FRAMES.sub("", text)).encode(), digest_size=16).digest()


def _in_order(match: re.Match[str]) -> str:
    config = match.group()
    start = len("backend_config=")
    try:
        value, end = _DECODER.raw_decode(config, start)
    except ValueError:  # a backend's configuration is not always JSON
        return config
    return f"{config[:start]}{json.dumps(value, sort_keys=True)}{config[end:]}"
