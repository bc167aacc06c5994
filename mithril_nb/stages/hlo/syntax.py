"""The syntax of HLO text: the only module that matches heads, types, attributes and op names.

XLA promises no stable format, so a line that cannot be read stays text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.records import Attributes

# XLA and MLIR shorten `float` and drop the underscores: f8e4m3fn, f8E4M3FN.
_SMALL_FLOATS = (
    "float4_e2m1fn", "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
    "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip
_SHORT_FLOATS = {f"f{name.removeprefix('float').replace('_', '')}": name for name in _SMALL_FLOATS}
_FLOATS = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64"}
_BITS = (2, 4, 8, 16, 32, 64)

HLO_DTYPES = {
    "pred": "bool", "c64": "complex64", "c128": "complex128", **_FLOATS, **_SHORT_FLOATS,
    **{f"s{bits}": f"int{bits}" for bits in _BITS}, **{f"u{bits}": f"uint{bits}" for bits in _BITS},
}  # fmt: skip
"""Dtypes by XLA's names: `"f8e4m3fn"` is `"float8_e4m3fn"`."""

MLIR_DTYPES = {
    "i1": "bool", "complex<f32>": "complex64", "complex<f64>": "complex128", **_FLOATS,
    **{f"f{short[1:].upper()}": name for short, name in _SHORT_FLOATS.items()},
    **{f"i{bits}": f"int{bits}" for bits in _BITS}, **{f"ui{bits}": f"uint{bits}" for bits in _BITS},
}  # fmt: skip
"""Dtypes by MLIR's names: `"f8E4M3FN"` is `"float8_e4m3fn"`."""

