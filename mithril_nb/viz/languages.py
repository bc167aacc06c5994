r"""Syntax colours for the code of each stage. They come from a JSON file that the front end reads, too.

`tokens.json` has a list of rules for each language. A rule is a regular expression and the name of a token. At each
position of a line, the first rule that matches takes the matched text; without a match, the character is plain text. A
rule may have a second expression: the token then ends where the second one matches, even on a later line. Expressions
must mean the same in Python and JavaScript: `\w` and `\d` are ASCII, and `.` and `\s` are not used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from mithril_nb.viz.text import escaped

_DATA = json.loads((Path(__file__).parent / "tokens.json").read_text(encoding="utf-8"))
_LONGEST: int = _DATA["longest"]
# CSS classes of tokens. Other tokens have no class, which makes pages smaller.
_CLASSES = {"op": "f", "meta": "k", "type": "t", "number": "m", "string": "s", "comment": "c"}


@dataclass(frozen=True)
class _Rule:
    pattern: re.Pattern[str]
    name: str | None
    close: re.Pattern[str] | None


@cache
def _rules(language: str) -> tuple[_Rule, ...]:
    return tuple(
        _Rule(re.compile(pattern, re.ASCII), name, re.compile(close[0]) if close else None)
        for pattern, name, *close in _DATA["languages"].get(language, ())
    )


def highlighted(text: str, language: str) -> Iterator[list[tuple[str, str]]]:
    """Yield each line as pairs of a CSS class and a piece of text."""
    for line in tokens(text, language):
        pieces: list[tuple[str, str]] = []
        for name, piece in line:
            class_ = _CLASSES.get(name, "")
            # Pieces of one class are joined: each element costs a page 20 bytes or more.
            if pieces and pieces[-1][0] == class_:
                pieces[-1] = class_, pieces[-1][1] + piece
            else:
                pieces.append((class_, piece))
        yield pieces


def code_html(pieces: Iterable[tuple[str, str]]) -> str:
    """Return a line as HTML from the pieces that `highlighted` yields."""
    return "".join(f'<span class="{look}">{escaped(text)}</span>' if look else escaped(text) for look, text in pieces)


def tokens(text: str, language: str) -> Iterator[list[tuple[str, str]]]:
    """Yield the tokens of each line as pairs (name, text). The name of plain text is `""`."""
    rules = _rules(language)
    open_rule: _Rule | None = None
    for line in text.split("\n"):
        pieces: list[tuple[str, str]] = []
        # A constant of a program may be a line of a million characters. Its end has no colours.
        at, end = 0, min(len(line), _LONGEST) if rules else 0
        while at < end:
            start, name = at, ""
            if open_rule is None:
                for rule in rules:
                    match = rule.pattern.match(line, at, end)
                    # A rule that matches nothing would be tried at the same position forever.
                    if match and match.end() > at:
                        at, name = match.end(), rule.name or ""
                        open_rule = rule if rule.close else None
                        break
                else:
                    at += 1
            if open_rule is not None and open_rule.close is not None:
                closed = open_rule.close.search(line, at, end)
                at, name = closed.end() if closed else end, open_rule.name or ""
                open_rule = None if closed else open_rule
            pieces.append((name, line[start:at]))
        if line[end:]:
            pieces.append(("", line[end:]))
        yield pieces
