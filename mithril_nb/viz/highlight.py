"""Colours for code: three small Pygments lexers, since Pygments has none for jaxpr, StableHLO and HLO."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from pygments.lexer import Lexer, RegexLexer, bygroups
from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text, Token

_TYPES = r"(?:(?:bf|f|s|u|i|ui|si|c|key<|float|int|uint|complex)\d+[a-z0-9]*>?|bool|pred|token|index)"
_STRING = (r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', String)
_NUMBER = (r"(?<![\w.])-?(?:0x[0-9A-Fa-f]+|\d+\.?\d*(?:[eE][+-]?\d+)?|inf|nan)(?![\w])", Number)


class JaxprLexer(RegexLexer):
    """Jaxpr as JAX prints it: `c:f32[32,10] = dot_general[...] a b`."""

    name = "jaxpr"
    tokens = {  # noqa: RUF012 (Pygments' own way)
        "root": [
            (r"#[^\n]*", Comment),
            _STRING,
            (r"\b(lambda|let|in)\b", Keyword),
            (r"(:)(" + _TYPES + r")((?:\[[^\]\n]*\])?)", bygroups(Operator, Keyword.Type, Keyword.Type)),
            (r"(=)(\s+)([A-Za-z_][\w-]*)", bygroups(Operator, Text, Name.Function)),
            _NUMBER,
            (r"[A-Za-z_]\w*(?==)", Name.Attribute),
            (r"[A-Za-z_][\w.-]*", Text),
            (r"[^\w\s\"'#:=-]+|[-:=]", Operator),
            (r"\s+|.", Text),
        ]
    }


class StableHloLexer(RegexLexer):
    """StableHLO in MLIR's textual form."""

    name = "StableHLO"
    tokens = {  # noqa: RUF012
        "root": [
            (r"//[^\n]*", Comment),
            (r"\bloc\([^)\n]*\)|#loc\w*", Comment),
            _STRING,
            (r"\b(?:tensor|tuple|memref|vector)<[^>\n]*>|![\w.]+(?:<[^>\n]*>)?|\b" + _TYPES + r"\b", Keyword.Type),
            (r"[%^][\w.#-]+", Name.Variable),
            (r"@[\w.$-]+", Name.Label),
            (r"\b(module|func\.func|func|return|call|attributes|public|private|cond|do)\b", Keyword),
            (r"\b(?:stablehlo|chlo|mhlo|sdy|func|arith)\.[\w.]+", Name.Function),
            _NUMBER,
            (r"[A-Za-z_][\w.]*(?=\s*=)", Name.Attribute),
            (r"[A-Za-z_][\w.]*", Text),
            (r"[^\w\s\"%^@#!/-]+|[-/#!]", Operator),
            (r"\s+|.", Text),
        ]
    }


class HloLexer(RegexLexer):
    """HLO as XLA prints it: `%dot.3 = f32[32,10]{1,0} dot(%a, %b), ...`."""

    name = "HLO"
    tokens = {  # noqa: RUF012
        "root": [
            (r"/\*.*?\*/|//[^\n]*", Comment),
            (r"(?<=metadata=)\{[^}\n]*\}", Comment),
            _STRING,
            (r"\b(HloModule|ENTRY|ROOT)\b", Keyword),
            (r"%[\w.-]+", Name.Variable),
            (r"\b" + _TYPES + r"\[[^\]\n]*\](?:\{[^}\n]*\})?", Keyword.Type),
            (r"[a-z][\w-]*(?=\()", Name.Function),
            (r"[A-Za-z_]\w*(?==)", Name.Attribute),
            _NUMBER,
            (r"[A-Za-z_][\w.-]*", Text),
            (r"[^\w\s\"'%/-]+|[-/]", Operator),
            (r"\s+|.", Text),
        ]
    }


_LEXERS: dict[str, type[Lexer]] = {
    "jaxpr": JaxprLexer,
    "stablehlo": StableHloLexer,
    "hlo": HloLexer,
    "python": PythonLexer,
}

# Most special first; what is none of these is plain text, so that a page of code is no heavier than it must be.
_CLASSES = (
    (Keyword.Type, "t"),
    (Keyword, "k"),
    (Name.Function, "f"),
    (Name.Label, "f"),
    (Number, "m"),
    (String, "s"),
    (Comment, "c"),
)


@cache
def _class_of(token: Any) -> str:
    return next((name for kind, name in _CLASSES if token in kind), "")


def highlighted(text: str, language: str) -> Iterator[list[tuple[str, str]]]:
    """Yield the lines of a text, each as pairs of a class and a piece of text.

    Args:
        text: The text; every character of it comes out again, but for the line ends.
        language: `"jaxpr"`, `"stablehlo"`, `"hlo"` or `"python"`; any other is plain text.

    Yields:
        For each line its pieces. The classes are `k` keyword, `f` operation, `t` type, `m` number, `s` string,
        `c` comment, and `""` for the rest.

    Examples:
        >>> list(highlighted("b:f32[2] = add a 1.0", "jaxpr"))[0]
        [('', 'b:'), ('t', 'f32[2]'), ('', ' = '), ('f', 'add'), ('', ' a '), ('m', '1.0')]
    """
    kind = _LEXERS.get(language)
    if kind is None:
        for plain in text.split("\n"):
            yield [("", plain)] if plain else []
        return
    lexer = kind(stripnl=False, ensurenl=False)
    # The raw call: get_tokens would turn line ends into others and drop a byte order mark.
    line: list[tuple[str, str]] = []
    for _, token, value in lexer.get_tokens_unprocessed(text):
        look = "" if token in Token.Error else _class_of(token)
        for at, piece in enumerate(value.split("\n")):
            if at:
                yield line
                line = []
            if piece:
                if line and line[-1][0] == look:
                    line[-1] = (look, line[-1][1] + piece)
                else:
                    line.append((look, piece))
    yield line
