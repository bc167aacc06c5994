"""Read and tidy the text of an optimized HLO module. The format is not stable: unreadable lines stay text."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.hlo.dtypes import HLO_DTYPES
from mithril_nb.stages.hlo.escapes import read_xla
from mithril_nb.stages.hlo.syntax import OPERAND, opened_by

_QUOTED = r'"(?:[^"\\]|\\.)*"'
# For example: ROOT %add.1 = f32[4]{0} add(%x, %y)
_HEAD = re.compile(r"^\s+(ROOT )?(%?)([\w.\-]+) = ")
# For example: op_name="jit(f)/add" in metadata={...}
_OP_NAME = re.compile(rf"op_name=({_QUOTED})")
# For example: stack_frame_id=3 in metadata={...} with jax 0.10 and 0.12; other texts have source_file and source_line
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_FILE, _FILE_LINE = re.compile(rf"source_file=({_QUOTED})"), re.compile(r"source_line=(\d+)")
_FILE_END = re.compile(r"source_end_line=(\d+)")
# For example: calls=%fused_computation
_CALLED = re.compile(r"\b(calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
_OPERAND_NAME = re.compile(r"([\w.\-]+)(?=,|$)")
_NAMED = re.compile(
    r"\b(calls|to_apply|body|condition|true_computation|false_computation|branch_computations|called_computations"
    r"|comparator|select|scatter)=(\{[^}]*\}|[\w.\-]+)"
)
# For example: branch_computations={%a, %b}
_BRANCHES = re.compile(r"\b(?:branch_computations|called_computations)=\{([^}]*)\}")
# For example: f32[8,4]
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")
# For example: ]{1,0:T(8,128)} on a TPU, ]{1,0} elsewhere
_LAYOUT = re.compile(r"\]\{([\d,]*)(?::[^{}\n]*)?\}")
_USUAL_LAYOUTS = ("]{0}", "]{1,0}", "]{2,1,0}", "]{3,2,1,0}")
# For example: /*index=5*/: XLA numbers every fifth item of a long list
_INDEX = re.compile(r"/\*index=\d+\*/")
# For example: known_trip_count":{"n":"10"} in backend_config={...}
_TRIPS = re.compile(r'known_trip_count\\?"?:?=?\{\\?"n\\?"?[:=]\\?"(\d+)')
_ESTIMATED = re.compile(r'(flops|transcendentals|bytes_accessed)\\?"?\s*:\s*\\?"?(-?\d+)')
_ATTRIBUTE = re.compile(r", ([A-Za-z_]\w*)=")
_GROUPS = re.compile(
    r"\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?"
    r"|(?:maximal_)?mesh\[[^\]]*\](?:, device_ids=\((?:[^()]|\([^()]*\))*\))? \{[^}]*\}"
)
"""Groups of devices that are not lists: an iota, or axes of a mesh, as XLA prints them since JAX 0.12."""
_BRACKET = re.compile(rf"{_QUOTED}|[(){{}}\[\]]")
_BRACES = r"\{(?:[^{}\"]++|" + _QUOTED + r")*+\}"
for _ in range(4):  # as deep as XLA nests them
    _BRACES = r"\{(?:[^{}\"]++|" + _QUOTED + "|" + _BRACES + r")*+\}"
_NOISES = ("metadata", "backend_config", "frontend_attributes", "origin", "sharding")
_NOISE = re.compile(rf", (?:{'|'.join(_NOISES)})=(?:{_BRACES}|{_QUOTED}|[^,{{\n]*)")
_USUAL_METADATA = re.compile(r', metadata=\{op_name="[^"\\{}]*"[^"{}]*\}')
"""A common case of `_NOISE`; a pattern that starts with plain text is several times faster."""
_NAME_LIST = r"%?[\w.\-+]++(?:, %?[\w.\-]++)*+"
_USUAL = re.compile(
    rf"\s+(ROOT )?(%?)([\w.\-]+) = (\w+\[[\d,]*\](?:\{{[\d,]*\}})?) ([\w\-]+)\(((?:{_NAME_LIST})?)\)"
    rf"((?:, (?!{'|'.join(_NOISES)}|\w*_computations)\w+=(?:\{{[^{{}}\"%]*+\}}|%?[\w.\->]++)(?=,|$))*+)"
    r'(?:, metadata=\{op_name="([^"\\]*)"([^"{}]*)\})?$'
)
"""A line with one array as its result, and only names, numbers and metadata after its operands."""


@dataclass
class HloLine:
    """One instruction of an HLO module.

    Attributes:
        name: Its name, without `%`.
        opcode: `fusion`, `dot`, `add`, ...
        shapes: Dtype and sizes of each array in its result.
        operands: Names of its operands.
        op_name: Its op name from JAX, or `""`.
        calls: Names of the computations it calls, each with the attribute (`calls`, `body`, `to_apply`, ...).
        attributes: The text after the operands.
        literal: The text between the parentheses.
        is_root: True if it returns the result of its computation.
        written: The line as input of `tidy`, which produces the displayed line.
        trips: Trip count of a loop, if XLA can determine it.
        place: Its location in Python: the number of a stack frame, `"file":line`, or `""`.
    """

    name: str
    opcode: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    operands: tuple[str, ...]
    op_name: str
    calls: tuple[tuple[str, str], ...]
    attributes: str
    literal: str
    is_root: bool
    written: str
    trips: int | None = None
    place: str = ""

    @property
    def elements(self) -> int:
        """Number of items in the result."""
        return sum(prod(sizes) for _, sizes in self.shapes)

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Specs of the arrays in the result."""
        return _specs(self.shapes)


