"""Lines of a stage without the names of variables, so that a diff ignores variables that are only renumbered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from mithril_nb.stages.stage_kinds import language_of

HOLE = "\0"
"""Placeholder of a variable in a `Line`; no text of a stage contains it."""
# A name is a definition if a colon or an equals sign follows: %0 = ..., %0:2 = ..., %arg0: tensor<f32>, a:f32[3].
_DEFINES = r"(?=:|\s*=(?!=))"
_PERCENT = re.compile(
    rf"(?P<name>%[\w$.#-]+|![0-9]+|(?<=ENTRY )[\w.-]+|(?<=[(, ])[\w.-]+(?=: ))(?P<defines>{_DEFINES})?"
)
_SYMBOLS = re.compile(rf"(?P<name>%[\w$.-]+)(?P<defines>{_DEFINES})?|(?P<symbol>@[A-Za-z$.-][\w$.-]*?)_[0-9]+\b")
_NESTED = r"\[(?:[^\[\]]|\[(?:[^\[\]]|\[[^\[\]]*\])*\])*\]"
# In a jaxpr, no `%` marks a name: skip types, params, comments, keywords and the primitive after "= ".
_JAXPR = re.compile(
    rf"{_NESTED}|= [\w.]+|#.*|\bin (?=\()|\blet$|\blambda\b|'[^']*'|[0-9.][\w.+-]*|"
    rf"(?<![\w.])(?P<name>[a-z]+)(?P<defines>(?=:[a-z]))?(?![\w.=(])"
)
_DEFINED = re.compile(r"(?<![\w.])(?!(?:inf|nan):)([a-z]+):(?=[a-z]\w*[\[<])")  # inf and nan are literals
_PATTERNS = {"jaxpr": _JAXPR, "mlir": _SYMBOLS, "hlo": _PERCENT, "llvm": _PERCENT}


class Line(NamedTuple):
    """One line of a stage.

    Attributes:
        text: The line with the placeholder `HOLE` instead of each name of a variable.
        names: The names of the variables, in order.
        defines: For each of `names`, true if the line defines it, and false if the line uses it.
    """

    text: str
    names: tuple[str, ...]
    defines: tuple[bool, ...]


def lines_without_names(text: str, stage: str) -> list[Line]:
    r"""Return the lines of a stage without the names of their variables.

    Args:
        text: The text of the stage.
        stage: Name of the stage. Lines of stages other than jaxpr, MLIR, HLO and LLVM IR are returned unchanged.

    Examples:
        >>> [line.names for line in lines_without_names("a:f32[3] = mul b 2.0\nc:f32[3] = sin a", "jaxpr")]
        [('a',), ('c', 'a')]
        >>> lines_without_names("%1 = stablehlo.add %0, %0 : tensor<f32>", "stablehlo")[0].names
        ('%1', '%0', '%0')
    """
    lines = text.removesuffix("\n").split("\n") if text else []
    language = language_of(stage)
    pattern = _PATTERNS.get(language)
    if pattern is None:
        return [Line(line, (), ()) for line in lines]
    variables = set(_DEFINED.findall(text)) if language == "jaxpr" else None
    return [_line(line, pattern, variables) for line in lines]


def _line(line: str, pattern: re.Pattern[str], variables: set[str] | None) -> Line:
    parts: list[str] = []
    names: list[str] = []
    defines: list[bool] = []
    end = 0
    for match in pattern.finditer(line):
        name = match["name"]
        if name is None:
            symbol = match.groupdict().get("symbol")
            if symbol:  # @relu_3 is @relu, numbered by JAX
                parts += (line[end : match.start()], symbol)
                end = match.end()
            continue
        if variables is not None and name not in variables:
            continue
        parts += (line[end : match.start()], HOLE)
        end = match.end()
        names.append(name)
        defines.append(match["defines"] is not None)
    return Line("".join((*parts, line[end:])), tuple(names), tuple(defines))


class Renaming:
    """A one-to-one mapping from the names of variables on the left to those on the right, built line by line.

    The last definition of a name counts, because each function of a StableHLO module defines the same names again.
    """

    def __init__(self) -> None:
        self._right: dict[str, str] = {}
        self._left: dict[str, str] = {}

    def define(self, left: Line, right: Line) -> None:
        """Map the names that the left line defines to the names that the right line defines, in order."""
        for name, other in zip(_defined(left), _defined(right), strict=False):
            self._bind(name, other)

    def agrees(self, left: Line, right: Line) -> bool:
        """Map the names that two lines with equal text define, and return whether the names that they use agree."""
        is_same = True
        for name, other, is_defined in zip(left.names, right.names, left.defines, strict=True):
            if is_defined or (name not in self._right and other not in self._left):
                self._bind(name, other)
            elif self._right.get(name) != other:
                is_same = False
        return is_same

    def _bind(self, name: str, other: str) -> None:
        self._left.pop(self._right.get(name, ""), None)
        self._right.pop(self._left.get(other, ""), None)
        self._right[name], self._left[other] = other, name


def _defined(line: Line) -> Iterator[str]:
    return (name for name, is_defined in zip(line.names, line.defines, strict=True) if is_defined)
