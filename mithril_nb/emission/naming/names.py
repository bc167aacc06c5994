"""Names of functions and arrays in emitted source: readable, unique, and valid in Python and C."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable

_C = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while bool true "
    "false NULL main memcpy memset malloc free printf size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t "
    "uint64_t FILE assert errno math INFINITY NAN y0 y1 yn j0 j1 jn gamma signgam exp log pow sqrt sin cos tan tanh "
    "erf erfc fabs floor ceil round fmin fmax fmod cbrt expm1 log1p exp2 log2 rint trunc atan atan2 asin acos sinh "
    "cosh asinh acosh atanh lgamma tgamma div abs index rand".split()
)
_MODULES = frozenset("np torch mx math numpy mlx runtime params inputs".split())
RESERVED = (frozenset(keyword.kwlist) | frozenset(keyword.softkwlist) | frozenset(dir(builtins)) | _C | _MODULES) - {
    "input"
}
"""Names that functions and arrays must not have. `input` is allowed, because most models have an input `input`."""
_LONGEST = 40
_PART = "part_of_"


def identifier(text: str) -> str:
    """Return a name as a valid identifier in Python and C. A long name keeps its last 40 characters.

    Examples:
        >>> identifier("linear_0.weight"), identifier("2nd layer/é"), identifier("lambda"), identifier("")
        ('linear_0_weight', 'x2nd_layer', 'lambda_', 'x')
    """
    name = re.sub(r"_*[^A-Za-z0-9_]+_*", "_", text).strip("_")
    name = re.sub(r"__+", "_", name)  # C reserves double underscores
    if len(name) > _LONGEST:
        name = name[-_LONGEST:].lstrip("_")
    if not name or name[0].isdigit():
        name = f"x{name}"
    return f"{name}_" if name in RESERVED else name


def comment(text: str) -> str:
    r"""Return a name for use in a comment or docstring, with `?` for characters that could end or continue it.

    Examples:
        >>> comment('a "b"\nc')
        'a ?b??c'
    """
    return re.sub(r"[^ -~\u00a0-\u2027\u202a-\ud7ff\ue000-\U0010ffff]|[\"\\\\]", "?", text)


class UniqueNames:
    """Unique names within a scope.

    A name that is taken gets a number at its end. In a name such as `part_of_x`, the number comes after the word part,
    because `x_1` may be the name of another array.

    Examples:
        >>> names = UniqueNames(["sum_of"])
        >>> names.new("sum_of"), names.new("sum_of"), names.new("for")
        ('sum_of_1', 'sum_of_2', 'for_')
        >>> names.new("part_of_x"), names.new("part_of_x")
        ('part_of_x', 'part_2_of_x')
    """

    def __init__(self, names: Iterable[str] = ()):
        self._taken = set(names)
        self._next: dict[str, int] = {}

    def inside(self) -> UniqueNames:
        return UniqueNames(self._taken)

    def new(self, hint: str) -> str:
        name = plain = identifier(hint)
        while name in self._taken:
            self._next[plain] = number = self._next.get(plain, 0) + 1
            if plain.startswith(_PART):  # x_1 may be the name of another array
                name = f"part_{number + 1}_of_{plain.removeprefix(_PART)}"
            else:
                name = f"{plain}{'' if plain.endswith('_') else '_'}{number}"
        self._taken.add(name)
        return name
