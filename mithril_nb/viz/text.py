"""Texts for pictures, pages and terminals: escape and shorten them, and estimate their width."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from itertools import accumulate
from typing import Any
from urllib.parse import quote

# Characters that XML 1.0 forbids even if they are escaped. A single one makes a browser reject the whole SVG.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Characters that a terminal interprets or cannot print: controls, changes of text direction, lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTROL = re.compile(rf"(?![\t\n]){_UNPRINTABLE.pattern}")
_HALVES = re.compile("[\ud800-\udfff]")
_BREAKS = re.compile("\t*[\n\v\f\r\x85\u2028\u2029][\t\n\v\f\r\x85\u2028\u2029]*")


def escaped(text: str) -> str:
    """Escape text for use as element content or as a quoted attribute in XML and HTML.

    Characters that XML does not allow become U+FFFD.

    Examples:
        >>> escaped('<b a="1">&')
        '&lt;b a=&quot;1&quot;&gt;&amp;'
        >>> escaped("a" + chr(0))
        'a�'
    """
    return escape(_FORBIDDEN.sub("\ufffd", text), quote=True)


def one_line(text: str) -> str:
    r"""Return the text as a one-line label: line breaks become `⏎`, and tabs spaces.

    Characters that a terminal cannot print become escapes such as `\x1b`.

    Examples:
        >>> one_line("a\nb")
        'a⏎b'
        >>> print(one_line("\x1b[31mred"))
        \x1b[31mred
    """
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], _BREAKS.sub("⏎", text).replace("\t", " "))


def visible(text: str) -> str:
    r"""Escape the characters that a terminal would interpret or cannot print; keep line breaks and tabs.

    Examples:
        >>> print(visible("\x1b[31mred\nblue"))
        \x1b[31mred
        blue
    """
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def encodable(data: Any) -> Any:
    """Return plain data as UTF-8 can encode it: half of a surrogate pair in a text becomes U+FFFD.

    Examples:
        >>> encodable({"name": ["naïve", chr(0xD800), b"0"]})
        {'name': ['naïve', '�', b'0']}
    """
    if isinstance(data, str):
        # Checking this takes no time, and most texts are ASCII.
        return data if data.isascii() else _HALVES.sub("\ufffd", data)
    if isinstance(data, Mapping):
        return {encodable(key): encodable(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [encodable(value) for value in data]
    return data


def block_key(path: str) -> str:
    """Return the path of a block percent-encoded, without spaces.

    It is an HTML attribute of code lines, graph nodes and table rows, which links them.

    Examples:
        >>> block_key("a b/c")
        'a%20b/c'
    """
    return quote(path, safe="/()%", errors="replace")


def cut_text(text: str, most_lines: int | None) -> str:
    """Return the first `most_lines` lines of a text, and how many more there are; `None` returns all lines."""
    lines = text.rstrip("\n").split("\n")
    if most_lines is None or len(lines) <= most_lines:
        return "\n".join(lines)
    return "\n".join([*lines[:most_lines], f"... {count_more(len(lines) - most_lines)}"])


def count_more(count: int) -> str:
    """Return the text `"3 more lines"` for a count of 3."""
    return f"{count:,} more line{'' if count == 1 else 's'}"


def times(name: str, repeat: int) -> str:
    """Return a name, with its repeat count if the count is above 1.

    Examples:
        >>> times("up", 12), times("head", 1)
        ('up ×12', 'head')
    """
    return f"{name} ×{repeat}" if repeat > 1 else name


def listed(names: Sequence[str], most: int, between: str = ", ") -> str:
    """Join the first `most` names, and append the number of the others.

    Examples:
        >>> listed(["a", "b", "c"], 2), listed(["a", "b"], 2)
        ('a, b and 1 more', 'a, b')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{between.join(names[:most])}{more}"


def outer_paths(path: str) -> list[str]:
    """Return the paths of the blocks around a block, from the outside in, and then the path of the block.

    Examples:
        >>> outer_paths("net/mlp/up"), outer_paths("")
        (['net', 'net/mlp', 'net/mlp/up'], [])
    """
    return list(accumulate(path.split("/"), "{}/{}".format)) if path else []


# Widths of characters in hundredths of the font size, in a wide UI font. Other fonts are narrower, so the text fits.
_CLASSES = {
    30: "ijl|.,:;'!",
    34: " `",
    40: 'ftIr()[]/\\-"',
    54: "csJkvxyz",
    60: "abdeghnopqu_*?LFE$#^{}",
    64: "0123456789",
    68: "TZSXYVKPABR~+<>=",
    76: "CDGHNOQU&",
    84: "w→←×",
    92: "mMW%@…",
}
_WIDTHS = {char: width for width, chars in _CLASSES.items() for char in chars}
_USUAL = 60


@lru_cache(maxsize=1 << 14)  # layouts measure the same names again
def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width in px of one line of text in a common sans font of `size` px.

    Examples:
        >>> text_width("ii", 10) < text_width("mm", 10) < text_width("mm", 10, bold=True)
        True
    """
    total = 0
    for char in text:
        width = _WIDTHS.get(char)
        if width is None:
            # Accents that are separate characters have no width of their own.
            if unicodedata.combining(char):
                width = 0
            else:
                # East Asian characters are squares.
                width = 104 if unicodedata.east_asian_width(char) in "WF" else _USUAL
        total += width
    return total * size / 100 * (1.11 if bold else 1.0)


def elide(text: str, size: float, width: float, *, bold: bool = False) -> str:
    """Return the text. If it is wider than `width` px, its middle is replaced by `…`.

    The end is kept because names often differ in their ends: `linear_0`, `linear_1`.

    Examples:
        >>> elide("short", 12, 100)
        'short'
        >>> elide("a_very_long_name_of_a_block_12", 12, 100)
        'a_very_lo…k_12'
    """
    if text_width(text, size, bold=bold) <= width:
        return text
    # The width grows with the number of characters that remain, so a binary search finds it.
    low, high = 0, len(text)
    while low < high:
        keep = (low + high + 1) // 2
        if text_width(_cut(text, keep), size, bold=bold) <= width:
            low = keep
        else:
            high = keep - 1
    return _cut(text, low)


def _cut(text: str, keep: int) -> str:
    tail = keep // 3
    return text[: keep - tail] + "…" + (text[-tail:] if tail else "")
