"""Find computations, instructions and names in the text of an HLO module without reading whole lines."""

from __future__ import annotations

import re

OPERAND = re.compile(r"%([\w.\-]+)")
"""A name with its sign, as in the operands of an instruction."""
# For example: ENTRY %main.5 (x: f32[4]) -> f32[4] {
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .*)?\{\s*$")
# For example: ROOT %add.1 = f32[4]{0} add(%x, %y)
_INSTRUCTION = re.compile(r"^[ \t]+(?:ROOT )?%?([\w.\-]+) = ", re.MULTILINE)
_NAME = re.compile(r"%?([\w.\-]+)")


def opened_by(line: str) -> str:
    """Return the name of the computation that a line of a module opens; `""` if it opens none.

    Examples:
        >>> opened_by("ENTRY %main (x: f32[2]) -> f32[2] {"), opened_by("region_0.1 {"), opened_by("  x = add(y)")
        ('main', 'region_0.1', '')
    """
    match = None if line[:1] in ("", " ", "}") else _COMPUTATION.match(line)
    return "" if match is None else match.group(1)


def instruction_names(text: str) -> list[str]:
    r"""Return the names of all instructions in a text, without reading the rest: a large program has many passes.

    Examples:
        >>> instruction_names("ENTRY %main {\n  %x.1 = f32[] parameter(0)\n  ROOT %y = f32[] negate(%x.1)\n}")
        ['x.1', 'y']
    """
    return _INSTRUCTION.findall(text)


def names_in(value: str) -> list[str]:
    """Return the names in the value of an attribute, which is one computation or a list of them.

    JAX's own printer omits the signs.

    Examples:
        >>> names_in("%body.1"), names_in("{%true.2, false.3}")
        (['body.1'], ['true.2', 'false.3'])
    """
    return _NAME.findall(value)


def split(text: str) -> list[str]:
    """Return the parts between commas that are outside of brackets and quotes.

    Examples:
        >>> split('f32[2,3], (a, b), "x, y"')
        ['f32[2,3]', '(a, b)', '"x, y"']
    """
    parts, start, depth, quoted = [], 0, 0, False
    for place, char in enumerate(text):
        if char == '"' and text[place - 1 : place] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif char in "({[":
            depth += 1
        elif char in ")}]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    return [part for part in [*parts, text[start:].strip()] if part]
