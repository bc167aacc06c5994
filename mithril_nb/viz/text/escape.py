"""Escape text for XML, HTML and terminals, whatever characters it contains."""

from __future__ import annotations

import re
from html import escape
from urllib.parse import quote

# Forbidden in XML 1.0 even when escaped, lone surrogates included: one of them makes a browser reject the whole SVG.
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# Characters that a terminal interprets or cannot print: controls, changes of direction, lone surrogates.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTROL = re.compile(rf"(?![\t\n]){_UNPRINTABLE.pattern}")
_BREAKS = re.compile("[\t\n\v\f\r\x85\u2028\u2029]+")


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
    r"""Return the text as a one-line label: runs of line breaks and tabs become `⏎`, unprintable characters escapes.

    Examples:
        >>> one_line("a\nb")
        'a⏎b'
        >>> print(one_line("\x1b[31mred"))
        \x1b[31mred
    """
    return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], _BREAKS.sub("⏎", text))


def visible(text: str) -> str:
    r"""Escape the characters that a terminal would interpret; keep line breaks and tabs.

    Examples:
        >>> print(visible("\x1b[31mred\nblue"))
        \x1b[31mred
        blue
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def block_key(path: str) -> str:
    """Return a block's path as one word, for the attributes that link lines, boxes and rows.

    Examples:
        >>> block_key("a b/c")
        'a%20b/c'
    """
    return quote(path, safe="/()%", errors="replace")