# For example: \C3 in \C3\A9: MLIR writes bytes of UTF-8 as two hexadecimal digits
_MLIR = re.compile(rb"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)
# For example: \303 in \303\251: XLA writes bytes of UTF-8 as three octal digits
_XLA = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_LETTERS = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def read_mlir(text: str) -> str:
    r"""Return the decoded content of a quoted MLIR string.

    Examples:
        >>> read_mlir(r"f\CF\83"), read_mlir(r"a\22b\\c")
        ('fσ', 'a"b\\c')
    """
    return _read(text, _MLIR, 16) if "\\" in text else text


def read_xla(text: str) -> str:
    r"""Return the decoded content of a quoted XLA string.

    Examples:
        >>> read_xla(r"f\317\203"), read_xla(r"a\"b\'c")
        ('fσ', 'a"b\'c')
    """
    return _read(text, _XLA, 8) if "\\" in text else text


def _read(text: str, escape: re.Pattern[bytes], base: int) -> str:
    def byte(match: re.Match[bytes]) -> bytes:
        code = match.group(1)
        # Damaged text may contain a number above 255.
        return bytes([int(code, base) & 255]) if len(code) > 1 else _LETTERS.get(code, code)

    return escape.sub(byte, text.encode()).decode(errors="replace")


OPERAND = re.compile(r"%([\w.\-]+)")
"""A name after a `%`, as in the operands of an instruction."""
COMPUTATIONS = (
    "calls", "to_apply", "body", "condition", "branch_computations", "called_computations", "true_computation",
    "false_computation", "select", "scatter", "comparator",
)  # fmt: skip
"""Attributes whose values are names of computations."""
QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"'
# For example: ENTRY %main.5 (x: f32[4]) -> f32[4] {
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{\s*$")
# For example: ROOT %add.1 = f32[4]{0} add(%x, %y)
_HEAD = re.compile(r"^\s+(ROOT )?(%?)([\w.\-]+) = ")
# One group, so that `findall` returns plain names: the passes of a large program are hundreds of megabytes.
_INSTRUCTION = re.compile(r"^[ \t]+(?:ROOT )?%?([\w.\-]+) = ", re.MULTILINE)
_SIMPLE = re.compile(r'[^"(){}\[\]]*(?:\[[^"(){}\[\],]*\][^"(){}\[\]]*)*')  # no comma in brackets or quotes
_NAME = re.compile(r"%?([\w.\-]+)")
_OPCODE = re.compile(r"[\w\-]+")
# For example: f32[8,<=4], where XLA bounds the second size
_ARRAY = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")
# For example: num_partitions=8 in the line `HloModule jit_f, ...`
_DEVICES = re.compile(r", (replica_count|num_partitions)=(\d+)")
# For example: s32[] constant(12)
_INTEGER = re.compile(r" [su]\d+\[\] constant\((-?\d+)\)")
# For example: f32[8,4]{0,1} transpose(%x)
_RESULT_LAYOUT = re.compile(r" = \w+\[[\d,]*\]\{([\d,]+)")
_QUOTED = re.compile(QUOTED)
# For example: op_name="jit(f)/add" in metadata={...}
_OP_NAME = re.compile(rf"op_name=({QUOTED})")
# For example: stack_frame_id=3 in metadata={...}, a row of the tables at the start of the text, since jax 0.9
# (openxla/xla#36953). Older texts, and xla_hlo_print_inline_stack_frames (openxla/xla#36975), have source_file and
# source_line.
_FRAME = re.compile(r"stack_frame_id=(\d+)")
_FILE, _FILE_LINE = re.compile(rf"source_file=({QUOTED})"), re.compile(r"source_line=(\d+)")
_FILE_END = re.compile(r"source_end_line=(\d+)")
# For example: calls=%fused_computation
_CALLED = re.compile(r"\b(calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
# For example: x and y in add(x, y); jax 0.4 also wrote types: bitcast(f64[1]{0} %x)
_OPERAND_NAME = re.compile(r"([\w.\-]+)(?=,|$)")
_NAMED = re.compile(rf"\b({'|'.join(COMPUTATIONS)})=(\{{[^}}]*\}}|[\w.\-]+)")
# For example: branch_computations={%a, %b}
_BRANCHES = re.compile(r"\b(?:branch_computations|called_computations)=\{([^}]*)\}")
# For example: ]{1,0:T(8,128)(2,1)S(1)} on a TPU, with tiles and a memory space; ]{1,0} elsewhere
LAYOUT = re.compile(r"\]\{([\d,]*)(:[^{}\n]*)?\}")
# For example: , sharding={devices=[2,4]<=[8]}
_SHARDING = ", sharding="
# For example: S(1) in T(8,128)S(1)
_SPACE = re.compile(r"S\((\d+)\)")
# What follows the shapes of a result, for example: copy-start(%x), cross_program_prefetch_index=0
_OPCODE_AND_REST = re.compile(r" [a-z][a-z\d-]*\(.*")
# For example: known_trip_count":{"n":"10"} in backend_config={...}; older texts quote the whole configuration
_TRIPS = re.compile(r'known_trip_count\\?"?:?=?\{\\?"n\\?"?[:=]\\?"(\d+)')
# For example: "flops":"64" in the configuration of a Pallas kernel, the only place with the work of a custom call
_ESTIMATED = re.compile(r'(flops|transcendentals|bytes_accessed)\\?"?\s*:\s*\\?"?(-?\d+)')
# For example: "num_warps":"4","output_tiles":[{"sizes":["16","64"]}] in that of a fusion for Triton
_TILE = re.compile(r'"output_tiles":\[\{"sizes":\[([^\]]*)\]')
_WARPS = re.compile(r'"num_warps":"(\d+)"')
# For example: "estimated_cycles":"1520" in the configuration of a TPU fusion, the compiler's own estimate
_CYCLES = re.compile(r'"estimated_cycles":"(\d+)"')
# For example: "lhs_contracting_dimensions":["1"] in the configuration of a product that cuBLAS computes
_CONTRACTED = re.compile(r'"(lhs|rhs)_contracting_dimensions":\[([^\]]*)\]')
_PRECISION = re.compile(r'"operand_precision":\[([^\]]*)\]')
_ATTRIBUTE = re.compile(r", ([A-Za-z_]\w*)=")
# Groups of devices that are not lists: an iota, or axes of a mesh, as XLA prints them since JAX 0.12.
_GROUPS = re.compile(
    r"\[[\d,]+\]<=\[[\d,]+\](?:T\([\d,]+\))?"
    r"|(?:maximal_)?mesh\[[^\]]*\](?:, device_ids=\((?:[^()]|\([^()]*\))*\))? \{[^}]*\}"
)
_BRACKET = re.compile(rf"{QUOTED}|[(){{}}\[\]]")
_BRACES = r"\{(?:[^{}\"]++|" + QUOTED + r")*+\}"
for _ in range(4):  # as deep as XLA nests them
    _BRACES = r"\{(?:[^{}\"]++|" + QUOTED + "|" + _BRACES + r")*+\}"
NOISES = ("metadata", "backend_config", "frontend_attributes", "origin", "sharding")
NOISE = re.compile(rf", (?:{'|'.join(NOISES)})=(?:{_BRACES}|{QUOTED}|[^,{{\n]*)")
# Possessive repeats (`++`): a line in another form fails at once, instead of after every way to split its names.
_NAME_LIST = r"%?[\w.\-+]++(?:, %?[\w.\-]++)*+"
# The form of most lines: one array as the result, and only names, numbers and metadata after the operands.
_USUAL = re.compile(
    rf"\s+(ROOT )?(%?)([\w.\-]+) = (\w+\[[\d,]*\](?:\{{[\d,]*\}})?) ([\w\-]+)\(((?:{_NAME_LIST})?)\)"
    rf"((?:, (?!{'|'.join(NOISES)}|\w*_computations)\w+=(?:\{{[^{{}}\"%]*+\}}|%?[\w.\->]++)(?=,|$))*+)"
    r'(?:, metadata=\{op_name="([^"\\]*)"([^"{}]*)\})?$'
)


@dataclass
class HloLine:
    """One instruction of an HLO module.

    Attributes:
        name: Name of the instruction, without `%`.
        opcode: `fusion`, `dot`, `add`, ...
        shapes: Dtype and sizes of each array in the result.
        operands: Names of the operands.
        op_name: The name that JAX gave the operation; `""` if it has none.
        calls: The computations that it runs, as pairs of the attribute and the name: `("body", "region_0.1")`.
        attributes: The text after the operands.
        literal: The text between the parentheses: the operands, the value of a constant, or the number of a parameter.
        is_root: True if its result is the result of its computation.
        text: The line without metadata.
        trips: Number of iterations of a loop; `None` if unknown, or if it is no loop.
        location: The location in Python: the number of a stack frame, or text such as `"net.py":3`; `""` if unknown.
    """

    name: str
    opcode: str
    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    operands: tuple[str, ...]
    op_name: str
    calls: Attributes
    attributes: str
    literal: str
    is_root: bool
    text: str
    trips: int | None = None
    location: str = ""

    @property
    def elements(self) -> int:
        """Number of items in the result."""
        return sum(prod(sizes) for _, sizes in self.shapes)

    @property
    def specs(self) -> tuple[TensorSpec, ...]:
        """Specs of the arrays in the result."""
        return _specs(self.shapes)


def opened_by(line: str) -> str:
    """Return the name of the computation that a line of a module opens; `""` if it opens none.

    Examples:
        >>> opened_by("ENTRY %main (x: f32[2]) -> f32[2] {"), opened_by("region_0.1 {"), opened_by("  x = add(y)")
        ('main', 'region_0.1', '')
    """
    # Nearly all lines are indented, and need no pattern.
    match = None if line[:1] in ("", " ", "}") else _COMPUTATION.match(line)
    return "" if match is None else match.group(1)


def instruction_names(text: str) -> list[str]:
    r"""Return the names of all instructions in a text, without parsing the lines, because passes have large texts.

    Examples:
        >>> instruction_names("ENTRY %main {\n  %x.1 = f32[] parameter(0)\n  ROOT %y = f32[] negate(%x.1)\n}")
        ['x.1', 'y']
    """
    return _INSTRUCTION.findall(text)


def names_in(value: str) -> list[str]:
    """Return the names in the value of an attribute, which is one computation or a list of them.

    Examples:
        >>> names_in("%body.1"), names_in("{%true.2, false.3}")
        (['body.1'], ['true.2', 'false.3'])
    """
    # The `%` before a name is optional, because JAX's own printer omits it.
    return _NAME.findall(value)


def device_counts(text: str) -> dict[str, int]:
    """Return `replica_count` and `num_partitions` from the first line of a module, as a dict.

    Examples:
        >>> device_counts("HloModule jit_f, is_scheduled=true, num_partitions=8")
        {'num_partitions': 8}
    """
    # Counts of 1 are missing, because XLA does not print them.
    return {name: int(count) for name, count in _DEVICES.findall(text.partition("\n")[0])}


def integer_in(line: str) -> int | None:
    """Return the value of the integer constant on a line; `None` if it has none."""
    match = _INTEGER.search(line)
    return int(match[1]) if match else None


def layout_in(line: str) -> tuple[int, ...]:
    """Return the minor-to-major axes of a result that is one array; `()` if the line has no layout (row-major).

    Examples:
        >>> layout_in("  %y = f32[8,4]{0,1} transpose(%x)")
        (0, 1)
    """
    match = _RESULT_LAYOUT.search(line) if "]{" in line else None
    return tuple(map(int, match[1].split(","))) if match else ()


def sharding_in(line: str) -> str:
    """Return the sharding of an instruction; `""` if the line has none.

    Examples:
        >>> sharding_in("  %a = f32[4] tanh(%x), sharding={devices=[2]<=[2]}, metadata={}")
        '{devices=[2]<=[2]}'
    """
    start = line.find(_SHARDING) + len(_SHARDING)
    return line[start : _closing(line, start) + 1] if line[start : start + 1] == "{" else ""


def spaces_in(line: str) -> tuple[int, ...]:
    """Return the memory space of each array of a result on a TPU; `()` if all are in space 0, the large memory.

    Examples:
        >>> spaces_in("  %c = (f32[8]{0:T(128)S(1)}, f32[8]{0:T(128)}, u32[]{:S(2)}) copy-start(%x)")
        (1, 0, 2)
    """
    if "S(" not in line:
        return ()
    layouts = [layout or "" for _, layout in LAYOUT.findall(_OPCODE_AND_REST.split(line)[0])]
    return tuple(int(space[1]) if (space := _SPACE.search(layout)) else 0 for layout in layouts)


def split(text: str) -> list[str]:
    """Return the parts between commas that are outside of brackets and quotes.

    Examples:
        >>> split('f32[2,3], (a, b), "x, y"')
        ['f32[2,3]', '(a, b)', '"x, y"']
    """
    if _SIMPLE.fullmatch(text):
        return [part for piece in text.split(",") if (part := piece.strip())]
    parts, start, depth, quoted = [], 0, 0, False
    for position, char in enumerate(text):
        if char == '"' and text[position - 1 : position] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif char in "({[":
            depth += 1
        elif char in ")}]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:position].strip())
            start = position + 1
    return [part for part in [*parts, text[start:].strip()] if part]


def read_line(line: str) -> HloLine | str:
    """Return the instruction on a line, or the line itself if it cannot be read."""
    return _usual_line(line) or _any_line(line)


def _usual_line(line: str) -> HloLine | None:
    # Twice as fast as `_any_line`.
    match = _USUAL.match(line)
    if match is None:
        return None
    root, sign, name, result, opcode, literal, attributes, op_name, metadata = match.groups()
    location = _location(metadata) if metadata else ""
    return _hlo_line(root, sign, name, result, opcode, literal, attributes, op_name or "", location)


def _any_line(line: str) -> HloLine | str:
    match = _HEAD.match(line)
    if match is None:
        return line
    root, sign, name = match.groups()
    position = match.end()
    type_end = _closing(line, position) + 1 if line[position : position + 1] == "(" else line.find(" ", position)
    start = line.find("(", type_end)
    end = _closing(line, start) if type_end > 0 and start > 0 else -1
    opcode = line[type_end:start].strip() if end > 0 else ""
    if not _OPCODE.fullmatch(opcode):
        return line
    noises: list[str] = []
    attributes = NOISE.sub(lambda noise: noises.append(noise.group()) or "", line[end + 1 :])
    dropped = "".join(noises)
    op_name = _OP_NAME.search(dropped)
    metadata = _OP_NAME.sub("", dropped, 1)  # a scope may have any name, also `stack_frame_id=6`
    parsed = _hlo_line(
        root,
        sign,
        name,
        line[position:type_end],
        opcode,
        line[start + 1 : end],
        attributes,
        read_xla(op_name.group(1)[1:-1]) if op_name else "",
        _location(metadata) if "metadata" in dropped else "",
    )
    trips = _TRIPS.search(dropped)
    parsed.trips = int(trips.group(1)) if trips else None
    if "backend_config" in dropped:
        config = _shown_config(dropped)
        parsed.text += config
        parsed.attributes += _from_config(dropped) + config
    return parsed


def _hlo_line(
    root: str | None,
    sign: str,
    name: str,
    result: str,
    opcode: str,
    literal: str,
    attributes: str,
    op_name: str,
    location: str,
) -> HloLine:
    takes_nothing = opcode in ("constant", "parameter")
    if not sign and not takes_nothing:  # JAX's own printer omits the signs
        literal = _OPERAND_NAME.sub(r"%\1", literal)
        attributes = _NAMED.sub(lambda match: match[1] + "=" + re.sub(r"[\w.-]+", r"%\g<0>", match[2]), attributes)
    calls: list[tuple[str, str]] = _CALLED.findall(attributes) if attributes else []
    for branches in _BRANCHES.findall(attributes) if "_computations={" in attributes else ():
        calls.extend(("branch", name) for name in names_in(branches))
    # XLA itself prints large constants as {...}; JAX, which prints HLO before the passes, writes them out.
    shown_literal = "{...}" if opcode == "constant" and len(literal) > 200 else literal
    return HloLine(
        name,
        opcode,
        arrays_in(result),
        () if takes_nothing else tuple(OPERAND.findall(literal)),
        op_name,
        tuple(calls),
        attributes,
        literal,
        root is not None,
        f"  {root or ''}%{name} = {result} {opcode}({shown_literal}){attributes}",
        location=location,
    )


def _location(metadata: str) -> str:
    frame = _FRAME.search(metadata)
    if frame is not None:
        return frame.group(1)
    file, line, end = (pattern.search(metadata) for pattern in (_FILE, _FILE_LINE, _FILE_END))
    if file is None or line is None:
        return ""
    return f"{file.group(1)}:{line.group(1)}" + (f":0 to {end.group(1)}:0" if end else "")


def _shown_config(config: str) -> str:
    text = ""
    if cycles := _CYCLES.search(config):
        text = f", estimated_cycles={cycles[1]}"
    if (tile := _TILE.search(config)) and (warps := _WARPS.search(config)):
        text += f", output_tile={{{tile[1].replace(chr(34), '')}}}, num_warps={warps[1]}"
    return text


def _from_config(config: str) -> str:
    """Return what costs need of a configuration, in the form of attributes."""
    text = ""
    if "cost_estimate" in config:
        estimates = _ESTIMATED.findall(config[config.index("cost_estimate") :])
        text = f", cost_estimate={{{','.join(f'{name}={number}' for name, number in estimates)}}}"
    if precision := _PRECISION.search(config):
        text += f", operand_precision={{{precision[1].replace(chr(34), '').lower()}}}"
    for side, axes in _CONTRACTED.findall(config):
        text += f", {side}_contracting_dims={{{axes.replace(chr(34), '')}}}"
    return text


def attribute_pairs(attributes: str) -> Attributes:
    """Return the attributes of an instruction as names and values.

    Examples:
        >>> attribute_pairs(", dimensions={0,1}, to_apply=%add.1")
        (('dimensions', '{0,1}'), ('to_apply', '%add.1'))
        >>> attribute_pairs(", replica_groups=mesh['a'=2,'b'=4] {'b'}, dimensions={0}")[0]
        ('replica_groups', "mesh['a'=2,'b'=4] {'b'}")
    """
    return _pairs(attributes) if "=" in attributes else ()


@lru_cache(maxsize=4096)
def _pairs(attributes: str) -> Attributes:
    pairs: list[tuple[str, str]] = []
    position = 0
    while (match := _ATTRIBUTE.search(attributes, position)) is not None:
        start = match.end()
        groups = _GROUPS.match(attributes, start)
        if groups is not None:
            end = groups.end()
        elif attributes[start : start + 1] in ("{", "("):
            end = _closing(attributes, start) + 1
        else:
            quoted = _QUOTED.match(attributes, start)
            end = quoted.end() if quoted else attributes.find(",", start)
        end = end if end > 0 else len(attributes)
        pairs.append((match.group(1), attributes[start:end]))
        position = end
    return tuple(pairs)


@lru_cache(maxsize=4096)
def _specs(shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(sizes, HLO_DTYPES.get(dtype, dtype)) for dtype, sizes in shapes)


@lru_cache(maxsize=4096)
def arrays_in(type: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return dtype and sizes of each array in a type.

    Examples:
        >>> arrays_in("(f32[2,3], s32[])")
        (('f32', (2, 3)), ('s32', ()))
    """
    return tuple((dtype, sizes_in(sizes)) for dtype, sizes in _ARRAY.findall(type))


@lru_cache(maxsize=4096)
def sizes_in(text: str) -> tuple[int, ...]:
    """Return the sizes in a list such as `"8,<=64"`."""
    return tuple(int(size.lstrip("<=")) for size in text.split(",") if size.lstrip("<=").isdigit())


def _closing(line: str, start: int) -> int:
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