@dataclass
class Computation:
    """A computation: its name, its header, and its lines; unreadable lines are plain text."""

    name: str
    header: str
    is_entry: bool
    lines: list[HloLine | str] = field(default_factory=list)

    @property
    def instructions(self) -> list[HloLine]:
        """The lines that could be parsed."""
        return [line for line in self.lines if isinstance(line, HloLine)]


def read_module(text: str, known: dict[str, HloLine | str] | None = None) -> tuple[str, list[Computation]]:
    """Return the name of the module and its computations, in the order of the text.

    Args:
        text: The text of the module.
        known: Cache of parsed lines; new lines are added. The texts of many passes share most lines.
    """
    title = "HloModule"
    computations: list[Computation] = []
    current: Computation | None = None
    for line in text.splitlines():
        if current is not None:
            if line.startswith("}"):
                current = None
            elif line.strip():
                found = None if known is None else known.get(line)
                if found is None:
                    found = read_line(line)
                    if known is not None:
                        known[line] = found
                current.lines.append(found)
        elif line.startswith("HloModule "):
            title = line.split(",", 1)[0].rstrip()
        elif name := opened_by(line):
            current = Computation(name, line, line.startswith("ENTRY "))
            computations.append(current)
    return title, computations


def read_line(line: str) -> HloLine | str:
    """Return the instruction on a line, or the line itself if it cannot be read."""
    return _usual_line(line) or _any_line(line)


def _usual_line(line: str) -> HloLine | None:
    """Return the instruction on a line in the usual form, in a third of the time."""
    match = _USUAL.match(line)
    if match is None:
        return None
    root, sign, name, result, opcode, literal, attributes, op_name, metadata = match.groups()
    takes_nothing = opcode in ("constant", "parameter")
    if not sign and not takes_nothing:
        literal = _OPERAND_NAME.sub(r"%\1", literal)
        attributes = _NAMED.sub(_with_signs, attributes)
    return HloLine(
        name,
        opcode,
        _arrays(result),
        () if takes_nothing else tuple(OPERAND.findall(literal)),
        op_name or "",
        tuple(_CALLED.findall(attributes)) if attributes else (),
        attributes,
        literal,
        root is not None,
        f"  {root or ''}%{name} = {result} {opcode}({literal}){attributes}",
        place=_place(metadata) if metadata else "",
    )


def _any_line(line: str) -> HloLine | str:
    match = _HEAD.match(line)
    if match is None:
        return line
    place = match.end()
    type_end = _closing(line, place) + 1 if line[place : place + 1] == "(" else line.find(" ", place)
    start = line.find("(", type_end)
    end = _closing(line, start) if type_end > 0 and start > 0 else -1
    opcode = line[type_end:start].strip() if end > 0 else ""
    if not _is_opcode(opcode):
        return line
    literal = line[start + 1 : end]
    attributes, dropped = _without_noise(line[end + 1 :])
    if not match.group(2) and opcode not in ("constant", "parameter"):  # JAX's own printer omits the signs
        literal = _OPERAND_NAME.sub(r"%\1", literal)
        attributes = _NAMED.sub(_with_signs, attributes)
    name = _OP_NAME.search(dropped) if dropped else None
    metadata = dropped[: name.start()] + dropped[name.end() :] if name else dropped  # a scope may have any name
    calls: list[tuple[str, str]] = _CALLED.findall(attributes) if "=" in attributes else []
    for branches in _BRANCHES.findall(attributes) if "s={" in attributes else ():
        calls.extend(("branch", what.strip().lstrip("%")) for what in branches.split(",") if what.strip())
    trips = _TRIPS.search(dropped) if "known_trip_count" in dropped else None
    estimate = _estimate(dropped) if "cost_estimate" in dropped else ""
    result = line[place:type_end]
    indent = "  ROOT " if match.group(1) else "  "
    shown_literal = "{...}" if opcode == "constant" and len(literal) > 200 else literal
    return HloLine(
        match.group(3),
        opcode,
        _arrays(result),
        () if opcode in ("constant", "parameter") else tuple(OPERAND.findall(literal)),
        read_xla(name.group(1)[1:-1]) if name else "",
        tuple(calls),
        attributes + estimate,
        literal,
        match.group(1) is not None,
        f"{indent}%{match.group(3)} = {result} {opcode}({shown_literal}){attributes}",
        int(trips.group(1)) if trips else None,
        _place(metadata) if "metadata" in dropped else "",
    )


