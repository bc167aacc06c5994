r"""Colours for code, from one definition that the front end reads too: `tokens.json` beside this file.

For each language it lists rules, a regular expression and the name of a token each. At each place of a line the first
rule that fits takes what it fits on; a character that none takes is plain. A rule with a third item starts a token
that goes on, over line ends, until that expression is found. The expressions mean the same in Python and in
JavaScript: `\w` and `\d` are ASCII, and there is no `.` and no `\s`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_DATA = json.loads((Path(__file__).parent / "tokens.json").read_text(encoding="utf-8"))
_LONGEST: int = _DATA["longest"]
_LOOKS = {"op": "f", "meta": "k", "type": "t", "number": "m", "string": "s", "comment": "c"}
"""How tokens are drawn; all others are plain text, so that a page of code is no heavier than it must be."""


@dataclass(frozen=True)
class _Rule:
    pattern: re.Pattern[str]
    name: str | None
    close: re.Pattern[str] | None


@cache
def _rules(language: str) -> tuple[_Rule, ...]:
    language = _DATA["stages"].get(language, language)
    return tuple(
        _Rule(re.compile(pattern, re.ASCII), name, re.compile(close[0]) if close else None)
        for pattern, name, *close in _DATA["languages"].get(language, ())
    )


def tokens(text: str, language: str) -> Iterator[list[tuple[str, str]]]:
    """Yield the tokens of each line as pairs of a name and a piece of text; what is plain has none.

    Args:
        text: The text.
        language: The name of a stage or of a language in `tokens.json`; any other has no tokens.

    Examples:
        >>> list(tokens("b:f32[2] = add a 1.0", "jaxpr"))[0]
        [('value', 'b'), ('type', 'f32[2]'), ('punctuation', '='), ('op', 'add'), ('value', 'a'), ('number', '1.0')]
    """
    for line in _read(text, language):
        yield [(name, piece) for name, piece in line if name]


def highlighted(text: str, language: str) -> Iterator[list[tuple[str, str]]]:
    """Yield the lines of a text, each as pairs of a class and a piece of text.

    Args:
        text: The text; every character of it comes out again, but for the line ends.
        language: The name of a stage, such as `"jaxpr"` or `"hlo"`; any other is plain text.

    Yields:
        For each line its pieces. The classes are `k` keyword, `f` operation, `t` type, `m` number, `s` string,
        `c` comment, and `""` for the rest.

    Examples:
        >>> list(highlighted("b:f32[2] = add a 1.0", "jaxpr"))[0]
        [('', 'b:'), ('t', 'f32[2]'), ('', ' = '), ('f', 'add'), ('', ' a '), ('m', '1.0')]
    """
    for line in _read(text, language):
        pieces: list[tuple[str, str]] = []
        for name, piece in line:
            look = _LOOKS.get(name, "")
            if pieces and pieces[-1][0] == look:
                pieces[-1] = look, pieces[-1][1] + piece
            else:
                pieces.append((look, piece))
        yield pieces


def _read(text: str, language: str) -> Iterator[list[tuple[str, str]]]:
    """Yield every piece of each line with the name of its token, or `""`."""
    rules = _rules(language)
    goes_on: _Rule | None = None
    for line in text.split("\n"):
        found: list[tuple[str, str]] = []
        at, end = 0, min(len(line), _LONGEST) if rules else 0
        while at < end:
            start, name = at, ""
            if goes_on is None:
                for rule in rules:
                    match = rule.pattern.match(line, at, end)
                    if match and match.end() > at:
                        at, name = match.end(), rule.name or ""
                        goes_on = rule if rule.close else None
                        break
                else:
                    at += 1
            if goes_on is not None and goes_on.close is not None:
                closed = goes_on.close.search(line, at, end)
                at, name = closed.end() if closed else end, goes_on.name or ""
                goes_on = None if closed else goes_on
            found.append((name, line[start:at]))
        if line[end:]:
            found.append(("", line[end:]))
        yield found
