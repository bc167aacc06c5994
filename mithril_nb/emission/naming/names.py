"""Names of functions and arrays in emitted source: readable, unique, and valid in Python and C."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable

# Functions of <math.h>, each for double, float and long double. C allows no other function with the name of one.
_MATH = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma "
    "fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan "
    "nearbyint nextafter nexttoward pow remainder remquo rint round scalbln scalbn sin sinh sqrt tan tanh tgamma "
    "trunc"
).split()
# Keywords, other functions and macros of the headers of C11 that emitted programs include, and names of POSIX.
_C = frozenset(
    (
        "FILE INFINITY NAN NULL abort abs aligned_alloc assert at_quick_exit atexit atof atoi atol atoll auto bool "
        "break bsearch calloc case char clearerr const continue default div do double else enum errno exit extern "
        "false fclose feof ferror fflush fgetc fgetpos fgets float fopen for fpclassify fprintf fputc fputs fread "
        "free freopen fscanf fseek fsetpos ftell fwrite gamma getc getchar getenv goto if index inline int int16_t "
        "int32_t int64_t int8_t isfinite isgreater isgreaterequal isinf isless islessequal islessgreater isnan "
        "isnormal isunordered j0 j1 jn labs ldiv llabs lldiv long main malloc math math_errhandling mblen mbstowcs "
        "mbtowc memchr memcmp memcpy memmove memset offsetof perror printf putc putchar puts qsort quick_exit rand "
        "realloc register remove rename restrict return rewind scanf setbuf setvbuf short signbit signed signgam "
        "size_t sizeof snprintf sprintf srand sscanf static static_assert stderr stdin stdout strcat strchr strcmp "
        "strcoll strcpy strcspn strerror strlen strncat strncmp strncpy strpbrk strrchr strspn strstr strtod strtof "
        "strtok strtol strtold strtoll strtoul strtoull struct strxfrm switch system tmpfile tmpnam true typedef "
        "uint16_t uint32_t uint64_t uint8_t ungetc union unsigned vfprintf vfscanf void volatile vprintf vscanf "
        "vsnprintf vsprintf vsscanf wcstombs wctomb while y0 y1 yn"
    ).split()
) | frozenset(f"{name}{suffix}" for name in _MATH for suffix in ("", "f", "l"))
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