def _place(metadata: str) -> str:
    frame = _FRAME.search(metadata)
    if frame is not None:
        return frame.group(1)
    file, line, end = (pattern.search(metadata) for pattern in (_FILE, _FILE_LINE, _FILE_END))
    if file is None or line is None:
        return ""
    return f"{file.group(1)}:{line.group(1)}" + (f":0 to {end.group(1)}:0" if end else "")


def _estimate(config: str) -> str:
    """Return the cost estimate of a custom call as an attribute: `", cost_estimate={flops=5,bytes_accessed=7}"`."""
    found = _ESTIMATED.findall(config[config.index("cost_estimate") :])
    return f", cost_estimate={{{','.join(f'{name}={number}' for name, number in found)}}}"


def attribute_pairs(attributes: str) -> tuple[tuple[str, str], ...]:
    """Return the attributes of an instruction as names and values.

    Examples:
        >>> attribute_pairs(", dimensions={0,1}, to_apply=%add.1")
        (('dimensions', '{0,1}'), ('to_apply', '%add.1'))
        >>> attribute_pairs(", replica_groups=mesh['a'=2,'b'=4] {'b'}, dimensions={0}")[0]
        ('replica_groups', "mesh['a'=2,'b'=4] {'b'}")
    """
    return _pairs(attributes) if "=" in attributes else ()


@lru_cache(maxsize=4096)
def _pairs(attributes: str) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    place = 0
    while (match := _ATTRIBUTE.search(attributes, place)) is not None:
        start = match.end()
        groups = _GROUPS.match(attributes, start)
        if groups is not None:
            end = groups.end()
        elif attributes[start : start + 1] in ("{", "("):
            end = _closing(attributes, start) + 1
        else:
            quoted = re.compile(_QUOTED).match(attributes, start)
            end = quoted.end() if quoted else attributes.find(",", start)
        end = end if end > 0 else len(attributes)
        found.append((match.group(1), attributes[start:end]))
        place = end
    return tuple(found)


@lru_cache(maxsize=4096)
def _specs(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(sizes, HLO_DTYPES.get(dtype, dtype)) for dtype, sizes in shapes)


@lru_cache(maxsize=4096)
def _arrays(result: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return dtype and sizes of each array in the type of a result."""
    return tuple((dtype, sizes_in(sizes)) for dtype, sizes in _ARRAY.findall(result))


@lru_cache(maxsize=1024)
def _is_opcode(text: str) -> bool:
    return re.fullmatch(r"[\w\-]+", text) is not None


@lru_cache(maxsize=4096)
def sizes_in(text: str) -> tuple[int, ...]:
    """Return the sizes in a list such as `"8,<=64"`."""
    return tuple(int(size.lstrip("<=")) for size in text.split(",") if size.lstrip("<=").isdigit())


def _closing(line: str, start: int) -> int:
    """Return the position where the bracket opened at `start` closes, ignoring quoted text, or -1."""
    if start < 0:
        return -1
    end = line.find(")", start)
    if line[start] == "(" and end > 0 and line.find("(", start + 1, end) < 0 and line.find('"', start, end) < 0:
        return end  # the usual case
    depth = 0
    for match in _BRACKET.finditer(line, start):
        char = match.group()
        if char in "({[":
            depth += 1
        elif char in ")}]":
            depth -= 1
            if depth == 0:
                return match.start()
    return -1


def _without_noise(attributes: str) -> tuple[str, str]:
    """Return the attributes that are shown, and the text of the hidden ones."""
    dropped: list[str] = []

    def drop(match: re.Match[str]) -> str:
        dropped.append(match.group())
        return ""

    return _NOISE.sub(drop, attributes), "".join(dropped)


def tidy_module(text: str) -> str:
    """Return the text of a module without metadata, tables of source files, and default layouts.

    Unlike `read_module` it parses nothing, so it is fast: the passes of a large program are hundreds of megabytes.
    """
    start = text.find("\n\n", text.find("\nStackFrames\n")) if "\nStackFrames\n" in text else text.find("\n\n")
    title, body = text.split(",", 1)[0].rstrip(), text[max(start, 0) :]
    body = _USUAL_METADATA.sub("", body)
    if any(f", {noise}=" in body for noise in _NOISES):
        body = _NOISE.sub("", body)
    return f"{title}\n\n{tidy(body).strip()}\n"


def tidy(text: str) -> str:
    """Return lines of a module in the form shown to the user: without index comments and default layouts."""
    return _plain_layouts(_INDEX.sub("", text) if "/*" in text else text)


def _with_signs(match: re.Match[str]) -> str:
    signed = re.sub(r"[\w.-]+", lambda name: f"%{name.group()}", match.group(2))
    return f"{match.group(1)}={signed}"


def _plain_layouts(text: str) -> str:
    """Remove layouts in which the last axis varies fastest, which is the default."""
    for layout in _USUAL_LAYOUTS:
        text = text.replace(layout, "]")
    return _LAYOUT.sub(lambda match: _layout(match.group(1)), text) if "]{" in text else text


@lru_cache(maxsize=256)
def _layout(axes: str) -> str:
    order = [int(axis) for axis in axes.split(",") if axis]
    return "]" if order == sorted(order, reverse=True) else f"]{{{axes}}}"
